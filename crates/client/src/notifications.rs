//! Notifications: who hears them.

use mrtr_schema::jsonrpc::{Notification, RequestId};
use mrtr_schema::notification::{LogLevel, LogMessage, Progress, name};

use crate::client::Client;

pub(crate) type Hear<T> = dyn Fn(T) + Send + Sync;

/// Who hears log messages, and from which level on.
pub(crate) type Log = (LogLevel, Box<Hear<LogMessage>>);

impl<X> Client<X> {
    /// A notification that cannot be read concerns nobody else: it is logged and passed over. So is progress
    /// of another request than this one, whose id is its token.
    pub(crate) fn hear(&self, notification: &Notification, id: &RequestId) {
        let (progress, log) = (&self.options.progress, &self.inner.log);
        let read = match (notification.method.as_str(), progress, log) {
            (name::PROGRESS, Some(hear), _) => {
                notification.decode_params().map(|progress: Progress| {
                    if progress.progress_token == *id {
                        hear(progress);
                    }
                })
            }
            (name::MESSAGE, _, Some((_, hear))) => notification.decode_params().map(hear),
            _ => Ok(()),
        };
        if let Err(error) = read {
            tracing::warn!(target: "mrtr::client", %error, "a notification cannot be read");
        }
    }
}
