//! Where notifications about a request wait to be sent.

use std::any::Any;
use std::collections::VecDeque;
use std::fmt;
use std::future::poll_fn;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

use mrtr_schema::jsonrpc::Notification;

/// Takes notifications about one request, to be sent before its response.
///
/// The request counts as in flight until this and all its clones are dropped, even if its client has gone.
#[derive(Clone)]
pub struct NotificationSender(Option<Arc<Shared>>);

/// The other end of an [`NotificationSender`].
pub struct NotificationReceiver {
    shared: Arc<Shared>,
    /// Nothing waits, and nothing is taken any more.
    ended: bool,
}

/// Every request has one, and most send nothing: nothing is allocated for what might wait.
struct Shared<P: ?Sized = dyn Any + Send + Sync> {
    queue: Mutex<Queue>,
    /// What the request takes of its transport, until both ends are gone.
    _place: P,
}

#[derive(Default)]
struct Queue {
    waiting: VecDeque<Notification>,
    closed: bool,
    receiver: Option<Waker>,
    /// Who waits for room.
    blocked: Vec<Waker>,
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Queue {
    /// Takes a notification if somebody listens and there is room, and says whom to wake. Gives it back if there is no room.
    fn push(&mut self, notification: Notification) -> Result<Option<Waker>, Refused> {
        if self.closed {
            return Err(Refused::Closed);
        }
        if self.waiting.len() >= NotificationSender::CAPACITY {
            return Err(Refused::Full(notification));
        }
        self.waiting.push_back(notification);
        Ok(self.receiver.take())
    }
}

enum Refused {
    Closed,
    Full(Notification),
}

impl NotificationSender {
    /// How many notifications wait for a client that reads slowly, before more are dropped.
    const CAPACITY: usize = 64;

    /// An outbox, and where its notifications come out.
    pub fn new() -> (Self, NotificationReceiver) {
        Self::holding(())
    }

    /// As [`NotificationSender::new`]; both hold `place` until the last of them is dropped.
    pub(crate) fn holding<P: Send + Sync + 'static>(place: P) -> (Self, NotificationReceiver) {
        let shared: Arc<Shared> = Arc::new(Shared { queue: Mutex::default(), _place: place });
        (Self(Some(Arc::clone(&shared))), NotificationReceiver { shared, ended: false })
    }

    /// An outbox that throws everything away.
    pub fn none() -> Self {
        Self(None)
    }

    /// Sends a notification, if there is room. A client that reads slowly loses notifications; it does
    /// not slow down the server.
    pub fn try_send(&self, notification: Notification) -> bool {
        let Some(shared) = &self.0 else { return false };
        let pushed = shared.lock().push(notification);
        pushed.map(wake).is_ok()
    }

    /// Sends a notification when there is room; `false` if nobody listens any more.
    pub async fn send(&self, notification: Notification) -> bool {
        let Some(shared) = &self.0 else { return false };
        let mut unsent = Some(notification);
        poll_fn(|cx| {
            let Some(notification) = unsent.take() else { return Poll::Ready(true) };
            let mut queue = shared.lock();
            match queue.push(notification) {
                Ok(receiver) => {
                    drop(queue);
                    wake(receiver);
                    Poll::Ready(true)
                }
                Err(Refused::Closed) => Poll::Ready(false),
                Err(Refused::Full(notification)) => {
                    unsent = Some(notification);
                    if queue.blocked.iter().all(|blocked| !blocked.will_wake(cx.waker())) {
                        queue.blocked.push(cx.waker().clone());
                    }
                    Poll::Pending
                }
            }
        })
        .await
    }

    /// Whether nobody listens any more: the client has gone, or has its response.
    pub fn is_closed(&self) -> bool {
        self.0.as_ref().is_none_or(|shared| shared.lock().closed)
    }
}

impl NotificationReceiver {
    /// The next notification. While there is none, `cx` is woken when one comes.
    pub fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Notification> {
        let mut queue = self.shared.lock();
        match &mut queue.receiver {
            Some(receiver) => receiver.clone_from(cx.waker()),
            none => *none = Some(cx.waker().clone()),
        }
        take(queue).map_or(Poll::Pending, Poll::Ready)
    }

