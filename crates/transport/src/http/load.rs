//! How much an endpoint does at once.

use std::sync::Arc;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::endpoint::Limits;

/// Counts requests and the bytes of their bodies.
#[derive(Debug, Clone)]
pub(super) struct Load {
    requests: Arc<Semaphore>,
    /// In units of [`UNIT`] bytes.
    bodies: Arc<Semaphore>,
}

/// What one request takes of an endpoint, until it is dropped.
#[derive(Debug)]
pub(crate) struct Share {
    _request: OwnedSemaphorePermit,
    body: OwnedSemaphorePermit,
    bodies: Arc<Semaphore>,
    bytes: usize,
}

const UNIT: usize = 1024;

impl Load {
    pub(super) fn new(limits: &Limits) -> Self {
        let semaphore = |n: usize| Arc::new(Semaphore::new(n.min(Semaphore::MAX_PERMITS)));
        Self { requests: semaphore(limits.in_flight), bodies: semaphore(limits.bodies / UNIT) }
    }

    /// A share for a new request; `None` if there are too many.
    pub(super) fn share(&self) -> Option<Share> {
        let request = Arc::clone(&self.requests).try_acquire_owned().ok()?;
        let body = Arc::clone(&self.bodies).try_acquire_many_owned(0).ok()?;
        Some(Share { _request: request, body, bodies: Arc::clone(&self.bodies), bytes: 0 })
    }
}

impl Share {
    /// Takes room for more of the body; `false` if there is none.
    pub(super) fn grow(&mut self, bytes: usize) -> bool {
        self.bytes += bytes;
        let more = self.bytes.div_ceil(UNIT).saturating_sub(self.body.num_permits());
        let more = u32::try_from(more).ok();
        let more = more.and_then(|n| Arc::clone(&self.bodies).try_acquire_many_owned(n).ok());
        more.map(|permit| self.body.merge(permit)).is_some()
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use ::http::{Request, StatusCode};
    use http_body_util::Full;
    use mrtr_schema::jsonrpc::Response;
    use tokio::sync::Notify;
    use tower_service::Service as _;

    use crate::http::{Endpoint, Limits};
    use crate::seam::{Call, Dispatch};

    /// It goes on with what it was called for when nobody waits for that any more.
    struct GoingOn(std::sync::Arc<Notify>);

    impl Dispatch for GoingOn {
        async fn dispatch(&self, call: Call) -> Response {
            let end = std::sync::Arc::clone(&self.0);
            tokio::spawn(async move {
                end.notified().await;
                drop(call);
            });
            std::future::pending().await
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_request_counts_for_as_long_as_the_server_goes_on_with_it() {
        let end = std::sync::Arc::new(Notify::new());
        let limits = Limits { in_flight: 1, ..Limits::default() };
        let mut endpoint = Endpoint::new(GoingOn(std::sync::Arc::clone(&end))).limits(limits);
        let mut status = async || {
            let body = br#"{"jsonrpc":"2.0","id":1,"method":"x","params":{"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28"}}}"#;
            let request = Request::post("/mcp")
                .header("host", "localhost")
                .header("content-type", "application/json")
                .header("accept", "application/json, text/event-stream")
                .header("mcp-protocol-version", "2026-07-28")
                .header("mcp-method", "x")
                .body(Full::from(&body[..]))
                .unwrap();
            let answered = tokio::time::timeout(Duration::from_secs(1), endpoint.call(request));
            answered.await.ok().map(|response| response.unwrap().status())
        };
        assert_eq!(status().await, None, "its client goes away after a second");
        assert_eq!(status().await, Some(StatusCode::SERVICE_UNAVAILABLE));
        end.notify_one();
        tokio::task::yield_now().await;
        assert_eq!(status().await, None);
    }
}
