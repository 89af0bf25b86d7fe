//! The end of a round, and the journal of the next round.

use std::time::Duration;

use mrtr_schema::sampling::{CreateMessageParams, CreateMessageResult};
use mrtr_server::{ClientFeature, Context, ElicitOutcome, Error, Result, Tool};
use serde_json::{Value, json};

use crate::support::{Counter, Text, call_tool, client, fleet, replica, run};

fn keys(rounds: &[&[&str]]) -> Vec<Vec<String>> {
    rounds.iter().map(|round| round.iter().map(ToString::to_string).collect()).collect()
}

#[tokio::test]
async fn sequential_questions_take_two_rounds_and_joined_questions_take_one() {
    let (text, asked) = run(|| {
        Tool::new("t", "", async |cx: Context| -> Result<_> {
            let a: Text = cx.elicit("a", "?").await?;
            let b: Text = cx.elicit("b", "?").await?;
            Ok(a.text + &b.text)
        })
    })
    .await;
    assert_eq!((text.as_str(), asked), ("ab", keys(&[&["a"], &["b"], &[]])));

    let (text, asked) = run(|| {
        Tool::new("t", "", async |cx: Context| -> Result<_> {
            let (a, b) =
                tokio::try_join!(cx.elicit::<Text>("a", "?"), cx.elicit::<Text>("b", "?"))?;
            Ok(a.text + &b.text)
        })
    })
    .await;
    assert_eq!((text.as_str(), asked), ("ab", keys(&[&["a", "b"], &[]])));
}

#[tokio::test]
async fn step_before_questions_runs_once_while_the_handler_replays() {
    let (runs, seen) = (Counter::default(), Counter::default());
    let (text, asked) = run(|| {
        let (runs, seen) = (runs.clone(), seen.clone());
        Tool::new("t", "", move |cx: Context| {
            let (runs, seen) = (runs.clone(), seen.clone());
            async move {
                seen.increment();
                let n = cx
                    .step("count", async |s| {
                        assert_eq!(s.idempotency_key().len(), 32);
                        Ok(runs.increment())
                    })
                    .await?;
                cx.elicit::<Text>("a", "?").await?;
                cx.elicit::<Text>("b", "?").await?;
                Ok::<_, Error>(format!("step {n}"))
            }
        })
    })
    .await;
    assert_eq!(text, "step 1");
    assert_eq!(asked, keys(&[&["a"], &["b"], &[]]));
    assert_eq!((runs.get(), seen.get()), (1, 3), "the handler ran in every round, the step in one");
}

/// A round ends when the handler makes no progress: a handler that yields still makes some.
#[tokio::test]
async fn yielding_beside_a_question_does_not_split_the_round() {
    let (text, asked) = run(|| {
        Tool::new("t", "", async |cx: Context| -> Result<_> {
            let late = async {
                for _ in 0..5 {
                    tokio::task::yield_now().await;
                }
                cx.elicit::<Text>("b", "?").await
            };
            let (a, b) = tokio::try_join!(cx.elicit::<Text>("a", "?"), late)?;
            Ok(a.text + &b.text)
        })
    })
    .await;
    assert_eq!((text.as_str(), asked), ("ab", keys(&[&["a", "b"], &[]])));
}

/// A round ends after the steps that run beside its questions, and their results are recorded.
#[tokio::test(start_paused = true)]
async fn round_waits_for_a_step_beside_a_question() {
    let (started, runs) = (Counter::default(), Counter::default());
    let (text, asked) = run(|| {
        let (started, runs) = (started.clone(), runs.clone());
        Tool::new("t", "", move |cx: Context| {
            let (started, runs) = (started.clone(), runs.clone());
            async move {
                let slow = cx.step("slow", async |_| {
                    started.increment();
                    tokio::time::sleep(Duration::from_secs(5)).await;
                    Ok(runs.increment())
                });
                let (a, n) = tokio::try_join!(cx.elicit::<Text>("a", "?"), slow)?;
                Ok::<_, Error>(format!("{} {n}", a.text))
            }
        })
    })
    .await;
    assert_eq!((text.as_str(), asked), ("a 1", keys(&[&["a"], &[]])));
    assert_eq!((started.get(), runs.get()), (1, 1), "the step is neither cancelled nor repeated");
}

