//! Standard streams, and any other reliable byte stream: one JSON-RPC message per line
//! (specification: stdio).

mod client;
mod oversized;
mod reader;
mod server;
mod writer;

pub use client::{ChildServer, StreamClient};
pub use server::{StreamLimits, serve_stream};
