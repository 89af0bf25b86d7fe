//! From a request to its response.

mod added;
mod leg;
pub(crate) mod listen;
pub(crate) mod lists;
pub(crate) mod methods;
mod once;
pub(crate) mod prompts;
pub(crate) mod resources;
pub(crate) mod suggestions;
pub(crate) mod tools;

use std::future::Future;
use std::sync::{Arc, Mutex};

use mrtr_codec::Principal;
use mrtr_schema::jsonrpc::{ErrorObject, JsonText, ObjectWriter, Request, Response};
use mrtr_schema::meta::key;
use mrtr_schema::{PROTOCOL_VERSION, method};
use mrtr_transport::{Call, Dispatch, Outbox};
use serde::Serialize;
use serde_json::json;
use tracing::Instrument as _;

use self::methods::Method;
use crate::caller::{Caller, Notify};
use crate::error::Error;
use crate::handler::BoxFuture;
use crate::observed::Observed;
use crate::server::{Inner, Server};
use crate::tool::Rules;

impl Dispatch for Server {
    fn dispatch(
        self: Arc<Self>,
        mut call: Call,
    ) -> impl Future<Output = Response<JsonText>> + Send + 'static {
        // All that can be done at once is done here: what a future is given, it carries to its end.
        let observed = Observed::of(&self.inner, &call.request, call.meta.as_deref()).map(Box::new);
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

pub(crate) type Answer = Result<JsonText, ErrorObject>;

impl Inner {
    async fn answer(self: &Arc<Self>, request: &Request, caller: Box<Caller>) -> Answer {
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
        if once(has_state, rules) {
            let (inner, request) = (Arc::clone(self), request.clone());
            let leg = Box::pin(async move { inner.call_tool(&request, caller).await });
            return finish(self, leg).await;
        }
        self.call_tool(request, caller).await
    }

    /// What holds for every request: the required `_meta`, the version, and who calls.
    fn caller(&self, call: &mut Call) -> Result<Box<Caller>, ErrorObject> {
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
                 one into the request's extensions, or build the server with `.anonymous()`"
            );
            return Err(ErrorObject::invalid_request(
                "This server does not serve anonymous callers",
            ));
        }
        let outbox = std::mem::replace(&mut call.outbox, Outbox::none());
        Ok(Box::new(Caller {
            meta,
            principal,
            headers: std::mem::take(&mut call.headers),
            notify: Notify { outbox, last: Mutex::default() },
            extensions: std::mem::take(&mut call.extensions),
            replica: Arc::clone(&self.replica),
        }))
    }
}

/// Whether a leg may run only once.
fn once<'r>(has_state: bool, rules: impl FnOnce() -> Option<&'r Rules>) -> bool {
    has_state && rules().is_some_and(|rules| rules.single_use)
}

/// Runs a leg, and if it may run only once, to its end.
async fn run(server: &Inner, once: bool, leg: BoxFuture<Answer>) -> Answer {
    if once { finish(server, leg).await } else { leg.await }
}

/// Runs a leg to its end, even if its client goes away: what may run only once has its response kept for when the client
/// comes again.
async fn finish(server: &Inner, leg: BoxFuture<Answer>) -> Answer {
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
    fn complete(&self, result: &impl Serialize) -> Answer {
        let object = ObjectWriter::of(result).map_err(|error| unwritten(&error))?;
        Ok(object.written("_meta", &self.written_meta).end())
    }
}

fn complete(result: &impl Serialize) -> Answer {
    JsonText::new(result).map_err(|error| unwritten(&error))
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
