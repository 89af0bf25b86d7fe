//! Replicas with common keys, and clients that call them.

use mrtr_client::{Client, ClientBuilder};
use mrtr_schema::elicitation::ElicitResult;
use mrtr_server::{KeyRing, Principal, Secret, Server, ServerBuilder, Tool};
use mrtr_testkit::{Replicas, RequestLog, TestClock};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::json;

/// The form of most tests: one text.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub(crate) struct Text {
    pub(crate) text: String,
}

pub(crate) fn secret(first: u8) -> Secret {
    Secret::from_bytes(&(first..first + 32).collect::<Vec<_>>()).unwrap()
}

pub(crate) fn ring() -> KeyRing {
    KeyRing::builder("https://test.example/mcp").active(secret(0)).build().unwrap()
}

/// Starts the builder of a replica with the common keys.
pub(crate) fn replica(clock: &TestClock) -> ServerBuilder {
    Server::builder("test", "1").require_principal().key_ring(ring()).clock(clock.clone())
}

/// Returns three replicas with one tool, called by alice.
pub(crate) fn fleet(tool: impl Fn() -> Tool) -> Replicas {
    let clock = TestClock::default();
    Replicas::new((0..3).map(|_| replica(&clock).tool(tool()).build().unwrap()))
        .as_principal(alice())
}

pub(crate) fn alice() -> Principal {
    Principal::new("https://login.example", "alice")
}

/// Returns a client that answers each form with the key of its question.
pub(crate) fn client(fleet: Replicas) -> (ClientBuilder<Replicas>, RequestLog) {
    let log = fleet.log();
    let client = Client::builder(fleet)
        .on_form(async |question, _| Ok(ElicitResult::accept(json!({ "text": question.key }))?));
    (client, log)
}

/// Calls the tool `t`. Returns its text, and the keys that each round asked for.
pub(crate) async fn run(tool: impl Fn() -> Tool) -> (String, Vec<Vec<String>>) {
    let (client, log) = client(fleet(tool));
    let result = client.build().call_tool("t", json!({})).await;
    (result.map_or_else(|e| format!("! {e}"), |r| r.text()), log.input_keys())
}
