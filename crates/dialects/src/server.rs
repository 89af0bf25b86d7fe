//! The server's side: an endpoint per dialect.

mod answer;
mod endpoint;
mod engine;
mod envelope;
mod handshake;
mod seal;
mod task_calls;
mod tasks;
mod turns;

pub use endpoint::DialectEndpoint;
