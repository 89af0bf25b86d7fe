//! The server's side of a stream.

mod limits;
mod request_state;
mod serve;
mod session;

pub use limits::StreamLimits;
pub use serve::serve_stream;
