//! A Model Context Protocol server (revision 2026-07-28) that keeps nothing between requests, and
//! whose tools ask questions in line.
//!
//! This crate is for people who bring their own transport or build a framework. If you want to write a
//! server, you are looking for the `mrtr` crate, which adds HTTP.
//!
//! ```
//! use mrtr_server::{Context, Result, Server, Tool, ToolOutput};
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
//!     /// StepScope or outside?
//!     place: String,
//! }
//!
//! async fn book(cx: Context, booking: Booking) -> Result<ToolOutput> {
//!     let hold: String = cx.step("hold", async |s| Ok(format!("hold-{}", s.idempotency_key()))).await?;
//!     let seat: Seat = cx.elicit("seat", "Where would you like to sit?").await?;
//!     Ok(format!("{hold}: a table for {} {}", booking.people, seat.place).into())
//! }
//!
//! let server = Server::builder("booking", "1.0.0")
//!     .tool(Tool::new("book", "Books a table", book))
//!     .allow_anonymous()
//!     .build()?;
//! # Ok::<(), mrtr_server::BuildError>(())
//! ```
//!
//! # The model
//!
//! A handler runs **again from its first line** on every leg of a flow. What it has learned is in the
//! sealed state that travels with the client: answers, and the results of steps. A question that has
//! an answer is ready at once; a step that has a result is not run again. So:
//!
//! - Whatever has an effect on the world belongs into a [`Context::step`].
//! - Between questions and steps, the handler must take the same path when it sees the same answers.
//!
//! # What is promised
//!
//! - A step runs at most once per request received. A client that repeats a request, or goes back to an
//!   older state, makes it run again: hand [`Step::idempotency_key`] to the outside world. It is stable
//!   from the first sealed state on; a first request that is sent twice is two flows.
//! - An answer to a question in line counts only if that question was asked, as it reads now. A question
//!   whose message changes from leg to leg is asked again.
//! - A client can go back to any state it was given, while that is valid, and it can answer its own
//!   questions. Neither the order of rounds nor an answer proves anything about a person.
//!
//! # Modules
//!
//! [`form`] forms from Rust types · [`manual`] the form in which the handler keeps its state itself ·
//! [`replay`] states that work once · `testing` (a feature) tests of handlers

mod catalog;
mod changes;
mod client_feature;
mod clock;
mod completion;
mod context;
mod dispatch;
mod error;
mod extension;
pub mod form;
mod handler;
pub mod manual;
mod options;
mod prompt;
mod question;
mod request_context;
mod resource;
mod rounds;
mod runtime;
mod schema_validation;
mod server;
pub mod single_use;
mod state_error;
mod task_tracker;
mod telemetry;
mod template;
#[cfg(feature = "testing")]
pub mod testing;
mod tool;
mod validate;

pub use changes::{Change, ChangeNotifier};
pub use client_feature::ClientFeature;
pub use clock::{Clock, SystemClock};
pub use completion::CompletionRequest;
pub use context::Context;
pub use error::Error;
pub use extension::ExtensionRequest;
pub use handler::Handler;
pub use manual::InputRequired;
pub use validate::BuildError;
/// The sealed state: keys, and how to seal by other means.
pub mod codec {
    pub use mrtr_codec::*;
}
pub use mrtr_codec::{KeyRing, Principal, Secret, SharedKeyRing, UnixSeconds};
pub use prompt::{Prompt, PromptOutput};
pub use resource::{CacheControl, Resource, ResourceOutput, ResourceTemplate};
pub use rounds::{ElicitOutcome, InputFuture, Step, StepFuture};
pub use server::{Server, ServerBuilder};
pub use tool::{Json, Tool, ToolOutput};

/// What handlers return.
pub type Result<T, E = Error> = std::result::Result<T, E>;
