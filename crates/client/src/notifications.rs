//! Delivery of progress and log notifications to the application.

use mrtr_schema::jsonrpc::{Notification, RequestId};
use mrtr_schema::notification::{LogLevel, LogMessage, Progress, name};
use mrtr_schema::peer_text::truncate;

pub(crate) type ProgressHandler = dyn Fn(Progress) + Send + Sync;

/// The application's handler of log messages, and the least severe level it asked for.
pub(crate) struct LogHandler {
    pub(crate) level: LogLevel,
    pub(crate) handle: Box<dyn Fn(LogMessage) + Send + Sync>,
}

/// Delivers a notification that arrived before the response to the request `id`.
///
/// Malformed notifications are logged and ignored. So is progress of other requests: the token of
/// a request is its id.
pub(crate) fn deliver(
    notification: &Notification,
    id: &RequestId,
    progress: Option<&ProgressHandler>,
    log: Option<&LogHandler>,
) {
    let outcome = match (notification.method.as_str(), progress, log) {
        (name::PROGRESS, Some(handle), _) => {
            notification.decode_params().map(|progress: Progress| {
                if progress.progress_token == *id {
                    handle(progress);
                }
            })
        }
        (name::MESSAGE, _, Some(log)) => notification.decode_params().map(&log.handle),
        _ => Ok(()),
    };
    if let Err(error) = outcome {
        let error = error.to_string();
        let error = &*truncate(&error);
        tracing::warn!(target: "mrtr::client", error, "ignoring malformed notification");
    }
}
