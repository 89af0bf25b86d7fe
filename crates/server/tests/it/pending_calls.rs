//! A call that one process begins and another completes, while the replicas are replaced.

use mrtr_client::{CallOutcome, Client, PendingCall};
use mrtr_schema::elicitation::ElicitResult;
use mrtr_schema::input::InputResponses;
use mrtr_schema::tool::CallToolResult;
use mrtr_server::{Context, KeyRing, Server, Tool};
use mrtr_testkit::{Replicas, TestClock};
use serde_json::json;

use crate::support::{Counter, Text, alice, secret};

fn tool(runs: &Counter) -> Tool {
    let runs = runs.clone();
    Tool::new("t", "", move |cx: Context| {
        let runs = runs.clone();
        async move {
            let hold = cx.step("hold", async |_| Ok(runs.increment())).await?;
            let a: Text = cx.elicit("a", "?").await?;
            let b: Text = cx.elicit("b", format!("{}?", a.text)).await?;
            Ok::<_, mrtr_server::Error>(format!("{hold} {} {}", a.text, b.text))
        }
    })
}

fn answer(key: &str, text: &str) -> InputResponses {
    let mut answers = InputResponses::default();
    answers.push(key, &ElicitResult::accept(json!({ "text": text })).unwrap()).unwrap();
    answers
}

/// Only the serialized call remains of the first process, and the key that sealed it is retiring.
#[tokio::test]
async fn pending_call_survives_its_client_its_servers_and_their_key() {
    let (clock, runs) = (TestClock::default(), Counter::default());
    let ring = || KeyRing::builder("https://test.example/mcp");
    let fleet = |ring: KeyRing| {
        let server =
            Server::builder("test", "1").require_principal().key_ring(ring).clock(clock.clone());
        Replicas::new([server.tool(tool(&runs)).build().unwrap()]).as_principal(alice())
    };
    let before = || fleet(ring().active(secret(0)).build().unwrap());
    let after = || fleet(ring().active(secret(1)).retiring(secret(0)).build().unwrap());
    let client =
        |fleet| Client::builder(fleet).on_form(async |_, _| Ok(ElicitResult::decline())).build();
    let written = |outcome: CallOutcome<CallToolResult>| match outcome {
        CallOutcome::InputRequired(call) => serde_json::to_string(&call).unwrap(),
        CallOutcome::Complete(done) => done.text(),
        CallOutcome::Working(call) => unreachable!("{call:?}"),
    };
    let read = |text: &str| serde_json::from_str::<PendingCall>(text).unwrap();

    let first = written(client(before()).begin_tool("t", json!({})).await.unwrap());
    let second = client(after()).resume(read(&first), &answer("a", "x")).await.unwrap();
    let second = written(second);
    let done = client(after()).resume(read(&second), &answer("b", "y")).await.unwrap();
    assert_eq!(written(done), "1 x y");
    assert_eq!(runs.get(), 1, "the step must not run again");

    // Another caller cannot continue the call.
    let anonymous = Replicas::new([Server::builder("test", "1")
        .key_ring(ring().active(secret(0)).build().unwrap())
        .clock(clock.clone())
        .allow_anonymous()
        .tool(tool(&runs))
        .build()
        .unwrap()]);
    let error = client(anonymous).resume::<CallToolResult>(read(&first), &answer("a", "x")).await;
    assert_eq!(error.unwrap_err().as_server_error().unwrap().code, -32602);
}
