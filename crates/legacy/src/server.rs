//! Legacy clients, served by a handler of the current revision.

mod batch;
mod call;
mod claims;
mod context;
mod gateway;
mod http;
mod listen;
mod opening;
mod options;
mod resume;
mod run;
mod session;
mod sessions;
mod stdio;
mod stream;

pub use http::LegacyServer;
pub use options::LegacyOptions;
pub use stdio::serve_stream;
