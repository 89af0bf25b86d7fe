//! Calls that run a handler.

use mrtr_schema::completion::{CompleteParams, CompleteResult, Completion, Reference};
use mrtr_schema::content::{ContentBlock, ResourceContents};
use mrtr_schema::input::InputResponses;
use mrtr_schema::jsonrpc::{ErrorObject, Request, Text, params};
use mrtr_schema::prompt::GetPromptParams;
use mrtr_schema::resource::{ReadResourceParams, ReadResourceResult};
use mrtr_schema::tool::CallToolResult;
use mrtr_schema::{Object, method};
use mrtr_transport::headers::check_params;
use serde::{Deserialize, Deserializer};
use serde_json::value::RawValue;
use serde_json::{Value, json};

use super::leg::{Leg, Target, guarded, start};
use super::{Answer, complete};
use crate::caller::Caller;
use crate::completion::{Completer, Completing};
use crate::error::Error;
use crate::extension::{ExtensionCall, Method};
use crate::handler::BoxFuture;
use crate::prompt::PromptOutput;
use crate::resource::{Cache, ResourceOutput};
use crate::server::Inner;
use crate::tool::{Rules, Tool, ToolOutput};

/// No more suggestions than this may be sent at once.
const MOST_SUGGESTIONS: usize = 100;

/// How long suggestions may take.
const COMPLETION_DEADLINE: std::time::Duration = std::time::Duration::from_secs(30);

type ToolRun = BoxFuture<Result<ToolOutput, Error>>;

/// The parameters of `tools/call`, without the `_meta` that was read before.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct ToolCall<'a> {
    #[serde(borrow)]
    name: Text<'a>,
    #[serde(borrow, default, deserialize_with = "text_of")]
    arguments: Option<&'a str>,
    #[serde(default, deserialize_with = "InputResponses::present")]
    input_responses: Option<InputResponses>,
    #[serde(borrow)]
    request_state: Option<Text<'a>>,
}

fn text_of<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<&'de str>, D::Error> {
    <&RawValue>::deserialize(deserializer).map(|raw| Some(raw.get()))
}

impl<'r> ToolCall<'r> {
    fn of(request: &'r Request) -> Result<Self, ErrorObject> {
        // As a whole where something is wrong, to say where.
        Self::by_members(request).map_or_else(|| params(request), Ok)
    }

    fn by_members(request: &'r Request) -> Option<Self> {
        let params = request.params.as_ref()?;
        let responses = params.member("inputResponses").map(serde_json::from_str);
        let state = params.member("requestState").filter(|state| *state != "null");
        Some(Self {
            name: Text(params.string("name")?),
            arguments: params.member("arguments"),
            input_responses: responses.transpose().ok()?,
            request_state: match state {
                Some(_) => Some(Text(params.string("requestState")?)),
                None => None,
            },
        })
    }
}

impl Inner {
    pub(super) async fn call_tool(&self, request: &Request, caller: Box<Caller>) -> Answer {
        let (tool, leg, handler) = match self.begin_tool(ToolCall::of(request)?, caller)? {
            (tool, leg, Ok(handler)) => (tool, leg, handler),
            (.., Err(why)) => {
                let failure = ToolOutput::failure(format!("Invalid arguments: {why}"));
                return self.complete(&failure);
            }
        };
        let complete = |outcome: Result<Box<CallToolResult>, Error>| {
            let result = outcome
                .unwrap_or_else(|error| Box::new(ToolOutput::failure(error.message().to_owned())));
            let fits = tool.schemas.check_result(&result);
            let fits = fits.and_then(|()| result.content.iter().try_for_each(ContentBlock::check));
            fits.map_err(|why| unfit(&tool.wire.name, &why))?;
            self.complete(&*result)
        };
        leg.run(handler, |output| output.0, complete).await
    }

