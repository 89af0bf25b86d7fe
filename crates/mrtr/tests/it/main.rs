//! The whole stack over real sockets.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod axum_mount;
mod bad_input;
mod wire;
