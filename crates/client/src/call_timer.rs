//! The timeout of a call, over all its rounds.

use std::future::Future;
use std::pin::pin;
use std::time::Duration;

use tokio::time::Instant;

use crate::error::CallError;
use crate::machine::Machine;
use crate::trace;
use crate::user_time::UserTime;

/// The time that a call has left.
pub(crate) struct CallTimer {
    timeout: Option<Duration>,
    remaining: Option<Duration>,
    /// What does not count.
    user_time: Option<UserTime>,
    /// There was no time left for a delay.
    has_refused: bool,
}

/// The shortest time between two looks at whether the user has answered.
const USER_INTERVAL: Duration = Duration::from_millis(100);

impl CallTimer {
    pub(crate) fn new(timeout: Option<Duration>, user_time: Option<UserTime>) -> Self {
        Self { timeout, remaining: timeout, user_time, has_refused: false }
    }

    /// Returns true if the call may wait for `delay` and has time left after it.
    pub(crate) fn allows(&mut self, delay: Duration) -> bool {
        let is_allowed = self.remaining.is_none_or(|remaining| delay < remaining);
        self.has_refused |= !is_allowed;
        is_allowed
    }

    /// Returns true if there was no time left for a delay: the call has ended for lack of time.
    pub(crate) fn has_refused(&self) -> bool {
        self.has_refused
    }

    /// Runs `future` within the remaining time, and subtracts the time it took. Returns the error
    /// of a call that has timed out.
    pub(crate) async fn run<R>(
        &mut self,
        future: impl Future<Output = R>,
        machine: &Machine,
    ) -> Result<R, CallError> {
        self.within(future).await.ok_or_else(|| self.timed_out(machine))
    }

    /// Runs `future` within the remaining time, and subtracts the time it took. Returns `None` if
    /// the time is over.
    pub(crate) async fn within<R>(&mut self, future: impl Future<Output = R>) -> Option<R> {
        let Some(remaining) = self.remaining else { return Some(future.await) };
        let user_time = || self.user_time.as_ref().map_or(Duration::ZERO, UserTime::total);
        let (start, user_time_before) = (Instant::now(), user_time());
        let mut future = pin!(future);
        let mut waited_for_user = Duration::ZERO;
        let mut left = remaining;
        let outcome = loop {
            let outcome = tokio::time::timeout(left, &mut future).await;
            let waited_before = std::mem::replace(
                &mut waited_for_user,
                user_time().saturating_sub(user_time_before),
            );
            let time = start.elapsed().saturating_sub(waited_for_user);
            left = remaining.saturating_sub(time);
            if outcome.is_ok() || waited_for_user == waited_before {
                break outcome;
            }
            left = left.max(USER_INTERVAL);
        };
        self.remaining = Some(left);
        outcome.ok()
    }

    fn timed_out(&self, machine: &Machine) -> CallError {
        let call = machine.call();
        let last = machine.last_input_requests();
        let last = last.map_or_else(String::new, |last| format!("; last input requests: {last}"));
        CallError::timeout(format!(
            "{} {} timed out after {:?}{last}",
            call.method(),
            trace::loggable(call.method(), &call.target()),
            self.timeout.unwrap_or_default()
        ))
    }
}
