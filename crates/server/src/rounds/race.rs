//! Races between two futures, with a recorded winner.

use std::future::{Future, poll_fn};
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;

use super::journal::{EntryKind, RACE_WINNERS};
use super::round::Round;
use crate::error::Error;

impl Round {
    /// Returns true if the first side of a race won it, or `None` if no winner is recorded or the
    /// call has a fault.
    fn race_winner(&self, key: &Arc<str>) -> Option<bool> {
        let mut state = self.lock();
        let location = state.use_key(self, key)?;
        let chosen = state.replay.decision(&location, "a race", RACE_WINNERS);
        let chosen = chosen.map_err(|fault| state.fail(fault)).ok()??;
        Some(RACE_WINNERS.first() == Some(&chosen))
    }

    /// Records the winner of a race.
    fn record_race_winner(&self, key: &Arc<str>, first_won: bool) {
        let mut state = self.lock();
        if !state.closed {
            let [first, second] = RACE_WINNERS;
            let winner = if first_won { first } else { second };
            state.replay.record(key, EntryKind::Decision, winner.to_owned());
            state.note_decision();
        }
    }
}

/// Implements [`Context::race`](crate::Context::race).
pub(crate) async fn race<T>(
    round: Arc<Round>,
    key: Arc<str>,
    one: impl Future<Output = Result<T, Error>>,
    other: impl Future<Output = Result<T, Error>>,
) -> Result<T, Error> {
    match round.race_winner(&key) {
        Some(true) => return one.await,
        Some(false) => return other.await,
        None => {}
    }
    let mut one = pin!(one);
    let mut other = pin!(other);
    let mut one_failed = false;
    let mut other_failed = false;
    poll_fn(|cx| {
        if !one_failed && let Poll::Ready(output) = one.as_mut().poll(cx) {
            one_failed = output.is_err();
            if output.is_ok() || other_failed {
                round.record_race_winner(&key, true);
                return Poll::Ready(output);
            }
        }
        if !other_failed && let Poll::Ready(output) = other.as_mut().poll(cx) {
            other_failed = output.is_err();
            if output.is_ok() || one_failed {
                round.record_race_winner(&key, false);
                return Poll::Ready(output);
            }
        }
        Poll::Pending
    })
    .await
}
