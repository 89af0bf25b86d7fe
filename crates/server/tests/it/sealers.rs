//! Custom sealers that fail or panic, and ephemeral keys.

#![expect(clippy::panic, reason = "a sealer panics on purpose")]

use std::sync::{Arc, Mutex};

use mrtr_server::seal::{OpenError, Seal, SealError};
use mrtr_server::{Context, KeyRing, Prompt, Resource, Result, Server, Tool};
use mrtr_testkit::Replicas;
use serde_json::{Value, json};

use crate::support::{LogLines, Text, alice, invalid_state, ring, send_request, with_meta};

/// The failure of a sealer's next calls.
#[derive(Debug, Clone, Copy)]
enum Failure {
    Error,
    Panic,
}

/// A key ring that fails on request.
#[derive(Clone)]
struct FaultySealer {
    ring: Arc<KeyRing>,
    on_seal: Arc<Mutex<Option<Failure>>>,
    on_open: Arc<Mutex<Option<Failure>>>,
}

impl FaultySealer {
    fn new() -> Self {
        Self { ring: Arc::new(ring()), on_seal: Arc::default(), on_open: Arc::default() }
    }
}

impl Seal for FaultySealer {
    fn seal(&self, plaintext: Vec<u8>) -> Result<String, SealError> {
        let failure = *self.on_seal.lock().unwrap();
        match failure {
            Some(Failure::Error) => Err(SealError::Unavailable),
            Some(Failure::Panic) => panic!("the HSM is on fire"),
            None => self.ring.seal(plaintext),
        }
    }

    fn open(&self, token: &str) -> Result<Vec<u8>, OpenError> {
        let failure = *self.on_open.lock().unwrap();
        match failure {
            Some(Failure::Error) => Err(OpenError::Forged),
            Some(Failure::Panic) => panic!("the HSM is on fire"),
            None => self.ring.open(token),
        }
    }
}

const TARGETS: [(&str, &str, &str); 3] =
    [("tools/call", "name", "x"), ("prompts/get", "name", "x"), ("resources/read", "uri", "a:x")];

fn fleet(sealer: FaultySealer) -> Replicas {
    async fn ask(cx: Context) -> Result<String> {
        Ok(cx.elicit::<Text>("q", "?").await?.text)
    }
    let server = Server::builder("test", "1")
        .require_principal()
        .sealer(sealer)
        .tool(Tool::new("x", "", ask))
        .prompt(Prompt::new("x", "", ask))
        .resource(Resource::new("a:x", "x", ask))
        .build()
        .unwrap();
    Replicas::new([server]).as_principal(alice())
}

/// Sends a round, with the answer to the question if there is a state.
async fn round(fleet: &Replicas, target: (&str, &str, &str), state: Option<&Value>) -> Value {
    let (method, member, name) = target;
    let mut params = with_meta(json!({ member: name }));
    if let Some(state) = state {
        params["requestState"] = state.clone();
        params["inputResponses"] =
            json!({ "q": { "action": "accept", "content": { "text": "x" } } });
    }
    send_request(fleet, method, params).await
}

/// The sealer's error or panic is in the log; the client gets an internal error. The next request
/// works again.
#[tokio::test]
async fn sealer_that_fails_to_seal_is_an_internal_error() {
    let sealer = FaultySealer::new();
    let fleet = fleet(sealer.clone());
    for target in TARGETS {
        for (failure, reason) in
            [(Failure::Error, "the sealer is unavailable"), (Failure::Panic, "the HSM is on fire")]
        {
            let (lines, _guard) = LogLines::collect();
            *sealer.on_seal.lock().unwrap() = Some(failure);
            let outcome = round(&fleet, target, None).await;
            let error = json!({ "error": { "code": -32603, "message": "Internal error" } });
            assert_eq!(outcome, error, "{target:?}");
            let log = lines.text();
            assert!(log.contains("ERROR") && log.contains(reason), "{target:?}: {log}");
            *sealer.on_seal.lock().unwrap() = None;
            let outcome = round(&fleet, target, None).await;
            assert!(outcome["requestState"].is_string(), "{target:?}: {outcome}");
        }
    }
}

/// A sealer that cannot open a state is no oracle: the response is the same as to a forged state.
#[tokio::test]
async fn sealer_that_fails_to_open_rejects_the_state() {
    let sealer = FaultySealer::new();
    let fleet = fleet(sealer.clone());
    for target in TARGETS {
        let state = round(&fleet, target, None).await["requestState"].clone();
        for (failure, reason) in
            [(Failure::Error, "\"forged\""), (Failure::Panic, "\"sealer_panicked\"")]
        {
            let (lines, _guard) = LogLines::collect();
            *sealer.on_open.lock().unwrap() = Some(failure);
            assert_eq!(round(&fleet, target, Some(&state)).await, invalid_state(), "{target:?}");
            let log = lines.text();
            assert!(log.contains(&format!("reason={reason}")), "{target:?}: {log}");
            if matches!(failure, Failure::Panic) {
                assert!(log.contains("the HSM is on fire"), "{target:?}: {log}");
            }
            *sealer.on_open.lock().unwrap() = None;
        }
        let outcome = round(&fleet, target, Some(&state)).await;
        assert_eq!(outcome["resultType"], "complete", "the state is still valid: {outcome}");
    }
}

#[tokio::test]
async fn servers_with_ephemeral_keys_reject_each_others_states() {
    let server = || {
        let ask = async |cx: Context| -> Result<_> { Ok(cx.elicit::<Text>("q", "?").await?.text) };
        let builder = Server::builder("test", "1").require_principal().ephemeral_key();
        let server = builder.tool(Tool::new("x", "", ask)).build().unwrap();
        Replicas::new([server]).as_principal(alice())
    };
    let (one, other) = (server(), server());
    for (home, away) in [(&one, &other), (&other, &one)] {
        let state = round(home, TARGETS[0], None).await["requestState"].clone();
        assert_eq!(round(away, TARGETS[0], Some(&state)).await, invalid_state());
        assert_eq!(round(home, TARGETS[0], Some(&state)).await["resultType"], "complete");
    }
}
