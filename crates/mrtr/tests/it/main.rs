//! The whole stack over real sockets.

#![expect(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test fails by panicking")]

mod axum_mount;
mod bad_input;
#[cfg(unix)]
mod bearer;
mod child;
mod hand;
mod hostile;
mod listen;
mod metrics;
mod notifications;
mod ready;
mod running;
mod set;
mod slow;
mod stdio;
mod stdio_bounds;
mod stdio_client;
mod stdio_wire;
mod streams;
mod wire;
