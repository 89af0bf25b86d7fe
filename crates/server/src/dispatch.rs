//! The dispatch of requests to their methods.

pub(crate) mod completion;
pub(crate) mod detach;
pub(crate) mod discovery;
mod execute;
mod extension;
mod failure;
mod layers;
pub(crate) mod listen;
mod panics;
pub(crate) mod prompts;
pub(crate) mod resources;
mod scopes;
mod single_use;
pub(crate) mod task_watch;
pub(crate) mod tasks;
pub(crate) mod tools;

use std::future::Future;
use std::sync::Arc;

use mrtr_codec::Principal;
use mrtr_schema::json::{ObjectWriter, RawJson};
use mrtr_schema::jsonrpc::{ErrorObject, Request, Response};
use mrtr_schema::meta::key;
use mrtr_schema::peer_text::quote;
use mrtr_schema::{Object, PROTOCOL_VERSION, method};
use mrtr_transport::{IncomingRequest, NotificationSender, RequestHandler};
use serde::Serialize;
use serde_json::json;
use tracing::Instrument as _;

pub(crate) use self::failure::{fault_response, log_error};
pub(crate) use self::scopes::missing_scopes;
use crate::call_options::CallOptions;
use crate::catalog::raw_json;
use crate::error::Error;
use crate::handler::BoxFuture;
use crate::registry::{Method, Outcome, Registry};
use crate::request_parts::{Notifier, RequestParts};
use crate::server::Server;
use crate::telemetry::RequestTelemetry;

impl RequestHandler for Server {
    fn handle(
        self: Arc<Self>,
        mut call: IncomingRequest,
    ) -> impl Future<Output = Response<RawJson>> + Send + 'static {
        // As much as possible is done before the future: it holds its captures until it ends.
        let registry = self.registry();
        let telemetry =
            RequestTelemetry::start(&registry, &call.request, call.meta.as_deref()).map(Box::new);
        let parts = registry.request_parts(&mut call).map_err(Box::new);
        let request = call.request;
        async move {
            let outcome = match (parts, telemetry) {
                (Ok(parts), None) => registry.respond(&request, parts).await,
                (Ok(parts), Some(telemetry)) => {
                    Box::pin(telemetry.observe(registry.respond(&request, parts))).await
                }
                (Err(error), None) => Err(*error),
                (Err(error), Some(telemetry)) => telemetry.record(Err(*error)),
            };
            let id = request.id;
            if let Err(error) = &outcome {
                tracing::debug!(target: "mrtr::server", %id, %error, "request refused");
            }
            Response { id: Some(id), outcome }
        }
    }

    fn also_serves(&self, versions: &[&'static str]) {
        // All legacy transports serve the same revisions, so the first list is kept.
        let _ = self.registry().runtime.legacy_versions.set(versions.to_vec());
    }

    fn shutdown_begun(&self) -> impl Future<Output = ()> + Send + 'static {
        let registry = self.registry();
        async move { registry.runtime.hand_over.closed().await }
    }
}

impl Registry {
    async fn respond(self: Arc<Self>, request: &Request, parts: Box<RequestParts>) -> Outcome {
        if self.has_layers {
            return Box::pin(self.respond_through_layers(request.clone(), parts)).await;
        }
        self.dispatch(request, parts).await
    }

    /// Answers a request by its method.
    async fn dispatch(self: Arc<Self>, request: &Request, parts: Box<RequestParts>) -> Outcome {
        if request.method != method::TOOLS_CALL || !self.has_tools() {
            // Boxed, so that the future of a tool call, the most frequent one, stays small.
            return match self.methods.get(request.method.as_str()) {
                Some(Method::Protocol(method)) => {
                    let method = *method;
                    method(self, request, parts).await
                }
                Some(Method::Extension(method)) => {
                    self.call_extension(method, request, parts).await
                }
                None => Err(method_not_found(&request.method)),
            };
        }
        let params = request.params.as_ref();
        let has_state = params.and_then(|params| params.member("requestState")).is_some();
        let options = || self.tool(&params?.string("name")?).map(|tool| &tool.options);
        if is_single_use(has_state, options) {
            let registry = Arc::clone(&self);
            let request = request.clone();
            let round = Box::pin(async move { registry.call_tool(&request, parts).await });
            return run_to_completion(&self, round).await;
        }
        self.call_tool(request, parts).await
    }

