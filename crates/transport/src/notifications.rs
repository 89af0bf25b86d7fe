//! The channel through which handlers send notifications about a request.

use std::any::Any;
use std::collections::VecDeque;
use std::fmt;
use std::future::poll_fn;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

use mrtr_schema::jsonrpc::Notification;

/// Sends notifications about one request to its client, ahead of the response.
///
/// The request counts as in flight until this sender and all its clones are dropped, even if its
/// client has disconnected.
#[derive(Clone)]
pub struct NotificationSender(Option<Arc<Shared>>);

/// The receiving end of a [`NotificationSender`]. Dropping it closes the channel.
pub struct NotificationReceiver {
    shared: Arc<Shared>,
    /// The channel is closed and empty, so the receiver has nothing left to do on drop.
    is_drained: bool,
}

/// The queue is allocated with its first notification: every request has a channel, and most
/// requests send nothing.
struct Shared<P: ?Sized = dyn Any + Send + Sync> {
    queue: Mutex<Queue>,
    /// The request's share of its transport's limits, held until both ends are dropped.
    _permit: P,
}

#[derive(Default)]
struct Queue {
    waiting: VecDeque<Notification>,
    closed: bool,
    receiver: Option<Waker>,
    /// Senders that wait for a free slot.
    blocked: Vec<Waker>,
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Queue {
    /// Adds a notification and returns the receiver's waker, if it waits.
    fn push(&mut self, notification: Notification) -> Result<Option<Waker>, PushError> {
        if self.closed {
            return Err(PushError::Closed);
        }
        if self.waiting.len() >= NotificationSender::CAPACITY {
            return Err(PushError::Full(notification));
        }
        self.waiting.push_back(notification);
        Ok(self.receiver.take())
    }
}

enum PushError {
    Closed,
    Full(Notification),
}

impl NotificationSender {
    /// Maximum number of queued notifications. It bounds the memory that one slow reader can hold.
    const CAPACITY: usize = 64;

    /// Creates a channel. Its capacity is 64 notifications.
    pub fn channel() -> (Self, NotificationReceiver) {
        Self::with_permit(())
    }

    /// Creates a channel whose two ends hold `permit` until the last of them is dropped: work that
    /// continues without its client still counts as a request in flight.
    pub fn with_permit<P: Send + Sync + 'static>(permit: P) -> (Self, NotificationReceiver) {
        let shared: Arc<Shared> = Arc::new(Shared { queue: Mutex::default(), _permit: permit });
        (Self(Some(Arc::clone(&shared))), NotificationReceiver { shared, is_drained: false })
    }

    /// Creates a sender without a receiver. It discards all notifications.
    pub fn closed() -> Self {
        Self(None)
    }

    /// Sends a notification if the channel has a free slot; returns false if it is full or closed.
    ///
    /// A client that reads slowly loses notifications. It does not slow down the server.
    pub fn try_send(&self, notification: Notification) -> bool {
        let Some(shared) = &self.0 else { return false };
        let pushed = shared.lock().push(notification);
        pushed.map(wake).is_ok()
    }

    /// Sends a notification, and waits for a free slot if the channel is full. Returns false if the
    /// channel is closed.
    ///
    /// If the future is dropped while it waits, the notification is not sent.
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
                Err(PushError::Closed) => Poll::Ready(false),
                Err(PushError::Full(notification)) => {
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

    /// Returns true if a notification was ever queued, so that the response may have begun.
    ///
    /// Not part of the public API: only the workspace's own crates need it.
    #[doc(hidden)]
    pub fn has_sent(&self) -> bool {
        // The queue is allocated with its first notification, and keeps its capacity.
        self.0.as_ref().is_some_and(|shared| shared.lock().waiting.capacity() > 0)
    }

    /// Returns true if notifications no longer reach the client: it has disconnected, or it has its
    /// response.
    pub fn is_closed(&self) -> bool {
        self.0.as_ref().is_none_or(|shared| shared.lock().closed)
    }
}

impl NotificationReceiver {
    /// Polls for the next notification. The channel does not end by itself: without a notification
    /// the task is woken when one is sent.
    pub fn poll_recv(&mut self, cx: &mut Context<'_>) -> Poll<Notification> {
        let mut queue = self.shared.lock();
        match &mut queue.receiver {
            Some(receiver) => receiver.clone_from(cx.waker()),
            none => *none = Some(cx.waker().clone()),
        }
        pop(queue).map_or(Poll::Pending, Poll::Ready)
    }

