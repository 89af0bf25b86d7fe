//! What keeps a sealed state from being used twice: the one thing that a server with single use has to remember.
//!
//! A state is good for its caller as often as they like, until it expires. Where that is too much (a guess that may be made
//! once, a voucher, money), a tool says [`single_use`](crate::Tool::single_use), and the server gets a [`SingleUseStore`]:
//! something that all replicas reach, and that knows which states were used.
//!
//! - The first leg that comes with a state *claims* it for its answers. Only that leg runs.
//! - Its response is kept, sealed. The same state with the same answers gets that response again, word for word: a
//!   client that has lost a response does not lose its flow. While the first leg still runs, the second waits.
//! - The same state with other answers is refused (`request_state_used`).
//! - The leg runs to its end also if its client goes away: in a task of its own, within the tool's deadline. At the end of a
//!   process, [`Server::finished`](crate::Server::finished) waits for it. A replica that dies in the middle leaves the
//!   state claimed: what it did is not known, so it is not done again, and whoever comes again is told so
//!   (`data.reason` is `outcome_unknown`).
//! - If the guard cannot be asked, or has no room, the leg is not run, and the client is told to try again
//!   (`single_use_store_unavailable`). Its state stays good, unless the guard has recorded its use and could not say so.
//! - A response of more than about 90 kB is not kept: it is given once, and after that the state is used
//!   (`request_state_used`).
//!
//! The first request of a flow has no state, and can be sent as often as one likes. What is limited is what happens after
//! the first question, once for each flow; how many flows a caller may begin is for the author to count.

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

/// Remembers which states were used: a store that all replicas reach.
///
/// It is asked twice for each leg of what is for single use, and by a second leg that waits for the first, twice a second.
/// Both questions are one command in Redis: `SET … NX GET PX` and `SET … XX PX`. Keys are 64 hexadecimal digits; values
/// are up to 128 KiB, and responses in them are encrypted and authenticated. A store that forgets an entry before its time
/// breaks the promise of single use; one that invents or changes entries can refuse states, and no more than that.
///
/// Dropping a future gives up waiting; whether the store has acted is then not known, which is safe. What takes longer than
/// 5 s has failed.
pub trait SingleUseStore: Send + Sync + 'static {
    /// Records `value` under `key` for `time`, unless there is something already: then it returns that, and changes
    /// nothing. Of many callers at once, one is first.
    ///
    /// # Errors
    ///
    /// [`StoreError`]: nothing may have been recorded, or it may.
    fn claim(
        &self,
        key: &str,
        value: &[u8],
        time: Duration,
    ) -> impl Future<Output = Result<Option<Vec<u8>>, StoreError>> + Send;

    /// Replaces what is recorded under `key`, if something is, and keeps it for `time` from now.
    ///
    /// # Errors
    ///
    /// [`StoreError`]: what was there stays, or not.
    fn settle(
        &self,
        key: &str,
        value: &[u8],
        time: Duration,
    ) -> impl Future<Output = Result<(), StoreError>> + Send;
}

/// Why a guard did not do what it was asked. The cause goes to the log.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StoreError {
    /// There is no room.
    #[error("the single-use store is full")]
    Full,
    /// It was not reached, or failed.
    #[error("the single-use store is unavailable: {0}")]
    Unavailable(#[source] Box<dyn std::error::Error + Send + Sync>),
}

/// For more than one server in a process.
impl<G: SingleUseStore> SingleUseStore for Arc<G> {
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

type Asking<'a, T> = Pin<Box<dyn Future<Output = Result<T, StoreError>> + Send + 'a>>;

/// A guard without its type.
pub(crate) trait ErasedStore: Send + Sync {
    fn claim<'a>(
        &'a self,
        key: &'a str,
        value: &'a [u8],
        time: Duration,
    ) -> Asking<'a, Option<Vec<u8>>>;

    fn settle<'a>(&'a self, key: &'a str, value: &'a [u8], time: Duration) -> Asking<'a, ()>;
}

impl<G: SingleUseStore> ErasedStore for G {
    fn claim<'a>(
        &'a self,
        key: &'a str,
        value: &'a [u8],
        time: Duration,
    ) -> Asking<'a, Option<Vec<u8>>> {
        Box::pin(SingleUseStore::claim(self, key, value, time))
    }

    fn settle<'a>(&'a self, key: &'a str, value: &'a [u8], time: Duration) -> Asking<'a, ()> {
        Box::pin(SingleUseStore::settle(self, key, value, time))
    }
}
