//! Options of steps, and rounds that end without a question.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use mrtr_client::Client;
use mrtr_schema::elicitation::ElicitResult;
use mrtr_server::{Context, Error, Result, Tool};
use serde_json::json;

use mrtr_testkit::{Replicas, TestClock};

use crate::support::{Counter, LogLines, Text, alice, call_tool, client, fleet, replica, run};

fn keys(asked: &[&[&str]]) -> Vec<Vec<String>> {
    asked.iter().map(|keys| keys.iter().map(|key| (*key).to_owned()).collect()).collect()
}

#[tokio::test]
async fn after_checkpoint_defers_the_first_step_to_the_next_round() {
    let runs = Counter::default();
    let (text, asked) = run(|| {
        let runs = runs.clone();
        Tool::new("t", "", move |cx: Context| {
            let runs = runs.clone();
            async move {
                let one = cx.step("one", async |_| Ok(runs.increment())).after_checkpoint().await?;
                // A state has been sealed by now.
                let two = cx.step("two", async |_| Ok(runs.increment())).after_checkpoint().await?;
                Ok::<_, Error>(format!("{one} {two}"))
            }
        })
    })
    .await;
    assert_eq!((text.as_str(), asked), ("1 2", keys(&[&[], &[]])));
    assert_eq!(runs.get(), 2);
}

/// `after_checkpoint` shares the round of a question beside it, and is free after one.
#[tokio::test]
async fn after_checkpoint_adds_no_round_beside_or_after_a_question() {
    let tool = |beside: bool| {
        Tool::new("t", "", move |cx: Context| async move {
            let step = cx.step("step", async |_| Ok(7)).after_checkpoint();
            let ask = cx.elicit::<Text>("a", "?");
            let (text, n) =
                if beside { tokio::try_join!(ask, step)? } else { (ask.await?, step.await?) };
            Ok::<_, Error>(format!("{} {n}", text.text))
        })
    };
    for beside in [true, false] {
        let (text, asked) = run(|| tool(beside)).await;
        assert_eq!((text.as_str(), asked), ("a 7", keys(&[&["a"], &[]])));
    }
}

#[tokio::test]
async fn checkpoint_ends_the_round_once() {
    let (runs, replays) = (Counter::default(), Counter::default());
    let (text, asked) = run(|| {
        let (runs, replays) = (runs.clone(), replays.clone());
        Tool::new("t", "", move |cx: Context| {
            let (runs, replays) = (runs.clone(), replays.clone());
            async move {
                replays.increment();
                let one = cx.step("one", async |_| Ok(runs.increment())).await?;
                cx.checkpoint("half").await?;
                let two = cx.step("two", async |_| Ok(runs.increment())).await?;
                // A question beside the checkpoint is sent in the same round.
                let (text, ()) =
                    tokio::try_join!(cx.elicit::<Text>("a", "?"), cx.checkpoint("more"))?;
                Ok::<_, Error>(format!("{one} {two} {}", text.text))
            }
        })
    })
    .await;
    assert_eq!((text.as_str(), asked), ("1 2 a", keys(&[&[], &["a"], &[]])));
    assert_eq!((runs.get(), replays.get()), (2, 3));
}

/// A dropped step requests no checkpoint.
#[tokio::test(start_paused = true)]
async fn dropped_step_after_checkpoint_ends_no_round() {
    let (text, asked) = run(|| {
        Tool::new("t", "", async |cx: Context| -> Result<_> {
            let mut step = cx.step("step", async |_| Ok(7)).after_checkpoint();
            tokio::select! {
                biased;
                _ = &mut step => {}
                () = std::future::ready(()) => {}
            }
            drop(step);
            tokio::time::sleep(Duration::from_secs(1)).await;
            Ok("done".to_owned())
        })
    })
    .await;
    assert_eq!((text.as_str(), asked.len()), ("done", 1));
}

#[tokio::test]
async fn unreached_step_ends_the_call_unless_it_is_skippable() {
    for skippable in [false, true] {
        let replays = Counter::default();
        let (text, _) = run(|| {
            let replays = replays.clone();
            Tool::new("t", "", move |cx: Context| {
                let replays = replays.clone();
                async move {
                    if replays.increment() == 1 {
                        let step = cx.step("gone", async |_| Ok(1));
                        if skippable {
                            step.skippable().await?
                        } else {
                            step.await?
                        };
                    }
                    Ok::<_, Error>(cx.elicit::<Text>("a", "?").await?.text)
                }
            })
        })
        .await;
        assert_eq!(text == "a", skippable, "{text}");
    }
}

