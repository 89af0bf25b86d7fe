//! The tool: three rounds of questions, two of them with two at once, and five steps, one of them beside questions.

use std::sync::Arc;
use std::time::Duration;

use mrtr::{Context, ElicitOutcome, Error, Tool};
use mrtr_testkit::random::Random;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::ledger::{Entry, Ledger};

/// The name of the tool.
pub(crate) const TOOL: &str = "order";

/// What is done in an order that was consented to, and what in one that was not.
pub(crate) const BOUGHT: [&str; 5] = ["reserve", "cook", "quote", "pay", "close"];
pub(crate) const DECLINED: [&str; 4] = ["reserve", "cook", "quote", "release"];

/// Whether a step may run in a leg that was sent when so many questions had been asked.
pub(crate) fn may_run(step: &str, asked: usize) -> bool {
    match step {
        "reserve" | "cook" => asked == 0,
        // The seat and the meal.
        "quote" => asked == 2,
        // The consent.
        "pay" | "release" => asked == 3,
        // The tip in one wording or two, and the invoice.
        "close" => asked > 3,
        _ => false,
    }
}

#[derive(Deserialize, JsonSchema)]
struct Order {
    /// Which flow it is, to tell them apart in what comes of it.
    flow: String,
}

#[derive(Deserialize, JsonSchema)]
struct Text {
    text: String,
}

/// An answer, and the question that the handler took it for.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Used {
    pub(crate) key: String,
    pub(crate) message: String,
    pub(crate) answer: String,
}

/// What a caller answers to a question: to each another text.
pub(crate) fn answer_to(caller: &str, key: &str, message: &str) -> String {
    let seed =
        [caller, key, message].join("\n").bytes().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
            (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
        });
    format!("{:012x}", Random::new(seed).any() >> 16)
}

/// Whether a caller wants this order.
pub(crate) fn consents(flow: &str) -> bool {
    !flow.ends_with('7')
}

/// The number of a request, and who sent it: left by a layer in front.
#[derive(Debug, Clone)]
pub(crate) struct Received {
    pub(crate) number: String,
    pub(crate) caller: String,
}

pub(crate) fn tool(version: u32, ledger: Arc<Ledger>, lifetime: Duration) -> Tool {
    let order = move |cx: Context, order: Order| run(cx, order.flow, version, Arc::clone(&ledger));
    Tool::new(TOOL, "Orders a seat and a meal", order)
        .version(version)
        .answer_timeout(lifetime)
        .call_timeout(lifetime)
}

async fn run(cx: Context, flow: String, version: u32, ledger: Arc<Ledger>) -> mrtr::Result<String> {
    let used = std::sync::Mutex::new(Vec::new());
    let note = |key: &str, message: String, answer: &str| {
        let answer = answer.to_owned();
        crate::lock(&used).push(Used { key: key.to_owned(), message, answer });
    };
    let ask = async |key: &'static str, message: String| {
        let answer = cx.elicit::<Text>(key, &message).await?.text;
        note(key, message, &answer);
        Ok::<_, Error>(answer)
    };
    let step = |name: &'static str| {
        let (ledger, flow) = (Arc::clone(&ledger), flow.clone());
        let received = cx.parts().extensions().get::<Received>().cloned();
        cx.step(name, async move |step| {
            let Received { number, caller } = received.ok_or_else(|| Error::new("who calls?"))?;
            let (name, key) = (name.to_owned(), step.idempotency_key().to_owned());
            let written = ledger.write(&Entry { flow, step: name, key, request: number, caller });
            written.map_err(|error| Error::new(error.to_string()))?;
            // What is done takes its time, in which a process can be killed.
            tokio::time::sleep(Duration::from_millis(15)).await;
            Ok(())
        })
    };

    step("reserve").await?;
    let (seat, meal, ()) = tokio::try_join!(
        ask("seat", format!("Order {flow}: which seat?")),
        ask("meal", format!("Order {flow}: which meal?")),
        step("cook"),
    )?;
    step("quote").await?;
    let message = format!("Order {flow}: buy seat {seat} and meal {meal}?");
    let ElicitOutcome::Accept(Text { text }) = cx.elicit("consent", &message).outcome().await?
    else {
        step("release").await?;
        return Ok(serde_json::to_string(&*crate::lock(&used))?);
    };
    note("consent", message, &text);
    step("pay").await?;
    if version < 2 {
        ask("tip", format!("Order {flow}: a tip?")).await?;
    } else {
        // The same key with other words, and a question that is new.
        tokio::try_join!(
            ask("tip", format!("Order {flow}: a tip, in percent?")),
            ask("invoice", format!("Order {flow}: an invoice, to whom?")),
        )?;
    }
    // The two versions ask otherwise before it: what makes it the same thing is said.
    step("close").idempotent_on(&flow).await?;
    Ok(serde_json::to_string(&*crate::lock(&used))?)
}