    /// A leg of a tool's call, and its handler; an inner error says why the arguments do not fit.
    fn begin_tool<'a>(
        &'a self,
        call: ToolCall<'a>,
        caller: Box<Caller>,
    ) -> Result<(&'a Tool, Leg<'a>, Result<ToolRun, String>), ErrorObject> {
        let ToolCall { name: Text(name), arguments: given, input_responses, request_state } = call;
        let Some(tool) = self.tool(&name) else {
            return Err(ErrorObject::invalid_params(format!(
                "Unknown tool: {}",
                ErrorObject::quote(&name)
            )));
        };
        let arguments = arguments(given)?;
        if !(tool.param_headers.is_empty() || caller.headers.is_empty()) {
            let parsed = serde_json::from_str(arguments)
                .map_err(|e| ErrorObject::invalid_params(format!("Invalid params: {e}")))?;
            check_params(&caller.headers, &tool.param_headers, &parsed)?;
        }
        let (method, name, rules) = (method::TOOLS_CALL, &*tool.wire.name, &tool.rules);
        let target = Target { method, name, arguments, rules };
        let state = request_state.as_ref().map(|Text(state)| &**state);
        let leg = Leg::open(self, target, caller, input_responses, state)?;
        let handler = match tool.schemas.check_arguments(arguments) {
            Ok(()) => start(|| (tool.handler)(leg.context(), arguments))?,
            Err(why) => Err(why),
        };
        Ok((tool, leg, handler))
    }

    pub(super) async fn get_prompt(&self, call: GetPromptParams, caller: Box<Caller>) -> Answer {
        let Some(prompt) = self.prompt(&call.name) else {
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
            Leg::open(self, target, caller, call.input_responses, call.request_state.as_deref())?;
        let handler = start(|| (prompt.handler)(leg.context(), &arguments))?
            .map_err(|why| ErrorObject::invalid_params(format!("Invalid arguments: {why}")))?;
        leg.run(
            handler,
            |PromptOutput(output)| output,
            |outcome| match outcome {
                Ok(result) => {
                    let mut blocks = result.messages.iter().map(|message| &message.content);
                    let fits = blocks.try_for_each(ContentBlock::check);
                    fits.map_err(|why| unfit(&call.name, &why))?;
                    self.complete(&*result)
                }
                // A prompt has no place for failures in its result.
                Err(error) => Err(refused(&error)),
            },
        )
        .await
    }

    pub(super) async fn read_resource(
        &self,
        call: ReadResourceParams,
        caller: Box<Caller>,
    ) -> Answer {
        if let Some(resource) = self.resource(&call.uri) {
            let mime_type = resource.wire.mime_type.as_deref();
            let what = Found { rules: &resource.rules, cache: resource.cache, mime_type };
            return self.read(call, caller, &what, "{}", &resource.handler).await;
        }
        let matched = self
            .templates
            .iter()
            .find_map(|(template, resource)| Some((template.matches(&call.uri)?, resource)));
        let Some((variables, resource)) = matched else {
            let error = ErrorObject::invalid_params("Resource not found");
            return Err(error.with_data(json!({ "uri": call.uri })));
        };
        let variables = variables.into_iter().map(|(name, value)| (name, Value::String(value)));
        let arguments = Value::Object(variables.collect()).to_string();
        let mime_type = resource.wire.mime_type.as_deref();
        let what = Found { rules: &resource.rules, cache: resource.cache, mime_type };
        self.read(call, caller, &what, &arguments, &resource.handler).await
    }

    async fn read(
        &self,
        call: ReadResourceParams,
        caller: Box<Caller>,
        what: &Found<'_>,
        arguments: &str,
        handler: &crate::handler::Erased<ResourceOutput>,
    ) -> Answer {
        let target = Target {
            method: method::RESOURCES_READ,
            name: &call.uri,
            arguments,
            rules: what.rules,
        };
        let retried = call.request_state.is_some() || call.input_responses.is_some();
        let leg =
            Leg::open(self, target, caller, call.input_responses, call.request_state.as_deref())?;
        let handler = start(|| handler(leg.context(), arguments))?
            .map_err(|why| ErrorObject::invalid_params(format!("Invalid resource: {why}")))?;
        leg.run(
            handler,
            |ResourceOutput(output)| output,
            |outcome| match outcome {
                Ok(result) => {
                    let result = filled(*result, &call.uri, what, retried);
                    let fits = result.contents.iter().try_for_each(ResourceContents::check);
                    fits.map_err(|why| unfit(&call.uri, &why))?;
                    self.complete(&result)
                }
                // A resource has no place for failures in its result.
                Err(error) => Err(refused(&error).with_data(json!({ "uri": call.uri }))),
            },
        )
        .await
    }

    /// A method that an extension has added.
    pub(super) async fn extended(
        &self,
        method: &Method,
        params: Object,
        caller: Box<Caller>,
    ) -> Answer {
        let answering = start(|| method.answer(ExtensionCall { params, caller }))?;
        let mut result = guarded(answering).await?.map_err(|error| {
            let error_text = format!("{error:#}");
            tracing::error!(target: "mrtr::handler", error = error_text, "an extension's method failed");
            refused(&error)
        })?;
        result.entry("resultType").or_insert_with(|| json!("complete"));
        let meta = result.entry("_meta").or_insert_with(|| json!({}));
        if let Value::Object(meta) = meta {
            meta.extend(self.meta.clone());
        }
        complete(&result)
    }

    pub(super) async fn suggest(&self, call: CompleteParams, caller: Box<Caller>) -> Answer {
        let unknown = |what: &str, name: &str| {
            ErrorObject::invalid_params(format!("Unknown {what}: {}", ErrorObject::quote(name)))
        };
        let (declared, completers): (Vec<&str>, &[(String, Completer)]) = match &call.r#ref {
            Reference::Prompt { name } => {
                let prompt = self.prompt(name);
                let prompt = prompt.ok_or_else(|| unknown("prompt", name))?;
                let declared = prompt.wire.arguments.iter().map(|argument| argument.name.as_str());
                (declared.collect(), &prompt.completers)
            }
            Reference::Resource { uri } => {
                // The template itself, or a URI of its kind.
                let mut templates = self.templates.iter();
                let template = templates.find(|(template, resource)| {
                    resource.wire.uri_template == *uri || template.matches(uri).is_some()
                });
                let (template, resource) =
                    template.ok_or_else(|| unknown("resource template", uri))?;
                (template.names().collect(), &resource.completers)
            }
        };
        let CompleteParams { argument, context, .. } = call;
        if !declared.contains(&argument.name.as_str()) {
            return Err(unknown("argument", &argument.name));
        }
        let mut arguments = context.unwrap_or_default().arguments;
        arguments.retain(|name, _| declared.contains(&name.as_str()));
        let completer = completers.iter().find(|(name, _)| *name == argument.name);
        let all = match completer {
            None => Vec::new(),
            Some((_, completer)) => {
                let completing = Completing { value: argument.value, arguments, caller };
                let suggesting = guarded(start(|| completer.suggest(completing))?);
                let suggested = tokio::time::timeout(COMPLETION_DEADLINE, suggesting).await;
                let late = |_| {
                    tracing::error!(target: "mrtr::handler", "completion took too long");
                    ErrorObject::internal("Internal error")
                };
                suggested.map_err(late)??.map_err(|error| {
                    let error_text = format!("{error:#}");
                    tracing::error!(target: "mrtr::handler", error = error_text, "completion failed");
                    refused(&error)
                })?
            }
        };
        let (total, has_more) = (Some(all.len() as u64), Some(all.len() > MOST_SUGGESTIONS));
        let values = all.into_iter().take(MOST_SUGGESTIONS).collect();
        let completion = Completion { values, total, has_more };
        self.complete(&CompleteResult { completion, ..CompleteResult::default() })
    }
}

