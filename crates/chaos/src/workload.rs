//! The tool: three rounds of questions, two of which have two questions each, and five steps, one
//! of which runs beside questions.

use std::sync::Arc;
use std::time::Duration;

use mrtr::{Context, ElicitOutcome, Error, Tool};
use mrtr_testkit::random::Random;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::ledger::{Entry, Ledger};

/// The name of the tool.
pub(crate) const TOOL: &str = "order";

/// Steps of an order with the user's consent, and of one without.
pub(crate) const BOUGHT: [&str; 5] = ["reserve", "cook", "quote", "pay", "close"];
pub(crate) const DECLINED: [&str; 4] = ["reserve", "cook", "quote", "release"];

/// Returns true if a step may run in a request that was sent after `asked` questions.
pub(crate) fn may_run(step: &str, asked: usize) -> bool {
    match step {
        "reserve" | "cook" => asked == 0,
        // The seat and the meal.
        "quote" => asked == 2,
        // The consent.
        "pay" | "release" => asked == 3,
        // The tip in one or two wordings, and the invoice.
        "close" => asked > 3,
        _ => false,
    }
}

#[derive(Deserialize, JsonSchema)]
struct Order {
    /// The name of the call, which identifies it in the ledger.
    call: String,
}

#[derive(Deserialize, JsonSchema)]
struct Text {
    text: String,
}

/// An answer, and the question for which the handler used it.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Used {
    pub(crate) key: String,
    pub(crate) message: String,
    pub(crate) answer: String,
}

/// Returns the key of a question. Legacy revisions do not send it.
pub(crate) fn key_of(message: &str) -> &'static str {
    let keys = [
        ("which seat", "seat"),
        ("which meal", "meal"),
        (": buy ", "consent"),
        (": a tip", "tip"),
        (": an invoice", "invoice"),
    ];
    keys.iter().find(|(part, _)| message.contains(part)).map_or("", |(_, key)| key)
}

/// Returns the answer of a caller to a question. Each question has another answer.
pub(crate) fn answer_to(caller: &str, key: &str, message: &str) -> String {
    let seed =
        [caller, key, message].join("\n").bytes().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
            (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
        });
    format!("{:012x}", Random::new(seed).any() >> 16)
}

/// Returns true if the caller consents to this order.
pub(crate) fn consents(call: &str) -> bool {
    !call.ends_with('7')
}

/// The number of a request and its caller, set by a layer in front of the server.
#[derive(Debug, Clone)]
pub(crate) struct Received {
    pub(crate) number: String,
    pub(crate) caller: String,
}

pub(crate) fn tool(version: u32, ledger: Arc<Ledger>, lifetime: Duration) -> Tool {
    let order = move |cx: Context, order: Order| run(cx, order.call, version, Arc::clone(&ledger));
    Tool::new(TOOL, "Orders a seat and a meal", order)
        .version(version)
        .answer_timeout(lifetime)
        .call_timeout(lifetime)
}

async fn run(cx: Context, call: String, version: u32, ledger: Arc<Ledger>) -> mrtr::Result<String> {
    let used = std::sync::Mutex::new(Vec::new());
    let record = |key: &str, message: String, answer: &str| {
        let answer = answer.to_owned();
        crate::lock(&used).push(Used { key: key.to_owned(), message, answer });
    };
    let ask = async |key: &'static str, message: String| {
        let answer = cx.elicit::<Text>(key, &message).await?.text;
        record(key, message, &answer);
        Ok::<_, Error>(answer)
    };
    let step = |name: &'static str| {
        let (ledger, call) = (Arc::clone(&ledger), call.clone());
        let received = cx.parts().extensions().get::<Received>().cloned();
        cx.step(name, async move |step| {
            let Received { number, caller } = received.ok_or_else(|| Error::new("no caller"))?;
            let (name, key) = (name.to_owned(), step.idempotency_key().to_owned());
            let written = ledger.write(&Entry { call, step: name, key, request: number, caller });
            written.map_err(|error| Error::new(error.to_string()))?;
            // The side effect takes some time, in which a process can be killed.
            tokio::time::sleep(Duration::from_millis(15)).await;
            Ok(())
        })
    };

    step("reserve").await?;
    let (seat, meal, ()) = tokio::try_join!(
        ask("seat", format!("Order {call}: which seat?")),
        ask("meal", format!("Order {call}: which meal?")),
        step("cook"),
    )?;
    step("quote").await?;
    let message = format!("Order {call}: buy seat {seat} and meal {meal}?");
    let ElicitOutcome::Accept(Text { text }) = cx.elicit("consent", &message).outcome().await?
    else {
        step("release").await?;
        return Ok(serde_json::to_string(&*crate::lock(&used))?);
    };
    record("consent", message, &text);
    step("pay").await?;
    if version < 2 {
        ask("tip", format!("Order {call}: a tip?")).await?;
    } else {
        // The same key with another message, and a new question.
        tokio::try_join!(
            ask("tip", format!("Order {call}: a tip, in percent?")),
            ask("invoice", format!("Order {call}: an invoice, to whom?")),
        )?;
    }
    // The two versions ask different questions before this step, so its idempotency key is derived
    // from the call alone.
    step("close").idempotent_on(&call).await?;
    Ok(serde_json::to_string(&*crate::lock(&used))?)
}
