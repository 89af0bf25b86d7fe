//! Legacy clients, served by a handler of the current revision.

mod bus;
mod call;
mod claims;
mod context;
mod gateway;
mod http;
mod listen;
mod opening;
mod options;
mod replicas;
mod resume;
mod run;
mod session;
mod sessions;
mod stdio;
mod stream;

#[cfg(feature = "postgres")]
pub use bus::PostgresBus;
#[cfg(feature = "redis")]
pub use bus::RedisBus;
pub use bus::{BusError, ReplicaBus};
pub use http::LegacyServer;
pub use options::LegacyOptions;
pub use stdio::serve_stream;
