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
//! - [`RequestHandler`] is what a transport calls with each request it has let through: the server.
//! - [`Transport`] is what a client calls to send a request and get its response.
//!
//! # What it does not do
//!
//! - Authentication: put a tower layer in front, and let it leave who calls in the request's
//!   extensions. They reach [`RequestHandler`] unread.
//! - CORS: likewise.
//!
//! # Modules
//!
//! [`headers`] · [`access`] · [`sse`] · [`http`] the backends (features `http-endpoint`, `http-serve`,
//! `http-client`, `tls`) · `stdio` and other streams (feature `stdio`)

mod error;
pub mod headers;
pub mod host_policy;
pub mod http;
#[cfg(any(feature = "http-endpoint", feature = "stdio"))]
mod initialize;
#[cfg(any(feature = "http-endpoint", feature = "stdio"))]
mod json_line;
#[cfg(any(feature = "http-endpoint", feature = "stdio"))]
mod metrics;
mod notifications;
mod response_parts;
pub mod sse;
#[cfg(feature = "stdio")]
pub mod stdio;
mod traits;

pub use error::{BoxError, TransportError};
pub use notifications::{NotificationReceiver, NotificationSender};
pub use traits::{InProcess, IncomingRequest, OutgoingRequest, RequestHandler, Transport};