#[tokio::test]
async fn question_in_a_spawned_task_is_asked_and_then_released() {
    let released = Counter::default();
    let (text, asked) = run(|| {
        let released = released.clone();
        Tool::new("t", "", move |cx: Context| {
            let released = released.clone();
            async move {
                let own = cx.clone();
                let task = tokio::spawn(async move {
                    let answer = own.elicit::<Text>("spawned", "?").await;
                    if answer.as_ref().is_err_and(Error::is_round_closed) {
                        released.increment();
                    }
                    answer
                });
                let answer = task.await??;
                Ok::<_, Error>(answer.text)
            }
        })
    })
    .await;
    assert_eq!((text.as_str(), asked), ("spawned", keys(&[&["spawned"], &[]])));
    tokio::task::yield_now().await;
    assert_eq!(released.get(), 1);
}

#[tokio::test]
async fn dropped_question_is_not_asked() {
    let (text, asked) = run(|| {
        Tool::new("t", "", async |cx: Context| -> Result<_> {
            tokio::select! {
                biased;
                _ = cx.elicit::<Text>("dropped", "?") => unreachable!("the question has no answer"),
                () = std::future::ready(()) => {}
            }
            Ok(cx.elicit::<Text>("kept", "?").await?.text)
        })
    })
    .await;
    assert_eq!((text.as_str(), asked), ("kept", keys(&[&["kept"], &[]])));
}

#[tokio::test]
async fn invalid_answer_is_asked_again_with_the_reason() {
    let fleet = fleet(|| {
        Tool::new("t", "", async |cx: Context| -> Result<_> {
            Ok(cx.elicit::<Text>("a", "Your name?").await?.text)
        })
    });
    let log = fleet.log();
    // The client would not send this answer, so the test sends each round itself.
    let (first, second) = (call(&fleet, json!({})).await, log.clone());
    let state = first["requestState"].clone();
    let wrong = json!({ "inputResponses": { "a": { "action": "accept", "content": { "text": 5 } } }, "requestState": state });
    let again = call(&fleet, wrong).await;
    let question = &again["inputRequests"]["a"]["params"];
    assert_eq!(
        question["message"],
        "Your name?\n(The last answer did not fit: text: must be text)"
    );
    let right = json!({ "inputResponses": { "a": { "action": "accept", "content": { "text": "x" } } }, "requestState": again["requestState"] });
    assert_eq!(call(&fleet, right).await["content"][0]["text"], "x");
    assert_eq!(second.input_keys(), keys(&[&["a"], &["a"], &[]]));
}

#[tokio::test]
async fn unsolicited_answers_are_ignored() {
    let fleet = fleet(|| {
        Tool::new("t", "", async |cx: Context| -> Result<_> {
            let a = cx.elicit::<Text>("a", "?").await?;
            let b = cx.elicit::<Text>("b", "?").await?;
            Ok(a.text + &b.text)
        })
    });
    let answer = |text: &str| json!({ "action": "accept", "content": { "text": text } });
    // Without a state, no question was asked.
    let first = call(&fleet, json!({ "inputResponses": { "a": answer("early") } })).await;
    assert!(first["inputRequests"]["a"].is_object());
    // With a state that asked for `a` only, `b` is still asked.
    let both = json!({ "inputResponses": { "a": answer("1"), "b": answer("early") }, "requestState": first["requestState"] });
    let second = call(&fleet, both).await;
    assert!(second["inputRequests"]["b"].is_object());
    let last =
        json!({ "inputResponses": { "b": answer("2") }, "requestState": second["requestState"] });
    assert_eq!(call(&fleet, last).await["content"][0]["text"], "12");
}

