//! Request states that work once.

mod store;

use std::sync::Arc;
use std::time::Duration;

use mrtr_schema::elicitation::ElicitResult;
use mrtr_server::single_use::{MemoryStore, SingleUseStore};
use mrtr_server::{
    Context, Prompt, PromptOutput, Resource, ResourceOutput, ResourceTemplate, Server, Tool,
};
use mrtr_testkit::{Replicas, TestClock};
use serde_json::{Value, json};
use tokio::sync::Semaphore;

use self::store::ScriptedStore;
use crate::support::single_use::{answered, first_state, guess, text, used};
use crate::support::{Counter, Text, alice, call_tool, client, replica, send_request, with_meta};

fn fleet(store: &Arc<impl SingleUseStore>, tool: impl Fn() -> Tool) -> Replicas {
    let clock = TestClock::default();
    let replica =
        |_| replica(&clock).tool(tool()).single_use_store(Arc::clone(store)).build().unwrap();
    Replicas::new((0..3).map(replica)).as_principal(alice())
}

/// The response to a state whose first use never produced a response.
fn unknown() -> Value {
    json!({ "error": {
        "code": -32602,
        "message": "This requestState was used, and its outcome is unknown",
        "data": { "reason": "outcome_unknown" },
    } })
}

fn store() -> Arc<MemoryStore> {
    Arc::new(MemoryStore::new(1 << 20))
}

#[tokio::test]
async fn state_accepts_one_answer_and_repeats_its_response() {
    let ran = Counter::default();
    let fleet = fleet(&store(), || guess(&ran));
    let state = first_state(&fleet).await;
    let first = call_tool(&fleet, "t", json!({}), answered(&state, "7")).await;
    assert_eq!(text(&first), "7 1");
    for _ in 0..3 {
        assert_eq!(call_tool(&fleet, "t", json!({}), answered(&state, "7")).await, first);
        assert_eq!(call_tool(&fleet, "t", json!({}), answered(&state, "8")).await, used());
    }
    let nothing = json!({ "requestState": state });
    assert_eq!(
        call_tool(&fleet, "t", json!({}), nothing).await,
        used(),
        "no answer counts as another answer"
    );
    assert_eq!(ran.get(), 1);
    // The state of another call is independent.
    let other = first_state(&fleet).await;
    assert_eq!(text(&call_tool(&fleet, "t", json!({}), answered(&other, "8")).await), "8 2");
}

/// In strict mode, even the identical request is rejected once the first has completed.
#[tokio::test]
async fn strict_single_use_rejects_the_identical_request_after_completion() {
    let ran = Counter::default();
    let fleet = fleet(&store(), || guess(&ran).strict_single_use());
    let state = first_state(&fleet).await;
    let first = call_tool(&fleet, "t", json!({}), answered(&state, "7")).await;
    assert_eq!(text(&first), "7 1", "the first request gets its response");
    for answer in ["7", "8", "7"] {
        let again = call_tool(&fleet, "t", json!({}), answered(&state, answer)).await;
        assert_eq!(again, used(), "{answer}");
    }
    assert_eq!(ran.get(), 1);
    // The state of another call is independent.
    let other = first_state(&fleet).await;
    assert_eq!(text(&call_tool(&fleet, "t", json!({}), answered(&other, "8")).await), "8 2");
}

/// In strict mode, an identical request that waits for the first is rejected, too.
#[tokio::test(start_paused = true)]
async fn strict_single_use_rejects_concurrent_requests() {
    let (ran, started, proceed) = (Counter::default(), gate(), gate());
    let tool = || waiting(&ran, &started, &proceed).strict_single_use();
    let fleet = Arc::new(fleet(&store(), tool));
    let state = first_state(&fleet).await;
    let round = || {
        let (fleet, more) = (Arc::clone(&fleet), answered(&state, "a"));
        tokio::spawn(async move { call_tool(&fleet, "t", json!({}), more).await })
    };
    let first = round();
    started.acquire().await.unwrap().forget();
    let others: Vec<_> = (0..5).map(|_| round()).collect();
    tokio::time::sleep(Duration::from_millis(100)).await;
    proceed.add_permits(1);
    assert_eq!(text(&first.await.unwrap()), "a 1", "the first request gets its response");
    for other in others {
        assert_eq!(other.await.unwrap(), used());
    }
    assert_eq!(ran.get(), 1);
}

