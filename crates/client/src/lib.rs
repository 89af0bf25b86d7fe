//! A Model Context Protocol client (revision 2026-07-28) for calls that ask back.
//!
//! This crate is for people who bring their own transport or their own loop. If you want to call
//! servers over HTTP, you are looking for the `mrtr` crate.
//!
//! [`Machine`] is the loop as a pure state machine: responses and answers in, requests and questions
//! out; no clock, no socket, no task. [`Client`] drives it over an [`Transport`], with handlers for the
//! questions.
//!
//! ```
//! # use mrtr_client::{Client, Transport, OutgoingRequest, TransportError};
//! # use mrtr_schema::jsonrpc::Response;
//! # use serde_json::value::to_raw_value;
//! # struct Server;
//! # impl Transport for Server {
//! #     async fn send(&self, outgoing: OutgoingRequest<'_>) -> Result<Response, TransportError> {
//! #         let result = serde_json::json!({ "resultType": "complete", "content": [{ "type": "text", "text": "Booked." }] });
//! #         Ok(Response { id: Some(outgoing.request.id), outcome: Ok(to_raw_value(&result).unwrap()) })
//! #     }
//! # }
//! # let server = Server;
//! # tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(async {
//! use mrtr_schema::elicitation::ElicitResult;
//! use serde_json::json;
//!
//! let client = Client::builder(server)
//!     .on_form(async |question, form| {
//!         println!("{}: {}", question.target, form.message);
//!         Ok(ElicitResult::decline())
//!     })
//!     .build();
//! let result = client.call_tool("book", json!({ "people": 2 })).await?;
//! assert_eq!(result.text(), "Booked.");
//! # Ok::<(), mrtr_client::CallError>(())
//! # }).unwrap();
//! ```
//!
//! # Guarantees
//!
//! - The state that a server sends goes back byte for byte, only with the call it belongs to; where
//!   there was none, none is sent. Every leg has an id of its own.
//! - What a client declares it can do is what it has handlers for.
//! - What is reused is what the server allows, for as long as it allows; never a result that took rounds.
//! - A call ends: rounds are counted, and a server that asks on and on gets an error that says what it
//!   asked last.
//! - A call can be put down at any question, as data ([`PendingCall`]), and be gone on with by another process.

mod answers;
mod builder;
mod cache;
mod call_options;
mod client;
mod driver;
mod error;
mod handlers;
mod machine;
mod notifications;
mod observer;
mod output_schema;
mod pending_call;
mod resume;
mod subscription;
#[cfg(feature = "terminal")]
pub mod terminal;

pub use builder::ClientBuilder;
pub use client::Client;
pub use error::CallError;
pub use handlers::Question;
pub use machine::{Action, Event, Machine, RequestIds, RoundLimits};
pub use mrtr_schema::meta::TraceContext;
pub use mrtr_transport::{BoxError, OutgoingRequest, Transport, TransportError};
pub use observer::{CallEvent, PolicyDecision, RequestInfo};
pub use pending_call::PendingCall;
pub use resume::{CallOutcome, CallResult};
pub use subscription::{Subscription, SubscriptionEvent};
