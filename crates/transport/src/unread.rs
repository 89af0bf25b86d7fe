//! Messages from a server that wait to be read, limited in number and in bytes.
//!
//! For the workspace's own crates. Not covered by semantic versioning.

use std::sync::Arc;

use mrtr_schema::jsonrpc::{Message, Notification, Request, RequestId, Response};
use tokio::sync::mpsc;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Maximum number of messages that wait in a queue.
pub const MAX_UNREAD: usize = 1_024;

/// Maximum total length of the messages that wait in a queue, in bytes: 16 MiB. A message that is
/// longer waits alone.
pub const MAX_UNREAD_BYTES: u32 = 16 << 20;

/// A message whose length is known.
pub trait Length {
    /// Returns the approximate length, in bytes.
    fn length(&self) -> usize;
}

impl Length for Notification {
    fn length(&self) -> usize {
        self.method.len() + self.params.as_ref().map_or(0, |params| params.get().len())
    }
}

impl Length for Request {
    fn length(&self) -> usize {
        let id = if let RequestId::String(id) = &self.id { id.len() } else { 0 };
        id + self.method.len() + self.params.as_ref().map_or(0, |params| params.as_str().len())
    }
}

impl Length for Response {
    fn length(&self) -> usize {
        match &self.outcome {
            Ok(result) => result.get().len(),
            Err(error) => error.message.len(),
        }
    }
}

impl Length for Message {
    fn length(&self) -> usize {
        match self {
            Self::Request(request) => request.length(),
            Self::Notification(notification) => notification.length(),
            Self::Response(response) => response.length(),
        }
    }
}

/// A message, and its place in the total length.
#[derive(Debug)]
struct Entry<T> {
    message: T,
    _place: OwnedSemaphorePermit,
}

/// Creates a queue.
pub fn channel<T: Length>() -> (Sender<T>, Receiver<T>) {
    let (sender, receiver) = mpsc::channel(MAX_UNREAD);
    let bytes = Arc::new(Semaphore::new(MAX_UNREAD_BYTES as usize));
    (Sender { sender, bytes }, Receiver(receiver))
}

/// The sending end of a queue.
#[derive(Debug)]
pub struct Sender<T> {
    sender: mpsc::Sender<Entry<T>>,
    bytes: Arc<Semaphore>,
}

impl<T> Clone for Sender<T> {
    fn clone(&self) -> Self {
        Self { sender: self.sender.clone(), bytes: Arc::clone(&self.bytes) }
    }
}

impl<T: Length> Sender<T> {
    fn needed(message: &T) -> u32 {
        u32::try_from(message.length()).unwrap_or(u32::MAX).min(MAX_UNREAD_BYTES)
    }

    /// Sends a message. Returns it if the queue has no space for it, or is closed.
    pub fn try_send(&self, message: T) -> Result<(), T> {
        let bytes = Arc::clone(&self.bytes);
        let Ok(place) = bytes.try_acquire_many_owned(Self::needed(&message)) else {
            return Err(message);
        };
        let sent = self.sender.try_send(Entry { message, _place: place });
        sent.map_err(|error| error.into_inner().message)
    }

    /// Sends a message once the queue has space for it. Returns it if the queue is closed.
    ///
    /// Dropping the future drops the message.
    pub async fn send(&self, message: T) -> Result<(), T> {
        let bytes = Arc::clone(&self.bytes);
        let Ok(place) = bytes.acquire_many_owned(Self::needed(&message)).await else {
            return Err(message);
        };
        let sent = self.sender.send(Entry { message, _place: place }).await;
        sent.map_err(|error| error.0.message)
    }

    /// Returns true if the receiving end is closed.
    pub fn is_closed(&self) -> bool {
        self.sender.is_closed()
    }
}

/// The receiving end of a queue.
#[derive(Debug)]
pub struct Receiver<T>(mpsc::Receiver<Entry<T>>);

impl<T> Receiver<T> {
    /// Waits for the next message. Returns `None` once all senders are dropped, or the queue is
    /// closed, and nothing is left to read.
    pub async fn recv(&mut self) -> Option<T> {
        self.0.recv().await.map(|entry| entry.message)
    }

    /// Closes the queue, and returns what is left to read.
    pub fn drain(&mut self) -> impl Iterator<Item = T> {
        self.0.close();
        std::iter::from_fn(|| self.0.try_recv().ok()).map(|entry| entry.message)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, PartialEq)]
    struct Of(usize);

    impl Length for Of {
        fn length(&self) -> usize {
            self.0
        }
    }

    const MIB: usize = 1 << 20;

    #[tokio::test]
    async fn messages_are_limited_in_number_and_bytes() {
        let (sender, mut receiver) = channel();
        for _ in 0..MAX_UNREAD {
            sender.try_send(Of(1)).unwrap();
        }
        assert_eq!(sender.try_send(Of(1)), Err(Of(1)));
        receiver.recv().await.unwrap();
        sender.try_send(Of(1)).unwrap();

        let (sender, mut receiver) = channel();
        for _ in 0..4 {
            sender.try_send(Of(4 * MIB)).unwrap();
        }
        assert_eq!(sender.try_send(Of(1)), Err(Of(1)));
        receiver.recv().await.unwrap();
        sender.try_send(Of(4 * MIB)).unwrap();
        drop(receiver);
        assert_eq!(sender.try_send(Of(1)), Err(Of(1)));
    }

    #[tokio::test]
    async fn message_longer_than_the_limit_waits_alone() {
        let (sender, mut receiver) = channel();
        sender.try_send(Of(1)).unwrap();
        assert_eq!(sender.try_send(Of(17 * MIB)), Err(Of(17 * MIB)));
        receiver.recv().await.unwrap();
        sender.try_send(Of(17 * MIB)).unwrap();
        let waiting = sender.send(Of(2));
        let both = tokio::join!(waiting, receiver.recv());
        assert_eq!(both, (Ok(()), Some(Of(17 * MIB))));
        assert_eq!(receiver.drain().collect::<Vec<_>>(), [Of(2)]);
        assert!(sender.is_closed());
    }

    /// The sender waits for space that is never freed by reading.
    #[tokio::test]
    async fn sender_that_waits_ends_with_the_receiver() {
        let (sender, receiver) = channel();
        sender.try_send(Of(17 * MIB)).unwrap();
        let waiting = tokio::spawn(async move { sender.send(Of(1)).await });
        drop(receiver);
        assert_eq!(waiting.await.unwrap(), Err(Of(1)));
    }
}
