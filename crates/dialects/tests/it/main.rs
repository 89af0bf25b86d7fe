//! Servers and clients of the dialects.

#![cfg(all(feature = "client", feature = "server"))]
#![expect(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test fails by panicking"
)]

mod bad_input;
mod client_messages;
mod hostile_servers;
mod promises;
mod server_messages;
mod support;
