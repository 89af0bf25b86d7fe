//! stdio, and any other reliable stream of bytes: one JSON-RPC message a line (specification: stdio).

mod beginning;
mod child;
mod client;
mod lines;
mod server;
mod writing;

pub use child::ChildServer;
pub use client::StreamClient;
pub use server::{StreamLimits, serve_stream};
