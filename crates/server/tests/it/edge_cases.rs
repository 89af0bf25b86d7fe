//! Rounds that are cancelled, declined, repeated or misused.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use mrtr_client::Client;
use mrtr_schema::elicitation::ElicitResult;
use mrtr_server::manual::{InputRequired, ManualContext, ManualOutput};
use mrtr_server::{Context, Error, Result, Tool};
use mrtr_testkit::{Replicas, TestClock};
use serde_json::{Value, json};

use crate::support::{Counter, Text, alice, call_tool, client, fleet, replica, run};

/// The rest of a handler that has spawned its question.
type Then = std::pin::Pin<Box<dyn Future<Output = Result<String>> + Send>>;

/// Returns a tool whose question is awaited in a spawned task, which counts its release.
fn spawned(released: Counter, then: fn(Context) -> Then) -> Tool {
    Tool::new("t", "", move |cx: Context| {
        let released = released.clone();
        async move {
            let own = cx.clone();
            tokio::spawn(async move {
                let answer = own.elicit::<Text>("spawned", "?").await;
                // A later step of the task ends as well.
                let step = own.step("after", async |_| Ok(1)).await;
                if answer.is_err_and(|e| e.is_round_closed())
                    && step.is_err_and(|e| e.is_round_closed())
                {
                    released.increment();
                }
            });
            then(cx).await
        }
    })
}

async fn settle() {
    for _ in 0..20 {
        tokio::task::yield_now().await;
    }
}

#[tokio::test(start_paused = true)]
async fn disconnect_releases_waiting_tasks() {
    let released = Counter::default();
    let fleet = fleet(|| {
        spawned(released.clone(), |cx| {
            Box::pin(async move {
                cx.step("slow", async |_| {
                    tokio::time::sleep(Duration::from_secs(30)).await;
                    Ok("done".to_owned())
                })
                .await
            })
        })
    });
    let (client, _) = client(fleet);
    let client = client.build();
    let gone = tokio::time::timeout(Duration::from_secs(1), client.call_tool("t", json!({}))).await;
    assert!(gone.is_err(), "the step is still running");
    settle().await;
    assert_eq!(released.get(), 1);
}

#[tokio::test]
async fn missing_capability_releases_waiting_tasks() {
    let released = Counter::default();
    let fleet = fleet(|| spawned(released.clone(), |_| Box::pin(std::future::pending())));
    let error = Client::builder(fleet).build().call_tool("t", json!({})).await.unwrap_err();
    assert_eq!(error.as_server_error().unwrap().code, -32021);
    settle().await;
    assert_eq!(released.get(), 1);
}

#[tokio::test]
async fn declining_beside_a_recorded_step_is_a_tool_error() {
    let fleet = fleet(|| {
        Tool::new("t", "", async |cx: Context| -> Result<_> {
            let (a, n) =
                tokio::try_join!(cx.elicit::<Text>("a", "?"), cx.step("pay", async |_| Ok(1)))?;
            Ok(format!("{} {n}", a.text))
        })
    });
    let client = Client::builder(fleet).on_form(async |_, _| Ok(ElicitResult::decline())).build();
    let result = client.call_tool("t", json!({})).await.unwrap();
    assert!(result.is_error && result.text().contains("declined"), "{}", result.text());
}

#[tokio::test]
async fn step_does_not_start_after_a_fault() {
    let runs = Counter::default();
    let fleet = fleet(|| {
        let runs = runs.clone();
        Tool::new("t", "", move |cx: Context| {
            let runs = runs.clone();
            async move {
                let pay = cx.step("pay", async |_| Ok(runs.increment()));
                let (a, _) = tokio::try_join!(cx.elicit::<Text>("a", "?"), pay)?;
                Ok::<_, Error>(a.text)
            }
        })
    });
    let error = Client::builder(fleet).build().call_tool("t", json!({})).await.unwrap_err();
    assert_eq!(error.as_server_error().unwrap().code, -32021);
    assert_eq!(runs.get(), 0);
}

/// A repeated request has the same key, and another answer has another key. Otherwise an external
/// system would mistake a changed order for a repeated one.
#[tokio::test]
async fn idempotency_key_depends_on_the_answers() {
    let keys: Arc<Mutex<Vec<String>>> = Arc::default();
    let fleet = fleet(|| {
        let keys = Arc::clone(&keys);
        Tool::new("t", "", move |cx: Context| {
            let keys = Arc::clone(&keys);
            async move {
                cx.elicit::<Text>("a", "?").await?;
                cx.step("pay", async |s| {
                    keys.lock().unwrap().push(s.idempotency_key().to_owned());
                    Ok(1)
                })
                .await?;
                Ok::<_, Error>("paid")
            }
        })
    });
    let first = call_tool(&fleet, "t", json!({}), json!({})).await;
    for text in [r#"{"text":"1"}"#, r#"{ "text" : "\u0031" }"#, r#"{"text":"1000"}"#] {
        let content: Value = serde_json::from_str(text).unwrap();
        let answer = json!({ "a": { "action": "accept", "content": content } });
        let more = json!({ "requestState": first["requestState"], "inputResponses": answer });
        assert_eq!(call_tool(&fleet, "t", json!({}), more).await["content"][0]["text"], "paid");
    }
    let keys = keys.lock().unwrap().clone();
    assert_eq!(keys[0], keys[1]);
    assert_ne!(keys[0], keys[2]);
}

