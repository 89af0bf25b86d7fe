//! From a request to its response.

pub(crate) mod completion;
pub(crate) mod discovery;
mod execute;
mod extension;
pub(crate) mod listen;
pub(crate) mod prompts;
pub(crate) mod resources;
mod single_use;
pub(crate) mod tools;

use std::future::Future;
use std::sync::{Arc, Mutex};

use mrtr_codec::Principal;
use mrtr_schema::json::{ObjectWriter, RawJson};
use mrtr_schema::jsonrpc::{ErrorObject, Request, Response};
use mrtr_schema::meta::key;
use mrtr_schema::{PROTOCOL_VERSION, method};
use mrtr_transport::{IncomingRequest, NotificationSender, RequestHandler};
use serde::Serialize;
use serde_json::json;
use tracing::Instrument as _;

use crate::call_options::CallOptions;
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
        // All that can be done at once is done here: what a future is given, it carries to its end.
        let observed =
            RequestTelemetry::of(&self.registry, &call.request, call.meta.as_deref()).map(Box::new);
        let parts = self.registry.caller(&mut call).map_err(Box::new);
        let request = call.request;
        async move {
            let inner = &self.registry;
            let outcome = match (parts, observed) {
                (Ok(parts), None) => inner.answer(&request, parts).await,
                (Ok(parts), Some(observed)) => {
                    Box::pin(observed.observe(inner.answer(&request, parts))).await
                }
                (Err(error), None) => Err(*error),
                (Err(error), Some(observed)) => observed.record(Err(*error)),
            };
            let id = request.id;
            if let Err(error) = &outcome {
                tracing::debug!(target: "mrtr::server", %id, %error, "request refused");
            }
            Response { id: Some(id), outcome }
        }
    }
}

impl Registry {
    async fn answer(self: &Arc<Self>, request: &Request, parts: Box<RequestParts>) -> Outcome {
        if request.method != method::TOOLS_CALL || self.tools.is_empty() {
            // Boxed, so that what is called most does not carry around the room for all others.
            return match self.methods.get(request.method.as_str()) {
                Some(Method::Protocol(answer)) => answer(self, request, parts).await,
                Some(Method::Extension(method)) => self.added(method, request, parts).await,
                None => Err(not_found(&request.method)),
            };
        }
        let params = request.params.as_ref();
        let has_state = params.and_then(|params| params.member("requestState")).is_some();
        let options = || self.tool(&params?.string("name")?).map(|tool| &tool.options);
        if is_single_use(has_state, options) {
            let (inner, request) = (Arc::clone(self), request.clone());
            let round = Box::pin(async move { inner.call_tool(&request, parts).await });
            return finish(self, round).await;
        }
        self.call_tool(request, parts).await
    }

    /// What holds for every request: the required `_meta`, the version, and who calls.
    fn caller(&self, call: &mut IncomingRequest) -> Result<Box<RequestParts>, ErrorObject> {
        let missing = |name: &str| {
            ErrorObject::invalid_params(format!("Invalid params: _meta lacks {name:?}"))
        };
        let meta = call.meta.take().unwrap_or_default();
        let version =
            meta.protocol_version.as_deref().ok_or_else(|| missing(key::PROTOCOL_VERSION))?;
        if version != PROTOCOL_VERSION {
            return Err(ErrorObject::unsupported_version(version, &[PROTOCOL_VERSION]));
        }
        if meta.client_capabilities.is_none() {
            return Err(missing(key::CLIENT_CAPABILITIES));
        }
        let principal = call.extensions.remove::<Principal>();
        if principal.is_none() && !self.allows_anonymous {
            tracing::error!(
                target: "mrtr::server",
                "a request came without a Principal: put an authentication layer in front that inserts \
                 one into the request's extensions, or build the server with `.allow_anonymous()`"
            );
            return Err(ErrorObject::invalid_request(
                "This server does not serve anonymous callers",
            ));
        }
        let outbox = std::mem::replace(&mut call.outbox, NotificationSender::none());
        Ok(Box::new(RequestParts {
            meta,
            principal,
            headers: std::mem::take(&mut call.headers),
            notifier: Notifier { outbox, last: Mutex::default() },
            extensions: std::mem::take(&mut call.extensions),
            runtime: Arc::clone(&self.runtime),
        }))
    }
}

/// Whether a leg may run only once.
fn is_single_use<'r>(has_state: bool, options: impl FnOnce() -> Option<&'r CallOptions>) -> bool {
    has_state && options().is_some_and(|options| options.single_use.is_on())
}

/// Runs a leg, and if it may run only once, to its end.
async fn run(server: &Registry, single_use: bool, round: BoxFuture<Outcome>) -> Outcome {
    if single_use { finish(server, round).await } else { round.await }
}

/// Runs a leg to its end, even if its client goes away: what may run only once has its response kept for when the client
/// comes again.
async fn finish(server: &Registry, round: BoxFuture<Outcome>) -> Outcome {
    let running = server.runtime.tasks.track();
    let round = async move {
        let answer = round.await;
        drop(running);
        answer
    };
    let round = tokio::spawn(round.instrument(tracing::Span::current()));
    round.await.unwrap_or_else(|error| {
        tracing::error!(target: "mrtr::rounds", %error, "a round ended without a response");
        Err(ErrorObject::internal("Internal error"))
    })
}

impl Registry {
    /// A result that has no `_meta` of its own, with what every result says of the server.
    fn complete(&self, result: &impl Serialize) -> Outcome {
        let object = ObjectWriter::of(result).map_err(|error| unwritten(&error))?;
        Ok(object.written("_meta", &self.meta_json).end())
    }
}

fn complete(result: &impl Serialize) -> Outcome {
    RawJson::new(result).map_err(|error| unwritten(&error))
}

fn unwritten(error: &serde_json::Error) -> ErrorObject {
    tracing::error!(target: "mrtr::server", %error, "a result cannot be written as JSON");
    ErrorObject::internal("Internal error")
}

fn not_found(name: &str) -> ErrorObject {
    let mut error = ErrorObject::method_not_found(name);
    if name == "initialize" {
        error.message =
            format!("This server speaks MCP {PROTOCOL_VERSION} only, which has no initialize");
        error.data = Some(json!({ "supported": [PROTOCOL_VERSION] }));
    }
    error
}

/// Output that may not be sent is its author's mistake.
fn unfit(of: &str, why: &str) -> ErrorObject {
    tracing::error!(target: "mrtr::handler", of, why, "output that cannot be sent");
    ErrorObject::internal("Internal error")
}

/// What a client names and this server does not have.
fn unknown(what: &str, name: &str) -> ErrorObject {
    ErrorObject::invalid_params(format!("Unknown {what}: {}", ErrorObject::quote(name)))
}

/// The error of what has no leg to log it.
fn failed(error: &Error, what: &str) -> ErrorObject {
    tracing::error!(target: "mrtr::handler", error = format!("{error:#}"), "{what}");
    refused(error)
}

/// A handler's error where results have no place for one.
fn refused(error: &Error) -> ErrorObject {
    if error.is_invalid() {
        ErrorObject::invalid_params(error.message())
    } else {
        ErrorObject::internal(error.message())
    }
}
