//! Claims due tasks and runs them.

use std::future::{Future, poll_fn};
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use tokio::time::Instant;
use tracing::Instrument as _;

use super::run::Run;
use super::service::TaskService;
use crate::handler::BoxFuture;
use crate::registry::Registry;

/// The pause between two claims, unless the store announces a change.
const PAUSE: Duration = Duration::from_secs(1);

/// The shortest time between two claims, unless there may be more due tasks: see [`Pace`].
const MIN_PAUSE: Duration = Duration::from_millis(1);
const MAX_MIN_PAUSE: Duration = Duration::from_millis(20);

/// Maximum number of tasks that are claimed at once.
const MAX_CLAIM: usize = 32;

/// The time at which the next claim may follow a change.
///
/// Most changes make no task due, and all replicas learn of them, so the pause doubles with each
/// claim that finds none, and is halved by one that does. It begins short: an answer makes a task
/// due, and often comes shortly after its question.
#[derive(Default)]
struct Pace {
    next: Option<Instant>,
    pause: Duration,
}

impl Pace {
    /// Counts a claim, and returns the earliest time of the next one.
    fn next(&mut self, (began, ended): (Instant, Instant), claimed: usize) -> Instant {
        let is_first = self.next.is_none_or(|next| began.duration_since(next) > MAX_MIN_PAUSE);
        self.pause = match claimed {
            _ if is_first => MIN_PAUSE,
            0 => (2 * self.pause).min(MAX_MIN_PAUSE),
            _ => (self.pause / 2).max(MIN_PAUSE),
        };
        let next = ended + self.pause;
        self.next = Some(next);
        next
    }
}

/// Runs due tasks until the server shuts down.
pub(crate) fn run_tasks(registry: Arc<Registry>) -> BoxFuture<()> {
    Box::pin(async move {
        let Some(service) = registry.tasks.as_deref() else { return };
        either(announce_changes(service), claim_tasks(&registry, service)).await;
    })
}

/// Awaits the first of two futures.
pub(crate) async fn either(one: impl Future<Output = ()>, other: impl Future<Output = ()>) {
    let (mut one, mut other) = (pin!(one), pin!(other));
    poll_fn(|cx| {
        if one.as_mut().poll(cx).is_ready() || other.as_mut().poll(cx).is_ready() {
            return Poll::Ready(());
        }
        Poll::Pending
    })
    .await;
}

async fn announce_changes(service: &TaskService) {
    loop {
        let key = service.store.next_change().await;
        service.announce(key);
    }
}

/// Claims due tasks and runs them, until the server shuts down.
///
/// On shutdown, a claim in progress is awaited. Otherwise tasks that the store has already assigned
/// would stay idle until their leases expire. Their runs release them at once.
async fn claim_tasks(registry: &Arc<Registry>, service: &TaskService) {
    let mut changes = service.changes.subscribe();
    let hand_over = &registry.runtime.hand_over;
    let mut pace = Pace::default();
    loop {
        let mut permits = Vec::new();
        let free = async { permits = service.permits(MAX_CLAIM).await };
        either(hand_over.closing(), free).await;
        if hand_over.has_shutdown_begun() {
            return;
        }
        let limit = permits.len();
        let Ok(lease) = service.new_lease() else {
            tracing::error!(target: "mrtr::tasks", "no random numbers for a lease");
            tokio::time::sleep(PAUSE).await;
            continue;
        };
        // Changes from here on may make a task due that this claim does not find.
        changes = changes.resubscribe();
        let claimed_at = Instant::now();
        let registry = registry.current();
        let claim = service.claim_of(Arc::clone(&registry.task_handlers), lease, limit);
        let claim = service.store.claim(claim);
        let held = match tokio::time::timeout(service.lease, claim).await {
            Ok(Ok(held)) => held,
            Ok(Err(error)) => {
                tracing::error!(target: "mrtr::tasks", %error, "no tasks were claimed");
                Vec::new()
            }
            Err(_) => {
                tracing::error!(target: "mrtr::tasks", "no tasks were claimed: no reply");
                Vec::new()
            }
        };
        let claimed = held.len();
        let next_at = pace.next((claimed_at, Instant::now()), claimed);
        for (held, permit) in held.into_iter().zip(permits.drain(..)) {
            let tracked = registry.runtime.tasks.track();
            let registry = Arc::clone(&registry);
            let tool = held.handler.tool.clone();
            let span = tracing::info_span!(target: "mrtr::tasks", "task", tool, key = ?held.key);
            let run = async move {
                Run::resume(registry, held, lease.id, claimed_at).await;
                drop((permit, tracked));
            };
            tokio::spawn(run.instrument(span));
        }
        if claimed < limit {
            // A lagged receiver has missed a change, and claims again without waiting for another.
            let change = async {
                drop(changes.recv().await);
                tokio::time::sleep_until(next_at).await;
            };
            either(hand_over.closing(), either(change, tokio::time::sleep(PAUSE))).await;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Counts the claims of a second, of which every `nth` finds a task, and which take a while.
    fn claims(nth: usize, while_: Duration) -> usize {
        let (mut pace, start) = (Pace::default(), Instant::now());
        let (mut now, mut claims) = (start, 0);
        while now - start < Duration::from_secs(1) {
            claims += 1;
            // A timer is up to 1 ms late.
            let found = usize::from(claims % nth == 0);
            now = pace.next((now, now + while_), found) + Duration::from_millis(1);
        }
        claims
    }

    #[test]
    fn claims_that_find_little_become_rare() {
        assert!(claims(usize::MAX, Duration::ZERO) <= 52);
        assert!(claims(usize::MAX, Duration::from_millis(100)) <= 10);
        assert!(claims(3, Duration::ZERO) <= 80);
    }

    #[test]
    fn claim_after_a_pause_begins_anew() {
        let (mut pace, now) = (Pace::default(), Instant::now());
        for n in 0..5 {
            assert_eq!(pace.next((now, now), 0), now + MIN_PAUSE * 2_u32.pow(n));
        }
        let later = now + Duration::from_secs(1);
        assert_eq!(pace.next((later, later), 0), later + MIN_PAUSE);
    }
}
