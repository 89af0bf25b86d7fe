//! Notifications: who hears them.

use mrtr_schema::jsonrpc::{Notification, RequestId};
use mrtr_schema::notification::{LogLevel, LogMessage, Progress, name};

pub(crate) type Hear<T> = Box<dyn Fn(T) + Send + Sync>;

/// Who hears notifications.
#[derive(Default)]
pub(crate) struct Heard {
    pub(crate) progress: Option<Hear<Progress>>,
    pub(crate) log: Option<(LogLevel, Hear<LogMessage>)>,
}

impl Heard {
    /// A notification that cannot be read concerns nobody else: it is logged and passed over. So is progress
    /// of another request than this one, whose id is its token.
    pub(crate) fn hear(&self, notification: &Notification, id: &RequestId) {
        let read = match (notification.method.as_str(), &self.progress, &self.log) {
            (name::PROGRESS, Some(hear), _) => notification.params().map(|progress: Progress| {
                if progress.progress_token == *id {
                    hear(progress);
                }
            }),
            (name::MESSAGE, _, Some((_, hear))) => notification.params().map(hear),
            _ => Ok(()),
        };
        if let Err(error) = read {
            tracing::warn!(target: "mrtr::client", %error, "a notification cannot be read");
        }
    }
}
