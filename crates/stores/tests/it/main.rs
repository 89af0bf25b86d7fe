//! Tests of the stores, each with the real database.

#![cfg(any(feature = "sqlite", all(unix, any(feature = "postgres", feature = "redis"))))]
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

#[cfg(all(feature = "postgres", unix))]
mod postgres;
#[cfg(all(feature = "redis", unix))]
mod redis;
#[cfg(feature = "sqlite")]
mod sqlite;
mod support;
