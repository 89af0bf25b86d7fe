//! The commits of a run, and the renewal of its lease.

use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::task::Poll;
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::{Instant, Sleep, sleep, sleep_until, timeout_at};

use super::holding::Stop;
use super::run::Run;
use super::service::TaskService;
use super::store::{TaskWrite, Verdict};
use crate::rounds::Unsaved;

/// The pause before a failed write is repeated.
const RETRY_PAUSE: Duration = Duration::from_millis(100);

/// The shortest time between two writes of nothing but progress.
const MESSAGE_INTERVAL: Duration = Duration::from_secs(1);

/// The time that the steps in flight have when a task is cancelled, or its server shuts down.
///
/// Shorter than the 10 s after which `mrtr::serve` gives up, so that the end of the run is written.
const STOP_TIMEOUT: Duration = Duration::from_secs(8);

/// What a run does next beside its handler.
enum Next {
    /// Writes changes of the journal, if any, and perhaps renews the lease.
    Write(Option<Unsaved>, bool),
    Stop(Stop),
}

impl Run {
    /// Commits the journal as it grows, and keeps the lease, until the run has to stop.
    pub(super) async fn keep(&self, service: &TaskService, hint: &Notify) -> Stop {
        let mut closed = pin!(self.registry.runtime.hand_over.closed());
        // The reason to stop, and the time that the steps in flight have.
        let mut stop: Option<(Stop, Pin<Box<Sleep>>)> = None;
        let mut last_message = None;
        let third = service.lease / 3;
        let mut renew = Box::pin(sleep(third));
        loop {
            let next_message = last_message.map(|last: Instant| last + MESSAGE_INTERVAL);
            let mut next_message = next_message.map(|time| Box::pin(sleep_until(time)));
            let mut hinted = pin!(hint.notified());
            let next = poll_fn(|cx| {
                // Polled first: commits may come back to back.
                let renews = renew.as_mut().poll(cx).is_ready();
                if stop.is_none() && closed.as_mut().poll(cx).is_ready() {
                    stop = Some((Stop::Released, Box::pin(sleep(STOP_TIMEOUT))));
                }
                next_message.take_if(|time| time.as_mut().poll(cx).is_ready());
                let takes_message = next_message.is_none();
                if let Poll::Ready(unsaved) = self.round.poll_unsaved(cx.waker(), takes_message) {
                    return Poll::Ready(Next::Write(Some(unsaved), renews));
                }
                if let Some((reason, timeout)) = &mut stop
                    && (self.round.stop(matches!(reason, Stop::Cancelled))
                        || timeout.as_mut().poll(cx).is_ready())
                {
                    return Poll::Ready(Next::Stop(*reason));
                }
                // Any write tells if the task was cancelled.
                if renews || hinted.as_mut().poll(cx).is_ready() {
                    return Poll::Ready(Next::Write(None, true));
                }
                Poll::Pending
            })
            .await;
            let (unsaved, renews) = match next {
                Next::Stop(reason) => return reason,
                Next::Write(unsaved, renews) => (unsaved, renews),
            };
            let mut write = TaskWrite::new(self.key, self.lease);
            if renews {
                write.renew = Some(service.lease);
                renew = Box::pin(sleep(third));
            }
            if let Some(unsaved) = &unsaved {
                if !self.add_unsaved(unsaved, &mut write) {
                    return Stop::Lost;
                }
                if unsaved.message.is_some() {
                    last_message = Some(Instant::now());
                }
                // The handler may end before the write is confirmed.
                self.holding.set_message(unsaved.message.clone());
                self.holding.set_writing_from(Some(unsaved.position));
            }
            let Some(cancel) = self.write(write).await else { return Stop::Lost };
            if let Some(unsaved) = unsaved {
                self.holding.set_writing_from(None);
                self.round.committed(unsaved.change);
            }
            if cancel && !matches!(stop, Some((Stop::Cancelled, _))) {
                stop = Some((Stop::Cancelled, Box::pin(sleep(STOP_TIMEOUT))));
            }
        }
    }

    /// Adds the changes of the journal to a write. Returns false if they cannot be sealed.
    fn add_unsaved(&self, unsaved: &Unsaved, write: &mut TaskWrite) -> bool {
        let before = self.holding.entries();
        let mut entries = before;
        if unsaved.is_journal_changed {
            let Some(sealed) = self.seal_entries(unsaved.position, &unsaved.entries) else {
                return false;
            };
            // Also without entries: the last one may have been removed.
            (write.position, write.entries) = (Some(unsaved.position), sealed);
            entries = before.min((unsaved.position + unsaved.entries.len()) as u64);
        }
        if entries == before && unsaved.message.is_none() {
            return true;
        }
        let mut view = self.view.clone();
        view.entries = entries;
        if unsaved.message.is_some() {
            view.message.clone_from(&unsaved.message);
        }
        self.holding.set_entries(entries);
        write.view = self.seal_view(&view);
        write.view.is_some()
    }

    /// Writes, and repeats a write that failed, or that has no reply after a quarter of the lease,
    /// for as long as the lease lasts. Returns true if the task is to be cancelled, or `None` if
    /// the lease was lost.
    pub(super) async fn write(&self, write: TaskWrite) -> Option<bool> {
        let service = self.registry.task_service().ok()?;
        loop {
            let before = Instant::now();
            let written = service.store.write(write.clone());
            // The connection may be dead. The next attempt uses another one.
            let attempt_until = self.holding.until().min(before + service.lease / 4);
            match timeout_at(attempt_until, written).await {
                Ok(Ok(Verdict::Kept { cancel })) => {
                    if write.renew.is_some() {
                        self.holding.renew(before + service.usable_lease());
                    }
                    return Some(cancel);
                }
                Ok(Ok(Verdict::Lost)) => {
                    tracing::warn!(target: "mrtr::tasks", "the lease of the task was lost");
                    return None;
                }
                Ok(Err(error)) => {
                    tracing::warn!(target: "mrtr::tasks", %error, "a write of the task failed");
                    if timeout_at(self.holding.until(), sleep(RETRY_PAUSE)).await.is_err() {
                        return None;
                    }
                }
                Err(_) if attempt_until < self.holding.until() => {
                    tracing::warn!(target: "mrtr::tasks", "a write of the task has no reply");
                }
                Err(_) => {
                    tracing::warn!(target: "mrtr::tasks", "the lease of the task ran out");
                    return None;
                }
            }
        }
    }
}
