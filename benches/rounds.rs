//! Measures the cost of a round by the size of its journal: the same round with more and more steps
//! recorded before it.
//!
//! `cargo bench --manifest-path benches/Cargo.toml --bench rounds`

#![expect(clippy::unwrap_used, reason = "a benchmark fails by panicking")]

use divan::Bencher;
use mrtr_schema::elicitation::ElicitResult;
use mrtr_schema::jsonrpc::{Params, Request, RequestId};
use mrtr_server::{Context, KeyRing, Result, Secret, Server, Tool};
use mrtr_transport::{InProcess, OutgoingRequest, Transport as _};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::runtime::Runtime;

/// Numbers of recorded steps, each with a result of 100 bytes. 400 is close to the maximum of a
/// state.
const STEPS: [u32; 5] = [0, 50, 100, 200, 400];

fn main() {
    divan::main();
}

#[derive(Deserialize, JsonSchema)]
struct Steps {
    steps: u32,
}

#[derive(Deserialize, JsonSchema)]
struct Consent {
    yes: bool,
}

/// Runs the steps, and asks twice.
async fn work(cx: Context, Steps { steps }: Steps) -> Result<String> {
    for n in 0..steps {
        let _: String = cx.step(format!("step-{n}"), async |_| Ok("x".repeat(98))).await?;
    }
    let mut consents = 0;
    for question in ["first", "second"] {
        let Consent { yes } = cx.elicit(question, "Go on?").await?;
        consents += u8::from(yes);
    }
    Ok(format!("{consents} consents"))
}

struct Caller {
    server: InProcess<Server>,
    runtime: Runtime,
}

impl Caller {
    fn new() -> Self {
        let secret = Secret::from_bytes(b"0123456789abcdef0123456789abcdef").unwrap();
        let ring = KeyRing::builder("https://bench.example/mcp").active(secret).build().unwrap();
        let server = Server::builder("bench", "1").key_ring(ring).allow_anonymous();
        let server = server.tool(Tool::new("work", "Works", work)).build().unwrap();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
        Self { server: InProcess::new(server), runtime }
    }

    fn send_value(&self, params: &Value) -> Box<str> {
        self.send(Params::new(params).unwrap())
    }

    fn send(&self, params: Params) -> Box<str> {
        let request = Request::new(RequestId::Number(1), "tools/call", Some(params));
        let response =
            self.runtime.block_on(self.server.send(OutgoingRequest::new(request))).unwrap();
        Box::<str>::from(response.outcome.unwrap())
    }

    /// Returns the parameters that answer the question under `key`.
    fn answer(&self, steps: u32, before: Option<&Value>, key: &str) -> Value {
        let asked: Value =
            serde_json::from_str(&self.send_value(before.unwrap_or(&start(steps)))).unwrap();
        let answer = ElicitResult::accept(json!({ "yes": true })).unwrap();
        let mut params = start(steps);
        let sent = params.as_object_mut().unwrap();
        sent.insert("requestState".to_owned(), asked["requestState"].clone());
        sent.insert("inputResponses".to_owned(), json!({ key: answer }));
        params
    }
}

fn start(steps: u32) -> Value {
    json!({
        "name": "work",
        "arguments": { "steps": steps },
        "_meta": {
            "io.modelcontextprotocol/protocolVersion": "2026-07-28",
            "io.modelcontextprotocol/clientCapabilities": { "elicitation": {} },
        },
    })
}

/// Opens the state, replays the handler, and asks a question with a new state.
#[divan::bench(args = STEPS)]
fn next_question(bencher: Bencher, steps: u32) {
    let caller = Caller::new();
    let second = Params::new(&caller.answer(steps, None, "first")).unwrap();
    bencher.with_inputs(|| second.clone()).bench_local_values(|second| caller.send(second));
}

/// Opens the state, replays the handler, and completes the call.
#[divan::bench(args = STEPS)]
fn completion(bencher: Bencher, steps: u32) {
    let caller = Caller::new();
    let third = caller.answer(steps, Some(&caller.answer(steps, None, "first")), "second");
    assert!(caller.send_value(&third).contains("2 consents"));
    let third = Params::new(&third).unwrap();
    bencher.with_inputs(|| third.clone()).bench_local_values(|third| caller.send(third));
}
