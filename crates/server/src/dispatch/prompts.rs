//! `prompts/list` and `prompts/get`.

use std::sync::Arc;

use mrtr_schema::jsonrpc::{ErrorObject, Request};
use mrtr_schema::method;
use mrtr_schema::prompt::{GetPromptParams, PromptMessage};
use mrtr_schema::tool::ListParams;
use serde_json::Value;

use super::execute::{RoundExecution, Target};
use super::{handler_error, invalid_output, is_single_use, run_round, unknown};
use crate::output::PromptOutput;
use crate::registry::{Methods, Outcome, Registry, ResponseFuture};
use crate::request_parts::RequestParts;

pub(crate) const METHODS: Methods = &[(method::PROMPTS_LIST, list), (method::PROMPTS_GET, get)];

fn list(server: Arc<Registry>, request: &Request, parts: Box<RequestParts>) -> ResponseFuture<'_> {
    Box::pin(async move {
        server.page("prompts", &server.prompts, &ListParams::from_request(request)?, &parts)
    })
}

fn get(server: Arc<Registry>, request: &Request, parts: Box<RequestParts>) -> ResponseFuture<'_> {
    Box::pin(async move {
        let call = GetPromptParams::from_request(request)?;
        let options = || server.prompt(&call.name).map(|prompt| &prompt.options);
        let single_use = is_single_use(call.request_state.is_some(), options);
        let registry = Arc::clone(&server);
        let round = Box::pin(async move { registry.get_prompt(call, parts).await });
        run_round(&server, single_use, round).await
    })
}

impl Registry {
    async fn get_prompt(&self, call: GetPromptParams, parts: Box<RequestParts>) -> Outcome {
        let Some(prompt) = self.prompts.find_visible(&call.name, &parts) else {
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
            options: &prompt.options,
        };
        let round = RoundExecution::open(
            self,
            target,
            parts,
            call.input_responses,
            call.request_state.as_deref(),
        )?;
        let handler = round
            .begin(&prompt.handler)?
            .map_err(|why| ErrorObject::invalid_params(format!("Invalid arguments: {why}")))?;
        round
            .run(
                handler,
                |PromptOutput(output)| output,
                |outcome| match outcome {
                    Ok(mut result) => {
                        let fits = result.messages.iter().try_for_each(PromptMessage::validate);
                        fits.map_err(|why| invalid_output(&call.name, &why.to_string()))?;
                        let meta = result.meta.take();
                        self.complete_with(&*result, meta)
                    }
                    // The result of a prompt cannot express an error.
                    Err(error) => Err(handler_error(&error)),
                },
            )
            .await
    }
}
