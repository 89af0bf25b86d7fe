//! Request states of prompts, resources and resource templates that the server rejects, and lists,
//! which have no request state.

use mrtr_server::{
    Context, Principal, Prompt, Resource, ResourceTemplate, Result, Server, ServerBuilder, Tool,
};
use mrtr_testkit::{Replicas, TestClock};
use serde_json::{Value, json};

use crate::support::{LogLines, Text, alice, invalid_state, replica, send_request, with_meta};

#[derive(serde::Deserialize, schemars::JsonSchema)]
struct Doc {
    id: String,
}

/// Builds a server whose prompts, resources and templates all ask the same question. Names repeat
/// across kinds, so that only the method tells them apart.
fn server(builder: ServerBuilder) -> Server {
    async fn ask(cx: Context) -> Result<String> {
        Ok(cx.elicit::<Text>("q", "?").await?.text)
    }
    async fn ask_about(cx: Context, doc: Doc) -> Result<String> {
        Ok(format!("{} {}", doc.id, cx.elicit::<Text>("q", "?").await?.text))
    }
    builder
        .tool(Tool::new("p", "", ask))
        .tool(Tool::new("d", "", ask_about))
        .prompt(Prompt::new("p", "", ask))
        .prompt(Prompt::new("other", "", ask))
        .prompt(Prompt::new("d", "", ask_about))
        .resource(Resource::new("a:1", "1", ask))
        .resource(Resource::new("a:2", "2", ask))
        .resource_template(ResourceTemplate::new("doc://{id}", "docs", ask_about))
        .resource_template(ResourceTemplate::new("log://{id}", "logs", ask_about))
        .build()
        .unwrap()
}

/// Every request that the server can suspend, each with its method.
fn targets() -> Vec<(&'static str, Value)> {
    let prompt = |name: &str, arguments: Value| {
        ("prompts/get", json!({ "name": name, "arguments": arguments }))
    };
    let resource = |uri: &str| ("resources/read", json!({ "uri": uri }));
    let tool = |name: &str, arguments: Value| {
        ("tools/call", json!({ "name": name, "arguments": arguments }))
    };
    vec![
        prompt("p", json!({})),
        prompt("other", json!({})),
        prompt("d", json!({ "id": "1" })),
        prompt("d", json!({ "id": "2" })),
        resource("a:1"),
        resource("a:2"),
        resource("doc://1"),
        resource("doc://2"),
        resource("log://1"),
        tool("p", json!({})),
        tool("d", json!({ "id": "1" })),
    ]
}

fn fleet(builder: ServerBuilder) -> Replicas {
    Replicas::new([server(builder)]).as_principal(alice())
}

/// Sends the first round of a target and returns its request state.
async fn first_state(fleet: &Replicas, (method, params): &(&str, Value)) -> Value {
    let first = send_request(fleet, method, with_meta(params.clone())).await;
    assert!(first["requestState"].is_string(), "{method} {params}: {first}");
    first["requestState"].clone()
}

/// Sends a further round of a target, with this state and an answer.
async fn retry(fleet: &Replicas, (method, params): &(&str, Value), state: &Value) -> Value {
    let mut params = with_meta(params.clone());
    params["requestState"] = state.clone();
    params["inputResponses"] =
        json!({ "q": { "action": "accept", "content": { "text": "answer" } } });
    send_request(fleet, method, params).await
}

#[tokio::test]
async fn state_of_one_target_is_rejected_by_every_other_target() {
    let fleet = fleet(replica(&TestClock::default()));
    let (lines, _guard) = LogLines::collect();
    for (sealed, from) in targets().iter().enumerate() {
        let state = first_state(&fleet, from).await;
        for (presented, to) in targets().iter().enumerate() {
            let outcome = retry(&fleet, to, &state).await;
            if sealed == presented {
                assert_eq!(outcome["resultType"], "complete", "{to:?}: {outcome}");
            } else {
                assert_eq!(outcome, invalid_state(), "state of {from:?} sent to {to:?}");
            }
        }
    }
    let log = lines.text();
    for reason in ["wrong_method", "wrong_target", "wrong_arguments"] {
        assert!(log.contains(&format!("reason=\"{reason}\"")), "{reason} is not in the log");
    }
}

#[tokio::test]
async fn expired_forged_and_malformed_states_are_rejected_by_every_target() {
    let clock = TestClock::default();
    let fleet = fleet(replica(&clock));
    for target in targets() {
        let state = first_state(&fleet, &target).await;
        let text = state.as_str().unwrap();
        let letter = if text.as_bytes()[90] == b'A' { "B" } else { "A" };
        let forged = json!(format!("{}{letter}{}", &text[..90], &text[91..]));
        let (lines, _guard) = LogLines::collect();
        assert_eq!(retry(&fleet, &target, &forged).await, invalid_state(), "{target:?}");
        assert_eq!(retry(&fleet, &target, &json!("x")).await, invalid_state(), "{target:?}");
        assert_eq!(retry(&fleet, &target, &json!("")).await, invalid_state(), "{target:?}");
        clock.advance(600);
        assert_eq!(retry(&fleet, &target, &state).await, invalid_state(), "{target:?}");
        let log = lines.text();
        let reasons: Vec<_> = log
            .lines()
            .filter_map(|line| line.split("reason=\"").nth(1)?.split('"').next())
            .collect();
        assert_eq!(reasons, ["forged", "malformed", "malformed", "expired"], "{target:?}");
    }
}

#[tokio::test]
async fn state_of_another_principal_is_rejected_by_every_target() {
    let clock = TestClock::default();
    let bob = Principal::new("https://login.example", "bob");
    let (home, other) =
        (fleet(replica(&clock)), Replicas::new([server(replica(&clock))]).as_principal(bob));
    let anonymous = Replicas::new([server(replica(&clock).allow_anonymous())]);
    for target in targets() {
        let state = first_state(&home, &target).await;
        assert_eq!(retry(&other, &target, &state).await, invalid_state(), "{target:?}");
        assert_eq!(retry(&anonymous, &target, &state).await, invalid_state(), "{target:?}");
        assert_eq!(retry(&home, &target, &state).await["resultType"], "complete", "{target:?}");
    }
}

/// Lists have no rounds: a request state that a client sends along neither opens nor fails.
#[tokio::test]
async fn lists_ignore_request_states() {
    let fleet = fleet(replica(&TestClock::default()));
    let state = first_state(&fleet, &targets()[0]).await;
    for method in ["tools/list", "prompts/list", "resources/list", "resources/templates/list"] {
        let plain = send_request(&fleet, method, with_meta(json!({}))).await;
        assert_eq!(plain["resultType"], "complete", "{method}: {plain}");
        for state in [state.clone(), json!("forged")] {
            let params = with_meta(json!({ "requestState": state }));
            assert_eq!(send_request(&fleet, method, params).await, plain, "{method}");
        }
    }
}
