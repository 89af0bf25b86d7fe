//! What the tests share.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use mrtr_client::{Client, ClientBuilder};
use mrtr_schema::elicitation::ElicitResult;
use mrtr_server::{KeyRing, Principal, Secret, Server, ServerBuilder, Tool};
use mrtr_testkit::{Replicas, RequestLog, TestClock};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::json;

/// The form that most tests ask for.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub(crate) struct Text {
    pub(crate) text: String,
}

/// Counts how often something ran.
#[derive(Debug, Clone, Default)]
pub(crate) struct Count(Arc<AtomicUsize>);

impl Count {
    pub(crate) fn up(&self) -> usize {
        self.0.fetch_add(1, Ordering::SeqCst) + 1
    }

    pub(crate) fn get(&self) -> usize {
        self.0.load(Ordering::SeqCst)
    }
}

pub(crate) fn secret(first: u8) -> Secret {
    Secret::from_bytes(&(first..first + 32).collect::<Vec<_>>()).unwrap()
}

pub(crate) fn ring() -> KeyRing {
    KeyRing::builder("https://test.example/mcp").active(secret(0)).build().unwrap()
}

/// A replica with the fleet's keys.
pub(crate) fn replica(clock: &TestClock) -> ServerBuilder {
    Server::builder("test", "1").require_principal().key_ring(ring()).clock(clock.clone())
}

/// Three replicas with one tool.
pub(crate) fn fleet(tool: impl Fn() -> Tool) -> Replicas {
    let clock = TestClock::default();
    Replicas::new((0..3).map(|_| replica(&clock).tool(tool()).build().unwrap()))
        .as_principal(alice())
}

pub(crate) fn alice() -> Principal {
    Principal::new("https://login.example", "alice")
}

/// A client that fills the key of each question into its form.
pub(crate) fn client(fleet: Replicas) -> (ClientBuilder<Replicas>, RequestLog) {
    let log = fleet.log();
    let client = Client::builder(fleet)
        .on_form(async |question, _| Ok(ElicitResult::accept(json!({ "text": question.key }))?));
    (client, log)
}

/// Calls the tool `t` and returns its text and the keys that each leg asked for.
pub(crate) async fn run(tool: impl Fn() -> Tool) -> (String, Vec<Vec<String>>) {
    let (client, log) = client(fleet(tool));
    let result = client.build().call_tool("t", json!({})).await;
    (result.map_or_else(|e| format!("! {e}"), |r| r.text()), log.input_keys())
}
