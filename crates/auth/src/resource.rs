//! Resource servers: checks the access tokens of requests (specification: authorization; OAuth
//! 2.1, section 5).
//!
//! A [`ProtectedResource`] knows the URL of an MCP server and the issuers of its tokens. It wraps
//! the server's endpoint, or any other tower service: it answers requests without a good token, and
//! publishes the metadata by which clients find the authorization server.
//!
//! ```
//! use mrtr_auth::resource::{JwtIssuer, ProtectedResource};
//!
//! # fn example<S>(endpoint: S) -> Result<(), mrtr_auth::resource::ConfigError> {
//! let resource = ProtectedResource::builder("https://booking.example/mcp")
//!     .issuer(JwtIssuer::new("https://login.example"))
//!     .scopes(["booking:read"])
//!     .scopes_supported(["booking:write"])
//!     .implies("booking:write", "booking:read")
//!     .build()?;
//! let service = resource.protect(endpoint);
//! # Ok(())
//! # }
//! ```
//!
//! A request that passes has these extensions:
//!
//! - [`Principal`](mrtr_codec::Principal): the issuer, the subject and the client of the token,
//! - [`GrantedScopes`](mrtr_transport::GrantedScopes): its scopes, and those that they imply,
//! - [`ProofKey`](mrtr_transport::ProofKey): the key that the token is bound to, if it is.
//!
//! It has no `Authorization` and no `DPoP` header any more, so that a handler cannot pass a token
//! on (specification: security considerations, token passthrough).
//!
//! # Responses
//!
//! | request | response |
//! |---|---|
//! | has no token | 401, a challenge without `error` |
//! | its token is not valid for this resource | 401 `invalid_token`, the same for every reason |
//! | lacks a scope that all requests need | 403 `insufficient_scope`, with all of those scopes |
//! | is malformed, or its token is in the URL | 400 `invalid_request` |
//! | has no good proof of the key of its token | 401 `invalid_dpop_proof` or `use_dpop_nonce` |
//! | cannot be checked, because the issuer is unreachable | 503 with `Retry-After` |
//!
//! The reason is logged at debug level under the target `mrtr::auth`, without the token. An
//! unreachable issuer is a warning.
//!
//! If the inner service answers 403 with a challenge `insufficient_scope`, then the challenge is
//! completed: with the place of the metadata, and with the scopes that all requests need.
//!
//! # Runtime
//!
//! The services need a tokio runtime with time and I/O enabled: keys are fetched by a task of their
//! own, so that a client that disconnects does not cancel the fetch.

mod algorithm;
mod audience;
mod body;
mod builder;
mod challenge;
mod claims;
mod clock;
mod config_error;
mod credentials;
mod discovery;
mod dpop;
mod fetch;
mod flights;
mod introspection;
mod issuer;
mod jwk;
mod jws;
mod layer;
mod metadata_service;
mod nonce;
mod proof;
mod protected_resource;
mod refresh;
mod rejection;
mod replay;
mod scope_hierarchy;
mod service;
mod strict_json;
mod token_cache;

pub use algorithm::Algorithm;
pub use body::ResponseBody;
pub use builder::ProtectedResourceBuilder;
pub use config_error::ConfigError;
pub use dpop::Dpop;
pub use introspection::IntrospectionIssuer;
pub use issuer::{JwtIssuer, TokenIssuer};
pub use layer::ProtectLayer;
pub use metadata_service::MetadataService;
pub use protected_resource::ProtectedResource;
pub use service::Protected;
