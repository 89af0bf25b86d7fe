//! Versions of a tool that run side by side.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use mrtr_schema::elicitation::ElicitResult;
use mrtr_server::testing::{Replicas, TestCall, TestClock};
use mrtr_server::{BuildError, Context, Prompt, PromptOutput, Tool};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Value, json};

use crate::support::{Counter, LogLines, Text, alice, call_tool, client, invalid_state, replica};

/// Returns a tool that asks these keys in sequence and joins the answers.
fn asking(keys: &'static [&'static str]) -> Tool {
    Tool::new("t", "", move |cx: Context| async move {
        let mut all = String::new();
        for key in keys {
            all += &cx.elicit::<Text>(*key, format!("{key}?")).await?.text;
        }
        Ok::<_, mrtr_server::Error>(all)
    })
}

/// Old and new replicas alternate: a question of both versions is asked once.
#[tokio::test]
async fn answers_carry_over_between_versions() {
    let clock = TestClock::default();
    let old = || replica(&clock).tool(asking(&["a", "b", "c"])).build().unwrap();
    let new = || replica(&clock).tool(asking(&["b", "new", "a", "c"]).version(2)).build().unwrap();
    for (fleet, asked, text) in [
        (Replicas::new([old(), new()]), vec!["a", "b", "c", "new"], "abc"),
        (Replicas::new([new(), old()]), vec!["b", "a", "new", "c"], "bnewac"),
    ] {
        let (client, log) = client(fleet.as_principal(alice()));
        let result = client.build().call_tool("t", json!({})).await.unwrap();
        assert_eq!(result.text(), text);
        assert_eq!(log.input_keys().concat(), asked);
    }
}

/// Each version finds the answer to its own wording, however often the versions alternate.
#[tokio::test]
async fn each_wording_is_asked_once() {
    let clock = TestClock::default();
    let server = |wording: &'static str| {
        let tool = Tool::new("t", "", move |cx: Context| async move {
            let a = cx.elicit::<Text>("a", wording).await?.text;
            let b = cx.elicit::<Text>("b", format!("{wording} more")).await?.text;
            Ok::<_, mrtr_server::Error>(format!("{wording}: {a} {b}"))
        });
        replica(&clock).tool(tool).build().unwrap()
    };
    let fleet = Replicas::new([server("one"), server("two")]).as_principal(alice());
    let text = |text: &str| json!({ "text": text });
    let call =
        TestCall::tool("t", json!({})).answer("a", text("first")).answer("a", text("second"));
    let call = call.answer("b", text("third"));
    let transcript = call.run(&fleet).await.unwrap();
    assert_eq!(transcript.text(), "one: first third");
    assert_eq!(transcript.rounds(), [["a"], ["a"], ["b"], ["b"]]);

    // An answer that was set aside counts for its own wording only.
    let fleet = ["one", "two", "three", "three", "three"].map(server);
    let call = call.answer("a", text("fourth"));
    let transcript = call.run(&Replicas::new(fleet).as_principal(alice())).await.unwrap();
    assert_eq!(transcript.text(), "three: fourth third");
    assert_eq!(transcript.rounds(), [["a"], ["a"], ["a"], ["b"]]);
}

/// No step depends on an unread answer, so that its question can be asked again.
#[tokio::test]
async fn unread_answer_can_be_asked_again_after_a_step() {
    let clock = TestClock::default();
    let old = || {
        Tool::new("t", "", async |cx: Context| -> mrtr_server::Result<_> {
            let (a, b) =
                tokio::try_join!(cx.elicit::<Text>("a", "?"), cx.elicit::<Text>("b", "?"))?;
            Ok(a.text + &b.text)
        })
    };
    let new = |wording: &'static str| {
        Tool::new("t", "", move |cx: Context| async move {
            let a = cx.elicit::<Text>("a", "?").await?.text;
            cx.step("s", async |_| Ok(())).await?;
            let c = cx.elicit::<Text>("c", "?").await?.text;
            cx.step("t", async |_| Ok(())).await?;
            let b = cx.elicit::<Text>("b", wording).await?.text;
            cx.checkpoint("end").await?;
            Ok::<_, mrtr_server::Error>(a + &c + &b)
        })
    };
    for (wording, rounds) in [("?", 3), ("reworded", 4)] {
        let server = |tool| replica(&clock).tool(tool).build().unwrap();
        let (old, new) = (server(old()), server(new(wording)));
        let fleet = Replicas::new([old, new.clone(), new.clone(), new.clone(), new]);
        let text = |text: &str| json!({ "text": text });
        let call = TestCall::tool("t", json!({})).answer("a", text("a")).answer("b", text("b"));
        let transcript =
            call.answer("c", text("c")).run(&fleet.as_principal(alice())).await.unwrap();
        assert_eq!(
            (transcript.text(), transcript.rounds().len()),
            ("acb", rounds),
            "{transcript:?}"
        );
    }
}

