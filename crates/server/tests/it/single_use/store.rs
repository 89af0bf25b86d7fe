//! Requests to a single-use store, and rounds whose store fails.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use mrtr_server::manual::{InputRequired, ManualContext, ManualOutput};
use mrtr_server::single_use::{SingleUseStore, StoreError};
use mrtr_server::{Context, Tool, ToolOutput};
use serde_json::json;

use super::{fleet, store, unknown};
use crate::support::single_use::{answered, first_state, guess, text, used};
use crate::support::{Counter, Text, call_tool, invalid_state};

/// A store that records its writes, and can fail.
#[derive(Default)]
struct RecordingStore {
    writes: Mutex<Vec<(String, Vec<u8>, Duration)>>,
    broken: AtomicBool,
    full: AtomicBool,
}

impl RecordingStore {
    fn record(&self, key: &str, value: &[u8], time: Duration) -> Result<(), StoreError> {
        if self.broken.load(Ordering::SeqCst) {
            return Err(StoreError::Unavailable("no route".into()));
        }
        self.writes.lock().unwrap().push((key.to_owned(), value.to_vec(), time));
        Ok(())
    }
}

impl SingleUseStore for RecordingStore {
    async fn claim(
        &self,
        key: &str,
        value: &[u8],
        time: Duration,
    ) -> Result<Option<Vec<u8>>, StoreError> {
        let last = self.writes.lock().unwrap().iter().rev().find(|write| write.0 == key).cloned();
        if last.is_none() {
            self.record(key, value, time)?;
        }
        Ok(last.map(|(_, value, _)| value))
    }

    async fn settle(&self, key: &str, value: &[u8], time: Duration) -> Result<(), StoreError> {
        if self.full.load(Ordering::SeqCst) && value.len() > 100 {
            return Err(StoreError::Full);
        }
        self.record(key, value, time)
    }
}

/// A store that fails stops the round, and the state stays usable.
#[tokio::test]
async fn round_does_not_run_while_the_store_is_unavailable() {
    let (ran, recording) = (Counter::default(), Arc::new(RecordingStore::default()));
    let fleet = fleet(&recording, || guess(&ran));
    let state = first_state(&fleet).await;
    assert!(recording.writes.lock().unwrap().is_empty(), "the first round has no state to claim");
    recording.broken.store(true, Ordering::SeqCst);
    let refused = call_tool(&fleet, "t", json!({}), answered(&state, "a")).await;
    assert_eq!(refused.pointer("/error/code"), Some(&json!(-32603)), "{refused}");
    assert_eq!(refused.pointer("/error/data/reason"), Some(&json!("single_use_store_unavailable")));
    assert!(!refused.to_string().contains("no route"), "{refused}");
    assert_eq!(ran.get(), 0);
    recording.broken.store(false, Ordering::SeqCst);
    assert_eq!(text(&call_tool(&fleet, "t", json!({}), answered(&state, "b")).await), "b 1");
}

/// Entries are kept until no replica accepts the state any more, and reveal nothing to a reader.
#[tokio::test]
async fn store_entries_are_sealed_and_outlive_the_state() {
    let (ran, recording) = (Counter::default(), Arc::new(RecordingStore::default()));
    let fleet = fleet(&recording, || guess(&ran));
    let state = first_state(&fleet).await;
    call_tool(&fleet, "t", json!({}), answered(&state, "a secret")).await;
    let writes = recording.writes.lock().unwrap().clone();
    assert_eq!(writes.len(), 2, "a claim, and a response");
    // The answer timeout, a minute of clock skew, and the time that a retry may wait: for a claim as
    // long as the request takes, for a response until a slow store has returned it.
    let times: Vec<_> = writes.iter().map(|(.., time)| time.as_secs()).collect();
    assert_eq!(times, [(10 + 1 + 1) * 60 + 2, (10 + 1) * 60 + 2 + 2 * 5]);
    for (key, value, _) in &writes {
        assert!(key.len() == 64 && key.bytes().all(|digit| digit.is_ascii_hexdigit()));
        let value = String::from_utf8_lossy(value);
        assert!(!value.contains("secret") && !value.contains("content"), "{value}");
    }
    // A writer to the store can cause rejections, but cannot forge a response. A stored response
    // does not open as a request state.
    let kept = String::from_utf8_lossy(&writes[1].1[33..]).into_owned();
    assert!(kept.starts_with("mrtr1."), "{kept}");
    assert_eq!(
        call_tool(&fleet, "t", json!({}), answered(&json!(kept), "a")).await,
        invalid_state()
    );
    let [mut of_another_state, mut with_other_answers] = [writes[1].clone(), writes[1].clone()];
    for (answer, made_up) in [("a secret", &mut of_another_state), ("b", &mut with_other_answers)] {
        let other = first_state(&fleet).await;
        call_tool(&fleet, "t", json!({}), answered(&other, answer)).await;
        let (_, theirs, _) = recording.writes.lock().unwrap().last().cloned().unwrap();
        // An entry holds its kind, the digest of the answers, and the response.
        match answer {
            "b" => made_up.1.splice(1..33, theirs[1..33].iter().copied()),
            _ => made_up.1.splice(33.., theirs[33..].iter().copied()),
        };
        recording.writes.lock().unwrap().push(made_up.clone());
        assert_eq!(call_tool(&fleet, "t", json!({}), answered(&state, answer)).await, used());
    }
    assert_eq!(ran.get(), 3);
}