/// Runs a step that fails. Returns its runs and the error that the last round saw.
async fn failing(keep: bool, error: fn() -> Error) -> (usize, String) {
    let runs = Counter::default();
    let (text, _) = run(|| {
        let runs = runs.clone();
        Tool::new("t", "", move |cx: Context| {
            let runs = runs.clone();
            async move {
                let step = cx.step("step", async |_| -> Result<u8> {
                    runs.increment();
                    Err(error())
                });
                let failed = if keep { step.record_errors().await } else { step.await };
                let Err(error) = failed else { return Ok::<_, Error>("no error".to_owned()) };
                cx.elicit::<Text>("a", "?").await?;
                Ok(error.message().to_owned())
            }
        })
    })
    .await;
    (runs.get(), text)
}

#[tokio::test]
async fn record_errors_keeps_the_error_of_a_step() {
    let visible = || Error::new("sold out");
    assert_eq!(failing(false, visible).await, (2, "sold out".to_owned()));
    assert_eq!(failing(true, visible).await, (1, "sold out".to_owned()));
    // An internal error is not in the state.
    let internal = || Error::internal("db-7.internal refused");
    let (runs, text) = failing(true, internal).await;
    assert_eq!((runs, text.as_str()), (1, "Something went wrong inside the server."));
}

#[tokio::test(start_paused = true)]
async fn step_timeout_cancels_the_step() {
    let (started, ended) = (Counter::default(), Counter::default());
    let (text, asked) = run(|| {
        let (started, ended) = (started.clone(), ended.clone());
        Tool::new("t", "", move |cx: Context| {
            let (started, ended) = (started.clone(), ended.clone());
            async move {
                let slow = cx.step("slow", async |_| {
                    started.increment();
                    tokio::time::sleep(Duration::from_secs(5)).await;
                    Ok(ended.increment())
                });
                let slow = slow.timeout(Duration::from_secs(2)).await;
                let fast = cx.step("fast", async |_| Ok(1)).timeout(Duration::from_secs(2)).await;
                Ok::<_, Error>(format!("{} {}", slow.unwrap_err(), fast?))
            }
        })
    })
    .await;
    assert_eq!(text, "The step \"slow\" timed out. 1");
    assert_eq!((asked.len(), started.get(), ended.get()), (1, 1, 0));
}

/// With declared inputs, the idempotency key depends on them and not on the answers.
#[tokio::test]
async fn idempotent_on_derives_the_key_from_its_inputs() {
    let seen: Arc<Mutex<Vec<(String, String)>>> = Arc::default();
    let fleet = fleet(|| {
        let seen = Arc::clone(&seen);
        Tool::new("t", "", move |cx: Context| {
            let seen = Arc::clone(&seen);
            async move {
                let text = cx.elicit::<Text>("a", "?").await?.text;
                let of = |key: &str, inputs: i64| {
                    let (seen, key) = (Arc::clone(&seen), key.to_owned());
                    let note = key.clone();
                    let step = cx.step(key, async move |step| {
                        seen.lock().unwrap().push((note, step.idempotency_key().to_owned()));
                        Ok(())
                    });
                    step.idempotent_on(&inputs)
                };
                of("pay", 100).await?;
                of("other", 100).await?;
                of(&format!("pay more {text}"), 100).await?;
                Ok::<_, Error>(String::new())
            }
        })
    });
    let state = crate::support::single_use::first_state(&fleet).await;
    for answer in ["x", "y", "x"] {
        let answer = json!({ "a": ElicitResult::accept(json!({ "text": answer })).unwrap() });
        let more = json!({ "requestState": state, "inputResponses": answer });
        call_tool(&fleet, "t", json!({}), more).await;
    }
    let seen = seen.lock().unwrap().clone();
    let of = |key: &str| -> Vec<String> {
        seen.iter().filter(|(name, _)| name == key).map(|(_, key)| key.clone()).collect()
    };
    let (pay, other) = (of("pay"), of("other"));
    assert_eq!(pay.len(), 3);
    assert!(pay.iter().all(|key| *key == pay[0]), "{pay:?}");
    assert_ne!(pay[0], other[0], "the key of another step differs");
    assert_ne!(pay[0], of("pay more x")[0]);
}