/// A checkpoint has no side effect: a version without it continues the call.
#[tokio::test]
async fn version_without_the_checkpoint_continues_the_call() {
    let clock = TestClock::default();
    let server = |checkpoint: bool| {
        let tool = Tool::new("t", "", move |cx: Context| async move {
            if checkpoint {
                cx.checkpoint("c").await?;
            }
            Ok::<_, mrtr_server::Error>("done")
        });
        replica(&clock).tool(tool).build().unwrap()
    };
    let fleet = Replicas::new([server(true), server(false)]).as_principal(alice());
    let transcript = TestCall::tool("t", json!({})).run(&fleet).await.unwrap();
    assert_eq!((transcript.text(), transcript.rounds().len()), ("done", 1));
}

/// A call keeps the oldest and the newest version that took part, whatever runs in between.
#[tokio::test]
async fn min_compatible_version_considers_all_earlier_versions() {
    let clock = TestClock::default();
    let server = |version: u32, since: u32| {
        let tool = Tool::new("t", "", move |cx: Context| async move {
            let begun = cx.step("hold", async |_| Ok(version)).await?;
            let text =
                cx.elicit::<Text>("a", "?").await?.text + &cx.elicit::<Text>("b", "?").await?.text;
            Ok::<_, mrtr_server::Error>(format!("begun by {begun}, ended by {version}: {text}"))
        });
        let tool = tool.version(version).min_compatible_version(since);
        replica(&clock).tool(tool).build().unwrap()
    };
    let (one, two, three) = (server(1, 0), server(2, 0), server(3, 2));
    let call = TestCall::tool("t", json!({})).answer("a", json!({ "text": "x" }));
    let call = call.answer("b", json!({ "text": "y" }));
    let fleet = [&one, &two, &three, &three, &three].map(Clone::clone);
    let transcript = call.run(&Replicas::new(fleet).as_principal(alice())).await.unwrap();
    assert_eq!(transcript.text(), "begun by 3, ended by 3: xy");
    let fleet = [three, two, one];
    let transcript = call.run(&Replicas::new(fleet).as_principal(alice())).await.unwrap();
    assert_eq!(transcript.outcome.unwrap_err().code, -32602);
}

/// An incompatible version restarts the same call without its answers and step results.
#[tokio::test]
async fn min_compatible_version_restarts_the_call() {
    let (clock, keys) = (TestClock::default(), Arc::new(Mutex::new(Vec::new())));
    let tool = |version: u32| {
        let keys = Arc::clone(&keys);
        let tool = Tool::new("t", "", move |cx: Context| {
            let keys = Arc::clone(&keys);
            async move {
                let hold = cx.step("hold", async |s| {
                    keys.lock().unwrap().push(s.idempotency_key().to_owned());
                    Ok(version)
                });
                let hold = hold.after_checkpoint().await?;
                let text = cx.elicit::<Text>("a", "?").await?.text;
                Ok::<_, mrtr_server::Error>(format!("{hold} {text}"))
            }
        });
        tool.version(version)
    };
    let old = replica(&clock).tool(tool(1)).build().unwrap();
    let new = replica(&clock).tool(tool(2).min_compatible_version(2)).build().unwrap();
    let fleet =
        |server: &mrtr_server::Server| Replicas::new([server.clone()]).as_principal(alice());
    let (old, new) = (fleet(&old), fleet(&new));
    let answer = json!({ "a": ElicitResult::accept(json!({ "text": "x" })).unwrap() });
    let retry = |before: &Value| json!({ "requestState": before["requestState"], "inputResponses": answer });

    let first = call_tool(&old, "t", json!({}), json!({})).await;
    let asked = call_tool(&old, "t", json!({}), retry(&first)).await;
    assert!(asked["inputRequests"]["a"].is_object());
    let again = call_tool(&new, "t", json!({}), retry(&asked)).await;
    assert!(
        again["inputRequests"]["a"].is_object(),
        "the answer belonged to the old version: {again}"
    );
    assert_eq!(call_tool(&new, "t", json!({}), retry(&again)).await["content"][0]["text"], "2 x");
    let ran = keys.lock().unwrap().clone();
    assert_eq!(ran.len(), 2);
    assert_eq!(ran[0], ran[1], "the call is the same, and so is the key for external systems");

    // The old version cannot continue a call that the new one began.
    let (lines, _guard) = LogLines::collect();
    assert_eq!(call_tool(&old, "t", json!({}), retry(&again)).await, invalid_state());
    let log = lines.text();
    assert!(log.contains("newer_version") && log.contains("version=2"), "{log}");
}