/// Fills in what the handler left to the request and the resource.
fn filled(
    mut result: ReadResourceResult,
    uri: &str,
    what: &Found<'_>,
    retried: bool,
) -> ReadResourceResult {
    for contents in &mut result.contents {
        if contents.uri.is_empty() {
            uri.clone_into(&mut contents.uri);
        }
        if contents.mime_type.is_none() {
            contents.mime_type = what.mime_type.map(str::to_owned);
        }
    }
    // What depends on answers is for nobody to reuse.
    let cache = if retried { Cache::default() } else { what.cache };
    (result.ttl_ms, result.cache_scope) = (cache.ttl_ms, cache.scope);
    result
}

/// Output that may not be sent is its author's mistake.
fn unfit(of: &str, why: &str) -> ErrorObject {
    tracing::error!(target: "mrtr::handler", of, why, "output that cannot be sent");
    ErrorObject::internal("Internal error")
}

/// A handler's error where results have no place for one.
fn refused(error: &Error) -> ErrorObject {
    if error.is_invalid() {
        ErrorObject::invalid_params(error.message())
    } else {
        ErrorObject::internal(error.message())
    }
}

/// What a URI stands for.
struct Found<'a> {
    rules: &'a Rules,
    cache: Cache,
    mime_type: Option<&'a str>,
}

/// The arguments as an object; absent and null are an empty one.
fn arguments(given: Option<&str>) -> Result<&str, ErrorObject> {
    match given {
        None | Some("null") => Ok("{}"),
        Some(text) if text.starts_with('{') => Ok(text),
        Some(_) => {
            Err(ErrorObject::invalid_params("Invalid params: `arguments` must be an object"))
        }
    }
}
