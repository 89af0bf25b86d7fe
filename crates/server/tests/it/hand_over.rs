//! Replicas that hand calls over.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use mrtr_client::Client;
use mrtr_schema::elicitation::ElicitResult;
use mrtr_server::{Context, Server, Tool};
use mrtr_testkit::{Replicas, TestClock};
use serde_json::json;

use crate::support::{Counter, Text, alice, call_tool, client, replica};

/// Returns a tool that runs `n` steps and returns how often a step ran.
fn steps(n: u64, runs: &Counter) -> Tool {
    let runs = runs.clone();
    Tool::new("t", "", move |cx: Context| {
        let runs = runs.clone();
        async move {
            let mut last = 0;
            for step in 0..n {
                last = cx.step(format!("step-{step}"), async |_| Ok(runs.increment())).await?;
            }
            Ok::<_, mrtr_server::Error>(last.to_string())
        }
    })
}

/// Returns a tool that asks `questions`, one in each round, and then runs four steps.
fn questions_and_steps(questions: u32, runs: &Counter) -> Tool {
    let runs = runs.clone();
    Tool::new("t", "", move |cx: Context| {
        let runs = runs.clone();
        async move {
            for n in 0..questions {
                cx.elicit::<Text>(format!("q{n}"), "?").await?;
            }
            // From the second step on, the round has recorded something new.
            for n in 0..4 {
                cx.step(format!("s{n}"), async |_| Ok(runs.increment())).await?;
            }
            Ok::<_, mrtr_server::Error>("done".to_owned())
        }
    })
}

fn fleet(
    tool: impl Fn() -> Tool,
    overloaded: impl Fn() -> bool + Clone + Send + Sync + 'static,
) -> Replicas {
    let clock = TestClock::default();
    let replica =
        |_| replica(&clock).tool(tool()).shed_load_when(overloaded.clone()).build().unwrap();
    Replicas::new((0..3).map(replica)).as_principal(alice())
}

#[tokio::test(start_paused = true)]
async fn overloaded_replica_hands_a_call_over_at_most_twice() {
    for (overloaded, rounds) in [(false, 1), (true, 3)] {
        let runs = Counter::default();
        let (client, log) = client(fleet(|| steps(10, &runs), move || overloaded));
        let result = client.build().call_tool("t", json!({})).await.unwrap();
        assert_eq!((result.text().as_str(), runs.get()), ("10", 10), "each step ran once");
        assert_eq!(log.exchanges().len(), rounds);
    }
}

/// A call must not fail because it was handed over.
#[tokio::test(start_paused = true)]
async fn hand_overs_do_not_count_as_rounds_of_the_call() {
    let runs = Counter::default();
    let tool = || questions_and_steps(1, &runs).max_rounds(1);
    let (client, log) = client(fleet(tool, || true));
    client.build().call_tool("t", json!({})).await.unwrap();
    assert_eq!((log.exchanges().len(), runs.get()), (4, 4));
}

/// A round that recorded nothing new is not handed over, and a call with one step completes.
#[tokio::test(start_paused = true)]
async fn hand_over_needs_a_new_step() {
    let runs = Counter::default();
    let (client, log) = client(fleet(|| steps(1, &runs), || true));
    client.build().call_tool("t", json!({})).await.unwrap();
    assert_eq!(log.exchanges().len(), 1);
}

/// Hand-overs must not push a call to the ninth or tenth round, where clients give up.
#[tokio::test(start_paused = true)]
async fn hand_over_stops_after_the_sixth_round() {
    // After five questions there is room for one hand-over: the second would come after the sixth
    // round. After six questions there is none.
    for (questions, requests) in [(5, 5 + 1 + 1), (6, 6 + 1)] {
        let runs = Counter::default();
        let tool = || questions_and_steps(questions, &runs);
        let (client, log) = client(fleet(tool, || true));
        client.build().call_tool("t", json!({})).await.unwrap();
        let counts = (log.exchanges().len(), runs.get());
        assert_eq!(counts, (requests, 4), "after {questions} questions");
    }
}

