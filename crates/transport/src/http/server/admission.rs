//! Admission control: the limits on the requests and body bytes that an endpoint holds at once.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use super::limits::RequestLimits;

/// Counts the requests in flight and the bytes of their bodies.
#[derive(Debug, Clone)]
pub(super) struct Admission {
    requests: Arc<Counters>,
    /// Messages beyond that limit that may let a request in flight continue.
    reserve: Arc<Counters>,
}

#[derive(Debug)]
struct Counters {
    requests: BoundedCounter,
    is_reserve: bool,
    body_bytes: Arc<BoundedCounter>,
}

#[derive(Debug)]
struct BoundedCounter {
    current: AtomicUsize,
    max: usize,
}

/// All operations are `Relaxed`: the counter guards no other memory, and a single atomic is never
/// seen to exceed its bound.
impl BoundedCounter {
    fn new(max: usize) -> Self {
        Self { current: AtomicUsize::new(0), max }
    }

    /// Adds `n`, unless the sum exceeds the maximum. Returns true if it was added.
    fn try_add(&self, n: usize) -> bool {
        let add = |current: usize| current.checked_add(n).filter(|sum| *sum <= self.max);
        self.current.fetch_update(Ordering::Relaxed, Ordering::Relaxed, add).is_ok()
    }

    fn subtract(&self, n: usize) {
        self.current.fetch_sub(n, Ordering::Relaxed);
    }
}

/// The share of one HTTP request in an endpoint's limits. It is returned on drop. A batch of a
/// legacy client counts as several requests.
#[derive(Debug)]
pub struct Permit {
    counters: Arc<Counters>,
    requests: usize,
    body_bytes: usize,
}

/// How many messages of legacy clients are read at once beyond the limit on requests in flight.
const RESERVE: usize = 64;

impl Admission {
    pub(super) fn new(limits: &RequestLimits) -> Self {
        let body_bytes = Arc::new(BoundedCounter::new(limits.max_total_body_bytes));
        let counters = |max, is_reserve| {
            let (requests, body_bytes) = (BoundedCounter::new(max), Arc::clone(&body_bytes));
            Arc::new(Counters { requests, is_reserve, body_bytes })
        };
        Self { requests: counters(limits.max_in_flight, false), reserve: counters(RESERVE, true) }
    }

    /// Admits a request; `None` if too many are in flight. A message of a legacy client is also
    /// admitted beyond the limit, from the reserve: it may be the answer for which a request in
    /// flight waits.
    pub(super) fn try_admit(&self, is_legacy: bool) -> Option<Permit> {
        let counters = if self.requests.requests.try_add(1) {
            &self.requests
        } else if is_legacy && self.reserve.requests.try_add(1) {
            &self.reserve
        } else {
            return None;
        };
        Some(Permit { counters: Arc::clone(counters), requests: 1, body_bytes: 0 })
    }
}

impl Permit {
    /// Returns true if all requests that the limit allows are in flight. Then only messages are
    /// processed that start no request, such as answers and cancellations.
    pub fn is_reserve(&self) -> bool {
        self.counters.is_reserve
    }

    /// Counts `more` further requests under this permit. Returns false, and counts none of them, if
    /// the limit would be exceeded.
    pub fn try_add_requests(&mut self, more: usize) -> bool {
        let added = self.counters.requests.try_add(more);
        if added {
            self.requests += more;
        }
        added
    }

    /// Reserves room for more bytes of the body. Returns false if there is none.
    pub(super) fn try_reserve(&mut self, bytes: usize) -> bool {
        let reserved = self.counters.body_bytes.try_add(bytes);
        if reserved {
            self.body_bytes += bytes;
        }
        reserved
    }

    /// Returns the share of bytes beyond `bytes`, when the rest of the body is no longer in memory.
    pub(super) fn keep(&mut self, bytes: usize) {
        let freed = self.body_bytes.saturating_sub(bytes);
        self.counters.body_bytes.subtract(freed);
        self.body_bytes -= freed;
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        self.counters.requests.subtract(self.requests);
        self.counters.body_bytes.subtract(self.body_bytes);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::Duration;

    use ::http::{Request, StatusCode};
    use http_body_util::Full;
    use mrtr_schema::RawJson;
    use mrtr_schema::jsonrpc::Response;
    use tokio::sync::Notify;
    use tower_service::Service as _;

    use crate::http::{Endpoint, RequestLimits};
    use crate::traits::{IncomingRequest, RequestHandler};

    /// Keeps the request in a task of its own until it is notified, even if the client disconnects.
    struct Detached(Arc<Notify>);

    impl RequestHandler for Detached {
        async fn handle(self: Arc<Self>, incoming: IncomingRequest) -> Response<RawJson> {
            let end = Arc::clone(&self.0);
            tokio::spawn(async move {
                end.notified().await;
                drop(incoming);
            });
            std::future::pending().await
        }
    }

    const BODY: &str = r#"{"jsonrpc":"2.0","id":1,"method":"x","params":{"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28"}}}"#;

    /// Sends a request, and returns the status of the response if there is one within a second.
    async fn status(endpoint: &mut Endpoint<Detached>, body: String) -> Option<StatusCode> {
        let request = Request::post("/mcp")
            .header("host", "localhost")
            .header("content-type", "application/json")
            .header("accept", "application/json, text/event-stream")
            .header("mcp-protocol-version", "2026-07-28")
            .header("mcp-method", "x")
            .body(Full::from(body))
            .unwrap();
        let answered = tokio::time::timeout(Duration::from_secs(1), endpoint.call(request));
        answered.await.ok().map(|response| response.unwrap().status())
    }

    #[tokio::test(start_paused = true)]
    async fn request_counts_as_in_flight_until_detached_work_ends() {
        let end = Arc::new(Notify::new());
        let limits = RequestLimits::default().with_max_in_flight(1);
        let mut endpoint = Endpoint::new(Detached(Arc::clone(&end))).limits(limits);
        let mut status = async || status(&mut endpoint, BODY.to_owned()).await;
        assert_eq!(status().await, None, "the client disconnects after a second");
        assert_eq!(status().await, Some(StatusCode::SERVICE_UNAVAILABLE));
        end.notify_one();
        tokio::task::yield_now().await;
        assert_eq!(status().await, None);
    }

    /// A request may last, such as a subscription. What is not part of it is no longer in memory.
    #[tokio::test(start_paused = true)]
    async fn request_in_flight_counts_without_the_rest_of_its_body() {
        let limits = RequestLimits::default().with_max_total_body_bytes(2_000);
        let mut endpoint = Endpoint::new(Detached(Arc::default())).limits(limits);
        let spaces = BODY.to_owned() + &" ".repeat(1_500);
        let member = BODY.replacen('{', &format!(r#"{{"more":"{}","#, "x".repeat(1_500)), 1);
        for body in [spaces, member] {
            assert_eq!(status(&mut endpoint, body).await, None);
        }
        let long =
            BODY.replacen(r#"{"_meta""#, &format!(r#"{{"{}":1,"_meta""#, "x".repeat(1_500)), 1);
        assert_eq!(status(&mut endpoint, long.clone()).await, None);
        assert_eq!(status(&mut endpoint, long).await, Some(StatusCode::SERVICE_UNAVAILABLE));
    }
}