#[tokio::test]
async fn missing_answer_is_asked_again_and_the_others_are_kept() {
    let fleet = fleet(|| {
        Tool::new("t", "", async |cx: Context| -> Result<_> {
            let (a, b) =
                tokio::try_join!(cx.elicit::<Text>("a", "?"), cx.elicit::<Text>("b", "?"))?;
            Ok(a.text + &b.text)
        })
    });
    let first = call(&fleet, json!({})).await;
    let one = json!({ "inputResponses": { "b": { "action": "accept", "content": { "text": "2" } } }, "requestState": first["requestState"] });
    let second = call(&fleet, one).await;
    let asked: Vec<_> = second["inputRequests"].as_object().unwrap().keys().collect();
    assert_eq!(asked, ["a"]);
    let other = json!({ "inputResponses": { "a": { "action": "accept", "content": { "text": "1" } } }, "requestState": second["requestState"] });
    assert_eq!(call(&fleet, other).await["content"][0]["text"], "12");
}

#[tokio::test]
async fn declining_is_a_tool_error_or_an_elicit_outcome() {
    let tool = || {
        Tool::new("t", "", async |cx: Context| -> Result<_> {
            let outcome = match cx.elicit::<Text>("a", "?").outcome().await? {
                ElicitOutcome::Accept(_) => "accepted",
                ElicitOutcome::Decline => "declined",
                ElicitOutcome::Cancel => "cancelled",
            };
            cx.elicit::<Text>("b", "?").await?;
            Ok(outcome)
        })
    };
    for (action, expected) in [("decline", "declined"), ("cancel", "dismissed")] {
        let fleet = fleet(tool);
        let first = call(&fleet, json!({})).await;
        // The content of a form that was not accepted is ignored.
        let answer = |key: &str| json!({ key: { "action": action, "content": { "text": "x" } } });
        let second = call(
            &fleet,
            json!({ "inputResponses": answer("a"), "requestState": first["requestState"] }),
        )
        .await;
        let third = call(
            &fleet,
            json!({ "inputResponses": answer("b"), "requestState": second["requestState"] }),
        )
        .await;
        assert_eq!(third["isError"], true);
        let text = third["content"][0]["text"].as_str().unwrap();
        assert!(text.contains(expected) && text.contains("\"b\""), "{text}");
    }
}

#[tokio::test]
async fn sampling_needs_the_declared_capability() {
    let tool = |asks: &'static [ClientFeature]| {
        move || {
            Tool::new("t", "", async |cx: Context| -> Result<_> {
                let reply = cx.sample("s", CreateMessageParams::user("hi", 5)).await?;
                Ok(reply.content.joined_text())
            })
            .requires(asks.iter().copied())
        }
    };
    for asks in [&[][..], &[ClientFeature::Sampling]] {
        let (client, _) = client(fleet(tool(asks)));
        let error = client.build().call_tool("t", json!({})).await.unwrap_err();
        let error = error.as_server_error().unwrap().clone();
        assert_eq!(error.code, -32021);
        assert_eq!(error.data.unwrap(), json!({ "requiredCapabilities": { "sampling": {} } }));
    }
    let (client, _) = client(fleet(tool(&[])));
    let client = client.on_sample(async |_, _| Ok(CreateMessageResult::text("hello", "m"))).build();
    assert_eq!(client.call_tool("t", json!({})).await.unwrap().text(), "hello");
}

