//! Calls that are forwarded, one round at a time.

use mrtr_client::{CallError, CallOutcome, CallResult, Client, PendingCall, Transport};
use mrtr_schema::input::InputResponses;
use mrtr_server::manual::{InputRequired, ManualContext, ManualOutput};
use mrtr_server::{Error, Result};
use serde::{Deserialize, Serialize};

use crate::upstream::Upstream;

/// A paused call, which is the state of a round: it is sealed for the caller, like the journal of a
/// handler, so any replica of the gateway can continue the call.
#[derive(Serialize, Deserialize)]
struct Paused {
    /// The name of the upstream. Another one must get neither the request state nor the answers.
    upstream: String,
    call: PendingCall,
}

/// Forwards one round of a call. `begin` sends the first one.
pub(crate) async fn forward<T: Transport, R: CallResult, O: From<R>>(
    upstream: &Upstream<T>,
    cx: &ManualContext,
    begin: impl AsyncFnOnce(&Client<T>) -> std::result::Result<CallOutcome<R>, CallError>,
) -> Result<ManualOutput<O>> {
    let client = upstream.client_for(cx);
    let outcome = match cx.state::<Paused>()? {
        None => upstream.outcome(begin(&client)).await?,
        Some(paused) if paused.upstream != upstream.name => {
            // Two upstreams have the same URI, and now the other one is offered.
            return Err(Error::new(
                "This URI is now offered by another server than the one that asked. Repeat the \
                 request without its state.",
            ));
        }
        Some(Paused { call, .. }) => match responses(cx, &call) {
            Some(responses) => upstream.outcome(client.resume(call, &responses)).await?,
            // The caller left out an answer.
            None => return Ok(ask(upstream, call)),
        },
    };
    match outcome {
        CallOutcome::Complete(result) => Ok(ManualOutput::Complete(result.into())),
        CallOutcome::InputRequired(call) | CallOutcome::Working(call) => match call.task() {
            Some(task) => upstream.offer_task(task.clone(), cx.parts()),
            None => Ok(ask(upstream, call)),
        },
    }
}

/// Returns the answers to all input requests of a paused call; `None` if one is missing.
fn responses(cx: &ManualContext, call: &PendingCall) -> Option<InputResponses> {
    let keys = call.input_requests().0.iter().map(|(key, _)| key);
    let answers = keys.map(|key| Some((key.clone(), cx.answers().get(key)?.to_owned())));
    answers.collect::<Option<_>>().map(InputResponses)
}

/// Passes the input requests of a paused call on to the caller, or the state alone if it has none.
fn ask<T, O>(upstream: &Upstream<T>, call: PendingCall) -> ManualOutput<O> {
    let requests = call.input_requests().0.iter();
    let asked = requests.fold(InputRequired::new(), |asked, (key, request)| {
        asked.ask(key.clone(), request.clone())
    });
    asked.state(&Paused { upstream: upstream.name.clone(), call }).into()
}