    /// Returns the next notification, if there is one.
    pub(crate) fn try_recv(&mut self) -> Option<Notification> {
        pop(self.shared.lock())
    }

    /// Closes the channel and returns the next notification that was sent before; `None` after the
    /// last one.
    pub fn close_and_recv(&mut self) -> Option<Notification> {
        let mut queue = self.shared.lock();
        queue.closed = true;
        let next = pop(queue);
        self.is_drained = next.is_none();
        next
    }
}

impl Drop for NotificationReceiver {
    fn drop(&mut self) {
        while !self.is_drained {
            self.close_and_recv();
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

/// Removes the first notification and wakes the senders that wait for a free slot.
fn pop(mut queue: MutexGuard<'_, Queue>) -> Option<Notification> {
    let next = queue.waiting.pop_front();
    let blocked = std::mem::take(&mut queue.blocked);
    drop(queue);
    wake(blocked);
    next
}

/// Wakes tasks. Must be called without the lock, which a woken task may take at once.
fn wake(wakers: impl IntoIterator<Item = Waker>) {
    wakers.into_iter().for_each(Waker::wake);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn notification(n: usize) -> Notification {
        Notification::new(format!("n/{n}"), &()).unwrap()
    }

    async fn recv(receiver: &mut NotificationReceiver) -> String {
        poll_fn(|cx| receiver.poll_recv(cx)).await.method
    }

    #[tokio::test]
    async fn notifications_arrive_in_order_until_the_channel_is_closed() {
        let (sender, mut receiver) = NotificationSender::channel();
        let clone = sender.clone();
        assert!(sender.try_send(notification(1)) && clone.try_send(notification(2)));
        let receiving = tokio::spawn(async move {
            let mut methods = Vec::new();
            for _ in 1..=3 {
                methods.push(recv(&mut receiver).await);
            }
            (methods, receiver)
        });
        tokio::task::yield_now().await;
        assert!(clone.send(notification(3)).await);
        let (methods, mut receiver) = receiving.await.unwrap();
        assert_eq!(methods, ["n/1", "n/2", "n/3"]);
        assert!(sender.try_send(notification(4)) && clone.try_send(notification(5)));
        assert_eq!(receiver.close_and_recv().unwrap().method, "n/4");
        assert!(clone.is_closed() && !sender.try_send(notification(6)), "the channel is closed");
        assert_eq!(receiver.close_and_recv().unwrap().method, "n/5");
        assert!(receiver.close_and_recv().is_none());
    }

    #[tokio::test]
    async fn full_channel_rejects_try_send_and_blocks_send() {
        let (sender, mut receiver) = NotificationSender::channel();
        let accepted = (0..100).filter(|n| sender.try_send(notification(*n))).count();
        assert_eq!(accepted, NotificationSender::CAPACITY);
        let sending: Vec<_> = (100..103)
            .map(|n| {
                let sender = sender.clone();
                tokio::spawn(async move { sender.send(notification(n)).await })
            })
            .collect();
        tokio::task::yield_now().await;
        assert!(sending.iter().all(|task| !task.is_finished()));
        assert_eq!(recv(&mut receiver).await, "n/0");
        tokio::task::yield_now().await;
        assert_eq!(sending.iter().filter(|task| task.is_finished()).count(), 1);
        drop(receiver);
        let still_queued = sender.0.as_ref().map(|shared| shared.lock().waiting.len());
        assert_eq!(still_queued, Some(0), "a closed channel keeps no notifications");
        let mut sent = Vec::new();
        for task in sending {
            sent.push(task.await.unwrap());
        }
        assert_eq!(sent, [true, false, false], "the receiver is gone");
        assert!(sender.is_closed() && !sender.try_send(notification(0)));
        assert!(NotificationSender::closed().is_closed());
    }
}
