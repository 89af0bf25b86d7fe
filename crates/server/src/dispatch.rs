//! From a request to its response.

pub(crate) mod completion;
pub(crate) mod discovery;
mod execute;
mod extension;
pub(crate) mod listen;
pub(crate) mod methods;
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

use self::methods::Method;
use crate::error::Error;
use crate::handler::BoxFuture;
use crate::request_context::{Notifier, RequestContext};
use crate::server::{Inner, Server};
use crate::telemetry::RequestTelemetry;
use crate::tool::CallOptions;

impl RequestHandler for Server {
    fn handle(
        self: Arc<Self>,
        mut call: IncomingRequest,
    ) -> impl Future<Output = Response<RawJson>> + Send + 'static {
        // All that can be done at once is done here: what a future is given, it carries to its end.
        let observed =
            RequestTelemetry::of(&self.inner, &call.request, call.meta.as_deref()).map(Box::new);
        let caller = self.inner.caller(&mut call).map_err(Box::new);
        let request = call.request;
        async move {
            let inner = &self.inner;
            let outcome = match (caller, observed) {
                (Ok(caller), None) => inner.answer(&request, caller).await,
                (Ok(caller), Some(observed)) => {
                    Box::pin(observed.see(inner.answer(&request, caller))).await
                }
                (Err(error), None) => Err(*error),
                (Err(error), Some(observed)) => observed.saw(Err(*error)),
            };
            let id = request.id;
            if let Err(error) = &outcome {
                tracing::debug!(target: "mrtr::server", %id, %error, "request refused");
            }
            Response { id: Some(id), outcome }
        }
    }
}

pub(crate) type Outcome = Result<RawJson, ErrorObject>;

impl Inner {
    async fn answer(self: &Arc<Self>, request: &Request, caller: Box<RequestContext>) -> Outcome {
        if request.method != method::TOOLS_CALL || self.tools.is_empty() {
            // Boxed, so that what is called most does not carry around the room for all others.
            return match self.methods.get(request.method.as_str()) {
                Some(Method::Own(answer)) => answer(self, request, caller).await,
                Some(Method::Added(method)) => self.added(method, request, caller).await,
                None => Err(not_found(&request.method)),
            };
        }
        let params = request.params.as_ref();
        let has_state = params.and_then(|params| params.member("requestState")).is_some();
        let rules = || self.tool(&params?.string("name")?).map(|tool| &tool.rules);
        if is_single_use(has_state, rules) {
            let (inner, request) = (Arc::clone(self), request.clone());
            let leg = Box::pin(async move { inner.call_tool(&request, caller).await });
            return finish(self, leg).await;
        }
        self.call_tool(request, caller).await
    }

    /// What holds for every request: the required `_meta`, the version, and who calls.
    fn caller(&self, call: &mut IncomingRequest) -> Result<Box<RequestContext>, ErrorObject> {
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
        if principal.is_none() && !self.anonymous {
            tracing::error!(
                target: "mrtr::server",
                "a request came without a Principal: put an authentication layer in front that inserts \
                 one into the request's extensions, or build the server with `.allow_anonymous()`"
            );
            return Err(ErrorObject::invalid_request(
                "This server does not serve anonymous callers",
            ));
        }
        let outbox = std::mem::replace(&mut call.notifications, NotificationSender::closed());
        Ok(Box::new(RequestContext {
            meta,
            principal,
            headers: std::mem::take(&mut call.headers),
            notify: Notifier { outbox, last: Mutex::default() },
            extensions: std::mem::take(&mut call.extensions),
            replica: Arc::clone(&self.replica),
        }))
    }
}

/// Whether a leg may run only once.
fn is_single_use<'r>(has_state: bool, rules: impl FnOnce() -> Option<&'r CallOptions>) -> bool {
    has_state && rules().is_some_and(|rules| rules.single_use)
}

/// Runs a leg, and if it may run only once, to its end.
async fn run(server: &Inner, single_use: bool, leg: BoxFuture<Outcome>) -> Outcome {
    if single_use { finish(server, leg).await } else { leg.await }
}

/// Runs a leg to its end, even if its client goes away: what may run only once has its response kept for when the client
/// comes again.
async fn finish(server: &Inner, leg: BoxFuture<Outcome>) -> Outcome {
    let running = server.replica.running.one();
    let leg = async move {
        let answer = leg.await;
        drop(running);
        answer
    };
    let leg = tokio::spawn(leg.instrument(tracing::Span::current()));
    leg.await.unwrap_or_else(|error| {
        tracing::error!(target: "mrtr::rounds", %error, "a leg ended without an answer");
        Err(ErrorObject::internal("Internal error"))
    })
}

impl Inner {
    /// A result that has no `_meta` of its own, with what every result says of the server.
    fn complete(&self, result: &impl Serialize) -> Outcome {
        let object = ObjectWriter::of(result).map_err(|error| unwritten(&error))?;
        Ok(object.written("_meta", &self.written_meta).end())
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
