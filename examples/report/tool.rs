//! The tool, written as if it ran once from top to bottom.

use std::time::Duration;

use mrtr::tasks::TaskPolicy;
use mrtr::{BuildError, Context, KeyRing, Result, Server, ServerBuilder, State, Tool};
use schemars::JsonSchema;
use serde::Deserialize;

use crate::office::Office;

#[derive(Deserialize, JsonSchema)]
struct Period {
    /// The month, such as 2026-10
    month: String,
}

#[derive(Deserialize, JsonSchema)]
struct Approval {
    /// Send the report?
    send: bool,
}

async fn report(cx: Context, State(office): State<Office>, period: Period) -> Result<String> {
    let Period { month } = period;
    // From here on, the call is a task. The client has its id, and may leave.
    cx.detach().await?;

    let mut total = 0;
    for (n, source) in (1..).zip(["orders", "returns", "costs", "stock"]) {
        cx.progress(f64::from(n), Some(4.0), Some(&format!("Reading {source}")));
        // The result is in the store before the handler continues, so this step does not run again.
        let read = cx.step(format!("read-{source}"), async |step| {
            office.read(source, &month, step.idempotency_key()).await
        });
        total += read.await?;
    }

    // May take days. No replica holds anything in that time.
    let question = format!("The total of {month} is {total} €. Shall the report be sent?");
    let Approval { send } = cx.elicit("approval", question).await?;
    if !send {
        return Ok(format!("{month}: {total} €, not sent."));
    }

    for receiver in ["finance", "board"] {
        cx.progress(1.0, None, Some(&format!("Sending to {receiver}")));
        let sent = cx.step(format!("send-{receiver}"), async |step| {
            office.send(receiver, total, step.idempotency_key()).await
        });
        sent.await?;
    }
    Ok(format!("{month}: {total} €, sent to finance and board."))
}

/// Builds the server. The key ring must be the same after a restart: it seals what is in the store.
pub fn server(
    with_store: ServerBuilder,
    ring: KeyRing,
    office: Office,
) -> Result<Server, BuildError> {
    let week = Duration::from_hours(7 * 24);
    let tool =
        Tool::new("report", "Writes the report of a month, and sends it if approved", report)
            .task(TaskPolicy::on_detach().ttl(week));
    with_store.tool(tool).state(office).key_ring(ring).allow_anonymous().build()
}
