//! Calls of several rounds.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

use mrtr_client::{CallOutcome, RoundLimits};
use mrtr_gateway::Gateway;
use mrtr_schema::elicitation::ElicitResult;
use mrtr_schema::input::InputResponses;
use mrtr_schema::jsonrpc::{Params, Request, RequestId, code};
use mrtr_schema::meta::key;
use mrtr_schema::resource::ReadResourceResult;
use mrtr_schema::tool::CallToolResult;
use mrtr_schema::{Object, PROTOCOL_VERSION};
use mrtr_server::{Clock, Context, Principal, Tool, UnixSeconds};
use mrtr_transport::{InProcess, OutgoingRequest, Transport as _};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Value, json};

use super::{caller, connect, gateway, gateway_server, keyed, upstream};

/// A clock that a test moves on.
#[derive(Clone, Default)]
struct TestClock(Arc<AtomicU64>);

impl Clock for TestClock {
    fn now(&self) -> UnixSeconds {
        UnixSeconds(2_000_000_000 + self.0.load(Ordering::Relaxed))
    }
}

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

/// The limits of the upstream and of the caller count, not those of the gateway.
#[tokio::test]
async fn call_has_the_rounds_of_its_upstream() {
    let many = Tool::new("many", "Asks often", async |cx: Context| {
        for n in 0..15 {
            cx.elicit::<Text>(format!("q{n}"), "More?").await?;
        }
        Ok::<_, mrtr_server::Error>("done")
    });
    let server = upstream("u", [many]);
    let gateway = gateway(&[("u", &server)]).await;
    let limits = RoundLimits::default().with_input_rounds(20);
    let client = caller(&gateway, "alice").round_limits(limits).build();
    assert_eq!(client.call_tool("u__many", json!({})).await.unwrap().text(), "done");
}

#[tokio::test]
async fn state_of_a_call_is_valid_for_as_long_as_that_of_its_upstream() {
    let clock = TestClock::default();
    let approve = Tool::new("approve", "Asks the boss", async |cx: Context| {
        Ok::<_, mrtr_server::Error>(cx.elicit::<Text>("q", "May I?").await?.text)
    });
    let approve =
        approve.answer_timeout(Duration::from_hours(24)).call_timeout(Duration::from_hours(24));
    let server = keyed("u", 2).clock(clock.clone()).tool(approve).build().unwrap();
    let gateway = Gateway::builder()
        .upstream("u", connect(&server, "the gateway").build())
        .build(gateway_server().clock(clock.clone()))
        .unwrap();
    gateway.refresh().await;
    let client = caller(&gateway, "alice").build();
    let call = paused(client.begin_tool("u__approve", json!({})).await.unwrap());
    clock.0.fetch_add(20 * 3_600, Ordering::Relaxed);
    match client.resume::<CallToolResult>(call, &answer("q", "yes")).await.unwrap() {
        CallOutcome::Complete(result) => assert_eq!(result.text(), "yes"),
        other => panic!("{other:?}"),
    }
}

/// A checkpoint is a round without a question: the caller must get its state, too, or a step would
/// run twice after a crash of the gateway.
#[tokio::test]
async fn state_of_a_checkpoint_reaches_the_caller() {
    let steps = Arc::<AtomicU32>::default();
    let counted = Arc::clone(&steps);
    let tool = Tool::new("pay", "Pays", move |cx: Context| {
        let counted = Arc::clone(&counted);
        async move {
            let count = async |_| Ok(counted.fetch_add(1, Ordering::Relaxed));
            cx.step("pay", count).after_checkpoint().await?;
            let _: Text = cx.elicit("end", "End?").await?;
            Ok::<_, mrtr_server::Error>("paid")
        }
    });
    let server = upstream("u", [tool]);
    let replicas = (gateway(&[("u", &server)]).await, gateway(&[("u", &server)]).await);
    // Another gateway as the client.
    let [one, two] = [&replicas.0, &replicas.1]
        .map(|replica| caller(replica, "alice").build().with_pause_in_every_round());
    let outcome = one.begin_tool("u__pay", json!({})).await.unwrap();
    let CallOutcome::Working(call) = outcome else { panic!("{outcome:?}") };
    assert_eq!((call.task_id(), steps.load(Ordering::Relaxed)), (None, 0));
    let none = InputResponses::default();
    let call = paused(two.resume(call, &none).await.unwrap());
    match one.resume::<CallToolResult>(call, &answer("end", "x")).await.unwrap() {
        CallOutcome::Complete(result) => assert_eq!(result.text(), "paid"),
        other => panic!("{other:?}"),
    }
    assert_eq!(steps.load(Ordering::Relaxed), 1);
    // Other clients continue by themselves.
    let client = caller(&replicas.0, "alice").build();
    assert_eq!(client.call_tool("u__pay", json!({})).await.unwrap().text(), "paid");
}

/// A resource that asks, under the same URI at both upstreams.
fn asking_resource() -> mrtr_server::Resource {
    mrtr_server::Resource::new("note://one", "One", async |cx: Context| {
        let Text { text } = cx.elicit("who", "Who?").await?;
        Ok::<_, mrtr_server::Error>(text)
    })
}

/// The upstream that listed first has the URI, and that may be another one at another replica.
#[tokio::test]
async fn answers_go_only_to_the_upstream_that_asked() {
    let [one, two] =
        [2, 3].map(|seed| keyed("u", seed).resource(asking_resource()).build().unwrap());
    let at_one = gateway(&[("one", &one)]).await;
    let at_two = gateway(&[("two", &two)]).await;
    let outcome = caller(&at_one, "alice").build().begin_resource("note://one").await.unwrap();
    let CallOutcome::InputRequired(call) = outcome else { panic!("{outcome:?}") };
    let client = caller(&at_two, "alice").build();
    let moved = client.resume::<ReadResourceResult>(call.clone(), &answer("who", "me")).await;
    let error = moved.unwrap_err();
    assert!(error.to_string().contains("another server than the one that asked"), "{error}");
    let client = caller(&at_one, "alice").build();
    assert!(client.resume::<ReadResourceResult>(call, &answer("who", "me")).await.is_ok());
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
    let declared = Tool::new("declared", "", async |cx: Context| {
        serde_json::to_string(cx.parts().capabilities()).unwrap_or_default()
    });
    let server = upstream("u", [ask_twice(&Arc::default()), declared]);
    let gateway = gateway(&[("u", &server)]).await;
    let declines = async |_, _| Ok(ElicitResult::decline());
    let clients = [
        (connect(gateway.server(), "a"), json!({})),
        (connect(gateway.server(), "a").on_url(declines), json!({})),
        (caller(&gateway, "a").on_url(declines), json!({ "elicitation": { "form": {} } })),
        (connect(gateway.server(), "a").extension("com.example/x", Object::new()), json!({})),
    ];
    for (client, expected) in clients {
        let seen = client.build().call_tool("u__declared", json!({})).await.unwrap();
        assert_eq!(serde_json::from_str::<Value>(&seen.text()).unwrap(), expected);
    }
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
