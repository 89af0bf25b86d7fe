//! The tools: one handler that becomes a task in three ways. Each step returns a random number, and
//! the result of the task has all of them, so that a mixture of two runs is seen.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use mrtr::tasks::TaskPolicy;
use mrtr::{Context, ElicitOutcome, Error, Tool};
use mrtr_testkit::random::Random;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::record::Recorder;
use crate::lock;
use crate::workload::Used;

/// The tools, by the way in which their calls become tasks.
pub(crate) const TOOLS: [&str; 3] = ["immediately", "after", "on_detach"];

/// A call of `after` is a task after this time. Its first step takes longer.
const AFTER: Duration = Duration::from_millis(20);

/// Steps of a call with the user's consent, and of one without.
pub(crate) const BOUGHT: [&str; 5] = ["reserve", "cook", "quote", "pay", "close"];
pub(crate) const DECLINED: [&str; 4] = ["reserve", "cook", "quote", "release"];

#[derive(Deserialize, JsonSchema)]
struct Order {
    /// The name of the call, which identifies it in the ledger.
    call: String,
}

#[derive(Deserialize, JsonSchema)]
struct Text {
    text: String,
}

/// The result of a task.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Outcome {
    /// Steps, and their results as the handler got them.
    pub(crate) steps: Vec<(String, String)>,
    pub(crate) used: Vec<Used>,
}

pub(crate) fn tools(version: u32, recorder: &Arc<Recorder>) -> Vec<Tool> {
    let policy = |tool| match tool {
        "immediately" => TaskPolicy::immediately(),
        "after" => TaskPolicy::after(AFTER),
        _ => TaskPolicy::on_detach(),
    };
    let tool = |name: &'static str| {
        let recorder = Arc::clone(recorder);
        let order = move |cx: Context, order: Order| {
            run(cx, order.call, name == "on_detach", version, Arc::clone(&recorder))
        };
        let policy = policy(name).poll_interval(Duration::from_millis(100));
        Tool::new(name, "Orders a seat and a meal", order).version(version).task(policy)
    };
    TOOLS.map(tool).into()
}

/// Returns a random number as text, and a time that a step takes.
fn draw() -> (String, Duration) {
    let mut seed = [0; 8];
    // The standard library's hasher has random keys.
    let hasher = std::collections::hash_map::RandomState::new();
    seed.copy_from_slice(&std::hash::BuildHasher::hash_one(&hasher, 0_u8).to_le_bytes());
    let mut random = Random::new(u64::from_le_bytes(seed));
    (format!("{:016x}", random.any()), Duration::from_millis(40 + random.below(200)))
}

async fn run(
    cx: Context,
    call: String,
    detaches: bool,
    version: u32,
    recorder: Arc<Recorder>,
) -> mrtr::Result<String> {
    let caller = cx.principal().map_or("", |principal| principal.subject());
    let run = recorder.begin(&call, caller)?;
    let used = Mutex::new(Vec::new());
    let steps = Mutex::new(Vec::new());
    let record = |key: &str, message: String, answer: &str| {
        let answer = answer.to_owned();
        lock(&used).push(Used { key: key.to_owned(), message, answer });
    };
    let ask = async |key: &'static str, message: String| {
        let answer = cx.elicit::<Text>(key, &message).await?.text;
        record(key, message, &answer);
        Ok::<_, Error>(answer)
    };
    let step = async |name: &'static str| {
        let inner = run.clone();
        let running = cx.step(name, async move |step| {
            let (nonce, time) = draw();
            inner.step(name, step.idempotency_key(), &nonce)?;
            tokio::time::sleep(time).await;
            Ok(nonce)
        });
        // The two versions ask different questions before the last step.
        let running = if name == "close" { running.idempotent_on(&call) } else { running };
        let nonce: String = running.await?;
        run.passed(name, &nonce)?;
        lock(&steps).push((name.to_owned(), nonce));
        Ok::<_, Error>(())
    };
    let outcome = || {
        let (steps, used) = (lock(&steps).clone(), std::mem::take(&mut *lock(&used)));
        Ok(serde_json::to_string(&Outcome { steps, used })?)
    };

    if detaches {
        // In a round.
        ask("who", format!("Order {call}: for whom?")).await?;
        cx.detach().await?;
    }
    step("reserve").await?;
    tokio::try_join!(
        ask("seat", format!("Order {call}: which seat?")),
        ask("meal", format!("Order {call}: which meal?")),
        step("cook"),
    )?;
    step("quote").await?;
    let message = format!("Order {call}: buy?");
    let ElicitOutcome::Accept(Text { text }) = cx.elicit("consent", &message).outcome().await?
    else {
        step("release").await?;
        return outcome();
    };
    record("consent", message, &text);
    step("pay").await?;
    let tip = ask("tip", format!("Order {call}: a tip?"));
    if version < 2 {
        tip.await?;
    } else {
        // A new question, also in tasks that the first version began.
        tokio::try_join!(tip, ask("invoice", format!("Order {call}: an invoice, to whom?")))?;
    }
    step("close").await?;
    outcome()
}
