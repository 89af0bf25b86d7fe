//! The client's side of a stream.

mod child;
mod pending;
mod send_state;
mod stream_client;

pub use child::ChildServer;
pub use stream_client::StreamClient;