#[tokio::test]
async fn idempotent_on_needs_json_and_keys_differ_between_calls() {
    let seen: Arc<Mutex<Vec<String>>> = Arc::default();
    let amounts = [1, 1, 2].map(|amount| json!({ "amount": amount }));
    let mut calls = 0;
    for amount in amounts {
        calls += 1;
        let (text, _) = run(|| {
            let (seen, amount) = (Arc::clone(&seen), amount.clone());
            Tool::new("t", "", move |cx: Context| {
                let (seen, amount) = (Arc::clone(&seen), amount.clone());
                async move {
                    let pay = cx.step("pay", async move |step| {
                        seen.lock().unwrap().push(step.idempotency_key().to_owned());
                        Ok(())
                    });
                    pay.idempotent_on(&amount).await?;
                    Ok::<_, Error>(String::new())
                }
            })
        })
        .await;
        assert_eq!(text, "");
    }
    let mut distinct = seen.lock().unwrap().clone();
    distinct.dedup();
    assert_eq!(distinct.len(), calls, "each call has its own key");

    let runs = Counter::default();
    let (client, _) = client(fleet(|| {
        let runs = runs.clone();
        Tool::new("t", "", move |cx: Context| {
            let runs = runs.clone();
            async move {
                // A map whose keys are tuples does not serialize to JSON.
                let inputs = std::collections::BTreeMap::from([((1, 2), 3)]);
                let step = cx.step("pay", async |_| Ok(runs.increment())).idempotent_on(&inputs);
                Ok::<_, Error>(step.await?.to_string())
            }
        })
    }));
    let client: Client<_> = client.build();
    let error = client.call_tool("t", json!({})).await.unwrap_err();
    assert_eq!(error.as_server_error().unwrap().code, -32603);
    assert_eq!(runs.get(), 0);
}

/// All tries are one run of the step with one key, and the pause between them grows.
#[tokio::test(start_paused = true)]
async fn step_retry_repeats_with_one_key_and_growing_pauses() {
    for (fails, times, text) in [(2, 3, "3"), (3, 3, "! "), (0, 0, "1")] {
        let (tries, keys) = (Counter::default(), Arc::new(Mutex::new(Vec::new())));
        let start = tokio::time::Instant::now();
        let (came_to, _) = run(|| {
            let (tries, keys) = (tries.clone(), Arc::clone(&keys));
            Tool::new("t", "", move |cx: Context| {
                let (tries, keys) = (tries.clone(), Arc::clone(&keys));
                async move {
                    let done = cx.step("flaky", async |s| {
                        s.retry(times, || async {
                            keys.lock().unwrap().push(s.idempotency_key().to_owned());
                            let n = tries.increment();
                            if n <= fails { Err(Error::new("not yet")) } else { Ok(n) }
                        })
                        .await
                    });
                    Ok::<_, Error>(
                        done.await.map_or_else(|error| format!("! {error}"), |n| n.to_string()),
                    )
                }
            })
        })
        .await;
        assert!(came_to.starts_with(text), "{came_to}");
        let mut keys = keys.lock().unwrap().clone();
        keys.dedup();
        assert_eq!(keys.len(), 1);
        let paused = start.elapsed().as_millis();
        // Pauses of 100 ms and 200 ms, each shortened by up to half.
        let expected = if fails == 0 { 0..=0 } else { 150..=300 };
        assert!(expected.contains(&paused), "{paused} ms");
    }
}

/// A step with `finish_on_disconnect` completes without its client; any other step is cancelled.
#[tokio::test(start_paused = true)]
async fn finish_on_disconnect_completes_the_step() {
    for (outlives, done) in [(true, 1), (false, 0)] {
        let (started, finished) = (Counter::default(), Counter::default());
        let clock = TestClock::default();
        let tool = || {
            let (started, finished) = (started.clone(), finished.clone());
            Tool::new("t", "", move |cx: Context| {
                let (started, finished) = (started.clone(), finished.clone());
                async move {
                    let step = cx.step("transfer", async move |_| {
                        started.increment();
                        tokio::time::sleep(Duration::from_secs(10)).await;
                        Ok(finished.increment())
                    });
                    let n = if outlives { step.finish_on_disconnect().await? } else { step.await? };
                    Ok::<_, Error>(n.to_string())
                }
            })
        };
        let server = replica(&clock).tool(tool()).build().unwrap();
        let fleet = Replicas::new([server.clone()]).as_principal(alice());
        let call = call_tool(&fleet, "t", json!({}), json!({}));
        tokio::time::timeout(Duration::from_secs(1), call).await.unwrap_err();
        server.drained().await;
        assert_eq!((started.get(), finished.get()), (1, done));
        // With its client, it behaves as any other step.
        let (text, _) = run(tool).await;
        assert_eq!(text, (done + 1).to_string());
    }
}

