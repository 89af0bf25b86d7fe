//! Long calls, and many calls.

use std::time::Duration;

use mrtr_client::RoundLimits;
use mrtr_server::single_use::MemoryStore;
use mrtr_server::testing::TestCall;
use mrtr_server::{Context, Tool};
use mrtr_testkit::{Replicas, TestClock};
use serde_json::json;

use crate::support::single_use::{answered, first_state};
use crate::support::{
    Counter, Text, alice, call_tool, client, fleet, replica, send_request, with_meta,
};

/// A hundred steps of 100 bytes and twenty rounds fit into the journal.
#[tokio::test]
async fn journal_holds_a_hundred_steps_and_twenty_rounds() {
    let runs = Counter::default();
    let tool = || {
        let runs = runs.clone();
        Tool::new("t", "", move |cx: Context| {
            let runs = runs.clone();
            async move {
                for round in 0..20 {
                    cx.elicit::<Text>(format!("question {round}"), "?").await?;
                    for step in 0..5 {
                        let key = format!("step {round}.{step}");
                        cx.step(key, async |_| Ok(format!("{:0100}", runs.increment()))).await?;
                    }
                }
                Ok::<_, mrtr_server::Error>(runs.get().to_string())
            }
        })
    };
    let (client, log) = client(fleet(tool));
    let limits = RoundLimits::default().with_input_rounds(20);
    let result = client.round_limits(limits).build().call_tool("t", json!({})).await.unwrap();
    assert_eq!((result.text().as_str(), log.exchanges().len()), ("100", 21));
    let longest = log.exchanges().iter().map(|round| round.outcome.to_string().len()).max();
    assert!(longest.is_some_and(|bytes| bytes < 32 << 10), "{longest:?}");
}

/// A version that reaches its forty steps in another order finds each of them, and the answer to
/// its own wording of a question.
#[tokio::test]
async fn journal_entries_are_found_in_any_order() {
    let (clock, runs) = (TestClock::default(), Counter::default());
    let server = |wording: &'static str, backwards: bool| {
        let runs = runs.clone();
        let tool = Tool::new("t", "", move |cx: Context| {
            let runs = runs.clone();
            async move {
                for step in 0..40 {
                    let step = if backwards { 39 - step } else { step };
                    cx.step(format!("step {step}"), async |_| Ok(runs.increment())).await?;
                }
                let a = cx.elicit::<Text>("a", wording).await?.text;
                Ok::<_, mrtr_server::Error>(a + &cx.elicit::<Text>("b", "?").await?.text)
            }
        });
        replica(&clock).tool(tool).build().unwrap()
    };
    let rounds = [("one", false), ("two", true), ("one", true), ("one", true)];
    let fleet = Replicas::new(rounds.map(|(wording, backwards)| server(wording, backwards)));
    let text = |text: &str| json!({ "text": text });
    let call =
        TestCall::tool("t", json!({})).answer("a", text("first")).answer("a", text("second"));
    let transcript =
        call.answer("b", text("third")).run(&fleet.as_principal(alice())).await.unwrap();
    assert_eq!((transcript.text(), runs.get()), ("firstthird", 40));
    assert_eq!(transcript.rounds(), [["a"], ["a"], ["b"]]);
}

/// A thousand calls whose clients never return, each with a question in a spawned task, leave no
/// task.
#[tokio::test]
async fn a_thousand_abandoned_calls_leave_no_task() {
    let clock = TestClock::default();
    let tool = Tool::new("t", "", async |cx: Context| -> mrtr_server::Result<_> {
        let own = cx.clone();
        let task = tokio::spawn(async move { own.elicit::<Text>("a", "?").await });
        Ok(task.await??.text)
    });
    let fleet = Replicas::new([replica(&clock).tool(tool).build().unwrap()]).as_principal(alice());
    let alive = || tokio::runtime::Handle::current().metrics().num_alive_tasks();
    let before = alive();
    for _ in 0..1000 {
        let first = call_tool(&fleet, "t", json!({}), json!({})).await;
        assert_eq!(first["resultType"], "input_required");
    }
    tokio::task::yield_now().await;
    assert_eq!(alive(), before);
}

