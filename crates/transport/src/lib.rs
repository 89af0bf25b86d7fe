//! Transports of the Model Context Protocol, revision 2026-07-28.
//!
//! This crate is for people who build an MCP SDK, a gateway or a test tool. If you want to write a
//! server or a client, you are looking for the `mrtr` crate.
//!
//! The rules are pure functions, free of any runtime: which headers a request needs ([`headers`]),
//! which origins and hosts may call ([`access`]), how an SSE stream is read ([`sse`]). The backends
//! behind features are thin shells on them.
//!
//! ```
//! use mrtr_transport::headers;
//!
//! assert_eq!(headers::encode("Zürich"), "=?base64?WsO8cmljaA==?=");
//! assert_eq!(headers::decode("=?base64?WsO8cmljaA==?=").as_deref(), Some("Zürich"));
//! ```
//!
//! # The two seams
//!
//! - [`Dispatch`] is what a transport calls with each request it has let through: the server.
//! - [`Exchange`] is what a client calls to send a request and get its response.
//!
//! # What it does not do
//!
//! - Authentication: put a tower layer in front, and let it leave who calls in the request's
//!   extensions. They reach [`Dispatch`] unread.
//! - CORS: likewise.
//!
//! # Modules
//!
//! [`headers`] · [`access`] · [`sse`] · [`http`] the backends (features `http-endpoint`, `http-serve`,
//! `http-client`, `tls`) · `stdio` and other streams (feature `stdio`)

pub mod access;
mod answering;
mod error;
pub mod headers;
pub mod http;
#[cfg(any(feature = "http-endpoint", feature = "stdio"))]
mod legacy;
#[cfg(any(feature = "http-endpoint", feature = "stdio"))]
mod metrics;
#[cfg(any(feature = "http-endpoint", feature = "stdio"))]
mod one_line;
mod outbox;
mod seam;
pub mod sse;
#[cfg(feature = "stdio")]
pub mod stdio;

pub use error::{BoxError, TransportError};
pub use outbox::{Inbox, Outbox};
pub use seam::{Call, Dispatch, Exchange, InProcess, Outgoing};
