//! The loop, driven over a connection.

use std::time::Duration;

use mrtr_schema::jsonrpc::{ErrorObject, Request, code};
use mrtr_schema::method;
use mrtr_transport::{Exchange, Outgoing};
use serde_json::Value;
use serde_json::value::RawValue;

use crate::client::Client;
use crate::error::CallError;
use crate::machine::{Action, Event, Machine};

/// A call that went well.
pub(crate) struct Completed {
    pub(crate) result: Box<RawValue>,
    /// How many requests it took.
    pub(crate) legs: u32,
}

impl<X: Exchange> Client<X> {
    /// Makes a call, within the client's deadline.
    pub(crate) async fn in_time(
        &self,
        method: &str,
        target: &str,
        params: &[(&str, Box<RawValue>)],
    ) -> Result<Completed, CallError> {
        let run = self.run(method, target, params);
        let Some(time) = self.deadline else { return run.await };
        let late = |_| CallError::deadline(format!("{method} {target} took longer than {time:?}"));
        tokio::time::timeout(time, run).await.map_err(late)?
    }

    async fn run(
        &self,
        method: &str,
        target: &str,
        params: &[(&str, Box<RawValue>)],
    ) -> Result<Completed, CallError> {
        let inner = &*self.inner;
        let arguments = params.iter().find(|(name, _)| *name == "arguments");
        let arguments = arguments.and_then(|(_, raw)| serde_json::from_str(raw.get()).ok());
        let arguments: Value = arguments.unwrap_or_default();
        let params =
            params.iter().map(|(name, value)| ((*name).to_owned(), value.clone())).collect();
        let (mut machine, mut action) =
            Machine::start(inner.ids.clone(), method, params, inner.meta.clone(), inner.limits)?;
        machine.accept(&inner.result_types);
        let mut legs = 0;
        loop {
            let event = match action {
                Action::Done(result) => return Ok(Completed { result, legs }),
                Action::Send(request) => {
                    legs += 1;
                    tracing::debug!(target: "mrtr::client", method, target, id = %request.id, "leg");
                    Event::Response(self.send(request, target, &arguments).await?)
                }
                Action::Ask(requests) => {
                    let round = machine.question_rounds();
                    Event::Answers(
                        inner.handlers.answer_all(requests, method, target, round).await?,
                    )
                }
                Action::Wait(time) => {
                    tokio::time::sleep(jittered(time)).await;
                    Event::Waited
                }
            };
            action = machine.next(event)?;
        }
    }

    /// Sends one leg. If the server wants other headers than we knew of, its tools are listed again, and
    /// the leg is sent once more: it was refused before anything was done.
    async fn send(
        &self,
        mut request: Request,
        target: &str,
        arguments: &Value,
    ) -> Result<Result<Box<RawValue>, ErrorObject>, CallError> {
        let inner = &*self.inner;
        let first_id = request.id.clone();
        let heard = |notification| inner.heard.hear(&notification, &first_id);
        let is_call = request.method == method::TOOLS_CALL;
        let param_headers =
            if is_call { self.param_headers(target, arguments)? } else { Vec::new() };
        let first = Outgoing {
            param_headers: param_headers.clone(),
            heard: &heard,
            ..Outgoing::new(request.clone())
        };
        let outcome = inner.exchange.exchange(first).await?.outcome;
        if !is_call || !matches!(&outcome, Err(error) if error.code == code::HEADER_MISMATCH) {
            return Ok(outcome);
        }
        // Listing is a call of its own, so this future would contain itself.
        inner.cache.forget(&[method::TOOLS_LIST]);
        Box::pin(self.list_tools()).await?;
        let refreshed = self.param_headers(target, arguments)?;
        if refreshed == param_headers {
            return Ok(outcome);
        }
        request.id = inner.ids.next();
        let second_id = request.id.clone();
        let heard = |notification| inner.heard.hear(&notification, &second_id);
        let again = Outgoing { param_headers: refreshed, heard: &heard, ..Outgoing::new(request) };
        Ok(inner.exchange.exchange(again).await?.outcome)
    }

    /// The headers for a tool's arguments, by what is known of the tool.
    fn param_headers(
        &self,
        tool: &str,
        arguments: &Value,
    ) -> Result<Vec<(String, String)>, CallError> {
        let Some(known) = self.inner.known(tool) else { return Ok(Vec::new()) };
        let mut headers = Vec::new();
        for param in &known.param_headers {
            if let Some(value) = param.value(arguments).map_err(CallError::request)? {
                headers.push((param.name.clone(), value));
            }
        }
        Ok(headers)
    }
}

/// Between half of `time` and all of it, so that clients that were put off together do not come back
/// together.
fn jittered(time: Duration) -> Duration {
    let random = getrandom::u32().unwrap_or(u32::MAX);
    time / 2 + time.mul_f64(f64::from(random) / f64::from(u32::MAX) / 2.0)
}
