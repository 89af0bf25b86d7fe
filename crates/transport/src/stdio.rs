//! stdio, and any other reliable stream of bytes: one JSON-RPC message a line (specification: stdio).

mod child;
mod client;
mod oversized;
mod reader;
mod server;
mod writer;

pub use child::ChildServer;
pub use client::StreamClient;
pub use server::{StreamLimits, serve_stream};
