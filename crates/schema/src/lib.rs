//! Wire types of the Model Context Protocol, revision 2026-07-28.
//!
//! This crate is for people who build an MCP SDK, a proxy or a test tool. If you want to write a
//! server or a client, you are looking for the `mrtr` crate.
//!
//! ```
//! use mrtr_schema::{jsonrpc::Message, tool::CallToolParams};
//!
//! let body = br#"{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"book","arguments":{"people":2}}}"#;
//! let Message::Request(request) = Message::parse(body)? else { panic!("a request") };
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
//! - No union is guessed: the variant is picked by `method`, `mode`, `type` or `resultType`, and an
//!   error names the field that was wrong.
//! - [`jsonrpc::Message::parse`] refuses duplicate keys, lone surrogates and nesting deeper than 128
//!   anywhere in a message, so that two readers can never see two different messages.
//! - No I/O, no clock, no async runtime.
//!
//! # What it does not do
//!
//! - It does not validate values against a tool's JSON Schema.
//! - It does not hold the rules of any transport; see `mrtr-transport`.
//!
//! # Modules
//!
//! [`jsonrpc`] the envelope and error codes · [`meta`] `_meta` · [`capabilities`] · [`discover`] ·
//! [`tool`] · [`prompt`] · [`resource`] · [`completion`] · [`content`] · [`input`] the multi round-trip types · [`elicitation`] ·
//! [`form`] the restricted form schema · [`sampling`] · [`roots`] · [`notification`] · [`subscription`] · [`result`] what all results share

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
