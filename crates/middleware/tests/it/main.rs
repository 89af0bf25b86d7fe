//! Tests of the layers, around servers in memory.

#![expect(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test fails by panicking")]

mod audit;
mod rate_limit;
#[cfg(all(feature = "redis", unix))]
mod redis;
mod support;
