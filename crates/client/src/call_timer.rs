//! The timeout of a call, over all its rounds.

use std::future::Future;
use std::time::Duration;

use tokio::time::Instant;

use crate::error::CallError;
use crate::machine::Machine;

/// The time that a call has left.
pub(crate) struct CallTimer {
    timeout: Option<Duration>,
    remaining: Option<Duration>,
}

impl CallTimer {
    pub(crate) fn new(timeout: Option<Duration>) -> Self {
        Self { timeout, remaining: timeout }
    }

    /// Returns true if the call may wait for `delay` and has time left after it.
    pub(crate) fn allows(&self, delay: Duration) -> bool {
        self.remaining.is_none_or(|remaining| delay < remaining)
    }

    /// Runs `future` within the remaining time, and subtracts the time it took.
    pub(crate) async fn run<R>(
        &mut self,
        future: impl Future<Output = R>,
        machine: &Machine,
    ) -> Result<R, CallError> {
        let Some(remaining) = self.remaining else { return Ok(future.await) };
        let start = Instant::now();
        let outcome = tokio::time::timeout(remaining, future).await;
        self.remaining = Some(remaining.saturating_sub(start.elapsed()));
        outcome.map_err(|_| self.timed_out(machine))
    }

    fn timed_out(&self, machine: &Machine) -> CallError {
        let call = machine.call();
        let last = machine.last_input_requests();
        let last = last.map_or_else(String::new, |last| format!("; last input requests: {last}"));
        CallError::timeout(format!(
            "{} {} timed out after {:?}{last}",
            call.method(),
            call.target(),
            self.timeout.unwrap_or_default()
        ))
    }
}
