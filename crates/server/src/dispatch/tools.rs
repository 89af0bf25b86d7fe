//! `tools/list` and `tools/call`.

use std::sync::Arc;

use mrtr_schema::content::ContentBlock;
use mrtr_schema::input::InputResponses;
use mrtr_schema::json::CowStr;
use mrtr_schema::jsonrpc::{ErrorObject, Request};
use mrtr_schema::method;
use mrtr_schema::tool::{CallToolResult, ListParams};
use mrtr_transport::headers::check_param_headers;
use serde::{Deserialize, Deserializer};
use serde_json::value::RawValue;

use super::execute::{RoundExecution, Target};
use super::{invalid_output, unknown};
use crate::error::Error;
use crate::handler::HandlerCall;
use crate::output::ToolOutput;
use crate::registry::{Methods, Outcome, Registry, ResponseFuture};
use crate::request_parts::RequestParts;
use crate::tasks::ToolFuture;
use crate::tool::Tool;

pub(crate) const METHODS: Methods = &[(method::TOOLS_LIST, list)];

fn list(server: Arc<Registry>, request: &Request, parts: Box<RequestParts>) -> ResponseFuture<'_> {
    Box::pin(async move {
        server.page("tools", &server.tools, &ListParams::from_request(request)?, &parts)
    })
}

/// The parameters of `tools/call` without `_meta`, which the transport has parsed.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct ToolCall<'a> {
    #[serde(borrow)]
    name: CowStr<'a>,
    #[serde(borrow, default, deserialize_with = "raw_json")]
    arguments: Option<&'a str>,
    #[serde(default, deserialize_with = "mrtr_schema::json::present")]
    input_responses: Option<InputResponses>,
    #[serde(borrow)]
    request_state: Option<CowStr<'a>>,
}

fn raw_json<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<&'de str>, D::Error> {
    <&RawValue>::deserialize(deserializer).map(|raw| Some(raw.get()))
}

impl<'r> ToolCall<'r> {
    pub(super) fn from_request(request: &'r Request) -> Result<Self, ErrorObject> {
        // If a member is invalid, the parameters are parsed again as a whole, for an error message
        // with the position.
        Self::from_members(request).map_or_else(|| request.decode_params(), Ok)
    }

    fn from_members(request: &'r Request) -> Option<Self> {
        let params = request.params.as_ref()?;
        let responses = params.member("inputResponses").map(serde_json::from_str);
        let state = params.member("requestState").filter(|state| *state != "null");
        Some(Self {
            name: CowStr(params.string("name")?),
            arguments: params.member("arguments"),
            input_responses: responses.transpose().ok()?,
            request_state: match state {
                Some(_) => Some(CowStr(params.string("requestState")?)),
                None => None,
            },
        })
    }
}

impl Registry {
    pub(super) async fn call_tool(
        self: &Arc<Self>,
        request: &Request,
        parts: Box<RequestParts>,
    ) -> Outcome {
        let call = ToolCall::from_request(request)?;
        if let Some(functions) = self.task_functions
            && self.tool(&call.name.0).is_some_and(|tool| tool.task.is_some())
        {
            return (functions.call)(Arc::clone(self), request, parts).await;
        }
        match self.begin_tool(call, parts)? {
            (tool, round, Ok(handler)) => self.run_tool(tool, &round, handler).await,
            (.., Err(why)) => self.invalid_arguments(&why),
        }
    }

    /// Runs a round of a tool, and returns the response.
    pub(super) async fn run_tool(
        &self,
        tool: &Tool,
        round: &RoundExecution<'_>,
        handler: ToolFuture,
    ) -> Outcome {
        let complete = |outcome| self.tool_response(tool, outcome);
        round.run(handler, |output| output.0, complete).await
    }

    pub(super) fn invalid_arguments(&self, why: &str) -> Outcome {
        self.complete(&ToolOutput::failure(format!("Invalid arguments: {why}")))
    }

    /// Turns the outcome of a tool into its result.
    pub(crate) fn tool_response(
        &self,
        tool: &Tool,
        outcome: Result<Box<CallToolResult>, Error>,
    ) -> Outcome {
        let mut result = match outcome {
            Ok(result) => result,
            Err(error) => match error.as_response() {
                Some(response) => return Err(response.clone()),
                None => Box::new(ToolOutput::failure(error.message().to_owned())),
            },
        };
        let fits = tool.schemas.check_result(&result);
        let fits = fits.and_then(|()| {
            result.content.iter().try_for_each(ContentBlock::validate).map_err(String::from)
        });
        fits.map_err(|why| invalid_output(&tool.wire.name, &why))?;
        let meta = result.meta.take();
        self.complete_with(&*result, meta)
    }

    /// Prepares a round of a tool's call, and calls the handler for its future. The inner error is
    /// the reason why the arguments are invalid.
    pub(super) fn begin_tool<'a>(
        &'a self,
        call: ToolCall<'a>,
        parts: Box<RequestParts>,
    ) -> Result<(&'a Tool, RoundExecution<'a>, HandlerCall<ToolOutput>), ErrorObject> {
        let ToolCall { name: CowStr(name), arguments: given, input_responses, request_state } =
            call;
        let Some(tool) = self.tools.find_visible(&name, &parts) else {
            return Err(unknown("tool", &name));
        };
        let arguments = arguments(given)?;
        if !tool.param_headers.is_empty() && parts.mirrors_arguments() {
            let parsed = serde_json::from_str(arguments)
                .map_err(|e| ErrorObject::invalid_params(format!("Invalid params: {e}")))?;
            check_param_headers(&parts.headers, &tool.param_headers, &parsed)?;
        }
        let (method, name, options) = (method::TOOLS_CALL, &*tool.wire.name, &tool.options);
        let target = Target { method, name, arguments, options };
        let state = request_state.as_ref().map(|CowStr(state)| &**state);
        let round = RoundExecution::open(self, target, parts, input_responses, state)?;
        let handler = match tool.schemas.check_arguments(arguments) {
            Ok(()) => round.begin(&tool.handler)?,
            Err(why) => Err(why),
        };
        Ok((tool, round, handler))
    }
}

/// Returns the arguments as a JSON object; absent arguments and `null` are empty.
fn arguments(given: Option<&str>) -> Result<&str, ErrorObject> {
    match given {
        None | Some("null") => Ok("{}"),
        Some(text) if text.starts_with('{') => Ok(text),
        Some(_) => {
            Err(ErrorObject::invalid_params("Invalid params: `arguments` must be an object"))
        }
    }
}
