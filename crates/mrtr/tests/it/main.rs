//! The whole stack over real sockets.

#![expect(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test fails by panicking")]

mod axum_mount;
mod bad_input;
mod listen;
mod notifications;
mod stdio;
mod wire;
