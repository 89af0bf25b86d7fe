#![doc = include_str!("../README.md")]

#[cfg(any(feature = "postgres", feature = "sqlite"))]
mod changes;
#[cfg(any(feature = "postgres", feature = "redis", feature = "sqlite"))]
mod millis;
#[cfg(feature = "postgres")]
mod postgres;
#[cfg(feature = "redis")]
mod redis;
#[cfg(feature = "sqlite")]
mod sqlite;

#[cfg(feature = "postgres")]
pub use postgres::PostgresTaskStore;
#[cfg(feature = "redis")]
pub use redis::RedisTaskStore;
#[cfg(feature = "sqlite")]
pub use sqlite::SqliteTaskStore;
