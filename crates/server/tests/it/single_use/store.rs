//! What a guard is told, and what becomes of a leg when it fails.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use mrtr_server::manual::{InputRequired, ManualContext, ManualOutput};
use mrtr_server::single_use::{SingleUseStore, StoreError};
use mrtr_server::{Context, Tool, ToolOutput};
use serde_json::json;

use super::{fleet, guard, unknown};
use crate::support::single_use::{answered, first_state, guess, text, used};
use crate::support::{Counter, Text, call_tool, invalid_state};

/// What a guard was told, and whether it works.
#[derive(Default)]
struct Witness {
    told: Mutex<Vec<(String, Vec<u8>, Duration)>>,
    broken: AtomicBool,
    forgetful: AtomicBool,
}

impl Witness {
    fn tell(&self, key: &str, value: &[u8], time: Duration) -> Result<(), StoreError> {
        if self.broken.load(Ordering::SeqCst) {
            return Err(StoreError::Unavailable("no route".into()));
        }
        self.told.lock().unwrap().push((key.to_owned(), value.to_vec(), time));
        Ok(())
    }
}

impl SingleUseStore for Witness {
    async fn claim(
        &self,
        key: &str,
        value: &[u8],
        time: Duration,
    ) -> Result<Option<Vec<u8>>, StoreError> {
        let last = self.told.lock().unwrap().iter().rev().find(|told| told.0 == key).cloned();
        if last.is_none() {
            self.tell(key, value, time)?;
        }
        Ok(last.map(|(_, value, _)| value))
    }

    async fn settle(&self, key: &str, value: &[u8], time: Duration) -> Result<(), StoreError> {
        if self.forgetful.load(Ordering::SeqCst) && value.len() > 100 {
            return Err(StoreError::Full);
        }
        self.tell(key, value, time)
    }
}

/// A guard that does not answer stops the leg, and the state is as good as before.
#[tokio::test]
async fn round_does_not_run_while_the_store_is_unavailable() {
    let (ran, witness) = (Counter::default(), Arc::new(Witness::default()));
    let fleet = fleet(&witness, || guess(&ran));
    let state = first_state(&fleet).await;
    assert!(witness.told.lock().unwrap().is_empty(), "a first leg has nothing to use");
    witness.broken.store(true, Ordering::SeqCst);
    let refused = call_tool(&fleet, "t", json!({}), answered(&state, "a")).await;
    assert_eq!(refused.pointer("/error/code"), Some(&json!(-32603)), "{refused}");
    assert_eq!(refused.pointer("/error/data/reason"), Some(&json!("single_use_store_unavailable")));
    assert!(!refused.to_string().contains("no route"), "{refused}");
    assert_eq!(ran.get(), 0);
    witness.broken.store(false, Ordering::SeqCst);
    assert_eq!(text(&call_tool(&fleet, "t", json!({}), answered(&state, "b")).await), "b 1");
}

/// Entries are kept until no clock of the fleet takes the state any more; they tell whoever reads them nothing.
#[tokio::test]
async fn store_entries_are_sealed_and_outlive_the_state() {
    let (ran, witness) = (Counter::default(), Arc::new(Witness::default()));
    let fleet = fleet(&witness, || guess(&ran));
    let state = first_state(&fleet).await;
    call_tool(&fleet, "t", json!({}), answered(&state, "a secret")).await;
    let told = witness.told.lock().unwrap().clone();
    assert_eq!(told.len(), 2, "a claim, and a response");
    for (key, value, time) in &told {
        // A round's time, a minute for clocks, and as long as somebody may wait for the response.
        assert_eq!(*time, Duration::from_mins(10 + 1 + 1) + Duration::from_secs(2));
        assert!(key.len() == 64 && key.bytes().all(|digit| digit.is_ascii_hexdigit()));
        let value = String::from_utf8_lossy(value);
        assert!(!value.contains("secret") && !value.contains("content"), "{value}");
    }
    // Whoever can write there can refuse, but not make up a response; nor does a kept response open as a state.
    let kept = String::from_utf8_lossy(&told[1].1[33..]).into_owned();
    assert!(kept.starts_with("mrtr1."), "{kept}");
    assert_eq!(
        call_tool(&fleet, "t", json!({}), answered(&json!(kept), "a")).await,
        invalid_state()
    );
    let [mut of_another_state, mut with_other_answers] = [told[1].clone(), told[1].clone()];
    for (answer, made_up) in [("a secret", &mut of_another_state), ("b", &mut with_other_answers)] {
        let other = first_state(&fleet).await;
        call_tool(&fleet, "t", json!({}), answered(&other, answer)).await;
        let (_, theirs, _) = witness.told.lock().unwrap().last().cloned().unwrap();
        // An entry says that it is settled, for which answers, and has the response.
        match answer {
            "b" => made_up.1.splice(1..33, theirs[1..33].iter().copied()),
            _ => made_up.1.splice(33.., theirs[33..].iter().copied()),
        };
        witness.told.lock().unwrap().push(made_up.clone());
        assert_eq!(call_tool(&fleet, "t", json!({}), answered(&state, answer)).await, used());
    }
    assert_eq!(ran.get(), 3);
}

/// A response that cannot be kept was still given once; whoever comes again is refused, not run.
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
    let fleet = fleet(&guard(), || long(&ran));
    let state = first_state(&fleet).await;
    let first = call_tool(&fleet, "t", json!({}), answered(&state, "a")).await;
    assert_eq!(text(&first).len(), 200_000);
    assert_eq!(call_tool(&fleet, "t", json!({}), answered(&state, "a")).await, used());
    assert_eq!(ran.get(), 1);
}

