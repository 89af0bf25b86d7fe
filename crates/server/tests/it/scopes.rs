//! Scopes that calls need.

use std::sync::Arc;

use mrtr_schema::elicitation::ElicitResult;
use mrtr_server::single_use::MemoryStore;
use mrtr_server::{Context, Prompt, Resource, ResourceTemplate, Result, Tool};
use mrtr_testkit::{Replicas, TestClock};
use serde_json::{Value, json};

use crate::support::single_use::text;
use crate::support::{Counter, Text, alice, call_tool, fleet, replica, send_request, with_meta};

fn insufficient(scopes: &[&str]) -> Value {
    json!({ "error": {
        "code": -32600,
        "message": format!("Insufficient scope: the request needs {}", scopes.join(" ")),
        "data": { "reason": "insufficient_scope", "scopes": scopes },
    } })
}

/// The parameters of the next request: the state of `result`, and an answer to its question.
fn next(result: &Value) -> Value {
    let mut more = json!({ "requestState": result["requestState"] });
    for key in result["inputRequests"].as_object().into_iter().flatten().map(|(key, _)| key) {
        let answer = ElicitResult::accept(json!({ "text": key })).unwrap();
        more["inputResponses"][key] = json!(answer);
    }
    more
}

async fn call(fleet: &Replicas, more: &Value) -> Value {
    call_tool(fleet, "t", json!({}), more.clone()).await
}

#[tokio::test]
async fn declared_scopes_are_checked_before_the_handler_runs() {
    let runs = Counter::default();
    let fleet = fleet(|| {
        let runs = runs.clone();
        let tool = Tool::new("t", "", move || {
            runs.increment();
            async { "done" }
        });
        tool.requires_scope("read").requires_scope("pay")
    });
    assert_eq!(text(&call(&fleet, &json!({})).await), "done", "over stdio, all are granted");
    for granted in [&[][..], &["read"], &["pay"], &["PAY", "read"]] {
        fleet.grant_scopes(granted.iter().copied());
        assert_eq!(call(&fleet, &json!({})).await, insufficient(&["read", "pay"]), "{granted:?}");
    }
    assert_eq!(runs.get(), 1);
    fleet.grant_scopes(["pay", "read", "other"]);
    assert_eq!(text(&call(&fleet, &json!({})).await), "done");
}

#[tokio::test]
async fn prompts_and_resources_declare_scopes_too() {
    let server = replica(&TestClock::default())
        .prompt(Prompt::new("p", "", async || "x").requires_scope("p"))
        .resource(Resource::new("file:///r", "r", async || "x").requires_scope("r"));
    let fleet = Replicas::new([server.build().unwrap()]).as_principal(alice());
    for (method, params, scope) in [
        ("prompts/get", json!({ "name": "p" }), "p"),
        ("resources/read", json!({ "uri": "file:///r" }), "r"),
    ] {
        fleet.grant_scopes(["other"]);
        let refused = send_request(&fleet, method, with_meta(params.clone())).await;
        assert_eq!(refused, insufficient(&[scope]));
        fleet.grant_scopes([scope]);
        let read = send_request(&fleet, method, with_meta(params)).await;
        assert_eq!(read.get("error"), None);
    }
}

/// Two scopes for each operation. That of a template depends on the URI. The official suite
/// proposes these cases for resource servers.
#[tokio::test]
async fn challenge_names_all_scopes_of_the_operation() {
    #[derive(serde::Deserialize, schemars::JsonSchema)]
    struct Note {
        id: String,
    }
    let note = async |cx: Context, Note { id }: Note| -> Result<String> {
        cx.require_scope(format!("resources:template:{id}")).await?;
        Ok("x".to_owned())
    };
    let server = replica(&TestClock::default())
        .tool(
            Tool::new("t", "", async || "x").requires_scope("tools:call").requires_scope("tools:t"),
        )
        .prompt(
            Prompt::new("p", "", async || "x")
                .requires_scope("prompts:get")
                .requires_scope("prompts:p"),
        )
        .resource(
            Resource::new("test://static", "r", async || "x")
                .requires_scope("resources:read")
                .requires_scope("resources:static"),
        )
        .resource_template(
            ResourceTemplate::new("test://template/{id}", "n", note)
                .requires_scope("resources:read"),
        );
    let fleet = Replicas::new([server.build().unwrap()]).as_principal(alice());
    for (method, params, scopes) in [
        ("tools/call", json!({ "name": "t" }), ["tools:call", "tools:t"]),
        ("prompts/get", json!({ "name": "p" }), ["prompts:get", "prompts:p"]),
        (
            "resources/read",
            json!({ "uri": "test://static" }),
            ["resources:read", "resources:static"],
        ),
        (
            "resources/read",
            json!({ "uri": "test://template/123" }),
            ["resources:read", "resources:template:123"],
        ),
    ] {
        let [first, _] = scopes;
        fleet.grant_scopes([first]);
        let refused = send_request(&fleet, method, with_meta(params.clone())).await;
        assert_eq!(refused, insufficient(&scopes), "{method}");
        fleet.grant_scopes(scopes);
        let read = send_request(&fleet, method, with_meta(params)).await;
        assert_eq!(read.get("error"), None, "{method}");
    }
}

