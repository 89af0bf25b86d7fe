//! Standard streams, and any other reliable byte stream: one JSON-RPC message per line
//! (specification: stdio).

mod client;
mod oversized;
mod reader;
mod server;
mod writer;

pub use client::{ChildServer, StreamClient};
pub use server::{StreamLimits, serve_stream};

/// Lines as messages, for the workspace's own crates. Not covered by semantic versioning.
#[doc(hidden)]
pub mod lines {
    pub use super::oversized::MessagePrefix;
    pub use super::reader::{Line, LineReader};
    pub use super::writer::{LineState, json_line, write_lines};
}
