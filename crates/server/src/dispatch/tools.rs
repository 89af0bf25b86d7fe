//! `tools/list` and `tools/call`.

use std::sync::Arc;

use mrtr_schema::content::ContentBlock;
use mrtr_schema::input::InputResponses;
use mrtr_schema::json::CowStr;
use mrtr_schema::jsonrpc::{ErrorObject, Request, params};
use mrtr_schema::method;
use mrtr_schema::tool::{CallToolResult, ListParams};
use mrtr_transport::headers::check_param_headers;
use serde::{Deserialize, Deserializer};
use serde_json::value::RawValue;

use super::execute::{Leg, Target};
use super::methods::{Answering, Methods};
use super::{Outcome, unfit, unknown};
use crate::error::Error;
use crate::handler::Called;
use crate::request_context::RequestContext;
use crate::server::Inner;
use crate::tool::{Tool, ToolOutput};

pub(crate) const METHODS: Methods = &[(method::TOOLS_LIST, list)];

fn list<'r>(server: &'r Arc<Inner>, request: &'r Request, _: Box<RequestContext>) -> Answering<'r> {
    Box::pin(async { server.page("tools", &server.tools, &ListParams::of(request)?) })
}

/// The parameters of `tools/call`, without the `_meta` that was read before.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct ToolCall<'a> {
    #[serde(borrow)]
    name: CowStr<'a>,
    #[serde(borrow, default, deserialize_with = "text_of")]
    arguments: Option<&'a str>,
    #[serde(default, deserialize_with = "InputResponses::present")]
    input_responses: Option<InputResponses>,
    #[serde(borrow)]
    request_state: Option<CowStr<'a>>,
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

impl Inner {
    pub(super) async fn call_tool(
        &self,
        request: &Request,
        caller: Box<RequestContext>,
    ) -> Outcome {
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
        caller: Box<RequestContext>,
    ) -> Result<(&'a Tool, Leg<'a>, Called<ToolOutput>), ErrorObject> {
        let ToolCall { name: CowStr(name), arguments: given, input_responses, request_state } =
            call;
        let Some(tool) = self.tool(&name) else {
            return Err(unknown("tool", &name));
        };
        let arguments = arguments(given)?;
        if !(tool.param_headers.is_empty() || caller.headers.is_empty()) {
            let parsed = serde_json::from_str(arguments)
                .map_err(|e| ErrorObject::invalid_params(format!("Invalid params: {e}")))?;
            check_param_headers(&caller.headers, &tool.param_headers, &parsed)?;
        }
        let (method, name, rules) = (method::TOOLS_CALL, &*tool.wire.name, &tool.rules);
        let target = Target { method, name, arguments, rules };
        let state = request_state.as_ref().map(|CowStr(state)| &**state);
        let leg = Leg::open(self, target, caller, input_responses, state)?;
        let handler = match tool.schemas.check_arguments(arguments) {
            Ok(()) => leg.begin(&tool.handler)?,
            Err(why) => Err(why),
        };
        Ok((tool, leg, handler))
    }
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
