//! A reservation, one payment, and a release if the user declines: `cargo run --example steps`.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use mrtr::{BuildError, Context, ElicitOutcome, Error, Result, Server, State, Tool};
use schemars::JsonSchema;
use serde::Deserialize;

/// Stands for a warehouse and a bank. Both recognize a repeated request by its idempotency key.
#[derive(Clone, Default)]
pub struct Backend(Arc<Mutex<BTreeSet<String>>>);

impl Backend {
    async fn call(&self, operation: &str, idempotency_key: &str) -> Result<String> {
        tokio::time::sleep(Duration::from_millis(10)).await;
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        known.insert(format!("{operation} {idempotency_key}"));
        Ok(format!("{operation}-{idempotency_key:.6}"))
    }

    /// Counts the operations of one kind, without repetitions.
    pub fn count(&self, operation: &str) -> usize {
        let known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        known.iter().filter(|entry| entry.starts_with(operation)).count()
    }
}

#[derive(Deserialize, JsonSchema)]
struct Order {
    /// The price in euros
    euros: u32,
}

#[derive(Deserialize, JsonSchema)]
struct Consent {
    /// Pay now?
    yes: bool,
}

async fn order(cx: Context, State(backend): State<Backend>, order: Order) -> Result<String> {
    // Recorded in the journal: a replay returns the result without reserving again. On failure, up
    // to three attempts, with the same key.
    let hold = cx
        .step("reserve", async |s| {
            s.retry(3, || backend.call("reserve", s.idempotency_key())).await
        })
        .timeout(Duration::from_secs(5))
        .await?;
    let message = format!("{hold} costs {} €.", order.euros);
    let ElicitOutcome::Accept(Consent { yes: true }) =
        cx.elicit("consent", message).outcome().await?
    else {
        let release =
            cx.step("release", async |s| backend.call("release", s.idempotency_key()).await);
        release.await?;
        return Err(Error::new("The order was not paid, and the reservation was released."));
    };
    // One payment per reservation. A client that disconnects does not interrupt it.
    let (bank, euros) = (backend.clone(), order.euros);
    let receipt = cx
        .step("pay", async move |s| bank.call("pay", s.idempotency_key()).await)
        .idempotent_on(&(&hold, euros))
        .finish_on_disconnect()
        .await?;
    Ok(format!("{euros} € paid: {receipt}."))
}

pub fn server(backend: Backend) -> Result<Server, BuildError> {
    let tool = Tool::new("order", "Reserves and pays", order);
    let server = Server::builder("shop", "1.0.0").tool(tool).state(backend);
    server.allow_anonymous().ephemeral_key().build()
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    tracing_subscriber::fmt().init();
    Ok(mrtr::serve(server(Backend::default())?, "127.0.0.1:3000").await?)
}