    /// The next notification, if there is one.
    pub(crate) fn next_there(&mut self) -> Option<Notification> {
        take(self.shared.lock())
    }

    /// The next notification of those that were sent already. No others are taken any more.
    pub fn next_sent(&mut self) -> Option<Notification> {
        let mut queue = self.shared.lock();
        queue.closed = true;
        let next = take(queue);
        self.ended = next.is_none();
        next
    }
}

impl Drop for NotificationReceiver {
    fn drop(&mut self) {
        while !self.ended {
            self.next_sent();
        }
    }
}

impl fmt::Debug for NotificationSender {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("NotificationSender")
    }
}

impl fmt::Debug for NotificationReceiver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("NotificationReceiver")
    }
}

/// Takes what waits longest. Who waits for room looks again.
fn take(mut queue: MutexGuard<'_, Queue>) -> Option<Notification> {
    let next = queue.waiting.pop_front();
    let blocked = std::mem::take(&mut queue.blocked);
    drop(queue);
    wake(blocked);
    next
}

/// Never under the lock: who is woken may take it at once.
fn wake(wakers: impl IntoIterator<Item = Waker>) {
    wakers.into_iter().for_each(Waker::wake);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn notification(n: usize) -> Notification {
        Notification::new(format!("n/{n}"), &()).unwrap()
    }

    async fn next(inbox: &mut NotificationReceiver) -> String {
        poll_fn(|cx| inbox.poll_next(cx)).await.method
    }

    #[tokio::test]
    async fn what_is_sent_comes_out_in_order_and_then_the_end() {
        let (outbox, mut inbox) = NotificationSender::new();
        let other = outbox.clone();
        assert!(outbox.try_send(notification(1)) && other.try_send(notification(2)));
        let listening = tokio::spawn(async move {
            let mut heard = Vec::new();
            for _ in 1..=3 {
                heard.push(next(&mut inbox).await);
            }
            (heard, inbox)
        });
        tokio::task::yield_now().await;
        assert!(other.send(notification(3)).await);
        let (heard, mut inbox) = listening.await.unwrap();
        assert_eq!(heard, ["n/1", "n/2", "n/3"]);
        assert!(outbox.try_send(notification(4)) && other.try_send(notification(5)));
        assert_eq!(inbox.next_sent().unwrap().method, "n/4");
        assert!(other.is_closed() && !outbox.try_send(notification(6)), "too late");
        assert_eq!(inbox.next_sent().unwrap().method, "n/5");
        assert!(inbox.next_sent().is_none());
    }

    #[tokio::test]
    async fn who_reads_slowly_loses_what_there_is_no_room_for_or_makes_others_wait() {
        let (outbox, mut inbox) = NotificationSender::new();
        let room = (0..100).filter(|n| outbox.try_send(notification(*n))).count();
        assert_eq!(room, NotificationSender::CAPACITY);
        let waiting: Vec<_> = (100..103)
            .map(|n| {
                let outbox = outbox.clone();
                tokio::spawn(async move { outbox.send(notification(n)).await })
            })
            .collect();
        tokio::task::yield_now().await;
        assert!(waiting.iter().all(|task| !task.is_finished()));
        assert_eq!(next(&mut inbox).await, "n/0");
        tokio::task::yield_now().await;
        assert_eq!(waiting.iter().filter(|task| task.is_finished()).count(), 1);
        drop(inbox);
        let waiting_still = outbox.0.as_ref().map(|shared| shared.lock().waiting.len());
        assert_eq!(waiting_still, Some(0), "what nobody takes is not kept");
        let mut sent = Vec::new();
        for task in waiting {
            sent.push(task.await.unwrap());
        }
        assert_eq!(sent, [true, false, false], "nobody listens any more");
        assert!(outbox.is_closed() && !outbox.try_send(notification(0)));
        assert!(NotificationSender::none().is_closed());
    }
}
