//! Messages between the replicas of a service.
//!
//! A client of a legacy revision answers a question in an HTTP POST of its own, which a load
//! balancer may give to another replica than the one that asked. Over a bus, the answer reaches it.

mod message;
#[cfg(feature = "postgres")]
mod postgres;
#[cfg(feature = "redis")]
mod redis;

use std::error::Error;
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

pub(crate) use self::message::Message;
#[cfg(feature = "postgres")]
pub use self::postgres::PostgresBus;
#[cfg(feature = "redis")]
pub use self::redis::RedisBus;

/// A channel that all replicas of a service publish to and receive from.
///
/// Messages are sealed with the server's keys: a bus, and who reads or writes it, can drop, delay
/// and repeat messages, but not read, alter or invent them. They are ASCII text, usually of a few
/// hundred bytes, and at most of 128 KiB. A longer answer is not published: the replica that
/// received it rejects it. A message older than 60 s is ignored, so a bus need not keep it longer.
///
/// The round after an answer has the headers and extensions of the HTTP request with the answer. If
/// that request reached another replica, only its scopes and its proof key come over the bus: all
/// else is that of the round before. If a round had several questions, the scopes are those that
/// all answers came with.
///
/// Delivery at most once is enough. An answer that is lost leaves its call waiting for
/// [`LegacyOptions::with_answer_timeout`](crate::LegacyOptions::with_answer_timeout).
pub trait ReplicaBus: Send + Sync + 'static {
    /// Sends a message to all replicas, also to this one. If they receive messages in different
    /// orders, or this one receives none of its own, a call that is resumed twice at the same time
    /// may continue at two replicas or at none; nothing else depends on it. An operation that takes
    /// longer than 5 s counts as failed, and its future is dropped.
    ///
    /// # Errors
    ///
    /// [`BusError`]. The message may or may not have been sent.
    fn publish(&self, message: String) -> impl Future<Output = Result<(), BusError>> + Send;

    /// Waits for the next message. A single task calls it, over and over, and never drops the
    /// future in between. A bus restores broken connections itself.
    fn receive(&self) -> impl Future<Output = String> + Send;
}

/// The error of a [`ReplicaBus`]. It is logged, and not shown to clients.
#[derive(Debug, thiserror::Error)]
#[error("the bus between the replicas is unavailable: {0}")]
pub struct BusError(#[source] Box<dyn Error + Send + Sync>);

impl BusError {
    /// Wraps the error of a client library.
    pub fn new(error: impl Into<Box<dyn Error + Send + Sync>>) -> Self {
        Self(error.into())
    }
}

/// A [`ReplicaBus`] that can be a trait object.
pub(crate) trait ErasedBus: Send + Sync {
    fn publish(
        &self,
        message: String,
    ) -> Pin<Box<dyn Future<Output = Result<(), BusError>> + Send + '_>>;

    fn receive(&self) -> Pin<Box<dyn Future<Output = String> + Send + '_>>;
}

impl<B: ReplicaBus> ErasedBus for B {
    fn publish(
        &self,
        message: String,
    ) -> Pin<Box<dyn Future<Output = Result<(), BusError>> + Send + '_>> {
        Box::pin(ReplicaBus::publish(self, message))
    }

    fn receive(&self) -> Pin<Box<dyn Future<Output = String> + Send + '_>> {
        Box::pin(ReplicaBus::receive(self))
    }
}

/// A bus in the settings of a server.
#[derive(Clone)]
pub(crate) struct SharedBus {
    pub(crate) bus: Arc<dyn ErasedBus>,
    /// A server receives the messages.
    is_taken: Arc<AtomicBool>,
}

impl SharedBus {
    pub(crate) fn new(bus: impl ReplicaBus) -> Self {
        Self { bus: Arc::new(bus), is_taken: Arc::default() }
    }

    /// Returns true for the first caller only: each message has one receiver.
    pub(crate) fn take(&self) -> bool {
        !self.is_taken.swap(true, Ordering::Relaxed)
    }
}

impl fmt::Debug for SharedBus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ReplicaBus")
    }
}