/// A response that cannot be stored is sent once; a retry is rejected and does not run.
#[tokio::test]
async fn oversized_response_is_sent_once() {
    let ran = Counter::default();
    let long = |ran: &Counter| {
        let ran = ran.clone();
        Tool::new("t", "", move |cx: Context| {
            let ran = ran.clone();
            async move {
                let text = cx.elicit::<Text>("guess", "Which?").await?.text;
                ran.increment();
                Ok::<_, mrtr_server::Error>(text.repeat(200_000))
            }
        })
        .single_use()
    };
    let fleet = fleet(&store(), || long(&ran));
    let state = first_state(&fleet).await;
    let first = call_tool(&fleet, "t", json!({}), answered(&state, "a")).await;
    assert_eq!(text(&first).len(), 200_000);
    assert_eq!(call_tool(&fleet, "t", json!({}), answered(&state, "a")).await, used());
    assert_eq!(ran.get(), 1);
}

#[tokio::test]
async fn response_is_sent_once_if_the_store_is_full() {
    let (ran, recording) = (Counter::default(), Arc::new(RecordingStore::default()));
    recording.full.store(true, Ordering::SeqCst);
    let fleet = fleet(&recording, || guess(&ran));
    let state = first_state(&fleet).await;
    assert_eq!(text(&call_tool(&fleet, "t", json!({}), answered(&state, "a")).await), "a 1");
    assert_eq!(call_tool(&fleet, "t", json!({}), answered(&state, "a")).await, used());
    assert_eq!(ran.get(), 1);
}

/// Manual handlers use the store in the same way; tools that are not for single use do not use it.
#[tokio::test]
async fn single_use_covers_the_manual_form_and_no_other_tools() {
    let (ran, recording) = (Counter::default(), Arc::new(RecordingStore::default()));
    let fleet = fleet(&recording, || {
        let ran = ran.clone();
        Tool::manual("t", "", move |cx: ManualContext| {
            let ran = ran.clone();
            async move {
                if cx.answers().is_empty() {
                    let question = InputRequired::new();
                    return question.elicit::<Text>("guess", "Which?").state(&1).into();
                }
                ManualOutput::<ToolOutput>::from(format!("done {}", ran.increment()))
            }
        })
        .single_use()
    });
    let state = first_state(&fleet).await;
    let first = call_tool(&fleet, "t", json!({}), answered(&state, "a")).await;
    assert_eq!(text(&first), "done 1");
    assert_eq!(call_tool(&fleet, "t", json!({}), answered(&state, "a")).await, first);
    assert_eq!(call_tool(&fleet, "t", json!({}), answered(&state, "b")).await, used());

    let writes = recording.writes.lock().unwrap().len();
    let reusable = self::fleet(&recording, || {
        Tool::new("t", "", async |cx: Context| -> mrtr_server::Result<_> {
            Ok(cx.elicit::<Text>("guess", "Which?").await?.text)
        })
    });
    let state = first_state(&reusable).await;
    for answer in ["a", "b"] {
        assert_eq!(
            text(&call_tool(&reusable, "t", json!({}), answered(&state, answer)).await),
            answer
        );
    }
    assert_eq!(recording.writes.lock().unwrap().len(), writes);
}

