//! Transports of the Model Context Protocol, revision 2026-07-28: streamable HTTP, standard
//! streams, and both ends in one process.
//!
//! This crate is for authors of MCP SDKs, gateways and test tools. To write a server or a client,
//! use the `mrtr` crate.
//!
//! The rules of the protocol are pure functions without a runtime: the headers of a request
//! ([`headers`]), the hosts and origins that may call ([`host_policy`]), and server-sent events
//! ([`sse`]). The backends behind features are thin shells around them.
//!
//! ```
//! use std::sync::Arc;
//!
//! use mrtr_schema::RawJson;
//! use mrtr_schema::jsonrpc::{ErrorObject, Response};
//! use mrtr_transport::{IncomingRequest, RequestHandler};
//!
//! /// A server that knows no methods. `http::Endpoint::new(Empty)` serves it over HTTP,
//! /// `stdio::serve_stream` over a byte stream, and `InProcess::new(Empty)` calls it directly.
//! struct Empty;
//!
//! impl RequestHandler for Empty {
//!     async fn handle(self: Arc<Self>, incoming: IncomingRequest) -> Response<RawJson> {
//!         let request = incoming.request;
//!         Response::error(Some(request.id), ErrorObject::method_not_found(&request.method))
//!     }
//! }
//! ```
//!
//! # Traits
//!
//! - [`RequestHandler`] answers requests. A transport calls it with each request that it admits.
//! - [`Transport`] sends requests. A client calls it and gets the response.
//!
//! # Features
//!
//! | feature | adds |
//! |---|---|
//! | `http-endpoint` | `http::Endpoint`, a server's endpoint as a `tower_service::Service` |
//! | `http-serve` | `http::serve`, which runs an endpoint on hyper |
//! | `http-client` | `http::HttpClient` |
//! | `tls` | `https` for the client |
//! | `stdio` | servers and clients on standard streams and other byte streams |
//!
//! # Out of scope
//!
//! - Authentication: put a tower layer in front that attaches the principal to the request's
//!   extensions, such as that of `mrtr-auth`. They reach the [`RequestHandler`] unchanged.
//! - CORS: likewise a tower layer.
//! - HTTP/2 and TLS for servers: mount the endpoint in an HTTP server that has them.

#[doc(hidden)]
pub mod batch;
mod error;
mod granted_scopes;
pub mod headers;
pub mod host_policy;
pub mod http;
mod in_process;
#[cfg(any(feature = "http-endpoint", feature = "stdio"))]
mod json_line;
mod notifications;
mod proof_key;
mod response_parts;
#[cfg(any(feature = "http-endpoint", feature = "stdio"))]
mod server_side;
pub mod sse;
#[cfg(feature = "stdio")]
pub mod stdio;
mod too_many_requests;
mod traits;
#[cfg(any(feature = "stdio", feature = "http-endpoint"))]
#[doc(hidden)]
pub mod unread;

pub use error::{BoxError, TransportError};
#[doc(hidden)]
pub use granted_scopes::scope_challenge;
pub use granted_scopes::{GrantedScopes, insufficient_scope};
pub use in_process::InProcess;
pub use notifications::{NotificationReceiver, NotificationSender};
pub use proof_key::ProofKey;
pub use too_many_requests::{retry_after, too_many_requests};
pub use traits::{
    IncomingRequest, OutgoingRequest, ProtocolVersion, RequestHandler, Transport,
    WithoutParamHeaders,
};
