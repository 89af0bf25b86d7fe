//! Limits how many calls each caller may begin.
//!
//! The unit is the call, not the request: a call of three rounds counts once, so tools that ask
//! many questions are not penalized. Later rounds have a [limit](RateLimit::rounds_per_call) of
//! their own, since a client can repeat them.
//!
//! Requests beyond the limit get a JSON-RPC error with code 429 and `retryAfterMs`; over HTTP, with
//! status 429 and the header `Retry-After`. See [`mrtr_transport::too_many_requests`].

mod layer;
mod memory;
#[cfg(feature = "redis")]
mod redis;
mod store;

pub use layer::RateLimit;
pub use memory::MemoryRateLimitStore;
#[cfg(feature = "redis")]
pub use redis::RedisRateLimitStore;
pub use store::{Decision, Quota, RateLimitError, RateLimitStore};
