//! The mistakes that `docs/rounds.md` names, and what the log says of each.

use std::sync::Arc;

use mrtr_server::{Context, InputRequired, Tool, ToolOutput};
use serde_json::json;

use crate::fleet::{Count, Text, client, fleet};
use crate::refusals::Lines;

/// Runs a tool, and returns what was logged.
async fn logged(tool: impl Fn() -> Tool) -> String {
    let (lines, _guard) = Lines::collect();
    let (client, _) = client(fleet(tool));
    let _ = client.build().call_tool("t", json!({})).await;
    lines.text()
}

#[tokio::test]
async fn each_mistake_is_named_as_the_book_says() {
    let passes = Arc::new(Count::default());
    let twice = || {
        Tool::new("t", "", async |cx: Context| {
            for _ in 0..2 {
                cx.elicit::<Text>("guest", "Who?").await?;
            }
            Ok(String::new())
        })
    };
    let branches = || {
        let passes = Arc::clone(&passes);
        Tool::new("t", "", move |cx: Context| {
            let passes = Arc::clone(&passes);
            async move {
                if passes.up() == 1 {
                    cx.step("hold", async |_| Ok(1)).await?;
                }
                Ok(cx.elicit::<Text>("a", "?").await?.text)
            }
        })
    };
    let times = Arc::new(Count::default());
    let changes = || {
        let times = Arc::clone(&times);
        Tool::new("t", "", move |cx: Context| {
            let times = Arc::clone(&times);
            async move { Ok(cx.elicit::<Text>("a", format!("At {}?", times.up())).await?.text) }
        })
    };
    let long = || {
        Tool::new("t", "", async |cx: Context| {
            cx.step("report", async |_| Ok("x".repeat(9000))).await
        })
    };
    let mixes = || {
        Tool::new("t", "", async |cx: Context| {
            cx.step("hold", async |_| Ok(1)).await?;
            Ok(ToolOutput::from(InputRequired::new().elicit::<Text>("a", "?")))
        })
    };
    let book = include_str!("../../../../docs/rounds.md");
    for (log, message) in [
        (logged(twice).await, r#"the key "guest" is used twice in one pass"#),
        (
            logged(branches).await,
            r#"the handler ended without coming to the step "hold", which was done"#,
        ),
        (logged(changes).await, "the question reads differently than when it was answered"),
        (
            logged(long).await,
            r#"the result of step "report" has 9002 bytes; at most 8192 are kept"#,
        ),
        (
            logged(mixes).await,
            "questions or steps in line and `InputRequired` do not go together in one handler",
        ),
    ] {
        assert!(log.contains(message), "{message}\nin the log: {log}");
        assert!(
            book.contains(&format!("`{message}`")) || book.contains(&format!("`` {message} ``")),
            "{message}"
        );
    }
}