    /// Makes the checks that every request must pass: the required `_meta`, the protocol version,
    /// and the authentication of the caller.
    fn request_parts(&self, call: &mut IncomingRequest) -> Result<Box<RequestParts>, ErrorObject> {
        let missing = |name: &str| {
            ErrorObject::invalid_params(format!("Invalid params: _meta lacks {name:?}"))
        };
        let meta = call.meta.take().unwrap_or_default();
        let version =
            meta.protocol_version.as_deref().ok_or_else(|| missing(key::PROTOCOL_VERSION))?;
        if version != PROTOCOL_VERSION {
            return Err(ErrorObject::unsupported_version(version, &self.supported_versions()));
        }
        if meta.client_capabilities.is_none() {
            return Err(missing(key::CLIENT_CAPABILITIES));
        }
        let principal = call.extensions.remove::<Principal>();
        if principal.is_none() && !self.allows_anonymous {
            tracing::error!(
                target: "mrtr::server",
                "a request has no Principal: add an authentication layer that inserts one into the \
                 request's extensions, or build the server with `.allow_anonymous()`"
            );
            return Err(ErrorObject::invalid_request(
                "This server does not serve anonymous callers",
            ));
        }
        let outbox = std::mem::replace(&mut call.notifications, NotificationSender::closed());
        Ok(Box::new(RequestParts {
            meta,
            principal,
            headers: std::mem::take(&mut call.headers),
            notifier: Notifier::new(outbox),
            extensions: std::mem::take(&mut call.extensions),
            runtime: Arc::clone(&self.runtime),
            group_states: Vec::new(),
            hides_target: false,
        }))
    }
}

/// Returns true if a round uses up its request state.
fn is_single_use<'r>(has_state: bool, options: impl FnOnce() -> Option<&'r CallOptions>) -> bool {
    has_state && options().is_some_and(|options| options.single_use.is_on())
}

/// Runs a round, to completion if it is `single_use`.
async fn run_round(server: &Registry, single_use: bool, round: BoxFuture<Outcome>) -> Outcome {
    if single_use { run_to_completion(server, round).await } else { round.await }
}

/// Runs a round to completion, even if the client disconnects: the response of a single-use round
/// is kept for when the client repeats the request.
async fn run_to_completion(server: &Registry, round: BoxFuture<Outcome>) -> Outcome {
    let tracked = server.runtime.tasks.track();
    let round = async move {
        let outcome = round.await;
        drop(tracked);
        outcome
    };
    let round = tokio::spawn(round.instrument(tracing::Span::current()));
    round.await.unwrap_or_else(|error| {
        tracing::error!(target: "mrtr::rounds", %error, "a round ended without a response");
        Err(ErrorObject::internal("Internal error"))
    })
}

impl Registry {
    /// Serializes a result without `_meta`, and adds the server's `_meta`.
    fn complete(&self, result: &impl Serialize) -> Outcome {
        complete_with_meta(result, &self.meta_json)
    }

    /// Serializes a complete result whose handler may have set metadata, which is taken out of it.
    /// The name of the server is this server's own.
    fn complete_with(&self, result: &impl Serialize, meta: Option<Object>) -> Outcome {
        let Some(mut meta) = meta else { return self.complete(result) };
        let own: Object = serde_json::from_str(self.meta_json.as_str()).unwrap_or_default();
        meta.extend(own);
        complete_with_meta(result, &raw_json(&meta))
    }
}

/// Serializes a complete result, and adds metadata.
fn complete_with_meta(result: &impl Serialize, meta: &RawJson) -> Outcome {
    let object = ObjectWriter::from_object(result).map_err(|error| serialization_error(&error))?;
    Ok(object.raw("_meta", meta).end())
}

/// Serializes a complete result.
fn complete(result: &impl Serialize) -> Outcome {
    RawJson::new(result).map_err(|error| serialization_error(&error))
}

fn serialization_error(error: &serde_json::Error) -> ErrorObject {
    tracing::error!(target: "mrtr::server", %error, "serializing a result failed");
    ErrorObject::internal("Internal error")
}

fn method_not_found(name: &str) -> ErrorObject {
    let mut error = ErrorObject::method_not_found(name);
    if name == "initialize" {
        error.message =
            format!("This server speaks MCP {PROTOCOL_VERSION} only, which has no initialize");
        error.data = Some(json!({ "supported": [PROTOCOL_VERSION] }));
    }
    error
}

/// Logs invalid output of the handler `of`, and returns the error response.
fn invalid_output(of: &str, why: &str) -> ErrorObject {
    tracing::error!(target: "mrtr::handler", of, why, "invalid output");
    ErrorObject::internal("Internal error")
}

/// Creates the error response to a name that this server does not have.
fn unknown(what: &str, name: &str) -> ErrorObject {
    ErrorObject::invalid_params(format!("Unknown {what}: {}", quote(name)))
}

/// Logs an error of a function that runs outside of rounds, and returns the error response.
fn log_handler_error(error: &Error, what: &str) -> ErrorObject {
    if error.is_internal() {
        tracing::error!(target: "mrtr::handler", error = format!("{error:#}"), "{what}");
    } else {
        tracing::debug!(target: "mrtr::handler", %error, "{what}");
    }
    handler_error(error)
}

/// Converts a handler's error into an error response, for methods whose results cannot express
/// errors.
fn handler_error(error: &Error) -> ErrorObject {
    if let Some(response) = error.as_response() {
        response.clone()
    } else if error.is_invalid() {
        ErrorObject::invalid_params(error.message())
    } else {
        ErrorObject::internal(error.message())
    }
}
