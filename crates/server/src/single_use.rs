//! Single-use request states, and the store that they need.
//!
//! By default, a caller can use a request state any number of times until it expires. That is too
//! often for a guess that may be made once, a voucher, or a payment. Such a tool is declared
//! [`single_use`](crate::Tool::single_use), and the server gets a [`SingleUseStore`], which records
//! the states that were used. These records are the only data that a server with single use stores.
//!
//! ```
//! use mrtr_server::single_use::MemoryStore;
//! use mrtr_server::{Context, Error, Result, Server, Tool};
//!
//! #[derive(serde::Deserialize, schemars::JsonSchema)]
//! struct Voucher {
//!     code: String,
//! }
//!
//! async fn redeem(cx: Context) -> Result<String> {
//!     // Without single use, a client could answer this question again and again.
//!     let Voucher { code } = cx.elicit("code", "The code on the voucher?").await?;
//!     if code == "K7Q2" { Ok("Redeemed.".to_owned()) } else { Err(Error::new("Wrong code.")) }
//! }
//!
//! let server = Server::builder("shop", "1.0.0")
//!     .tool(Tool::new("redeem", "Redeems a voucher", redeem).single_use())
//!     // For one process. With several replicas: `RedisStore`, or a store of your own.
//!     .single_use_store(MemoryStore::new(64 * 1024 * 1024))
//!     .ephemeral_key()
//!     .allow_anonymous()
//!     .build()?;
//! # Ok::<(), mrtr_server::BuildError>(())
//! ```
//!
//! - The first request with a state *claims* it for its answers. Only that request runs.
//! - Its response is kept, sealed. A repeated request with the same answers gets the identical
//!   response, so a client that lost a response does not lose its call. While the first request is
//!   still running, the repeated one waits. With
//!   [`strict_single_use`](crate::Tool::strict_single_use), the response is not kept, and the
//!   repeated request is refused.
//! - A request with the same state and other answers is refused: `data.reason` is
//!   `request_state_used`.
//! - The round runs to completion even if its client disconnects: in a separately spawned task,
//!   within the tool's [`request_timeout`](crate::Tool::request_timeout). At shutdown,
//!   [`Server::drained`](crate::Server::drained) waits for it. If the replica dies, the state stays
//!   claimed and is not run again, because its outcome is unknown: `data.reason` is
//!   `outcome_unknown`.
//! - If the store fails or is full, the round does not run, and the client is asked to try again:
//!   `data.reason` is `single_use_store_unavailable`. The state stays usable, unless the store
//!   recorded the claim and its reply was lost.
//! - A response of more than about 90 kB is not kept. It is sent once; after that, the state is
//!   used (`request_state_used`).
//!
//! The first request of a call has no state, and can be repeated without limit. Single use limits
//! the rounds after the first question, for each call. To limit the number of calls that a caller
//! starts, count them yourself.

mod memory;
#[cfg(feature = "redis")]
mod redis;

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

pub use self::memory::MemoryStore;
#[cfg(feature = "redis")]
pub use self::redis::RedisStore;

/// A store that records which states were used, shared by all replicas.
///
/// Each round of a single-use call makes two requests to the store. A repeated request that waits
/// for the response queries it about twice a second. In Redis, both operations are one command:
/// `SET … NX GET PX` and `SET … XX PX`. Keys are 64 hexadecimal digits. Values have at most 128
/// KiB; responses in them are encrypted and authenticated.
///
/// A store that loses an entry before its expiry allows a second use of the state. A store that
/// invents or alters entries can only make the server refuse states.
///
/// An operation that takes longer than 5 s counts as failed, and its future is dropped. The store
/// may or may not have performed the operation; both are safe.
pub trait SingleUseStore: Send + Sync + 'static {
    /// Records `value` under `key` for `time`, unless the key has a value: then returns that value
    /// and changes nothing. This is atomic: of many concurrent callers, one is first.
    ///
    /// # Errors
    ///
    /// [`StoreError`]. The value may or may not have been recorded.
    fn claim(
        &self,
        key: &str,
        value: &[u8],
        time: Duration,
    ) -> impl Future<Output = Result<Option<Vec<u8>>, StoreError>> + Send;

    /// Replaces the value under `key`, if it has one, and keeps the new value for `time` from now.
    ///
    /// # Errors
    ///
    /// [`StoreError`]. The value may or may not have been replaced.
    fn settle(
        &self,
        key: &str,
        value: &[u8],
        time: Duration,
    ) -> impl Future<Output = Result<(), StoreError>> + Send;
}

/// The error of a [`SingleUseStore`]. It is logged, and not shown to clients.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StoreError {
    /// The store has no room for another entry.
    #[error("the single-use store is full")]
    Full,
    /// The store was not reached, or it failed.
    #[error("the single-use store is unavailable: {0}")]
    Unavailable(#[source] Box<dyn std::error::Error + Send + Sync>),
}

/// Several servers in one process can share a store.
impl<S: SingleUseStore> SingleUseStore for Arc<S> {
    fn claim(
        &self,
        key: &str,
        value: &[u8],
        time: Duration,
    ) -> impl Future<Output = Result<Option<Vec<u8>>, StoreError>> + Send {
        (**self).claim(key, value, time)
    }

    fn settle(
        &self,
        key: &str,
        value: &[u8],
        time: Duration,
    ) -> impl Future<Output = Result<(), StoreError>> + Send {
        (**self).settle(key, value, time)
    }
}

type StoreFuture<'a, T> = Pin<Box<dyn Future<Output = Result<T, StoreError>> + Send + 'a>>;

/// A [`SingleUseStore`] that can be a trait object.
pub(crate) trait ErasedStore: Send + Sync {
    fn claim<'a>(
        &'a self,
        key: &'a str,
        value: &'a [u8],
        time: Duration,
    ) -> StoreFuture<'a, Option<Vec<u8>>>;

    fn settle<'a>(&'a self, key: &'a str, value: &'a [u8], time: Duration) -> StoreFuture<'a, ()>;
}

impl<S: SingleUseStore> ErasedStore for S {
    fn claim<'a>(
        &'a self,
        key: &'a str,
        value: &'a [u8],
        time: Duration,
    ) -> StoreFuture<'a, Option<Vec<u8>>> {
        Box::pin(SingleUseStore::claim(self, key, value, time))
    }

    fn settle<'a>(&'a self, key: &'a str, value: &'a [u8], time: Duration) -> StoreFuture<'a, ()> {
        Box::pin(SingleUseStore::settle(self, key, value, time))
    }
}
