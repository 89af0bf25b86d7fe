//! Steps and tasks at the end of a round.

use std::time::Duration;

use mrtr_server::{Context, Tool};

use crate::support::{Counter, Text, run};

/// A step that a spawned task starts while the round is about to end is waited for.
#[tokio::test(start_paused = true)]
async fn step_that_starts_as_the_round_ends_is_waited_for() {
    for yields in 0..4 {
        let (begun, done) = (Counter::default(), Counter::default());
        let (text, asked) = run(|| {
            let (begun, done) = (begun.clone(), done.clone());
            Tool::new("t", "", move |cx: Context| {
                let (own, begun, done) = (cx.clone(), begun.clone(), done.clone());
                async move {
                    let task = tokio::spawn(async move {
                        for _ in 0..yields {
                            tokio::task::yield_now().await;
                        }
                        let step = own.step("slow", async move |_| {
                            begun.increment();
                            tokio::time::sleep(Duration::from_secs(1)).await;
                            Ok(done.increment())
                        });
                        step.await
                    });
                    let text = cx.elicit::<Text>("a", "?").await?.text;
                    Ok::<_, mrtr_server::Error>(format!("{text} {}", task.await??))
                }
            })
        })
        .await;
        assert_eq!((text.as_str(), asked.len()), ("a 1", 2), "after {yields} yields");
        assert_eq!(begun.get(), done.get(), "no step may be cancelled, after {yields} yields");
    }
}

/// A step in a spawned task that never runs is released when the call fails.
#[tokio::test]
async fn failed_call_releases_a_step_in_a_spawned_task() {
    let alive = || tokio::runtime::Handle::current().metrics().num_alive_tasks();
    let before = alive();
    let (text, _) = run(|| {
        Tool::new("t", "", async |cx: Context| -> mrtr_server::Result<_> {
            let own = cx.clone();
            cx.step("twice", async |_| Ok(())).await?;
            let task = tokio::spawn(async move { own.step("twice", async |_| Ok(())).await });
            task.await??;
            Ok("done")
        })
    })
    .await;
    assert!(text.starts_with("! "), "{text}");
    tokio::task::yield_now().await;
    assert_eq!(alive(), before);
}

#[tokio::test]
async fn journal_entry_holds_at_most_8_kib() {
    for (bytes, kept) in [(8190, true), (8191, false)] {
        let (text, _) = run(|| {
            Tool::new("t", "", move |cx: Context| async move {
                let long: String = cx.step("long", async |_| Ok("x".repeat(bytes))).await?;
                cx.elicit::<Text>("a", "?").await?;
                Ok::<_, mrtr_server::Error>(long.len().to_string())
            })
        })
        .await;
        assert_eq!(text == bytes.to_string(), kept, "{bytes}: {text}");
    }
}
