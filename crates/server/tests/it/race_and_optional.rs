//! Recorded decisions: the winner of a race, and skipped optional questions.

use std::sync::{Arc, Mutex};

use mrtr_client::Client;
use mrtr_schema::elicitation::ElicitResult;
use mrtr_schema::notification::Progress;
use mrtr_server::testing::TestCall;
use mrtr_server::{Context, ElicitOutcome, Tool};
use serde_json::{Value, json};

use crate::support::{
    Counter, LogLines, Text, alice, call_tool, client, fleet, replica, run, send_request, with_meta,
};
use mrtr_testkit::{Replicas, TestClock};

/// Returns a tool that races two questions and then asks another, with the winner in its result.
fn racing() -> Tool {
    Tool::new("t", "", async |cx: Context| -> mrtr_server::Result<_> {
        let one = async { Ok(format!("one {}", cx.elicit::<Text>("one", "?").await?.text)) };
        let other = async { Ok(format!("other {}", cx.elicit::<Text>("other", "?").await?.text)) };
        let first = cx.race("first", one, other).await?;
        let more: Text = cx.elicit("more", "?").await?;
        Ok(format!("{first} {}", more.text))
    })
}

fn answers(of: &[&str]) -> Value {
    let answer = |key: &&str| {
        let answer = ElicitResult::accept(json!({ "text": key })).unwrap();
        ((*key).to_owned(), serde_json::to_value(answer).unwrap())
    };
    Value::Object(of.iter().map(answer).collect())
}

fn asked(outcome: &Value) -> Vec<&str> {
    let keys = outcome["inputRequests"].as_object().into_iter().flat_map(|all| all.keys());
    keys.map(String::as_str).collect()
}

/// The answered side wins in every later round, even if the other side is answered later.
#[tokio::test]
async fn race_has_the_same_winner_in_every_round() {
    for (answered, winner, left) in [
        (&["one"][..], "one", "other"),
        (&["other"], "other", "one"),
        (&["one", "other"], "one", "other"),
    ] {
        let fleet = fleet(racing);
        let first = call_tool(&fleet, "t", json!({}), json!({})).await;
        assert_eq!(asked(&first), ["one", "other"], "both are asked, in one round");
        let more =
            json!({ "requestState": first["requestState"], "inputResponses": answers(answered) });
        let second = call_tool(&fleet, "t", json!({}), more).await;
        assert_eq!(asked(&second), ["more"], "the losing question is withdrawn");
        let more = json!({
            "requestState": second["requestState"],
            "inputResponses": answers(&["more", left]),
        });
        let last = call_tool(&fleet, "t", json!({}), more).await;
        assert_eq!(last["content"][0]["text"], format!("{winner} {winner} more"));
    }
}

/// A client answers all questions of a round: a declined side loses, and the other side continues.
#[tokio::test(start_paused = true)]
async fn declined_side_loses_the_race() {
    let paid = Counter::default();
    let tool = || {
        let paid = paid.clone();
        Tool::new("t", "", move |cx: Context| {
            let paid = paid.clone();
            async move {
                let card = async {
                    let text = cx.elicit::<Text>("card", "?").await?.text;
                    let pay = cx.step("pay", async |_| {
                        tokio::time::sleep(std::time::Duration::from_secs(1)).await;
                        Ok(paid.increment())
                    });
                    Ok(format!("{text} {}", pay.await?))
                };
                let invoice = async { Ok(cx.elicit::<Text>("invoice", "?").await?.text) };
                cx.race("first", invoice, card).await
            }
        })
    };
    let call = |no: fn(TestCall, &str) -> TestCall| {
        no(TestCall::tool("t", json!({})).answer("card", json!({ "text": "x" })), "invoice")
    };
    for no in [TestCall::decline as fn(TestCall, &str) -> TestCall, TestCall::cancel] {
        let transcript = call(no).run(&fleet(tool)).await.unwrap();
        assert_eq!(
            (transcript.text(), transcript.step_runs("pay")),
            (format!("x {}", paid.get()).as_str(), 1)
        );
    }
    let none = TestCall::tool("t", json!({})).cancel("card").decline("invoice");
    let transcript = none.run(&fleet(tool)).await.unwrap();
    assert!(transcript.is_error() && transcript.text().contains("\"card\""), "{transcript:?}");
}

