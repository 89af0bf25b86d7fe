//! `prompts/list` and `prompts/get`.

use std::sync::Arc;

use mrtr_schema::content::ContentBlock;
use mrtr_schema::jsonrpc::{ErrorObject, Request};
use mrtr_schema::method;
use mrtr_schema::prompt::GetPromptParams;
use mrtr_schema::tool::ListParams;
use serde_json::Value;

use super::execute::{Leg, Target};
use super::methods::{Answering, Methods};
use super::{Outcome, is_single_use, refused, run, unfit, unknown};
use crate::prompt::PromptOutput;
use crate::request_context::RequestContext;
use crate::server::Inner;

pub(crate) const METHODS: Methods = &[(method::PROMPTS_LIST, list), (method::PROMPTS_GET, get)];

fn list<'r>(server: &'r Arc<Inner>, request: &'r Request, _: Box<RequestContext>) -> Answering<'r> {
    Box::pin(async { server.page("prompts", &server.prompts, &ListParams::from_request(request)?) })
}

fn get<'r>(
    server: &'r Arc<Inner>,
    request: &'r Request,
    caller: Box<RequestContext>,
) -> Answering<'r> {
    Box::pin(async move {
        let call = GetPromptParams::from_request(request)?;
        let rules = || server.prompt(&call.name).map(|prompt| &prompt.rules);
        let single_use = is_single_use(call.request_state.is_some(), rules);
        let inner = Arc::clone(server);
        run(server, single_use, Box::pin(async move { inner.get_prompt(call, caller).await })).await
    })
}

impl Inner {
    async fn get_prompt(&self, call: GetPromptParams, caller: Box<RequestContext>) -> Outcome {
        let Some(prompt) = self.prompt(&call.name) else {
            return Err(unknown("prompt", &call.name));
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
        let handler = leg
            .begin(&prompt.handler)?
            .map_err(|why| ErrorObject::invalid_params(format!("Invalid arguments: {why}")))?;
        leg.run(
            handler,
            |PromptOutput(output)| output,
            |outcome| match outcome {
                Ok(result) => {
                    let mut blocks = result.messages.iter().map(|message| &message.content);
                    let fits = blocks.try_for_each(ContentBlock::validate);
                    fits.map_err(|why| unfit(&call.name, &why.to_string()))?;
                    self.complete(&*result)
                }
                // A prompt has no place for failures in its result.
                Err(error) => Err(refused(&error)),
            },
        )
        .await
    }
}
