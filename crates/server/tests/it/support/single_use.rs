//! Requests to a tool whose request states work once.

use mrtr_schema::elicitation::ElicitResult;
use mrtr_server::{Context, Tool};
use mrtr_testkit::Replicas;
use serde_json::{Value, json};

use super::{Counter, Text, call_tool};

/// A tool `t` that asks for a text, and returns it with the number of runs so far.
pub(crate) fn guess(runs: &Counter) -> Tool {
    let runs = runs.clone();
    Tool::new("t", "", move |cx: Context| {
        let runs = runs.clone();
        async move {
            let text = cx.elicit::<Text>("guess", "Which?").await?.text;
            Ok::<_, mrtr_server::Error>(format!("{text} {}", runs.increment()))
        }
    })
    .single_use()
}

/// The response to a state that was used with another answer.
pub(crate) fn used() -> Value {
    json!({ "error": {
        "code": -32602,
        "message": "This requestState was already used",
        "data": { "reason": "request_state_used" },
    } })
}

/// Sends the first round of `t` and returns its request state.
pub(crate) async fn first_state(fleet: &Replicas) -> Value {
    let first = call_tool(fleet, "t", json!({}), json!({})).await;
    first.get("requestState").cloned().unwrap_or_default()
}

/// The parameters that the second round adds.
pub(crate) fn answered(state: &Value, text: &str) -> Value {
    let answer = ElicitResult::accept(json!({ "text": text })).unwrap();
    json!({ "requestState": state, "inputResponses": { "guess": answer } })
}

/// The text of a tool's result.
pub(crate) fn text(result: &Value) -> &str {
    result.pointer("/content/0/text").and_then(Value::as_str).unwrap_or_default()
}