/// A call that alternates between two incompatible versions ends.
#[tokio::test]
async fn incompatible_versions_do_not_alternate() {
    let clock = TestClock::default();
    let old = replica(&clock).tool(asking(&["a", "b"]).version(1)).build().unwrap();
    let new = asking(&["c", "d"]).version(2).min_compatible_version(2);
    let new = replica(&clock).tool(new).build().unwrap();
    let (client, log) = client(Replicas::new([old, new]).as_principal(alice()));
    let error = client.build().call_tool("t", json!({})).await.unwrap_err();
    assert_eq!(error.as_server_error().unwrap().code, -32602);
    assert_eq!(log.input_keys().concat(), ["a", "c"]);
}

/// A handler in the manual form restarts as in its first round.
#[tokio::test]
async fn min_compatible_version_restarts_the_manual_form() {
    use mrtr_server::manual::{InputRequired, ManualContext, ManualOutput};
    let clock = TestClock::default();
    let tool = || {
        Tool::manual("t", "", async |cx: ManualContext| -> mrtr_server::Result<_> {
            let Some(replay) = cx.state::<u32>()? else {
                assert!(cx.answers().is_empty());
                return Ok(InputRequired::new().elicit::<Text>("a", "?").state(&1).into());
            };
            Ok(ManualOutput::<mrtr_server::ToolOutput>::from(replay.to_string()))
        })
    };
    let old = replica(&clock).tool(tool()).build().unwrap();
    let new = replica(&clock).tool(tool().version(1).min_compatible_version(1)).build().unwrap();
    let (client, log) = client(Replicas::new([old, new.clone(), new]).as_principal(alice()));
    let result = client.build().call_tool("t", json!({})).await.unwrap();
    assert_eq!((result.text().as_str(), log.input_keys().concat().len()), ("1", 2));
}

#[test]
fn build_rejects_invalid_versions_and_forms() {
    #[derive(Deserialize, JsonSchema)]
    struct Nested {
        #[expect(dead_code, reason = "only its schema is used")]
        inner: HashMap<String, String>,
    }
    let clock = TestClock::default();
    let tool = Tool::new("t", "", async |_: Context| "x").version(1).min_compatible_version(2);
    let error = replica(&clock).tool(tool).build().unwrap_err();
    assert_eq!(error, BuildError::Version(r#"the tool "t""#.to_owned()));
    let prompt = Prompt::new("p", "", async |_: Context| PromptOutput::messages([]));
    let error = replica(&clock).prompt(prompt.requires_form::<Nested>()).build().unwrap_err();
    assert!(
        matches!(&error, BuildError::Form { of, why }
        if of == r#"the prompt "p""# && why.contains(r#"field "inner""#)),
        "{error}"
    );
}

/// A client without forms is rejected before a tool that always asks for a form runs.
#[tokio::test]
async fn requires_form_rejects_clients_before_the_handler_runs() {
    let ran = Counter::default();
    let clock = TestClock::default();
    let tool = {
        let ran = ran.clone();
        Tool::new("t", "", move |_: Context| {
            ran.increment();
            std::future::ready(Ok::<_, mrtr_server::Error>("x"))
        })
    };
    let server = replica(&clock).tool(tool.requires_form::<Text>()).build().unwrap();
    let client =
        mrtr_client::Client::builder(Replicas::new([server]).as_principal(alice())).build();
    let error = client.call_tool("t", json!({})).await.unwrap_err();
    assert_eq!((error.as_server_error().unwrap().code, ran.get()), (-32021, 0));
}
