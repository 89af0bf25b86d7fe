//! Calls of several rounds.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use mrtr_client::CallOutcome;
use mrtr_schema::PROTOCOL_VERSION;
use mrtr_schema::elicitation::ElicitResult;
use mrtr_schema::input::InputResponses;
use mrtr_schema::jsonrpc::{Params, Request, RequestId, code};
use mrtr_schema::meta::key;
use mrtr_schema::tool::CallToolResult;
use mrtr_server::{Context, Principal, Tool};
use mrtr_transport::{InProcess, OutgoingRequest, Transport as _};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Value, json};

use super::{caller, connect, gateway, upstream};

#[derive(Deserialize, JsonSchema)]
struct Text {
    text: String,
}

/// A tool that runs a step between two questions, and counts how often the step ran.
fn ask_twice(steps: &Arc<AtomicU32>) -> Tool {
    let steps = Arc::clone(steps);
    Tool::new("ask", "Asks twice", move |cx: Context, principal: Principal, Text { text }: Text| {
        let steps = Arc::clone(&steps);
        async move {
            let first: Text = cx.elicit("first", "First?").await?;
            cx.step("count", async |_| Ok(steps.fetch_add(1, Ordering::Relaxed))).await?;
            let second: Text = cx.elicit("second", "Second?").await?;
            let [first, second] = [first.text, second.text];
            Ok::<_, mrtr_server::Error>(format!("{} {text} {first} {second}", principal.subject()))
        }
    })
}

fn answer(key: &str, text: &str) -> InputResponses {
    let mut responses = InputResponses::default();
    responses.push(key, &ElicitResult::accept(json!({ "text": text })).unwrap()).unwrap();
    responses
}

fn paused(outcome: CallOutcome<CallToolResult>) -> mrtr_client::PendingCall {
    match outcome {
        CallOutcome::InputRequired(call) => call,
        other => panic!("{other:?}"),
    }
}

/// Each round goes to another replica of the gateway, and to another replica of the upstream.
#[tokio::test]
async fn any_replica_of_a_gateway_continues_a_call() {
    let steps = Arc::default();
    let servers = [(); 3].map(|()| upstream("u", [ask_twice(&steps)]));
    let mut replicas = Vec::new();
    for server in &servers {
        let gateway = gateway(&[("u", server)]).await;
        replicas.push(caller(&gateway, "alice").build());
    }
    let call = paused(replicas[0].begin_tool("u__ask", json!({ "text": "to" })).await.unwrap());
    let call = paused(replicas[1].resume(call, &answer("first", "be")).await.unwrap());
    match replicas[2].resume::<CallToolResult>(call, &answer("second", "or")).await.unwrap() {
        CallOutcome::Complete(result) => assert_eq!(result.text(), "the gateway to be or"),
        other => panic!("{other:?}"),
    }
    assert_eq!(steps.load(Ordering::Relaxed), 1, "a step is recorded in the state of the upstream");
}

/// The upstream knows the gateway alone: what one caller got is useless to another.
#[tokio::test]
async fn callers_cannot_use_the_states_of_one_another() {
    let server = upstream("u", [ask_twice(&Arc::default())]);
    let gateway = gateway(&[("u", &server)]).await;
    let alice = caller(&gateway, "alice").build();
    let call = paused(alice.begin_tool("u__ask", json!({ "text": "a" })).await.unwrap());
    for (client, what) in [
        (caller(&gateway, "mallory").build(), "another caller"),
        (connect(&server, "the gateway").build(), "the upstream, which has other keys"),
    ] {
        let stolen = client.resume::<CallToolResult>(call.clone(), &answer("first", "x")).await;
        let error = stolen.unwrap_err();
        let error = error.as_server_error().unwrap_or_else(|| panic!("{what}: {error:?}"));
        assert_eq!(error.code, code::INVALID_PARAMS, "{what}");
    }
    assert!(alice.resume::<CallToolResult>(call, &answer("first", "x")).await.is_ok());
}

#[tokio::test]
async fn question_that_was_not_answered_is_asked_again() {
    let server = upstream("u", [ask_twice(&Arc::default())]);
    let gateway = gateway(&[("u", &server)]).await;
    let call = paused(
        caller(&gateway, "a").build().begin_tool("u__ask", json!({ "text": "" })).await.unwrap(),
    );
    // `Client` would not send the request again without an answer.
    let stored = serde_json::to_value(&call).unwrap();
    let params = json!({
        "name": "u__ask", "arguments": { "text": "" },
        "requestState": stored["requestState"], "inputResponses": {},
        "_meta": {
            key::PROTOCOL_VERSION: PROTOCOL_VERSION,
            key::CLIENT_CAPABILITIES: { "elicitation": { "form": {} } },
        },
    });
    let params = Params::new(&params).unwrap();
    let request = Request::new(RequestId::Number(1), "tools/call", Some(params));
    let transport = InProcess::new(gateway.server().clone())
        .with_extension(Principal::new("https://login.example", "a"));
    let response = transport.send(OutgoingRequest::new(request)).await.unwrap();
    let again: Value = serde_json::from_str(response.outcome.unwrap().get()).unwrap();
    assert_eq!(again["inputRequests"]["first"]["params"]["message"], "First?", "{again}");
}

/// The upstream gets the capabilities of each caller, and can ask for no more.
#[tokio::test]
async fn upstream_sees_the_capabilities_of_the_caller() {
    let server = upstream("u", [ask_twice(&Arc::default())]);
    let gateway = gateway(&[("u", &server)]).await;
    let without_forms = connect(gateway.server(), "a").build();
    let error = without_forms.call_tool("u__ask", json!({ "text": "" })).await.unwrap_err();
    let error = error.as_server_error().unwrap();
    assert_eq!(error.code, code::MISSING_REQUIRED_CLIENT_CAPABILITY);
    assert_eq!(
        error.data.as_ref().unwrap()["requiredCapabilities"],
        json!({ "elicitation": { "form": {} } })
    );
}

/// All callers have one identity at the upstream: a page that one opens would act for all.
#[tokio::test]
async fn questions_in_url_mode_are_not_forwarded() {
    let tool = Tool::new("login", "", async |cx: Context| {
        cx.elicit_url("login", "Log in", "https://login.example").await?;
        Ok::<_, mrtr_server::Error>("done")
    });
    let server = upstream("u", [tool]);
    let gateway = gateway(&[("u", &server)]).await;
    let client = caller(&gateway, "alice").on_url(async |_, _| Ok(ElicitResult::decline())).build();
    let error = client.call_tool("u__login", json!({})).await.unwrap_err();
    let error = error.as_server_error().unwrap();
    // Not the upstream's own error: it names a capability that the caller has declared.
    assert_eq!(error.code, code::INTERNAL_ERROR);
    assert_eq!(
        error.message,
        "The upstream server requires a client capability that the gateway does not forward"
    );
}