/// The step that runs when the shutdown begins completes, and another replica runs the next one.
#[tokio::test(start_paused = true)]
async fn shutdown_hands_over_after_the_running_step() {
    let (clock, runs) = (TestClock::default(), Counter::default());
    let first: Arc<std::sync::OnceLock<Server>> = Arc::default();
    let closed = Arc::new(AtomicBool::new(false));
    let make = |closes: bool| {
        let (first, closed, runs) = (Arc::clone(&first), Arc::clone(&closed), runs.clone());
        let tool = Tool::new("t", "", move |cx: Context| {
            let (first, closed, runs) = (Arc::clone(&first), Arc::clone(&closed), runs.clone());
            async move {
                cx.step("hold", async |_| {
                    if closes && let Some(server) = first.get() {
                        server.begin_shutdown();
                        closed.store(true, Ordering::SeqCst);
                    }
                    Ok(runs.increment())
                })
                .await?;
                let who = cx
                    .step("pay", async |_| Ok(if closes { "first" } else { "second" }.to_owned()));
                let who = who.await?;
                Ok::<_, mrtr_server::Error>(format!("{who}, {} runs", runs.get()))
            }
        });
        replica(&clock).tool(tool).build().unwrap()
    };
    let (one, other) = (make(true), make(false));
    first.set(one.clone()).unwrap();
    let fleet = Replicas::new([one, other]).as_principal(alice());
    let log = fleet.log();
    let client = Client::builder(fleet).on_form(async |_, _| Ok(ElicitResult::decline())).build();
    let result = client.call_tool("t", json!({})).await.unwrap();
    assert_eq!(result.text(), "second, 1 runs");
    assert!(closed.load(Ordering::SeqCst));
    assert_eq!(log.input_keys(), [Vec::<String>::new(), Vec::new()]);
}

/// With an ephemeral key, no other replica could continue: the call completes here.
#[tokio::test(start_paused = true)]
async fn ephemeral_key_prevents_hand_over() {
    let runs = Counter::default();
    let server = Server::builder("test", "1")
        .require_principal()
        .ephemeral_key()
        .tool(steps(10, &runs))
        .shed_load_when(|| true);
    let server = server.build().unwrap();
    server.begin_shutdown();
    let (client, log) = client(Replicas::new([server]).as_principal(alice()));
    let result = client.build().call_tool("t", json!({})).await.unwrap();
    assert_eq!((result.text().as_str(), log.exchanges().len()), ("10", 1));
}

/// A question that is asked after a step was deferred to another replica makes the step run here,
/// because the answer would change its key. The step completes before the round ends.
#[tokio::test(start_paused = true)]
async fn late_question_cancels_the_hand_over() {
    let (begun, done) = (Counter::default(), Counter::default());
    let tool = || {
        let (begun, done) = (begun.clone(), done.clone());
        Tool::new("t", "", move |cx: Context| {
            let (begun, done) = (begun.clone(), done.clone());
            async move {
                let steps = async {
                    cx.step("one", async |_| Ok(())).await?;
                    cx.step("two", async |_| {
                        begun.increment();
                        tokio::time::sleep(Duration::from_secs(1)).await;
                        Ok(done.increment())
                    })
                    .await
                };
                let late = async {
                    tokio::task::yield_now().await;
                    tokio::task::yield_now().await;
                    cx.elicit::<Text>("a", "?").await
                };
                let (n, text) = tokio::try_join!(steps, late)?;
                Ok::<_, mrtr_server::Error>(format!("{n} {}", text.text))
            }
        })
    };
    let fleet = fleet(tool, || true);
    let first = call_tool(&fleet, "t", json!({}), json!({})).await;
    assert!(first["inputRequests"]["a"].is_object());
    assert_eq!((begun.get(), done.get()), (1, 1), "the step ran in this round");
    let (client, log) = client(fleet);
    let result = client.build().call_tool("t", json!({})).await.unwrap();
    assert_eq!((result.text().as_str(), log.input_keys().len()), ("2 a", 3));
    assert_eq!((begun.get(), done.get()), (2, 2), "once in each call");
}

/// Without a question, a future that yields beside the step changes nothing: it stays deferred.
#[tokio::test(start_paused = true)]
async fn deferred_step_runs_on_the_next_replica() {
    let runs = Counter::default();
    let tool = || {
        let runs = runs.clone();
        Tool::new("t", "", move |cx: Context| {
            let runs = runs.clone();
            async move {
                let steps = async {
                    cx.step("one", async |_| Ok(())).await?;
                    cx.step("two", async |_| Ok(runs.increment())).await
                };
                let beside = async {
                    for _ in 0..3 {
                        tokio::task::yield_now().await;
                    }
                    Ok(())
                };
                let (n, ()) = tokio::try_join!(steps, beside)?;
                Ok::<_, mrtr_server::Error>(n.to_string())
            }
        })
    };
    let fleet = fleet(tool, || true);
    let first = call_tool(&fleet, "t", json!({}), json!({})).await;
    assert_eq!((first["resultType"].as_str(), runs.get()), (Some("input_required"), 0));
    let more = json!({ "requestState": first["requestState"] });
    let last = call_tool(&fleet, "t", json!({}), more).await;
    assert_eq!(last["content"][0]["text"], "1");
}