/// An answer that is too long to be kept is refused before a step runs, so that the corrected
/// answer runs it once. With `single_use`, the state stays usable.
#[tokio::test(start_paused = true)]
async fn long_answers_are_refused_before_steps() {
    for is_single_use in [false, true] {
        let runs = Counter::default();
        let counter = runs.clone();
        let tool = Tool::new("t", "", move |cx: Context| {
            let runs = counter.clone();
            async move {
                let note = cx.elicit::<Text>("guess", "?").await?.text;
                let charged = cx.step("charge", async |_| Ok(runs.increment())).await?;
                cx.elicit::<Text>("rating", "?").await?;
                Ok::<_, mrtr_server::Error>(format!("{note} {charged}"))
            }
        });
        let tool = if is_single_use { tool.single_use() } else { tool };
        let server = replica(&TestClock::default()).tool(tool);
        let server = server.single_use_store(MemoryStore::new(1_000_000)).build().unwrap();
        let fleet = Replicas::new([server]).as_principal(alice());
        let state = first_state(&fleet).await;
        let refused = call_tool(&fleet, "t", json!({}), answered(&state, &"a".repeat(9_000))).await;
        assert_eq!(refused["error"]["code"], -32602, "{refused}");
        assert!(refused["error"]["message"].to_string().contains("at most 8192"), "{refused}");
        assert_eq!(runs.get(), 0);
        // The store forgets a released state after a millisecond.
        tokio::time::sleep(Duration::from_millis(2)).await;
        let asked = call_tool(&fleet, "t", json!({}), answered(&state, "a")).await;
        assert!(asked["inputRequests"]["rating"].is_object(), "{asked}");
        assert_eq!(runs.get(), 1);
    }
}

/// With `single_use`, an answer that is too long is no guess: the handler does not read it,
/// whatever it would do next.
#[tokio::test(start_paused = true)]
async fn long_answers_are_no_guesses() {
    let reads = Counter::default();
    let counter = reads.clone();
    let tool = Tool::new("t", "", move |cx: Context| {
        let reads = counter.clone();
        async move {
            let guess = cx.elicit::<Text>("guess", "Which?").await?.text;
            reads.increment();
            if guess.trim() == "right" {
                return Ok::<_, mrtr_server::Error>("yes");
            }
            cx.step("count", async |_| Ok(())).await?;
            Ok("no")
        }
    });
    let server = replica(&TestClock::default()).tool(tool.single_use());
    let server = server.single_use_store(MemoryStore::new(1_000_000)).build().unwrap();
    let fleet = Replicas::new([server]).as_principal(alice());
    let state = first_state(&fleet).await;
    for guess in ["wrong", "right"] {
        let padded = format!("{guess}{}", " ".repeat(9_000));
        let refused = call_tool(&fleet, "t", json!({}), answered(&state, &padded)).await;
        assert_eq!((refused["error"]["code"].as_i64(), reads.get()), (Some(-32602), 0));
    }
    let wrong = call_tool(&fleet, "t", json!({}), answered(&state, "wrong")).await;
    assert_eq!(wrong["content"][0]["text"], "no", "{wrong}");
    let right = call_tool(&fleet, "t", json!({}), answered(&state, "right")).await;
    assert_eq!(right["error"]["data"]["reason"], "request_state_used", "{right}");
}

/// A step runs only if its result can be kept together with all answers that have arrived.
#[tokio::test]
async fn room_for_a_step_is_what_all_answers_leave() {
    let runs = Counter::default();
    let counter = runs.clone();
    let tool = Tool::new("t", "", move |cx: Context| {
        let runs = counter.clone();
        async move {
            let ask = |n: usize| cx.elicit::<Text>(format!("q{n}"), "?");
            let first = async {
                ask(0).await?;
                cx.step("s", async |_| Ok(runs.increment())).await.map(drop)
            };
            tokio::try_join!(
                first,
                ask(1),
                ask(2),
                ask(3),
                ask(4),
                ask(5),
                ask(6),
                ask(7),
                ask(8)
            )?;
            cx.elicit::<Text>("last", "?").await.map(|last| last.text)
        }
    });
    let server = replica(&TestClock::default()).tool(tool).build().unwrap();
    let fleet = Replicas::new([server]).as_principal(alice());
    let state = call_tool(&fleet, "t", json!({}), json!({})).await["requestState"].clone();
    let long = json!({ "action": "accept", "content": { "text": "a".repeat(8_000) } });
    let answers: serde_json::Map<_, _> = (0..9).map(|n| (format!("q{n}"), long.clone())).collect();
    let more = json!({ "requestState": state, "inputResponses": answers });
    let refused = call_tool(&fleet, "t", json!({}), more).await;
    assert_eq!(refused["error"]["code"], -32603, "{refused}");
    assert_eq!(runs.get(), 0);
}

/// A subscription lasts, and keeps its request in memory.
#[tokio::test(start_paused = true)]
async fn request_of_a_subscription_is_limited() {
    let fleet = fleet(|| Tool::new("t", "", async || "x"));
    let params = json!({ "notifications": {}, "more": "x".repeat(256 << 10) });
    let listening = send_request(&fleet, "subscriptions/listen", with_meta(params));
    let refused = tokio::time::timeout(Duration::from_secs(1), listening).await.unwrap();
    assert_eq!(refused["error"]["code"], -32602, "{refused}");
    assert!(refused.to_string().contains("at most 256 KiB"), "{refused}");
}
