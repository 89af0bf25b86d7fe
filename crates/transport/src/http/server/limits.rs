//! Limits on what clients may send to an endpoint.

use std::time::Duration;

use mrtr_schema::json::MAX_DEPTH;

/// Limits on what clients may send to an [`Endpoint`](super::Endpoint).
///
/// ```
/// use mrtr_transport::http::RequestLimits;
///
/// let limits = RequestLimits::default().with_max_body_bytes(1 << 20).with_max_in_flight(500);
/// ```
#[derive(Debug, Clone, Copy)]
#[non_exhaustive]
pub struct RequestLimits {
    pub(super) max_body_bytes: usize,
    pub(super) max_depth: usize,
    pub(super) max_discarded_bytes: usize,
    pub(super) body_timeout: Duration,
    pub(super) max_in_flight: usize,
    pub(super) max_total_body_bytes: usize,
}

impl Default for RequestLimits {
    fn default() -> Self {
        Self {
            max_body_bytes: 4 << 20,
            max_depth: MAX_DEPTH,
            max_discarded_bytes: 32 << 20,
            body_timeout: Duration::from_secs(30),
            max_in_flight: 10_000,
            max_total_body_bytes: 256 << 20,
        }
    }
}

impl RequestLimits {
    /// Sets the longest body in bytes. Default: 4 MiB. A longer one is answered with 413.
    #[must_use]
    pub fn with_max_body_bytes(mut self, bytes: usize) -> Self {
        self.max_body_bytes = bytes;
        self
    }

    /// Sets how deeply the JSON of a body may be nested. Default and maximum: 128. Deeper nesting is
    /// answered with 400 and `-32700`.
    #[must_use]
    pub fn with_max_depth(mut self, depth: usize) -> Self {
        self.max_depth = depth;
        self
    }

    /// Sets how many bytes of a rejected body are read and discarded, so that a client that writes
    /// the whole body before it reads gets the response. Default: 32 MiB. Beyond that the connection
    /// is closed.
    #[must_use]
    pub fn with_max_discarded_bytes(mut self, bytes: usize) -> Self {
        self.max_discarded_bytes = bytes;
        self
    }

    /// Sets how long a body may take to arrive. Default: 30 s. A slower one is answered with 408.
    #[must_use]
    pub fn with_body_timeout(mut self, timeout: Duration) -> Self {
        self.body_timeout = timeout;
        self
    }

    /// Sets how many requests may be in flight, subscriptions included. Default: 10,000. Further
    /// requests are answered with 503 and `Retry-After`.
    #[must_use]
    pub fn with_max_in_flight(mut self, requests: usize) -> Self {
        self.max_in_flight = requests;
        self
    }

    /// Sets how many bytes the bodies of all requests in flight may have together. Default: 256 MiB.
    /// Further requests are answered with 503 and `Retry-After`.
    #[must_use]
    pub fn with_max_total_body_bytes(mut self, bytes: usize) -> Self {
        self.max_total_body_bytes = bytes;
        self
    }
}