/// Both sides are answered, and the first is slower in the round that decides: it does not win in
/// the next round, where it is faster.
#[tokio::test]
async fn race_winner_does_not_depend_on_later_scheduling() {
    let replay = Counter::default();
    let (text, asked) = run(|| {
        let replay = replay.clone();
        Tool::new("t", "", move |cx: Context| {
            let replay = replay.clone();
            async move {
                let late = replay.increment() == 2;
                let one = async {
                    if late {
                        tokio::task::yield_now().await;
                    }
                    Ok::<_, mrtr_server::Error>(cx.elicit::<Text>("one", "?").await?.text)
                };
                let other = async { Ok(cx.elicit::<Text>("other", "?").await?.text) };
                let first = cx.race("first", one, other).await?;
                Ok::<_, mrtr_server::Error>(first + &cx.elicit::<Text>("more", "?").await?.text)
            }
        })
    })
    .await;
    assert_eq!((text.as_str(), asked.len()), ("othermore", 3));
}

/// A side that is ready at once wins, in two independent races.
#[tokio::test]
async fn ready_side_wins_and_the_other_is_not_asked() {
    let (text, asked) = run(|| {
        Tool::new("t", "", async |cx: Context| -> mrtr_server::Result<_> {
            let ready =
                |text: &'static str| async move { Ok::<_, mrtr_server::Error>(text.to_owned()) };
            let ask = async |key: &str| Ok(cx.elicit::<Text>(key, "?").await?.text);
            let a = cx.race("a", ask("lost"), ready("first")).await?;
            let b = cx.race("b", ready("second"), ask("unseen")).await?;
            Ok(format!("{a} {b} {}", ask("more").await?))
        })
    })
    .await;
    assert_eq!(text, "first second more");
    assert_eq!(asked, [vec!["more".to_owned()], vec![]]);
}

/// The unused answer of the loser does not hold back progress that the handler reports later.
#[tokio::test]
async fn answer_of_the_loser_does_not_mute_progress() {
    let reported = Arc::new(Mutex::new(Vec::new()));
    let (client, log) = client(fleet(|| {
        Tool::new("t", "", async |cx: Context| -> mrtr_server::Result<_> {
            let ask = async |key: &str| Ok(cx.elicit::<Text>(key, "?").await?.text);
            let first: mrtr_server::Result<String> =
                cx.race("first", ask("one"), ask("other")).await;
            cx.progress(1.0, None, None);
            let text = first? + &ask("more").await?;
            cx.progress(2.0, None, None);
            Ok(text)
        })
    }));
    let sink = Arc::clone(&reported);
    let on_progress = move |progress: Progress| sink.lock().unwrap().push(progress.progress);
    let result = client.on_progress(on_progress).build().call_tool("t", json!({})).await.unwrap();
    assert_eq!((result.text().as_str(), log.exchanges().len()), ("onemore", 3));
    assert_eq!(*reported.lock().unwrap(), [1.0, 2.0]);
}

/// The replay does not wait for the losing side, even if it ran steps.
#[tokio::test]
async fn steps_of_the_losing_side_do_not_mute_progress() {
    let reported = Arc::new(Mutex::new(Vec::new()));
    let (client, _) = client(fleet(|| {
        Tool::new("t", "", async |cx: Context| -> mrtr_server::Result<_> {
            let ask = async |key: &str| Ok(cx.elicit::<Text>(key, "?").await?.text);
            let one = async {
                cx.step("look", async |_| Ok(())).skippable().await?;
                ask("a1").await?;
                ask("a2").await
            };
            let other = async {
                ask("b1").await?;
                tokio::task::yield_now().await;
                Ok("b".to_owned())
            };
            let first = cx.race("first", one, other).await?;
            cx.progress(1.0, None, None);
            let more = ask("more").await?;
            cx.step("work", async |_| Ok(())).await?;
            cx.progress(2.0, None, None);
            Ok(first + &more)
        })
    }));
    let sink = Arc::clone(&reported);
    let on_progress = move |progress: Progress| sink.lock().unwrap().push(progress.progress);
    let result = client.on_progress(on_progress).build().call_tool("t", json!({})).await.unwrap();
    assert_eq!(result.text(), "bmore");
    assert_eq!(*reported.lock().unwrap(), [1.0, 2.0]);
}

