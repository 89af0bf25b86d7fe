//! Wire types of the Model Context Protocol, revision 2026-07-28.
//!
//! This crate is for authors of MCP SDKs, proxies and test tools. To write a server or a client,
//! use the `mrtr` crate.
//!
//! ```
//! use mrtr_schema::{jsonrpc::Message, tool::CallToolParams};
//!
//! let body = br#"{"jsonrpc":"2.0","id":7,"method":"tools/call",
//!     "params":{"name":"book","arguments":{"people":2}}}"#;
//! let Message::Request(request) = Message::parse(body)? else { panic!("not a request") };
//! assert_eq!(request.method, "tools/call");
//!
//! let call: CallToolParams = request.decode_params()?;
//! assert_eq!(call.name, "book");
//! // Arguments stay raw JSON until the tool's own type reads them.
//! assert_eq!(call.arguments.unwrap().get(), r#"{"people":2}"#);
//! # Ok::<(), mrtr_schema::jsonrpc::ErrorObject>(())
//! ```
//!
//! # Guarantees
//!
//! - Unions are not guessed: `method`, `mode`, `type` or `resultType` selects the variant, and an
//!   error names the invalid field.
//! - [`jsonrpc::Message::parse`] refuses duplicate keys, lone surrogates and nesting deeper than
//!   128 anywhere in a message, so that two parsers never read the same message differently.
//! - No I/O, no clock, no async runtime.
//!
//! # Out of scope
//!
//! - It validates no values against a tool's JSON Schema, unless the feature `validate` is on.
//! - It does not contain the rules of any transport; see `mrtr-transport`.
//!
//! # Modules
//!
//! - [`jsonrpc`]: the envelope and the error codes; [`meta`]: `_meta`; [`result`]: the fields that
//!   all results share
//! - [`discover`], [`capabilities`], [`tool`], [`prompt`], [`resource`], [`completion`],
//!   [`content`], [`notification`], [`subscription`]
//! - [`input`]: the types of multi round-trip requests; [`elicitation`], [`sampling`], [`roots`]:
//!   the input requests; [`form`]: the restricted schema of forms
//! - [`tasks`]: the extension for calls that outlive their request; [`apps`]: the extension for
//!   HTML that shows results

pub mod apps;
pub mod capabilities;
pub mod completion;
pub mod content;
pub mod discover;
pub mod elicitation;
pub mod form;
pub mod icon;
pub mod input;
mod invalid;
#[doc(hidden)]
pub mod json;
#[cfg(feature = "validate")]
pub mod json_schema;
pub mod jsonrpc;
#[doc(hidden)]
pub mod known_meta;
pub mod meta;
pub mod method;
pub mod notification;
#[doc(hidden)]
pub mod peer_text;
pub mod prompt;
#[doc(hidden)]
pub mod request_head;
pub mod resource;
pub mod result;
pub mod roots;
pub mod sampling;
mod setters;
pub mod subscription;
pub mod tasks;
pub mod tool;
mod trace_context;
#[doc(hidden)]
pub mod uri;

pub use invalid::InvalidValue;
pub use json::RawJson;

/// The protocol revision that this crate describes.
pub const PROTOCOL_VERSION: &str = "2026-07-28";

/// A JSON object whose members keep their order.
pub type Object = serde_json::Map<String, serde_json::Value>;
