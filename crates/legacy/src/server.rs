//! Legacy clients, served by a handler of the current revision.

mod call;
mod claims;
mod context;
mod gateway;
#[cfg(feature = "http-endpoint")]
mod http;
mod listen;
mod options;
mod resume;
mod run;
mod session;
mod sessions;
#[cfg(feature = "stdio")]
mod stdio;
mod stream;

#[cfg(feature = "http-endpoint")]
pub use http::LegacyServer;
pub use options::LegacyOptions;
#[cfg(feature = "stdio")]
pub use stdio::serve_stream;