/// The log names a key whose kind has changed.
#[tokio::test]
async fn log_names_a_step_that_became_a_question() {
    let (lines, _guard) = LogLines::collect();
    let clock = TestClock::default();
    let server = |asks: bool| {
        let tool = Tool::new("t", "", move |cx: Context| async move {
            if asks {
                cx.elicit::<Text>("key", "?").await?;
            } else {
                cx.step("key", async |_| Ok(())).await?;
            }
            cx.checkpoint("sealed").await?;
            Ok::<_, mrtr_server::Error>("done")
        });
        replica(&clock).tool(tool).build().unwrap()
    };
    let call = || TestCall::tool("t", json!({})).answer("key", json!({ "text": "x" }));
    for (first, why) in [
        (false, r#""key" is a question now, but was a step when it was recorded"#),
        (true, r#""key" is a step now, but was a question when it was recorded"#),
    ] {
        let fleet = Replicas::new([server(first), server(!first)]).as_principal(alice());
        assert!(call().run(&fleet).await.unwrap().is_error());
        assert!(lines.text().contains(why), "{why}: {}", lines.text());
    }
}

/// A key of a race must not be the key of a question, answered or skipped.
#[tokio::test]
async fn race_and_question_with_one_key_end_the_call() {
    let tool = |races: bool| {
        Tool::new("t", "", move |cx: Context| async move {
            let asks = cx.elicit::<Text>("key", "?").optional();
            let text = if races {
                let ready = || std::future::ready(Ok("won".to_owned()));
                cx.race("key", ready(), ready()).await?
            } else {
                asks.await?.map_or("none".to_owned(), |text| text.text)
            };
            cx.checkpoint("sealed").await?;
            Ok::<_, mrtr_server::Error>(text)
        })
    };
    let (lines, _guard) = LogLines::collect();
    let clock = TestClock::default();
    let server = |races| replica(&clock).tool(tool(races)).build().unwrap();
    for (first, second) in [(true, false), (false, true)] {
        for capabilities in [json!({}), json!({ "elicitation": {} })] {
            let fleet = Replicas::new([server(first), server(second)]).as_principal(alice());
            let call = TestCall::tool("t", json!({})).answer("key", json!({ "text": "x" }));
            let transcript = call.capabilities(&capabilities).run(&fleet).await.unwrap();
            let data = transcript.outcome.unwrap_err().data;
            assert_eq!(data, Some(json!({ "reason": "call_changed" })), "{first} {capabilities}");
        }
    }
    for why in [
        r#""key" is a race now, but was another choice when it was recorded"#,
        r#""key" is a race now, but was a question when it was recorded"#,
        r#""key" is a question now, but was another choice when it was recorded"#,
    ] {
        assert!(lines.text().contains(why), "{why}: {}", lines.text());
    }
}

/// Progress that an earlier round reported is not sent again.
#[tokio::test]
async fn progress_is_sent_once_across_rounds() {
    let reported = Arc::new(Mutex::new(Vec::new()));
    let (client, log) = client(fleet(|| {
        Tool::new("t", "", async |cx: Context| -> mrtr_server::Result<_> {
            cx.progress(1.0, None, None);
            cx.step("step", async |_| Ok(())).await?;
            cx.progress(2.0, None, None);
            cx.checkpoint("sealed").await?;
            cx.progress(3.0, None, None);
            Ok("done")
        })
    }));
    let sink = Arc::clone(&reported);
    let on_progress = move |progress: Progress| sink.lock().unwrap().push(progress.progress);
    client.on_progress(on_progress).build().call_tool("t", json!({})).await.unwrap();
    assert_eq!((log.exchanges().len(), reported.lock().unwrap().clone()), (2, vec![1.0, 2.0, 3.0]));
}

#[tokio::test]
async fn race_and_step_with_one_key_end_the_call() {
    let (lines, _guard) = LogLines::collect();
    for (raced_first, why) in [
        (true, r#""key" is a step now, but was a choice when it was recorded"#),
        (false, r#""key" is a race now, but was a step when it was recorded"#),
    ] {
        let replay = Counter::default();
        let (client, _) = client(fleet(|| {
            let replay = replay.clone();
            Tool::new("t", "", move |cx: Context| {
                let replay = replay.clone();
                async move {
                    if raced_first == (replay.increment() == 1) {
                        cx.race("key", std::future::ready(Ok(())), std::future::ready(Ok(())))
                            .await?;
                    } else {
                        cx.step("key", async |_| Ok(())).await?;
                    }
                    Ok::<_, mrtr_server::Error>(cx.elicit::<Text>("a", "?").await?.text)
                }
            })
        }));
        let error = client.build().call_tool("t", json!({})).await.unwrap_err();
        let data = error.as_server_error().unwrap().data.clone();
        assert_eq!(data, Some(json!({ "reason": "call_changed" })));
        assert!(lines.text().contains(why), "{}", lines.text());
    }
}

fn optional() -> Tool {
    Tool::new("t", "", async |cx: Context| -> mrtr_server::Result<_> {
        let a: Option<Text> = cx.elicit("a", "?").optional().await?;
        let b: Option<ElicitOutcome<Text>> = cx.elicit("b", "?").outcome().optional().await?;
        Ok(format!("{:?} {}", a.map(|a| a.text), b.is_some()))
    })
}

/// A client with forms is asked; a refusal is an answer.
#[tokio::test]
async fn optional_question_is_asked_if_the_client_supports_it() {
    let (text, asked) = run(optional).await;
    assert_eq!(text, r#"Some("a") true"#);
    assert_eq!(asked, [vec!["a".to_owned()], vec!["b".to_owned()], vec![]]);

    for no in [ElicitResult::decline(), ElicitResult::cancel()] {
        let client = Client::builder(fleet(optional))
            .on_form(move |_, _| std::future::ready(Ok(no.clone())));
        let result = client.build().call_tool("t", json!({})).await.unwrap();
        assert_eq!(result.text(), "None true", "`outcome` tells a refusal from a skipped question");
    }
}

/// A client without forms is not asked in any round: the handler keeps its path without the answer.
#[tokio::test]
async fn optional_question_stays_skipped_if_the_client_lacks_it() {
    let result = Client::builder(fleet(optional)).build().call_tool("t", json!({})).await.unwrap();
    assert_eq!(result.text(), "None false");

    let tool = || {
        Tool::new("t", "", async |cx: Context| -> mrtr_server::Result<_> {
            let a: Option<Text> = cx.elicit("a", "?").optional().await?;
            cx.checkpoint("sealed").await?;
            Ok(format!("{}", a.is_some()))
        })
    };
    let clock = TestClock::default();
    let fleet =
        Replicas::new([replica(&clock).tool(tool()).build().unwrap()]).as_principal(alice());
    let mut params = with_meta(json!({ "name": "t", "arguments": {} }));
    params["_meta"]["io.modelcontextprotocol/clientCapabilities"] = json!({});
    let first = send_request(&fleet, "tools/call", params).await;
    assert_eq!(asked(&first), [""; 0]);
    // The same call, by a client that now supports forms.
    let more = json!({ "requestState": first["requestState"] });
    let last = call_tool(&fleet, "t", json!({}), more).await;
    assert_eq!(last["content"][0]["text"], "false");
}

/// A question that is no longer optional is asked after all.
#[tokio::test]
async fn skipped_question_is_asked_once_it_is_required() {
    let clock = TestClock::default();
    let tool = |needed: bool| {
        Tool::new("t", "", move |cx: Context| async move {
            let ask = cx.elicit::<Text>("a", "?");
            let a = if needed { Some(ask.await?) } else { ask.optional().await? };
            cx.checkpoint("sealed").await?;
            Ok::<_, mrtr_server::Error>(format!("{}", a.is_some()))
        })
    };
    let server = |needed| replica(&clock).tool(tool(needed)).build().unwrap();
    let fleet = Replicas::new([server(false), server(true)]).as_principal(alice());
    let mut params = with_meta(json!({ "name": "t", "arguments": {} }));
    params["_meta"]["io.modelcontextprotocol/clientCapabilities"] = json!({});
    let first = send_request(&fleet, "tools/call", params).await;
    let more = json!({ "requestState": first["requestState"] });
    let second = call_tool(&fleet, "t", json!({}), more).await;
    assert_eq!(asked(&second), ["a"]);
}
