//! Legacy revisions of the Model Context Protocol (2025-03-26, 2025-06-18 and 2025-11-25) for
//! servers and clients of revision 2026-07-28.
//!
//! This crate is for authors of frameworks and SDKs. To write a server or a client, use the `mrtr`
//! crate, whose feature `legacy` does all of this.

#[cfg(feature = "client")]
mod client;
mod code;
mod handshake;
pub mod legacy_method;
#[cfg(feature = "server")]
mod server;
#[cfg(feature = "server")]
mod translate;
mod version;

#[cfg(feature = "client")]
pub use client::*;
pub use handshake::{InitializeParams, InitializeResult};
#[cfg(feature = "server")]
pub use server::*;
pub use version::LegacyVersion;