/// A replica whose handler has the other form (inline or manual) cannot continue the call.
#[tokio::test]
async fn state_of_the_other_handler_form_ends_the_call() {
    let inline = || {
        Tool::new("t", "", async |cx: Context| -> Result<_> {
            Ok(cx.elicit::<Text>("a", "?").await?.text)
        })
    };
    let manual = || {
        Tool::manual("t", "", async |cx: ManualContext| -> Result<_> {
            Ok(match cx.answers().form::<Text>("a") {
                Some(text) => ManualOutput::from(text.text),
                None => InputRequired::new().elicit::<Text>("a", "?").into(),
            })
        })
    };
    for (first, second) in [(inline(), manual()), (manual(), inline())] {
        let clock = TestClock::default();
        let server = |tool| replica(&clock).tool(tool).build().unwrap();
        let replicas = Replicas::new([server(first), server(second)]).as_principal(alice());
        let (client, _) = client(replicas);
        let error = client.build().call_tool("t", json!({})).await.unwrap_err();
        let error = error.as_server_error().unwrap();
        assert_eq!(error.code, -32603);
        assert_eq!(error.data.as_ref().unwrap()["reason"], "call_changed");
    }
}

#[tokio::test]
async fn awaiting_a_question_twice_is_an_internal_error() {
    let text = run(|| {
        Tool::new("t", "", async |cx: Context| -> Result<_> {
            let mut question = cx.elicit::<Text>("a", "?");
            (&mut question).await?;
            Ok(question.await?.text)
        })
    });
    assert_eq!(text.await.0, "! the server refused the call: Internal error (-32603)");
}

#[tokio::test]
async fn handler_that_panics_before_returning_a_future_is_an_internal_error() {
    let text = run(|| {
        Tool::new("t", "", |_: Context| -> std::future::Ready<Result<String>> { panic!("at once") })
    });
    assert_eq!(text.await.0, "! the server refused the call: Internal error (-32603)");
}

/// A step depends on the answers that the handler had read when the step ran, not on later ones.
#[tokio::test]
async fn step_does_not_bind_answers_that_are_read_after_it() {
    let clock = TestClock::default();
    let tool = |message: &'static str| {
        Tool::new("t", "", move |cx: Context| async move {
            let first = async {
                cx.elicit::<Text>("a", "?").await?;
                cx.step("x", async |_| Ok::<_, Error>(1)).await
            };
            let second = async {
                tokio::task::yield_now().await;
                cx.elicit::<Text>("b", message).await
            };
            tokio::try_join!(first, second)?;
            cx.elicit::<Text>("c", "?").await?;
            Ok::<_, Error>("done")
        })
    };
    let replicas = ["?", "?", "reworded", "reworded"];
    let fleet = Replicas::new(replicas.map(|m| replica(&clock).tool(tool(m)).build().unwrap()))
        .as_principal(alice());
    let (client, _) = client(fleet);
    assert_eq!(client.build().call_tool("t", json!({})).await.unwrap().text(), "done");
}

/// A handler that asks forever is stopped, in the inline and in the manual form.
#[tokio::test]
async fn max_rounds_limits_inline_and_manual_handlers() {
    let endless = || {
        Tool::new("t", "", async |cx: Context| -> Result<_> {
            for n in 0.. {
                cx.elicit::<Text>(format!("q{n}"), "?").await?;
            }
            Ok("never")
        })
        .max_rounds(3)
    };
    let (text, asked) = run(endless).await;
    assert!(text.contains("Internal error"), "{text}");
    assert_eq!(
        asked.len(),
        4,
        "three rounds, and the request that would start a fourth: {asked:?}"
    );
    let manual_tool = || {
        Tool::manual("t", "", async |cx: ManualContext| -> Result<_> {
            let n = cx.state::<u32>()?.unwrap_or_default();
            Ok(InputRequired::new().elicit::<Text>("q", "?").state(&(n + 1)))
        })
        .max_rounds(2)
    };
    assert_eq!(run(manual_tool).await.1.len(), 3);
}