#[tokio::test]
async fn response_is_sent_once_if_the_store_is_full() {
    let (ran, witness) = (Counter::default(), Arc::new(Witness::default()));
    witness.forgetful.store(true, Ordering::SeqCst);
    let fleet = fleet(&witness, || guess(&ran));
    let state = first_state(&fleet).await;
    assert_eq!(text(&call_tool(&fleet, "t", json!({}), answered(&state, "a")).await), "a 1");
    assert_eq!(call_tool(&fleet, "t", json!({}), answered(&state, "a")).await, used());
    assert_eq!(ran.get(), 1);
}

/// A handler that keeps its state itself is guarded in the same way, and what is not for single use asks no guard.
#[tokio::test]
async fn single_use_covers_the_manual_form_and_no_other_tools() {
    let (ran, witness) = (Counter::default(), Arc::new(Witness::default()));
    let fleet = fleet(&witness, || {
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

    let told = witness.told.lock().unwrap().len();
    let often = self::fleet(&witness, || {
        Tool::new("t", "", async |cx: Context| -> mrtr_server::Result<_> {
            Ok(cx.elicit::<Text>("guess", "Which?").await?.text)
        })
    });
    let state = first_state(&often).await;
    for answer in ["a", "b"] {
        assert_eq!(
            text(&call_tool(&often, "t", json!({}), answered(&state, answer)).await),
            answer
        );
    }
    assert_eq!(witness.told.lock().unwrap().len(), told);
}

/// Nothing of the handler runs for a state that was used, not even what it does before it is a future.
#[tokio::test]
async fn handler_is_not_called_for_a_used_state() {
    let (called, witness) = (Counter::default(), Arc::new(Witness::default()));
    let fleet = fleet(&witness, || {
        let called = called.clone();
        Tool::new("t", "", move |cx: Context| {
            called.increment();
            async move { Ok::<_, mrtr_server::Error>(cx.elicit::<Text>("guess", "Which?").await?.text) }
        })
        .single_use()
    });
    let state = first_state(&fleet).await;
    witness.broken.store(true, Ordering::SeqCst);
    call_tool(&fleet, "t", json!({}), answered(&state, "a")).await;
    witness.broken.store(false, Ordering::SeqCst);
    for _ in 0..3 {
        call_tool(&fleet, "t", json!({}), answered(&state, "a")).await;
        call_tool(&fleet, "t", json!({}), answered(&state, "b")).await;
    }
    assert_eq!(called.get(), 2, "once without a state, and once with it");
}

/// What a guard that is made up says, one after the other; then it works. It keeps claims of one state, and no responses: as
/// if each replica died before it had one.
pub(super) struct Scripted(Mutex<Vec<Said>>, Mutex<Option<Vec<u8>>>);

#[derive(Clone, Copy)]
pub(super) enum Said {
    /// As it should be.
    Works,
    /// It records, and cannot say so.
    RecordsAndFails,
    Fails,
    Hangs,
    /// It has forgotten what it knew.
    Forgot,
}

impl Scripted {
    pub(super) fn new(says: impl IntoIterator<Item = Said>) -> Arc<Self> {
        let mut says: Vec<_> = says.into_iter().collect();
        says.reverse();
        Arc::new(Self(Mutex::new(says), Mutex::default()))
    }
}

impl SingleUseStore for Scripted {
    async fn claim(
        &self,
        _: &str,
        value: &[u8],
        _: Duration,
    ) -> Result<Option<Vec<u8>>, StoreError> {
        let said = self.0.lock().unwrap().pop().unwrap_or(Said::Works);
        if matches!(said, Said::Hangs) {
            return std::future::pending().await;
        }
        let mut recorded = self.1.lock().unwrap();
        match said {
            Said::Fails => return Err(StoreError::Unavailable("no route".into())),
            Said::Forgot => *recorded = None,
            _ => {}
        }
        if let Some(recorded) = &*recorded {
            return Ok(Some(recorded.clone()));
        }
        *recorded = Some(value.to_vec());
        match said {
            Said::RecordsAndFails => Err(StoreError::Unavailable("no answer".into())),
            _ => Ok(None),
        }
    }

    async fn settle(&self, _: &str, _: &[u8], _: Duration) -> Result<(), StoreError> {
        Ok(())
    }
}

/// Who waits for a response does not become the first when the entry is gone.
#[tokio::test(start_paused = true)]
async fn waiting_request_does_not_run_when_its_entry_disappears() {
    let ran = Counter::default();
    let guard = Scripted::new([Said::Works, Said::Works, Said::Works, Said::Forgot]);
    let fleet = fleet(&guard, || guess(&ran));
    let state = first_state(&fleet).await;
    assert_eq!(text(&call_tool(&fleet, "t", json!({}), answered(&state, "a")).await), "a 1");
    assert_eq!(call_tool(&fleet, "t", json!({}), answered(&state, "a")).await, unknown());
    assert_eq!(ran.get(), 1);
}

/// A claim that was recorded although the guard failed is recognized as one's own.
#[tokio::test(start_paused = true)]
async fn unconfirmed_claim_is_retried_and_recognized() {
    let (fails, records) = (Said::Fails, Said::RecordsAndFails);
    for (says, runs) in [
        (vec![records], true),
        (vec![fails], true),
        (vec![fails, fails], false),
        (vec![records, fails], false),
        (vec![Said::Hangs], true),
        (vec![Said::Hangs, Said::Hangs], false),
    ] {
        let ran = Counter::default();
        let fleet = fleet(&Scripted::new(says), || guess(&ran));
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
