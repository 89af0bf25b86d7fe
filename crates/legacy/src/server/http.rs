//! Streamable HTTP of the legacy revisions: POST, GET and DELETE at one path.

mod body;
mod caller;
mod get;
mod legacy_server;
mod post;
mod rejected;

pub use legacy_server::LegacyServer;