/// Its timeout still applies, and its panic is a panic of the handler.
#[tokio::test(start_paused = true)]
async fn finish_on_disconnect_respects_timeouts_and_reports_panics() {
    let clock = TestClock::default();
    let tool = |panics: bool| {
        Tool::new("t", "", move |cx: Context| async move {
            let step = cx.step("never", async move |_| {
                assert!(!panics, "on purpose");
                std::future::pending::<Result<()>>().await
            });
            step.finish_on_disconnect().timeout(Duration::from_secs(5)).await?;
            Ok::<_, Error>("done")
        })
    };
    let server = replica(&clock).tool(tool(false)).build().unwrap();
    let fleet = Replicas::new([server.clone()]).as_principal(alice());
    let call = call_tool(&fleet, "t", json!({}), json!({}));
    tokio::time::timeout(Duration::from_secs(1), call).await.unwrap_err();
    tokio::time::timeout(Duration::from_secs(5), server.drained()).await.unwrap();
    let (text, _) = run(|| tool(false)).await;
    assert_eq!(text, "The step \"never\" timed out.");

    let (lines, _guard) = LogLines::collect();
    let (text, _) = run(|| tool(true)).await;
    assert!(text.starts_with("! "), "{text}");
    assert!(lines.text().contains("the handler panicked: on purpose"), "{}", lines.text());
}

/// A step starts only if the journal has room for its result, and the log warns before that.
#[tokio::test]
async fn step_does_not_start_without_room_in_the_journal() {
    let (lines, _guard) = LogLines::collect();
    let runs = Counter::default();
    let (client, _) = client(fleet(|| {
        let runs = runs.clone();
        Tool::new("t", "", move |cx: Context| {
            let runs = runs.clone();
            async move {
                for n in 0..20 {
                    cx.step(format!("big-{n}"), async |_| {
                        runs.increment();
                        Ok("x".repeat(7 * 1024))
                    })
                    .await?;
                    if n == 5 {
                        cx.checkpoint("sealed").await?;
                    }
                }
                Ok::<_, Error>("done")
            }
        })
    }));
    let error = client.build().call_tool("t", json!({})).await.unwrap_err();
    assert_eq!(error.as_server_error().unwrap().code, -32603);
    // Eight results take a little more than 56 KiB, which leaves less than 8 KiB.
    assert_eq!(runs.get(), 8);
    let log = lines.text();
    assert!(
        log.contains("the state is more than half full") && log.contains("largest=\"big-"),
        "{log}"
    );
    assert!(log.contains("the step \"big-8\" was not run"), "{log}");
    assert!(log.contains("longest entry: \"big-7\""), "{log}");
}

/// Pauses between two tries are 50 to 100 ms at random, so that clients that failed together do not
/// retry together.
#[tokio::test(start_paused = true)]
async fn step_retry_pauses_are_randomized() {
    let (text, _) = run(|| {
        Tool::new("t", "", async |cx: Context| -> Result<_> {
            let mut pauses = Vec::new();
            for n in 0..64 {
                let begun = tokio::time::Instant::now();
                let fails = async |s: mrtr_server::Step| {
                    let failed = s.retry(2, || async { Err::<(), _>("no") }).await;
                    Ok(failed.is_err())
                };
                assert!(cx.step(format!("step {n}"), fails).await?);
                pauses.push(begun.elapsed().as_millis());
            }
            // The clock counts whole milliseconds.
            assert!(pauses.iter().all(|pause| (50..=101).contains(pause)), "{pauses:?}");
            pauses.sort_unstable();
            pauses.dedup();
            Ok(if pauses.len() > 8 { "spread" } else { "together" })
        })
    })
    .await;
    assert_eq!(text, "spread");
}
