//! The mistakes that `docs/rounds.md` lists, and the log message of each.

use std::sync::Arc;
use std::time::Duration;

use mrtr_schema::jsonrpc::ErrorObject;
use mrtr_server::{Context, Error, Tool};
use serde_json::json;

use crate::support::{Counter, LogLines, Text, call_tool, client, fleet};

/// Runs a tool and returns the log.
async fn logged(tool: impl Fn() -> Tool) -> String {
    let (lines, _guard) = LogLines::collect();
    let (client, _) = client(fleet(tool));
    let _ = client.build().call_tool("t", json!({})).await;
    lines.text()
}

#[tokio::test]
async fn each_mistake_is_logged_as_documented() {
    let replays = Arc::new(Counter::default());
    let twice = || {
        Tool::new("t", "", async |cx: Context| -> mrtr_server::Result<_> {
            for _ in 0..2 {
                cx.elicit::<Text>("guest", "Who?").await?;
            }
            Ok(String::new())
        })
    };
    let branches = || {
        let replays = Arc::clone(&replays);
        Tool::new("t", "", move |cx: Context| {
            let replays = Arc::clone(&replays);
            async move {
                if replays.increment() == 1 {
                    cx.step("hold", async |_| Ok(1)).await?;
                }
                Ok::<_, Error>(cx.elicit::<Text>("a", "?").await?.text)
            }
        })
    };
    let times = Arc::new(Counter::default());
    let changes = || {
        let times = Arc::clone(&times);
        Tool::new("t", "", move |cx: Context| {
            let times = Arc::clone(&times);
            async move {
                Ok::<_, Error>(
                    cx.elicit::<Text>("a", format!("At {}?", times.increment())).await?.text,
                )
            }
        })
    };
    let long = || {
        Tool::new("t", "", async |cx: Context| -> mrtr_server::Result<_> {
            cx.step("report", async |_| Ok("x".repeat(9000))).await
        })
    };
    let inside = || {
        Tool::new("t", "", async |cx: Context| -> mrtr_server::Result<_> {
            let own = cx.clone();
            let step = cx.step("hold", async move |_| {
                let answer: Text = own.elicit("seat", "?").await?;
                Ok(answer.text)
            });
            step.await
        })
    };
    let docs = include_str!("../../../mrtr/src/guide/rounds.md");
    for (log, message) in [
        (logged(twice).await, r#"the key "guest" is used twice in one replay"#),
        (
            logged(branches).await,
            r#"the handler returned without reaching the recorded step "hold""#,
        ),
        (logged(changes).await, "the question has changed since it was answered"),
        (logged(long).await, r#"the result of step "report" has 9002 bytes; the limit is 8192"#),
        (
            logged(inside).await,
            r#""seat" is inside the step "hold": steps cannot contain questions or other steps"#,
        ),
    ] {
        assert!(log.contains(message), "{message}\nin the log: {log}");
        assert!(
            docs.contains(&format!("`{message}`")) || docs.contains(&format!("`` {message} ``")),
            "{message}"
        );
    }
}

/// A future that is neither a question nor a step is dropped when the round ends, and the log says
/// so. Questions, steps and spawned tasks cause no such message.
#[tokio::test(start_paused = true)]
async fn dropped_work_beside_a_question_is_logged() {
    let dropped = "the handler also waits for something that is neither a question nor a step";
    let hour = Duration::from_hours(1);
    let timer = || {
        Tool::new("t", "", move |cx: Context| async move {
            let ask = tokio::time::timeout(hour, cx.elicit::<Text>("a", "?"));
            Ok::<_, Error>(ask.await.map_err(Error::internal)??.text)
        })
    };
    let log = logged(timer).await;
    assert!(log.contains(dropped) && log.contains(r#"questions=["a"]"#), "{log}");

    let alone = || {
        Tool::new("t", "", async |cx: Context| -> mrtr_server::Result<_> {
            let (a, b, ()) = tokio::try_join!(
                cx.elicit::<Text>("a", "?"),
                cx.elicit::<Text>("b", "?"),
                cx.step("slow", async |_| {
                    tokio::time::sleep(Duration::from_secs(1)).await;
                    Ok(())
                }),
            )?;
            Ok(a.text + &b.text)
        })
    };
    // The server cannot see what a spawned task waits for.
    let spawned = || {
        Tool::new("t", "", async |cx: Context| -> mrtr_server::Result<_> {
            Ok(tokio::spawn(cx.elicit::<Text>("a", "?")).await??.text)
        })
    };
    let both = || {
        Tool::new("t", "", move |cx: Context| async move {
            let task = tokio::spawn(cx.elicit::<Text>("a", "?"));
            let task = tokio::time::timeout(hour, task).await;
            Ok::<_, Error>(task.map_err(Error::internal)???.text)
        })
    };
    for log in [logged(alone).await, logged(spawned).await, logged(both).await] {
        assert!(!log.contains(dropped) && !log.contains("half full"), "{log}");
    }
}

/// A step may call a tool of another server in the same process, and that tool may ask.
#[tokio::test]
async fn step_may_call_another_server_that_asks() {
    let inner = Arc::new(fleet(|| {
        Tool::new("t", "", async |cx: Context| -> mrtr_server::Result<_> {
            Ok(cx.elicit::<Text>("seat", "?").await?.text)
        })
    }));
    let outer = || {
        let inner = Arc::clone(&inner);
        Tool::new("t", "", move |cx: Context| {
            let inner = Arc::clone(&inner);
            async move {
                let asked = cx.step("call", async move |_| {
                    let asked = call_tool(&inner, "t", json!({}), json!({})).await;
                    Ok(asked["inputRequests"]["seat"].is_object())
                });
                Ok::<_, Error>(asked.await?.to_string())
            }
        })
    };
    let (client, _) = client(fleet(outer));
    assert_eq!(client.build().call_tool("t", json!({})).await.unwrap().text(), "true");
}

/// Codes that this revision does not define are not sent, wherever they come from.
#[tokio::test]
async fn codes_of_older_revisions_are_replaced() {
    for (code, sent) in [
        (-32_002, -32_602),
        (-32_042, -32_603),
        (-32_001, -32_603),
        (-32_020, -32_020),
        (-32_602, -32_602),
        (7, 7),
    ] {
        let fails =
            move || async move { Err::<&str, _>(Error::response(ErrorObject::new(code, "no"))) };
        let fleet = fleet(|| Tool::new("t", "", fails));
        let outcome = call_tool(&fleet, "t", json!({}), json!({})).await;
        assert_eq!(outcome["error"]["code"], sent, "{code}");
    }
}