#[tokio::test]
async fn handler_mistakes_end_the_call_with_an_internal_error() {
    let twice = || {
        Tool::new("t", "", async |cx: Context| -> Result<_> {
            let (a, b) = tokio::join!(cx.elicit::<Text>("a", "?"), cx.elicit::<Text>("a", "?"));
            Ok(a?.text + &b?.text)
        })
    };
    let panics = || Tool::new("t", "", async |_: Context| -> Result<String> { panic!("oh no") });
    let huge = || {
        Tool::new("t", "", async |cx: Context| -> Result<_> {
            cx.step("huge", async |_| Ok("x".repeat(100_000))).await?;
            Ok("done")
        })
    };
    for tool in [&twice as &dyn Fn() -> Tool, &panics, &huge] {
        let (text, _) = run(tool).await;
        assert_eq!(text, "! the server refused the call: Internal error (-32603)");
    }
}

#[tokio::test]
async fn handler_errors_show_only_their_public_message() {
    let io = || {
        Tool::new("t", "", async |_: Context| -> Result<String> {
            Err(std::io::Error::other("db-3"))?
        })
    };
    assert_eq!(run(io).await.0, "Something went wrong inside the server.");
    let shown = || {
        Tool::new("t", "", async |_: Context| -> Result<String> {
            Err(Error::new("No such table."))
        })
    };
    assert_eq!(run(shown).await.0, "No such table.");
}

#[tokio::test]
async fn reworded_question_is_asked_again_unless_a_step_followed_it() {
    // A rolling upgrade: the replicas have different versions of the tool.
    async fn run_upgrade(message: &'static str, with_step: bool) -> (String, Vec<Vec<String>>) {
        let clock = mrtr_testkit::TestClock::default();
        let tool = |message: &'static str| {
            Tool::new("t", "", move |cx: Context| async move {
                let a: Text = cx.elicit("a", message).await?;
                if with_step {
                    cx.step("pay", async |_| Ok(1)).await?;
                }
                let b: Text = cx.elicit("b", "?").await?;
                Ok::<_, Error>(a.text + &b.text)
            })
        };
        let replicas = ["Inside?", "Inside?", message, message, message];
        let fleet =
            mrtr_testkit::Replicas::new(replicas.map(|message| {
                replica(&clock).allow_anonymous().tool(tool(message)).build().unwrap()
            }));
        let (client, log) = client(fleet);
        let result = client.build().call_tool("t", json!({})).await;
        (result.map_or_else(|e| format!("! {e}"), |r| r.text()), log.input_keys())
    }
    assert_eq!(run_upgrade("Inside?", true).await, ("ab".into(), keys(&[&["a"], &["b"], &[]])));
    let (text, asked) = run_upgrade("Outside?", false).await;
    assert_eq!((text.as_str(), asked), ("ab", keys(&[&["a"], &["b"], &["a"], &[]])));
    let (text, _) = run_upgrade("Outside?", true).await;
    assert!(text.contains("The server has changed since this call began"), "{text}");
}

#[tokio::test]
async fn recorded_step_that_is_not_reached_ends_the_call() {
    let clock = mrtr_testkit::TestClock::default();
    let tool = |steps: bool| {
        Tool::new("t", "", move |cx: Context| async move {
            if steps {
                cx.step("pay", async |_| Ok(1)).await?;
            }
            Ok::<_, Error>(cx.elicit::<Text>("a", "?").await?.text)
        })
    };
    let fleet = mrtr_testkit::Replicas::new(
        [true, false].map(|s| replica(&clock).allow_anonymous().tool(tool(s)).build().unwrap()),
    );
    let (client, _) = client(fleet);
    let error = client.build().call_tool("t", json!({})).await.unwrap_err();
    assert_eq!(error.as_server_error().unwrap().data, Some(json!({ "reason": "call_changed" })));
}

#[tokio::test(start_paused = true)]
async fn request_timeout_ends_a_handler_that_sleeps() {
    let slow = || {
        Tool::new("t", "", async |_: Context| -> Result<_> {
            tokio::time::sleep(Duration::from_hours(1)).await;
            Ok("never")
        })
    };
    assert!(run(slow).await.0.contains("Internal error"));
}

