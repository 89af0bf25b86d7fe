//! From a request to its response.

mod leg;

use std::sync::Mutex;

use mrtr_codec::Principal;
use mrtr_schema::jsonrpc::{ErrorObject, Response, code, params, raw};
use mrtr_schema::meta::{RequestMeta, key};
use mrtr_schema::prompt::{GetPromptParams, ListPromptsResult};
use mrtr_schema::tool::{CallToolParams, ListParams, ListToolsResult};
use mrtr_schema::{Object, PROTOCOL_VERSION, discover::DiscoverResult, method};
use mrtr_transport::{Call, Dispatch, Outbox};
use serde::Serialize;
use serde_json::value::RawValue;
use serde_json::{Value, json};

use crate::context::Notify;
use crate::prompt::PromptOutput;
use crate::server::{Inner, Server};
use crate::tool::ToolOutput;
use leg::{Caller, Leg, Target};

impl Dispatch for Server {
    async fn dispatch(&self, call: Call) -> Response {
        let id = call.request.id.clone();
        let outcome = self.inner.answer(call).await;
        if let Err(error) = &outcome {
            tracing::debug!(target: "mrtr::server", %id, %error, "request refused");
        }
        Response { id: Some(id), outcome }
    }
}

type Answer = Result<Box<RawValue>, ErrorObject>;

impl Inner {
    async fn answer(&self, mut call: Call) -> Answer {
        let caller = self.caller(&mut call)?;
        let request = call.request;
        match request.method.as_str() {
            method::DISCOVER => self.discover(),
            method::TOOLS_LIST if !self.tools.is_empty() => {
                only_page(&params(&request)?)?;
                let tools = self.tools.iter().map(|tool| tool.wire.clone()).collect();
                self.complete(ListToolsResult {
                    tools,
                    meta: self.meta(),
                    ..ListToolsResult::default()
                })
            }
            method::PROMPTS_LIST if !self.prompts.is_empty() => {
                only_page(&params(&request)?)?;
                let prompts = self.prompts.iter().map(|prompt| prompt.wire.clone()).collect();
                self.complete(ListPromptsResult {
                    prompts,
                    meta: self.meta(),
                    ..ListPromptsResult::default()
                })
            }
            method::TOOLS_CALL if !self.tools.is_empty() => {
                self.call_tool(params(&request)?, caller).await
            }
            method::PROMPTS_GET if !self.prompts.is_empty() => {
                self.get_prompt(params(&request)?, caller).await
            }
            other => Err(not_found(other)),
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

    fn discover(&self) -> Answer {
        self.complete(DiscoverResult {
            supported_versions: vec![PROTOCOL_VERSION.to_owned()],
            capabilities: self.capabilities(),
            instructions: self.instructions.clone(),
            meta: self.meta(),
            ..DiscoverResult::default()
        })
    }

    /// `_meta` of every result: who answers.
    fn meta(&self) -> Option<Object> {
        let info = serde_json::to_value(&self.info).ok()?;
        Some(Object::from_iter([(key::SERVER_INFO.to_owned(), info)]))
    }

    #[expect(clippy::unused_self, reason = "reads as what it does: the server completes a request")]
    fn complete(&self, result: impl Serialize) -> Answer {
        raw(&result).map_err(|error| {
            tracing::error!(target: "mrtr::server", %error, "a result cannot be written as JSON");
            ErrorObject::internal("Internal error")
        })
    }

    async fn call_tool(&self, call: CallToolParams, caller: Caller) -> Answer {
        let Some(tool) = self.tools.iter().find(|tool| tool.wire.name == call.name) else {
            return Err(ErrorObject::invalid_params(format!(
                "Unknown tool: {}",
                ErrorObject::quote(&call.name)
            )));
        };
        let arguments = arguments(call.arguments.as_deref())?;
        let target =
            Target { method: method::TOOLS_CALL, name: &call.name, arguments, rules: &tool.rules };
        let leg =
            Leg::open(self, &target, caller, call.input_responses, call.request_state.as_deref())?;
        match leg::start(|| (tool.handler)(leg.context(), arguments))? {
            Err(why) => {
                let mut result = ToolOutput::failure(format!("Invalid arguments: {why}"));
                result.meta = self.meta();
                self.complete(result)
            }
            Ok(handler) => {
                leg.run(
                    handler,
                    |output| output.0,
                    |outcome| {
                        let mut result = outcome.unwrap_or_else(|error| {
                            ToolOutput::failure(error.message().to_owned())
                        });
                        result.meta = self.meta();
                        self.complete(result)
                    },
                )
                .await
            }
        }
    }

    async fn get_prompt(&self, call: GetPromptParams, caller: Caller) -> Answer {
        let Some(prompt) = self.prompts.iter().find(|prompt| prompt.wire.name == call.name) else {
            return Err(ErrorObject::invalid_params(format!(
                "Unknown prompt: {}",
                ErrorObject::quote(&call.name)
            )));
        };
        let given = call.arguments.unwrap_or_default();
        if let Some(missing) =
            prompt.wire.arguments.iter().find(|a| a.required && !given.contains_key(&a.name))
        {
            return Err(ErrorObject::invalid_params(format!(
                "Missing argument: {:?}",
                missing.name
            )));
        }
        let arguments = given.into_iter().map(|(name, text)| (name, Value::String(text)));
        let arguments = Value::Object(arguments.collect()).to_string();
        let target = Target {
            method: method::PROMPTS_GET,
            name: &call.name,
            arguments: &arguments,
            rules: &prompt.rules,
        };
        let leg =
            Leg::open(self, &target, caller, call.input_responses, call.request_state.as_deref())?;
        let handler = leg::start(|| (prompt.handler)(leg.context(), &arguments))?
            .map_err(|why| ErrorObject::invalid_params(format!("Invalid arguments: {why}")))?;
        leg.run(
            handler,
            |PromptOutput(output)| output,
            |outcome| match outcome {
                Ok(mut result) => {
                    result.meta = self.meta();
                    self.complete(result)
                }
                // A prompt has no place for failures in its result.
                Err(error) => Err(ErrorObject::internal(error.message())),
            },
        )
        .await
    }
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

/// The arguments as an object; absent and null are an empty one.
fn arguments(raw: Option<&RawValue>) -> Result<&str, ErrorObject> {
    match raw.map(RawValue::get) {
        None | Some("null") => Ok("{}"),
        Some(text) if text.starts_with('{') => Ok(text),
        Some(_) => {
            Err(ErrorObject::invalid_params("Invalid params: `arguments` must be an object"))
        }
    }
}

/// All lists fit on one page, so no cursor was ever given out.
fn only_page(list: &ListParams) -> Result<(), ErrorObject> {
    match &list.cursor {
        None => Ok(()),
        Some(_) => Err(ErrorObject::new(code::INVALID_PARAMS, "Invalid params: unknown `cursor`")),
    }
}