/// JSON that a client serializes again is equal: other member order, number format and escapes.
#[tokio::test]
async fn equivalent_json_answers_are_identical() {
    let ran = Counter::default();
    let fleet = fleet(&store(), || guess(&ran));
    let state = first_state(&fleet).await;
    let more = |answers: &str| json!({ "requestState": state, "inputResponses": serde_json::from_str::<Value>(answers).unwrap() });
    let one = r#"{"guess":{"action":"accept","content":{"text":"a"}},"x":{"n":1.0}}"#;
    let same = r#"{"x":{"n":1},"guess":{"content":{"text":"\u0061"},"action":"accept"}}"#;
    let other = r#"{"x":{"n":2},"guess":{"content":{"text":"a"},"action":"accept"}}"#;
    let first = call_tool(&fleet, "t", json!({}), more(one)).await;
    assert_eq!(text(&first), "a 1");
    assert_eq!(call_tool(&fleet, "t", json!({}), more(same)).await, first);
    assert_eq!(call_tool(&fleet, "t", json!({}), more(other)).await, used());
}

/// An answer that the handler rejects is used as well; a round that asks again returns a new state.
#[tokio::test]
async fn errors_and_input_requests_are_repeated_too() {
    let ran = Counter::default();
    let fleet = fleet(&store(), || {
        let ran = ran.clone();
        Tool::new("t", "", move |cx: Context| {
            let ran = ran.clone();
            async move {
                let text = cx.elicit::<Text>("guess", "Which?").await?.text;
                ran.increment();
                match text.as_str() {
                    "more" => Ok(cx.elicit::<Text>("more", "And?").await?.text),
                    "panic" => panic!("on request"),
                    _ => Err(mrtr_server::Error::new("no")),
                }
            }
        })
        .single_use()
    });
    for (at, answer) in ["panic", "other", "more"].into_iter().enumerate() {
        let state = first_state(&fleet).await;
        let first = call_tool(&fleet, "t", json!({}), answered(&state, answer)).await;
        let again = call_tool(&fleet, "t", json!({}), answered(&state, answer)).await;
        assert_eq!((&first, ran.get()), (&again, at + 1), "{answer}");
        if answer == "more" {
            assert_eq!(first["resultType"], "input_required");
            let next = json!({ "more": ElicitResult::accept(json!({ "text": "b" })).unwrap() });
            let next = json!({ "requestState": first["requestState"], "inputResponses": next });
            assert_eq!(text(&call_tool(&fleet, "t", json!({}), next).await), "b");
        }
    }
}

#[tokio::test]
async fn ordinary_call_works_with_single_use() {
    let ran = Counter::default();
    let (client, log) = client(fleet(&store(), || guess(&ran)));
    let result = client.build().call_tool("t", json!({})).await.unwrap();
    assert_eq!((result.text().as_str(), log.exchanges().len()), ("guess 1", 2));
}

#[test]
fn build_rejects_single_use_without_a_store() {
    async fn nothing(_: Context) -> mrtr_server::Result<String> {
        Ok(String::new())
    }
    async fn no_prompt(_: Context) -> mrtr_server::Result<PromptOutput> {
        Ok(PromptOutput::from(String::new()))
    }
    async fn no_text(_: Context) -> mrtr_server::Result<ResourceOutput> {
        Ok(ResourceOutput::text(""))
    }
    let start = || Server::builder("test", "1").require_principal().ephemeral_key();
    for (builder, named) in [
        (
            start().tool(Tool::new("t", "", nothing).single_use()),
            "the tool \"t\" is for single use",
        ),
        (start().prompt(Prompt::new("p", "", no_prompt).single_use()), "the prompt \"p\""),
        (start().resource(Resource::new("x:r", "r", no_text).single_use()), "the resource \"x:r\""),
        (
            start().resource_template(ResourceTemplate::new("x:{r}", "r", no_text).single_use()),
            "the resource template \"x:{r}\"",
        ),
    ] {
        let error = builder.build().unwrap_err().to_string();
        assert!(error.contains(named) && error.contains(".single_use_store("), "{error}");
    }
    start().tool(Tool::new("t", "", nothing)).build().unwrap();
    let guarded = start().tool(Tool::new("t", "", nothing).single_use());
    guarded.single_use_store(MemoryStore::new(1)).build().unwrap();
}