#[tokio::test]
async fn request_timeout_ends_a_handler_that_never_yields() {
    let busy = || {
        let never = async |_: Context| -> Result<String> {
            loop {
                tokio::task::consume_budget().await;
            }
        };
        Tool::new("t", "", never).request_timeout(Duration::from_millis(10))
    };
    assert!(run(busy).await.0.contains("Internal error"));
}

/// Sends one round of the tool `t`; `more` holds further parameters.
async fn call(fleet: &mrtr_testkit::Replicas, more: Value) -> Value {
    call_tool(fleet, "t", json!({}), more).await
}

#[tokio::test]
async fn oversized_answer_is_rejected_by_key_and_the_call_continues() {
    let fleet = fleet(|| {
        Tool::new("t", "", async |cx: Context| -> Result<_> {
            let a: Text = cx.elicit("a", "?").await?;
            let b: Text = cx.elicit("b", "?").await?;
            Ok((a.text.len() + b.text.len()).to_string())
        })
    });
    let answer = |key: &str, length: usize, state: &Value| {
        let answer =
            json!({ key: { "action": "accept", "content": { "text": "x".repeat(length) } } });
        json!({ "inputResponses": answer, "requestState": state })
    };
    let first = call(&fleet, json!({})).await;
    let refused = call(&fleet, answer("a", 9_000, &first["requestState"])).await;
    let message = refused["error"]["message"].as_str().unwrap();
    assert!(message.contains("the response to \"a\" has") && message.contains("8192"), "{message}");
    let second = call(&fleet, answer("a", 10, &first["requestState"])).await;
    // An answer that no later round needs may be long.
    let last = call(&fleet, answer("b", 100_000, &second["requestState"])).await;
    assert_eq!(last["content"][0]["text"], "100010");
}

#[tokio::test]
async fn request_parts_hold_application_state_and_extensions_of_layers() {
    #[derive(Clone)]
    struct Pool(&'static str);
    #[derive(Clone)]
    struct Tenant(&'static str);
    let tool = Tool::new("t", "", async |cx: Context| -> Result<_> {
        let pool = cx.parts().state::<Pool>().map_or("no pool", |pool| pool.0);
        let tenant = cx.parts().extensions().get::<Tenant>().map_or("no tenant", |tenant| tenant.0);
        Ok(format!("{pool}, {tenant}"))
    });
    let server = mrtr_server::Server::builder("s", "1")
        .ephemeral_key()
        .tool(tool)
        .state(Pool("a pool"))
        .allow_anonymous()
        .build()
        .unwrap();
    let call = async |exchange: mrtr_transport::InProcess<_>| {
        mrtr_client::Client::builder(exchange)
            .build()
            .call_tool("t", json!({}))
            .await
            .unwrap()
            .text()
    };
    assert_eq!(call(mrtr_transport::InProcess::new(server.clone())).await, "a pool, no tenant");
    assert_eq!(
        call(mrtr_transport::InProcess::new(server).with_extension(Tenant("a tenant"))).await,
        "a pool, a tenant"
    );
}

/// Questions that a spawned task asks at different times share the round, which does not end while
/// the task makes progress.
#[tokio::test]
async fn questions_of_a_spawned_task_share_the_round() {
    let (text, asked) = run(|| {
        Tool::new("t", "", async |cx: Context| -> Result<_> {
            let own = cx.clone();
            let task = tokio::spawn(async move {
                let later = async {
                    tokio::task::yield_now().await;
                    own.elicit::<Text>("c", "?").await
                };
                let (b, c) = tokio::try_join!(own.elicit::<Text>("b", "?"), later)?;
                Ok::<_, Error>(b.text + &c.text)
            });
            let a = cx.elicit::<Text>("a", "?");
            let (a, task) = tokio::join!(a, task);
            Ok(a?.text + &task??)
        })
    })
    .await;
    assert_eq!((text.as_str(), asked), ("abc", keys(&[&["a", "b", "c"], &[]])));
}
