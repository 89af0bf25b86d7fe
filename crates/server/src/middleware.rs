//! Middleware: [`tower_layer::Layer`]s around a tool, a [group](crate::FeatureGroup) or the server.
//!
//! A layer in front of the endpoint sees HTTP requests. One that is added here sees MCP requests,
//! on every transport: the method, the tool, its arguments, the principal of the caller, and the
//! result. It runs once for each request, so a call of three rounds passes it three times.
//! [`Request::is_first_round`] tells the first round from the others.
//!
//! [`from_fn`] creates a layer from a function:
//!
//! ```
//! use std::time::Instant;
//!
//! use mrtr_server::middleware::{self, Next, Request, Response};
//! use mrtr_server::{Context, Server, Tool};
//! use mrtr_schema::jsonrpc::ErrorObject;
//!
//! async fn measure(request: Request, next: Next) -> Result<Response, ErrorObject> {
//!     let (method, started) = (request.method().to_owned(), Instant::now());
//!     let outcome = next.run(request).await;
//!     tracing::info!(method, elapsed = ?started.elapsed(), "served");
//!     outcome
//! }
//!
//! let server = Server::builder("shop", "1.0.0")
//!     .tool(Tool::new("search", "Searches the shop", async |_: Context| "Nothing found"))
//!     .layer(middleware::from_fn(measure))
//!     .allow_anonymous()
//!     .ephemeral_key()
//!     .build()?;
//! # Ok::<(), mrtr_server::BuildError>(())
//! ```
//!
//! Any other layer works, too, if its service is `Clone`: a timeout or a concurrency limit of the
//! `tower` crate, for example.
//!
//! # Errors
//!
//! A layer answers with an error by returning an
//! [`ErrorObject`](mrtr_schema::jsonrpc::ErrorObject). Any other error type is logged, and becomes
//! an internal error (-32603). So does a panic.
//!
//! # What a layer does not see
//!
//! - Requests that are rejected before they are dispatched: those that are not valid, and those
//!   without a principal, if the server [requires](crate::ServerBuilder::require_principal) one.
//! - The rest of a call that has become a [task](crate::tasks). It is run by whichever replica has
//!   its lease, and its request has ended.
//! - In a layer of a tool, prompt or resource: requests of callers that cannot
//!   [see](crate::Tool::visible_to) it. Only the layers of the server run for those.

mod request;
mod response;
mod stack;

pub use request::Request;
pub(crate) use request::{Dispatch, ResponseFuture};
pub(crate) use response::ResultSummary;
pub use response::{Response, ResultType};
pub use stack::{FromFn, FromFnLayer, LayerFuture, Next, from_fn};