/// The variables of the template.
#[derive(serde::Deserialize, schemars::JsonSchema)]
struct Id {
    #[serde(rename = "id")]
    _id: String,
}

#[tokio::test]
async fn single_use_covers_prompts_and_resources() {
    let ran = Counter::default();
    let clock = TestClock::default();
    let server = {
        let (in_prompt, in_resource, in_template) = (ran.clone(), ran.clone(), ran.clone());
        let prompt = Prompt::new("p", "", move |cx: Context| {
            let ran = in_prompt.clone();
            async move {
                let text = cx.elicit::<Text>("guess", "Which?").await?.text;
                ran.increment();
                Ok::<_, mrtr_server::Error>(PromptOutput::from(text))
            }
        });
        let read = async |cx: Context, ran: Counter| -> mrtr_server::Result<_> {
            let text = cx.elicit::<Text>("guess", "Which?").await?.text;
            ran.increment();
            Ok(ResourceOutput::text(text))
        };
        replica(&clock)
            .prompt(prompt.single_use())
            .resource(
                Resource::new("x:r", "r", move |cx: Context| read(cx, in_resource.clone()))
                    .single_use(),
            )
            .resource_template(
                ResourceTemplate::new("y:{id}", "r", move |cx: Context, _: Id| {
                    read(cx, in_template.clone())
                })
                .single_use(),
            )
            .single_use_store(store())
            .build()
            .unwrap()
    };
    let fleet = Replicas::new([server]).as_principal(alice());
    for (at, (method, target)) in [
        ("prompts/get", json!({ "name": "p" })),
        ("resources/read", json!({ "uri": "x:r" })),
        ("resources/read", json!({ "uri": "y:1" })),
    ]
    .into_iter()
    .enumerate()
    {
        let round = |more: Value| {
            let mut params = with_meta(target.clone());
            params.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
            send_request(&fleet, method, params)
        };
        let state = round(json!({})).await["requestState"].clone();
        let first = round(answered(&state, "a")).await;
        assert_eq!(first["resultType"], "complete", "{first}");
        assert_eq!(round(answered(&state, "a")).await, first);
        assert_eq!(round(answered(&state, "b")).await, used());
        assert_eq!(ran.get(), at + 1);
    }
}

fn gate() -> Arc<Semaphore> {
    Arc::new(Semaphore::new(0))
}

/// Returns a tool that waits for the test after it has its answer.
fn waiting(ran: &Counter, started: &Arc<Semaphore>, proceed: &Arc<Semaphore>) -> Tool {
    let (ran, started, proceed) = (ran.clone(), Arc::clone(started), Arc::clone(proceed));
    Tool::new("t", "", move |cx: Context| {
        let (ran, started, proceed) = (ran.clone(), Arc::clone(&started), Arc::clone(&proceed));
        async move {
            let text = cx.elicit::<Text>("guess", "Which?").await?.text;
            started.add_permits(1);
            proceed.acquire().await.unwrap().forget();
            Ok::<_, mrtr_server::Error>(format!("{text} {}", ran.increment()))
        }
    })
    .single_use()
}

/// One of many concurrent requests runs; identical ones wait for its response.
#[tokio::test(start_paused = true)]
async fn concurrent_requests_run_once() {
    let (ran, started, proceed) = (Counter::default(), gate(), gate());
    let fleet = Arc::new(fleet(&store(), || waiting(&ran, &started, &proceed)));
    let state = first_state(&fleet).await;
    let round = |text: &'static str| {
        let (fleet, more) = (Arc::clone(&fleet), answered(&state, text));
        tokio::spawn(async move { call_tool(&fleet, "t", json!({}), more).await })
    };
    let first = round("a");
    started.acquire().await.unwrap().forget();
    let others: Vec<_> = (0..20).map(|_| round("a")).collect();
    assert_eq!(round("b").await.unwrap(), used(), "other answers do not wait");
    proceed.add_permits(1);
    let first = first.await.unwrap();
    assert_eq!(text(&first), "a 1");
    for other in others {
        assert_eq!(other.await.unwrap(), first);
    }
}

