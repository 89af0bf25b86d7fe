//! The client's side: a transport for clients of the current revision.

mod calls;
mod connection;
mod dialect_client;
mod session;
mod tasks;
mod turns;

pub use dialect_client::DialectClient;
