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
//! Layers of the `tower` crate that accept any request type also work if their service is `Clone`,
//! such as `TimeoutLayer`. Layers for HTTP requests, such as those of `tower-http`, belong in front
//! of the endpoint. A group applies a layer to each of its features separately. To limit the
//! concurrency of a whole group, use `GlobalConcurrencyLimitLayer`.
//!
//! A layer around the server also wraps `subscriptions/listen`, whose response comes only when the
//! subscription ends. Put timeouts and concurrency limits around tools or groups, or exclude this
//! method.
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
//! - Layers around a tool, group, prompt or resource run only for `tools/call`, `prompts/get`,
//!   `resources/read` and `completion/complete`, and only for callers that can
//!   [see](crate::Tool::visible_to) the feature. Lists, subscriptions and requests about tasks pass
//!   only the layers of the server.

mod request;
mod response;
mod stack;

pub use request::Request;
pub(crate) use request::{Dispatch, ResponseFuture};
pub(crate) use response::ResultSummary;
pub use response::{Response, ResultType};
pub use stack::{FromFnLayer, LayerFuture, Next, RequestService, from_fn};
