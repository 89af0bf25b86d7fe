//! Limits on the rounds of a call.

/// The limits on the rounds of one call. A server that exceeds one ends the call with
/// [`CallError::is_too_many_rounds`](crate::CallError::is_too_many_rounds).
///
/// ```
/// use mrtr_client::RoundLimits;
///
/// let limits = RoundLimits::default().with_input_rounds(20);
/// assert_eq!((limits.input_rounds, limits.state_rounds, limits.requests_per_round), (20, 10, 64));
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct RoundLimits {
    /// Maximum number of rounds with input requests. Default: 10.
    pub input_rounds: u32,
    /// Maximum number of rounds with request state alone, which postpone the call. Default: 10.
    pub state_rounds: u32,
    /// Maximum number of input requests in one round. Default: 64.
    pub requests_per_round: usize,
}

impl RoundLimits {
    /// Sets the maximum number of rounds with input requests.
    #[must_use]
    pub fn with_input_rounds(mut self, rounds: u32) -> Self {
        self.input_rounds = rounds;
        self
    }

    /// Sets the maximum number of rounds with request state alone.
    #[must_use]
    pub fn with_state_rounds(mut self, rounds: u32) -> Self {
        self.state_rounds = rounds;
        self
    }

    /// Sets the maximum number of input requests in one round.
    #[must_use]
    pub fn with_requests_per_round(mut self, requests: usize) -> Self {
        self.requests_per_round = requests;
        self
    }
}

impl Default for RoundLimits {
    fn default() -> Self {
        Self { input_rounds: 10, state_rounds: 10, requests_per_round: 64 }
    }
}