/// No part of the handler runs for a used state, not even the code before its future.
#[tokio::test]
async fn handler_is_not_called_for_a_used_state() {
    let (called, recording) = (Counter::default(), Arc::new(RecordingStore::default()));
    let fleet = fleet(&recording, || {
        let called = called.clone();
        Tool::new("t", "", move |cx: Context| {
            called.increment();
            async move { Ok::<_, mrtr_server::Error>(cx.elicit::<Text>("guess", "Which?").await?.text) }
        })
        .single_use()
    });
    let state = first_state(&fleet).await;
    recording.broken.store(true, Ordering::SeqCst);
    call_tool(&fleet, "t", json!({}), answered(&state, "a")).await;
    recording.broken.store(false, Ordering::SeqCst);
    for _ in 0..3 {
        call_tool(&fleet, "t", json!({}), answered(&state, "a")).await;
        call_tool(&fleet, "t", json!({}), answered(&state, "b")).await;
    }
    assert_eq!(called.get(), 2, "once without a state, and once with it");
}

/// A store that replies as scripted, and then works. It keeps the claims of one state but no
/// responses, as if each replica died before it had one.
pub(super) struct ScriptedStore(Mutex<Vec<Reply>>, Mutex<Option<Vec<u8>>>);

#[derive(Clone, Copy)]
pub(super) enum Reply {
    /// Works.
    Works,
    /// Records the claim, and then fails.
    RecordsAndFails,
    Fails,
    Hangs,
    /// Has lost its entries.
    Forgot,
}

impl ScriptedStore {
    pub(super) fn new(replies: impl IntoIterator<Item = Reply>) -> Arc<Self> {
        let mut replies: Vec<_> = replies.into_iter().collect();
        replies.reverse();
        Arc::new(Self(Mutex::new(replies), Mutex::default()))
    }
}

impl SingleUseStore for ScriptedStore {
    async fn claim(
        &self,
        _: &str,
        value: &[u8],
        _: Duration,
    ) -> Result<Option<Vec<u8>>, StoreError> {
        let reply = self.0.lock().unwrap().pop().unwrap_or(Reply::Works);
        if matches!(reply, Reply::Hangs) {
            return std::future::pending().await;
        }
        let mut recorded = self.1.lock().unwrap();
        match reply {
            Reply::Fails => return Err(StoreError::Unavailable("no route".into())),
            Reply::Forgot => *recorded = None,
            _ => {}
        }
        if let Some(recorded) = &*recorded {
            return Ok(Some(recorded.clone()));
        }
        *recorded = Some(value.to_vec());
        match reply {
            Reply::RecordsAndFails => Err(StoreError::Unavailable("no answer".into())),
            _ => Ok(None),
        }
    }

    async fn settle(&self, _: &str, _: &[u8], _: Duration) -> Result<(), StoreError> {
        Ok(())
    }
}

/// A request that waits for a response does not run when the entry disappears.
#[tokio::test(start_paused = true)]
async fn waiting_request_does_not_run_when_its_entry_disappears() {
    let ran = Counter::default();
    let store = ScriptedStore::new([Reply::Works, Reply::Works, Reply::Works, Reply::Forgot]);
    let fleet = fleet(&store, || guess(&ran));
    let state = first_state(&fleet).await;
    assert_eq!(text(&call_tool(&fleet, "t", json!({}), answered(&state, "a")).await), "a 1");
    assert_eq!(call_tool(&fleet, "t", json!({}), answered(&state, "a")).await, unknown());
    assert_eq!(ran.get(), 1);
}

/// A claim that was recorded although the store failed is recognized by its request.
#[tokio::test(start_paused = true)]
async fn unconfirmed_claim_is_retried_and_recognized() {
    let (fails, records) = (Reply::Fails, Reply::RecordsAndFails);
    for (replies, runs) in [
        (vec![records], true),
        (vec![fails], true),
        (vec![fails, fails], false),
        (vec![records, fails], false),
        (vec![Reply::Hangs], true),
        (vec![Reply::Hangs, Reply::Hangs], false),
    ] {
        let ran = Counter::default();
        let fleet = fleet(&ScriptedStore::new(replies), || guess(&ran));
        let state = first_state(&fleet).await;
        let began = tokio::time::Instant::now();
        let outcome = call_tool(&fleet, "t", json!({}), answered(&state, "a")).await;
        assert_eq!(ran.get() == 1, runs, "{outcome}");
        if !runs {
            let reason = outcome.pointer("/error/data/reason");
            assert_eq!(reason, Some(&json!("single_use_store_unavailable")));
        }
        assert!(began.elapsed() < Duration::from_secs(11), "{:?}", began.elapsed());
    }
}
