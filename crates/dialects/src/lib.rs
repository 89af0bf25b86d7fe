//! The wire formats of the proposals that led to multi round-trip requests, in front of servers and
//! clients of revision 2026-07-28.
//!
//! This crate is for systems that were built by one of these proposals. To write a server or a
//! client of the Model Context Protocol, use the `mrtr` crate, and nothing of this one.
//!
//! A [`Dialect`] is such a wire format. The handlers, the sealed journal and the client's handlers
//! are those of the current revision: [`wire`] translates messages, without I/O, and the adapters
//! are thin.
//!
//! - `DialectEndpoint` (feature `server`) is a tower service in front of a request handler. It has
//!   a path of its own: the standard endpoint never guesses a dialect from the form of a message.
//! - `DialectClient` (feature `client`) is a transport for a client of the current revision.

#[cfg(feature = "client")]
mod client;
mod dialect;
#[cfg(feature = "server")]
mod server;
pub mod wire;

#[cfg(feature = "client")]
pub use client::DialectClient;
pub use dialect::Dialect;
#[cfg(feature = "server")]
pub use server::DialectEndpoint;
