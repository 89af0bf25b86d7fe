//! A stateless Model Context Protocol server (revision 2026-07-28) whose tools ask questions in the
//! middle of a call: durable execution by deterministic replay, with the journal sealed in the
//! client's hands.
//!
//! This crate is for authors of frameworks and transports. To write a server, use the `mrtr` crate,
//! which adds HTTP and standard streams.
//!
//! ```
//! use mrtr_server::{Context, Result, Server, Tool};
//! use schemars::JsonSchema;
//! use serde::Deserialize;
//!
//! #[derive(Deserialize, JsonSchema)]
//! struct Booking {
//!     people: u8,
//! }
//!
//! #[derive(Deserialize, JsonSchema)]
//! struct Seat {
//!     /// Inside or outside?
//!     place: String,
//! }
//!
//! async fn book(cx: Context, booking: Booking) -> Result<String> {
//!     let hold: String =
//!         cx.step("hold", async |step| Ok(format!("hold-{}", step.idempotency_key()))).await?;
//!     let seat: Seat = cx.elicit("seat", "Where would you like to sit?").await?;
//!     Ok(format!("{hold}: a table for {} {}", booking.people, seat.place))
//! }
//!
//! let server = Server::builder("booking", "1.0.0")
//!     .tool(Tool::new("book", "Books a table", book))
//!     .allow_anonymous()
//!     .ephemeral_key()
//!     .build()?;
//! # Ok::<(), mrtr_server::BuildError>(())
//! ```
//!
//! # The model
//!
//! Every round of a call runs the handler **again from its first line**. Answers and step results
//! of earlier rounds are in the *journal*, which the client carries in the sealed request state. An
//! input request that has an answer is ready at once, and a step that has a result does not run
//! again. So:
//!
//! - Put every side effect into a [`Context::step`].
//! - Between input requests and steps, the handler must be deterministic: with the same answers and
//!   results it takes the same path.
//!
//! # Guarantees
//!
//! - Within one HTTP or stdio request, a step runs at most once. It runs again if a client repeats
//!   a request or goes back to an older state: give [`Step::idempotency_key`] to external systems.
//!   The key is stable from the first sealed state on. A first request that is sent twice is two
//!   calls.
//! - An answer to a question asked with [`Context`] counts only if that question was asked with the
//!   same wording. A question whose message changes from round to round is asked again.
//! - A client can go back to any state that it received, while that state is valid, and it can
//!   answer questions itself. Neither the order of rounds nor an answer proves anything about a
//!   user.
//!
//! # Modules
//!
//! [`extract`]: handler parameters · [`form`]: forms from Rust types · [`manual`]: handlers that
//! keep their state themselves · [`single_use`]: request states that are accepted once · [`seal`]:
//! keys and sealers · [`middleware`]: layers around tools, groups and the server · [`tasks`]: calls
//! that outlive their request · `testing` (feature `testing`): tests of handlers ·
//! [`development`]: keys of servers in development

mod apps;
mod build_error;
mod builder;
mod call_options;
mod catalog;
mod changes;
mod client_feature;
mod clock;
mod completion;
mod context;
pub mod development;
mod dispatch;
mod error;
mod extension;
pub mod extract;
mod features;
pub mod form;
mod form_answer;
mod group;
mod handler;
mod handler_context;
pub mod manual;
pub mod middleware;
mod output;
mod prompt;
mod question;
#[cfg(feature = "redis")]
#[doc(hidden)]
pub mod redis_connection;
mod registry;
mod request_parts;
mod resource;
mod response;
mod rounds;
mod runtime;
mod schema_validation;
mod server;
mod setters;
pub mod single_use;
mod state;
mod state_error;
mod task_tracker;
pub mod tasks;
mod telemetry;
mod template;
#[cfg(feature = "testing")]
pub mod testing;
mod tool;
mod trace_parent;
mod update;
mod uri_guards;
mod uri_spelling;
mod validate;
mod visibility;

pub use build_error::BuildError;
pub use builder::ServerBuilder;
pub use changes::{Change, ChangeNotifier, WatchedResources};
pub use client_feature::ClientFeature;
pub use clock::{Clock, SystemClock};
pub use completion::CompletionRequest;
pub use context::Context;
pub use error::Error;
pub use extension::ExtensionRequest;
pub use extract::{Extension, Progress, State};
pub use features::Feature;
pub use group::FeatureGroup;
pub use handler::Handler;
pub use mrtr_codec::{KeyRing, Principal, Secret, SharedKeyRing, UnixSeconds};
pub use mrtr_transport::{retry_after, too_many_requests};
pub use output::{PromptOutput, ResourceOutput, ToolOutput};
pub use prompt::Prompt;
pub use request_parts::RequestParts;
pub use resource::{CacheControl, Resource, ResourceTemplate, ResourceUri};
pub use response::{IntoError, IntoPromptResult, IntoResourceResult, IntoToolResult, Json};
pub use rounds::{AtMostOnce, ElicitOutcome, InputFuture, Step, StepFuture};
pub use server::Server;
pub use state::StateRequirements;
pub use tool::Tool;
pub use update::ServerUpdate;

/// Sealed request states: keys, key rotation, and custom sealers.
pub mod seal {
    pub use mrtr_codec::*;
}

/// The result of a handler, and of the questions and steps that it awaits.
pub type Result<T, E = Error> = std::result::Result<T, E>;
