//! Authorization for the Model Context Protocol, revision 2026-07-28: OAuth 2.1 clients, and
//! resource servers as a tower layer.
//!
//! The modules that need no feature parse and write challenges ([`www_authenticate`]), scopes and
//! metadata ([`metadata`]), without I/O. The two sides are behind features.
//!
//! # Features
//!
//! | feature | adds |
//! |---|---|
//! | `client` | `client`: logs in, and adds its tokens to the requests of an `HttpClient` |
//! | `resource` | `resource`: checks the access tokens of requests, as a tower layer |
//! | `connect` | `connect`: connects accounts at third parties in the middle of a call |
//! | `keyring` | `client::KeyringStore`: keeps sessions in the keyring of the operating system |
//! | `tls` | `https` for what both of them fetch |
//!
//! # Out of scope
//!
//! - An authorization server: use one of those that exist.
//! - OpenID Connect beyond the discovery document: ID tokens are not read.

#[cfg(feature = "client")]
pub mod client;
#[cfg(feature = "connect")]
pub mod connect;
#[cfg(any(feature = "client", feature = "resource"))]
mod fetch;
mod identifier;
#[cfg(any(feature = "connect", feature = "resource"))]
mod in_use;
pub mod metadata;
mod quote;
#[cfg(feature = "resource")]
pub mod resource;
mod scope;
pub mod www_authenticate;

pub use identifier::{InvalidUrl, Issuer, ResourceId};
pub use scope::{InvalidScope, Scopes};

/// Compiles the example of the README.
#[cfg(all(doctest, feature = "resource"))]
#[doc = include_str!("../README.md")]
mod readme {}
