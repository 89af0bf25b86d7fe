//! The commits of a run, and the renewal of its lease.

use std::future::{Future, poll_fn};
use std::pin::pin;
use std::task::Poll;
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::{Instant, sleep, timeout_at};

use super::holding::Stop;
use super::run::Run;
use super::service::TaskService;
use super::store::{TaskWrite, Verdict};

/// The pause before a failed write is repeated.
const RETRY_PAUSE: Duration = Duration::from_millis(100);

/// The shortest time between two writes of nothing but progress.
const MESSAGE_INTERVAL: Duration = Duration::from_secs(1);

impl Run {
    /// Commits the journal as it grows, and keeps the lease, until the run has to stop.
    pub(super) async fn keep(&self, service: &TaskService, hint: &Notify) -> Stop {
        let mut closed = pin!(self.registry.runtime.hand_over.closed());
        let mut stop = None;
        let mut last_message = None;
        let third = service.lease / 3;
        let mut renew = Box::pin(sleep(third));
        loop {
            let takes_message =
                last_message.is_none_or(|last: Instant| last.elapsed() >= MESSAGE_INTERVAL);
            let mut hinted = pin!(hint.notified());
            let (unsaved, renews) = poll_fn(|cx| {
                if let Poll::Ready(unsaved) = self.round.poll_unsaved(cx.waker(), takes_message) {
                    return Poll::Ready((Some(unsaved), false));
                }
                if stop.is_some() && self.round.stop() {
                    return Poll::Ready((None, false));
                }
                // Any write tells if the task was cancelled.
                let is_due = renew.as_mut().poll(cx).is_ready();
                if is_due || hinted.as_mut().poll(cx).is_ready() {
                    return Poll::Ready((None, true));
                }
                if stop.is_none() && closed.as_mut().poll(cx).is_ready() {
                    stop = Some(Stop::Released);
                    if self.round.stop() {
                        return Poll::Ready((None, false));
                    }
                }
                Poll::Pending
            })
            .await;
            let mut write = TaskWrite::new(self.key, self.lease);
            match &unsaved {
                None if !renews => return stop.unwrap_or(Stop::Released),
                None => {
                    write.renew = Some(service.lease);
                    renew = Box::pin(sleep(third));
                }
                Some(unsaved) => {
                    if !unsaved.entries.is_empty() {
                        let Some(entries) = self.seal_entries(unsaved.position, &unsaved.entries)
                        else {
                            return Stop::Lost;
                        };
                        write.position = Some(unsaved.position);
                        write.entries = entries;
                    }
                    if unsaved.message.is_some() {
                        let mut view = self.view.clone();
                        view.message.clone_from(&unsaved.message);
                        write.view = self.seal_view(&view);
                        last_message = Some(Instant::now());
                    }
                    self.holding.set_writing_from(Some(unsaved.position));
                }
            }
            let Some(cancel) = self.write(write).await else { return Stop::Lost };
            if let Some(unsaved) = unsaved {
                self.holding.committed(unsaved.message);
                self.round.committed(unsaved.change);
            }
            if cancel {
                stop = Some(Stop::Cancelled);
            }
        }
    }

    /// Writes, and repeats a write that failed, for as long as the lease lasts. Returns true if the
    /// task is to be cancelled, or `None` if the lease was lost.
    pub(super) async fn write(&self, write: TaskWrite) -> Option<bool> {
        let service = self.registry.task_service().ok()?;
        loop {
            let before = Instant::now();
            let written = service.store.write(write.clone());
            match timeout_at(self.holding.until(), written).await {
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
                Err(_) => {
                    tracing::warn!(target: "mrtr::tasks", "the lease of the task ran out");
                    return None;
                }
            }
        }
    }
}