/// A round of a single-use call continues without its client, which gets the response by a retry.
#[tokio::test(start_paused = true)]
async fn single_use_round_completes_after_its_client_disconnects() {
    let (ran, started, proceed) = (Counter::default(), gate(), gate());
    let fleet = fleet(&store(), || waiting(&ran, &started, &proceed));
    let state = first_state(&fleet).await;
    tokio::select! {
        biased;
        _ = call_tool(&fleet, "t", json!({}), answered(&state, "a")) => panic!("the handler should wait"),
        _ = started.acquire() => {}
    }
    proceed.add_permits(1);
    let again = call_tool(&fleet, "t", json!({}), answered(&state, "a")).await;
    assert_eq!((text(&again), ran.get()), ("a 1", 1));
}

/// A replica that died leaves a claim with an unknown outcome: retries wait, and are then rejected.
#[tokio::test(start_paused = true)]
async fn claim_without_a_response_is_rejected_after_the_request_timeout() {
    let ran = Counter::default();
    let fleet = fleet(&ScriptedStore::new([]), || guess(&ran));
    let state = first_state(&fleet).await;
    call_tool(&fleet, "t", json!({}), answered(&state, "a")).await;
    let began = tokio::time::Instant::now();
    assert_eq!(call_tool(&fleet, "t", json!({}), answered(&state, "a")).await, unknown());
    let waited = began.elapsed();
    // A little longer than the request timeout of the first.
    assert!(waited > Duration::from_mins(1) && waited < Duration::from_secs(65), "{waited:?}");
    assert_eq!(ran.get(), 1);
}

#[tokio::test(start_paused = true)]
async fn single_use_accepts_unlimited_timeouts() {
    let ran = Counter::default();
    let fleet =
        fleet(&store(), || guess(&ran).request_timeout(Duration::MAX).call_timeout(Duration::MAX));
    let state = first_state(&fleet).await;
    for _ in 0..2 {
        assert_eq!(text(&call_tool(&fleet, "t", json!({}), answered(&state, "a")).await), "a 1");
    }
}

/// A request that waits for a response stops when its client disconnects.
#[tokio::test(start_paused = true)]
async fn waiting_for_a_response_ends_with_the_client() {
    let ran = Counter::default();
    let clock = TestClock::default();
    let server =
        replica(&clock).tool(guess(&ran)).single_use_store(ScriptedStore::new([])).build().unwrap();
    let fleet = Replicas::new([server.clone()]).as_principal(alice());
    let state = first_state(&fleet).await;
    call_tool(&fleet, "t", json!({}), answered(&state, "a")).await;
    let soon = Duration::from_secs(1);
    let waiter = call_tool(&fleet, "t", json!({}), answered(&state, "a"));
    tokio::time::timeout(soon, waiter).await.unwrap_err();
    tokio::time::timeout(soon, server.drained()).await.unwrap();
}

/// `drained` waits for rounds that continue without a client, not for requests that wait for them.
#[tokio::test(start_paused = true)]
async fn drained_waits_for_running_rounds_only() {
    let (ran, started, proceed) = (Counter::default(), gate(), gate());
    let clock = TestClock::default();
    let server = replica(&clock).tool(waiting(&ran, &started, &proceed)).single_use_store(store());
    let server = server.build().unwrap();
    let fleet = Replicas::new([server.clone()]).as_principal(alice());
    server.drained().await;
    let state = first_state(&fleet).await;
    let soon = Duration::from_secs(1);
    tokio::select! {
        biased;
        _ = call_tool(&fleet, "t", json!({}), answered(&state, "a")) => panic!("it waits"),
        _ = started.acquire() => {}
    }
    // These arrive while the first runs, and disconnect.
    for _ in 0..3 {
        let waiter = call_tool(&fleet, "t", json!({}), answered(&state, "a"));
        tokio::time::timeout(soon, waiter).await.unwrap_err();
    }
    tokio::time::timeout(soon, server.drained()).await.unwrap_err();
    proceed.add_permits(1);
    tokio::time::timeout(soon, server.drained()).await.unwrap();
    assert_eq!(ran.get(), 1);
}