/// A tool that asks, requires a scope, and runs a step.
fn paying(paid: &Counter) -> Tool {
    let paid = paid.clone();
    Tool::new("t", "", move |cx: Context| {
        let paid = paid.clone();
        async move {
            let Text { text } = cx.elicit("a", "?").await?;
            cx.require_scope("pay").await?;
            cx.require_scope("pay").await?;
            let n = cx.step("pay", async |_| Ok(paid.increment())).await?;
            Ok::<_, mrtr_server::Error>(format!("{text} {n}"))
        }
    })
    .requires_scope("read")
}

#[tokio::test]
async fn call_continues_with_the_same_state_and_another_token() {
    let paid = Counter::default();
    let fleet = fleet(|| paying(&paid));
    fleet.grant_scopes(["read"]);
    let asked = call(&fleet, &json!({})).await;
    let answered = next(&asked);
    for _ in 0..2 {
        assert_eq!(call(&fleet, &answered).await, insufficient(&["read", "pay"]));
    }
    assert_eq!(paid.get(), 0);
    fleet.grant_scopes(["read", "pay"]);
    assert_eq!(text(&call(&fleet, &answered).await), "a 1");
    // A token with fewer scopes cannot spend what another one has earned.
    fleet.grant_scopes(["read"]);
    assert_eq!(call(&fleet, &answered).await, insufficient(&["read", "pay"]));
    assert_eq!(paid.get(), 1);
}

#[tokio::test]
async fn steps_before_a_missing_scope_run_once() {
    let (runs, paid) = (Counter::default(), Counter::default());
    let fleet = fleet(|| {
        let (runs, paid) = (runs.clone(), paid.clone());
        Tool::new("t", "", move |cx: Context| {
            let (runs, paid) = (runs.clone(), paid.clone());
            async move {
                let n = cx.step("quote", async |_| Ok(runs.increment())).await?;
                cx.progress(1.0, None, None);
                cx.require_scope("pay").await?;
                let m = cx.step("pay", async |_| Ok(paid.increment())).await?;
                Ok::<_, mrtr_server::Error>(format!("{n} {m}"))
            }
        })
    });
    fleet.grant_scopes(["read"]);
    let kept = call(&fleet, &json!({})).await;
    assert_eq!(kept["resultType"], "input_required");
    assert_eq!(kept.get("inputRequests"), None);
    let again = next(&kept);
    // Refused before the handler runs.
    assert_eq!(call(&fleet, &again).await, insufficient(&["pay"]));
    assert_eq!(call(&fleet, &again).await, insufficient(&["pay"]));
    fleet.grant_scopes(["pay"]);
    assert_eq!(text(&call(&fleet, &again).await), "1 1");
    assert_eq!((runs.get(), paid.get()), (1, 1));
}

#[tokio::test]
async fn scope_and_question_are_asked_for_together() {
    let fleet = fleet(|| {
        Tool::new("t", "", async |cx: Context| -> Result<_> {
            let (text, (), ()) = tokio::try_join!(
                cx.elicit::<Text>("a", "?"),
                cx.require_scope("pay"),
                cx.require_scope("refund"),
            )?;
            Ok(text.text)
        })
    });
    fleet.grant_scopes(["read"]);
    let asked = call(&fleet, &json!({})).await;
    assert!(asked["inputRequests"]["a"].is_object(), "{asked}");
    let answered = next(&asked);
    // One challenge names both.
    assert_eq!(call(&fleet, &answered).await, insufficient(&["pay", "refund"]));
    fleet.grant_scopes(["pay"]);
    assert_eq!(call(&fleet, &answered).await, insufficient(&["pay", "refund"]));
    fleet.grant_scopes(["refund", "pay"]);
    assert_eq!(text(&call(&fleet, &answered).await), "a");
}

/// The state is claimed by the request that finds out that a scope is missing. So that request gets
/// a new state, and the 403 comes before the next claim.
#[tokio::test]
async fn single_use_state_is_not_spent_by_a_refusal() {
    let (paid, store) = (Counter::default(), Arc::new(MemoryStore::new(1 << 20)));
    let clock = TestClock::default();
    let replica = |_| {
        let replica = replica(&clock).tool(paying(&paid).single_use());
        replica.single_use_store(Arc::clone(&store)).build().unwrap()
    };
    let fleet = Replicas::new((0..3).map(replica)).as_principal(alice());
    fleet.grant_scopes(["read"]);
    let asked = call(&fleet, &json!({})).await;
    let kept = call(&fleet, &next(&asked)).await;
    assert_eq!(kept["resultType"], "input_required", "{kept}");
    let again = next(&kept);
    for _ in 0..3 {
        assert_eq!(call(&fleet, &again).await, insufficient(&["read", "pay"]));
    }
    fleet.grant_scopes(["read", "pay"]);
    let done = call(&fleet, &again).await;
    assert_eq!(text(&done), "a 1");
    assert_eq!(call(&fleet, &again).await, done, "the response is kept");
    assert_eq!(paid.get(), 1);
}

#[tokio::test]
async fn scope_inside_a_step_is_a_mistake() {
    let fleet = fleet(|| {
        Tool::new("t", "", async |cx: Context| -> Result<_> {
            let inner = cx.clone();
            cx.step("s", async move |_| inner.require_scope("pay").await).await?;
            Ok("done")
        })
    });
    fleet.grant_scopes(["read"]);
    let failed = call(&fleet, &json!({})).await;
    assert_eq!(failed["error"]["code"], -32603);
}
