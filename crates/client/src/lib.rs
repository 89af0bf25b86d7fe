//! A Model Context Protocol client (revision 2026-07-28) for multi round-trip requests.
//!
//! This crate is for programs with a transport or a call loop of their own. To call servers over
//! HTTP or stdio, use the `mrtr` crate.
//!
//! [`Client`] calls a server over any [`Transport`] and answers the server's input requests with
//! handlers. [`Machine`] is the same loop as a pure state machine: responses in, requests out,
//! without a clock, a socket or a task. It also runs in WebAssembly (`wasm32-unknown-unknown`).
//! `Client` does not, because it needs Tokio's timer.
//!
//! ```
//! # use mrtr_client::{Client, OutgoingRequest, Transport, TransportError};
//! # use mrtr_schema::jsonrpc::Response;
//! # struct Server;
//! # impl Transport for Server {
//! #     async fn send(&self, outgoing: OutgoingRequest<'_>) -> Result<Response, TransportError> {
//! #         let text = serde_json::json!({ "type": "text", "text": "Booked." });
//! #         let result = serde_json::json!({ "resultType": "complete", "content": [text] });
//! #         let result = serde_json::value::to_raw_value(&result).unwrap();
//! #         Ok(Response { id: Some(outgoing.request.id), outcome: Ok(result) })
//! #     }
//! # }
//! # let transport = Server;
//! # tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(async {
//! use mrtr_schema::elicitation::ElicitResult;
//! use serde_json::json;
//!
//! let client = Client::builder(transport)
//!     .on_form(async |context, form| {
//!         println!("{} asks: {}", context.target, form.message);
//!         Ok(ElicitResult::accept(json!({ "place": "outside" }))?)
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
//! - The server's request state is sent back byte for byte, and only with the call it belongs to.
//!   Each request has an id of its own.
//! - The client declares exactly the capabilities that it has handlers for. Extensions,
//!   tasks among them, are declared on request alone ([`ClientBuilder::with_tasks`]).
//! - Results are reused only for as long as the server allows, and never if they took more than
//!   one round.
//! - Every call ends: the rounds are counted and limited ([`RoundLimits`]). A call that the server
//!   turned into a task lasts as long as the task, or until its timeout.
//! - A call can be paused at any input request, and while it is a task, as data ([`PendingCall`])
//!   and resumed by another process.

/// Compiles the example of the README.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
mod readme {}

mod answers;
mod apps;
mod backoff;
mod builder;
mod cache;
mod call_options;
mod call_result;
mod call_timer;
mod calls;
mod client;
mod driver;
mod error;
mod handlers;
mod input_context;
mod json;
mod lists;
mod machine;
mod notifications;
mod observer;
mod output_schema;
mod pending_call;
mod pending_task;
mod policy;
mod request_ids;
mod resume;
mod round_limits;
mod subscription;
mod tasks;
#[cfg(feature = "terminal")]
pub mod terminal;
mod tool_info;
mod trace;
mod user_time;

pub use apps::UiResource;
pub use builder::ClientBuilder;
pub use call_result::CallResult;
pub use client::Client;
pub use error::CallError;
pub use input_context::InputContext;
pub use machine::{Action, Event, Machine};
pub use mrtr_schema::meta::TraceContext;
pub use mrtr_transport::{BoxError, OutgoingRequest, Transport, TransportError};
pub use observer::{CallEvent, RequestInfo};
pub use pending_call::PendingCall;
pub use policy::PolicyDecision;
pub use request_ids::RequestIds;
pub use resume::CallOutcome;
pub use round_limits::RoundLimits;
pub use subscription::{Subscription, SubscriptionEvent};
pub use user_time::{UserTime, UserWait};
