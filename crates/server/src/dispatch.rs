//! From a request to its response.

mod calls;
mod leg;
mod listen;
mod lists;
mod once;

use std::future::Future;
use std::sync::{Arc, Mutex};

use mrtr_codec::Principal;
use mrtr_schema::jsonrpc::{ErrorObject, Response, params, raw};
use mrtr_schema::meta::{RequestMeta, key};
use mrtr_schema::prompt::GetPromptParams;
use mrtr_schema::resource::ReadResourceParams;
use mrtr_schema::tool::CallToolParams;
use mrtr_schema::{PROTOCOL_VERSION, method};
use mrtr_transport::{Call, Dispatch, Outbox};
use serde::Serialize;
use serde_json::json;
use serde_json::value::RawValue;
use tracing::Instrument as _;

use crate::context::Notify;
use crate::server::{Inner, Server};
use crate::tool::Rules;
pub(crate) use leg::Caller;

impl Dispatch for Server {
    async fn dispatch(&self, call: Call) -> Response {
        let id = call.request.id.clone();
        let outcome = Inner::answer(&self.inner, call).await;
        if let Err(error) = &outcome {
            tracing::debug!(target: "mrtr::server", %id, %error, "request refused");
        }
        Response { id: Some(id), outcome }
    }
}

type Answer = Result<Box<RawValue>, ErrorObject>;

impl Inner {
    async fn answer(self: &Arc<Self>, mut call: Call) -> Answer {
        let caller = self.caller(&mut call)?;
        let request = call.request;
        match request.method.as_str() {
            method::DISCOVER => self.discover(),
            method::TOOLS_LIST if !self.tools.is_empty() => self.list_tools(&params(&request)?),
            method::PROMPTS_LIST if !self.prompts.is_empty() => {
                self.list_prompts(&params(&request)?)
            }
            method::RESOURCES_LIST if self.has_resources() => {
                self.list_resources(&params(&request)?)
            }
            method::RESOURCE_TEMPLATES_LIST if self.has_resources() => {
                self.list_templates(&params(&request)?)
            }
            method::TOOLS_CALL if !self.tools.is_empty() => {
                let call: CallToolParams = params(&request)?;
                let rules = || self.tool(&call.name).map(|tool| &tool.rules);
                if once(call.request_state.as_ref(), rules) {
                    let inner = Arc::clone(self);
                    return finish(self, async move { inner.call_tool(call, caller).await }).await;
                }
                self.call_tool(call, caller).await
            }
            method::PROMPTS_GET if !self.prompts.is_empty() => {
                let call: GetPromptParams = params(&request)?;
                let rules = || self.prompt(&call.name).map(|prompt| &prompt.rules);
                if once(call.request_state.as_ref(), rules) {
                    let inner = Arc::clone(self);
                    return finish(self, async move { inner.get_prompt(call, caller).await }).await;
                }
                self.get_prompt(call, caller).await
            }
            method::RESOURCES_READ if self.has_resources() => {
                let call: ReadResourceParams = params(&request)?;
                if once(call.request_state.as_ref(), || self.rules_of(&call.uri)) {
                    let inner = Arc::clone(self);
                    return finish(self, async move { inner.read_resource(call, caller).await })
                        .await;
                }
                self.read_resource(call, caller).await
            }
            method::COMPLETE if self.capabilities().completions.is_some() => {
                self.suggest(params(&request)?, caller).await
            }
            method::LISTEN => {
                self.listen(&request.id, params(&request)?, &caller.notify.outbox).await
            }
            other => match self.methods.iter().find(|(name, _)| name == other) {
                Some((_, method)) => self.extended(method, params(&request)?, caller).await,
                None => Err(not_found(other)),
            },
        }
    }

    /// What holds for every request: the required `_meta`, the version, and who calls.
    fn caller(&self, call: &mut Call) -> Result<Caller, ErrorObject> {
        let missing = |name: &str| {
            ErrorObject::invalid_params(format!("Invalid params: _meta lacks {name:?}"))
        };
        let RequestMeta {
            protocol_version,
            client_capabilities,
            client_info,
            progress_token,
            log_level,
            ..
        } = call.meta.take().unwrap_or_default();
        let version = protocol_version.ok_or_else(|| missing(key::PROTOCOL_VERSION))?;
        if version != PROTOCOL_VERSION {
            return Err(ErrorObject::unsupported_version(&version, &[PROTOCOL_VERSION]));
        }
        let capabilities = client_capabilities.ok_or_else(|| missing(key::CLIENT_CAPABILITIES))?;
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
        let mut extensions = self.provided.clone();
        extensions.extend(std::mem::take(&mut call.extensions));
        let outbox = std::mem::replace(&mut call.outbox, Outbox::none());
        let notify = Notify { outbox, progress_token, log_level, last: Mutex::default() };
        Ok(Caller { capabilities, client_info, principal, extensions, notify })
    }
}

/// Whether a leg may run only once.
fn once<'r>(state: Option<&String>, rules: impl FnOnce() -> Option<&'r Rules>) -> bool {
    state.is_some() && rules().is_some_and(|rules| rules.single_use)
}

/// Runs a leg to its end, even if its client goes away: what may run only once has its response kept for when the client
/// comes again.
fn finish<L>(server: &Inner, leg: L) -> impl Future<Output = Answer> + use<L>
where
    L: Future<Output = Answer> + Send + 'static,
{
    let running = server.replica.running.one();
    let leg = async move {
        let answer = leg.await;
        drop(running);
        answer
    };
    let leg = tokio::spawn(leg.instrument(tracing::Span::current()));
    async {
        leg.await.unwrap_or_else(|error| {
            tracing::error!(target: "mrtr::rounds", %error, "a leg ended without an answer");
            Err(ErrorObject::internal("Internal error"))
        })
    }
}

fn complete(result: &impl Serialize) -> Answer {
    raw(result).map_err(|error| {
        tracing::error!(target: "mrtr::server", %error, "a result cannot be written as JSON");
        ErrorObject::internal("Internal error")
    })
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
