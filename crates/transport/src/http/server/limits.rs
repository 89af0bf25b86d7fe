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
    /// Sets the maximum length of a body in bytes. Default: 4 MiB. A longer body is answered with
    /// 413.
    #[must_use]
    pub fn with_max_body_bytes(mut self, bytes: usize) -> Self {
        self.max_body_bytes = bytes;
        self
    }

    /// Sets the maximum nesting depth of the JSON in a body. Default and maximum: 128. Deeper
    /// nesting is answered with 400 and `-32700`.
    #[must_use]
    pub fn with_max_depth(mut self, depth: usize) -> Self {
        self.max_depth = depth;
        self
    }

    /// Sets the maximum number of bytes of a rejected body that are read and discarded. Default: 32
    /// MiB. Beyond that the connection is closed.
    ///
    /// The rest of a body is discarded for clients that write the whole body before they read the
    /// response.
    #[must_use]
    pub fn with_max_discarded_bytes(mut self, bytes: usize) -> Self {
        self.max_discarded_bytes = bytes;
        self
    }

    /// Sets the longest time that a body may take to arrive. Default: 30 s. A slower body is
    /// answered with 408.
    #[must_use]
    pub fn with_body_timeout(mut self, timeout: Duration) -> Self {
        self.body_timeout = timeout;
        self
    }

    /// Sets the maximum number of requests in flight, subscriptions included. Default: 10,000.
    /// Further requests are answered with 503 and `Retry-After`.
    #[must_use]
    pub fn with_max_in_flight(mut self, requests: usize) -> Self {
        self.max_in_flight = requests;
        self
    }

    /// Sets the maximum size of the bodies of all requests in flight together, in bytes. Default:
    /// 256 MiB. Further requests are answered with 503 and `Retry-After`.
    #[must_use]
    pub fn with_max_total_body_bytes(mut self, bytes: usize) -> Self {
        self.max_total_body_bytes = bytes;
        self
    }
}
