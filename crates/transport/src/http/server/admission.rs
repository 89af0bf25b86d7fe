//! How much an endpoint does at once.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use super::endpoint::RequestLimits;

/// Counts requests and the bytes of their bodies.
#[derive(Debug, Clone)]
pub(super) struct Admission(Arc<Counts>);

#[derive(Debug)]
struct Counts {
    requests: Count,
    bytes: Count,
}

#[derive(Debug)]
struct Count {
    now: AtomicUsize,
    most: usize,
}

impl Count {
    fn new(most: usize) -> Self {
        Self { now: AtomicUsize::new(0), most }
    }

    /// Counts so many more; `false` if those are too many.
    fn take(&self, more: usize) -> bool {
        let fits = |now: usize| now.checked_add(more).filter(|sum| *sum <= self.most);
        self.now.fetch_update(Ordering::Relaxed, Ordering::Relaxed, fits).is_ok()
    }

    fn give_back(&self, taken: usize) {
        self.now.fetch_sub(taken, Ordering::Relaxed);
    }
}

/// What one request takes of an endpoint, until it is dropped.
#[derive(Debug)]
pub(crate) struct Permit {
    of: Arc<Counts>,
    bytes: usize,
}

impl Admission {
    pub(super) fn new(limits: &RequestLimits) -> Self {
        let (requests, bytes) = (Count::new(limits.in_flight), Count::new(limits.bodies));
        Self(Arc::new(Counts { requests, bytes }))
    }

    /// A share for a new request; `None` if there are too many.
    pub(super) fn share(&self) -> Option<Permit> {
        self.0.requests.take(1).then(|| Permit { of: Arc::clone(&self.0), bytes: 0 })
    }
}

impl Permit {
    /// Takes room for more of the body; `false` if there is none.
    pub(super) fn grow(&mut self, bytes: usize) -> bool {
        let grows = self.of.bytes.take(bytes);
        self.bytes += if grows { bytes } else { 0 };
        grows
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        self.of.requests.give_back(1);
        self.of.bytes.give_back(self.bytes);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::Duration;

    use ::http::{Request, StatusCode};
    use http_body_util::Full;
    use mrtr_schema::json::RawJson;
    use mrtr_schema::jsonrpc::Response;
    use tokio::sync::Notify;
    use tower_service::Service as _;

    use crate::http::{Endpoint, RequestLimits};
    use crate::traits::{IncomingRequest, RequestHandler};

    /// It goes on with what it was called for when nobody waits for that any more.
    struct GoingOn(Arc<Notify>);

    impl RequestHandler for GoingOn {
        async fn handle(self: Arc<Self>, call: IncomingRequest) -> Response<RawJson> {
            let end = Arc::clone(&self.0);
            tokio::spawn(async move {
                end.notified().await;
                drop(call);
            });
            std::future::pending().await
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_request_counts_for_as_long_as_the_server_goes_on_with_it() {
        let end = Arc::new(Notify::new());
        let limits = RequestLimits { in_flight: 1, ..RequestLimits::default() };
        let mut endpoint = Endpoint::new(GoingOn(Arc::clone(&end))).limits(limits);
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
