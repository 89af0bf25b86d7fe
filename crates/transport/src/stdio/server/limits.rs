//! Limits on what a client may send over a stream.

use mrtr_schema::json::MAX_DEPTH;

/// Limits on what a client may send over a stream.
///
/// ```
/// use mrtr_transport::stdio::StreamLimits;
///
/// let limits = StreamLimits::default().with_max_message_bytes(1 << 20).with_max_in_flight(32);
/// ```
#[derive(Debug, Clone, Copy)]
#[non_exhaustive]
pub struct StreamLimits {
    pub(super) message_bytes: usize,
    pub(super) depth: usize,
    pub(super) in_flight: usize,
}

impl Default for StreamLimits {
    fn default() -> Self {
        Self { message_bytes: 4 << 20, depth: MAX_DEPTH, in_flight: 256 }
    }
}

impl StreamLimits {
    /// Sets the maximum length of a message in bytes. Default: 4 MiB. A longer message is discarded
    /// and answered with `-32600`.
    #[must_use]
    pub fn with_max_message_bytes(mut self, bytes: usize) -> Self {
        self.message_bytes = bytes;
        self
    }

    /// Sets the maximum nesting depth of the JSON in a message. Default and maximum: 128. Deeper
    /// nesting is answered with `-32700`.
    #[must_use]
    pub fn with_max_depth(mut self, depth: usize) -> Self {
        self.depth = depth;
        self
    }

    /// Sets the maximum number of requests in flight. Default: 256. Further requests are answered
    /// with `-32603`.
    #[must_use]
    pub fn with_max_in_flight(mut self, requests: usize) -> Self {
        self.in_flight = requests;
        self
    }

    /// Returns the longest message in bytes.
    #[doc(hidden)]
    pub fn max_message_bytes(&self) -> usize {
        self.message_bytes
    }

    /// Returns how deeply messages may be nested.
    #[doc(hidden)]
    pub fn max_depth(&self) -> usize {
        self.depth
    }

    /// Returns how many requests may be in flight.
    #[doc(hidden)]
    pub fn max_in_flight(&self) -> usize {
        self.in_flight
    }
}
