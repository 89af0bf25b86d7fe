//! Both sides over loopback connections.

#![expect(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test fails by panicking"
)]

#[cfg(feature = "client")]
mod client;
#[cfg(feature = "connect")]
mod connect;
#[cfg(any(feature = "client", feature = "connect"))]
mod logs;
#[cfg(feature = "resource")]
mod resource;
