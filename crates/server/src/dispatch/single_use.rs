//! Legs of what is for single use: each state is claimed for its answers, and its response is kept.

use std::future::Future;
use std::time::Duration;

use mrtr_codec::encoding::{Decoder, Encoder};
use mrtr_codec::{Binding, Digest, Opened, UnixSeconds, Validity, open, seal};
use mrtr_schema::input::InputResponses;
use mrtr_schema::jsonrpc::ErrorObject;
use mrtr_schema::peer_text::quote;
use mrtr_transport::NotificationSender;
use serde_json::json;
use serde_json::value::RawValue;

use crate::registry::Outcome;
use crate::registry::Registry;
use crate::rounds::{hex, unordered};
use crate::single_use::{ErasedStore, StoreError};
use crate::state_error::used;

/// How long an entry is kept after its state has expired: the clocks of a fleet differ.
const SKEW: Duration = Duration::from_mins(1);

/// How long the guard may take for an answer.
const GUARD_TIME: Duration = Duration::from_secs(5);

/// How much longer than the first leg may run a second one waits for its response.
const GRACE: Duration = Duration::from_secs(2);

/// How long a second leg waits before it asks again whether the first has its response.
const SOONEST: Duration = Duration::from_millis(20);
const LATEST: Duration = Duration::from_millis(500);

/// The first byte of an entry.
const CLAIMED: u8 = 0;
const ANSWERED: u8 = 1;
/// The response was too long to be kept, or the guard had no room for it.
const SPENT: u8 = 2;

/// A state that is for single use, and the answers that came with it.
pub(super) struct SingleUseClaim<'a> {
    server: &'a Registry,
    store: &'a dyn ErasedStore,
    /// What the guard knows the state by.
    key: String,
    answers: Digest,
    expires: UnixSeconds,
    /// How long a round may run.
    timeout: Duration,
    /// Whether even the identical request is refused once the first has completed.
    strict: bool,
}

/// What became of a claim.
pub(super) enum Claim {
    /// This leg is the first.
    Mine,
    /// Another was, with the same answers; this was its response.
    Answered(Outcome),
}

impl<'a> SingleUseClaim<'a> {
    /// `state` is known by what is in it, a random number among that: whoever seals may have more than one text for it.
    pub(super) fn new(
        server: &'a Registry,
        store: &'a dyn ErasedStore,
        state: &Opened,
        responses: &InputResponses,
        timeout: Duration,
        strict: bool,
    ) -> Result<Self, ErrorObject> {
        let Validity { issued, expires } = state.validity();
        let times = [issued.0.to_be_bytes(), expires.0.to_be_bytes()];
        let id = Digest::from_parts(&[b"mrtr single use", times.as_flattened(), state.body()]);
        let key = hex(id.as_bytes());
        Ok(Self { server, store, key, answers: digest(responses)?, expires, timeout, strict })
    }

    /// Claims the state, or gets the response of who did, if that had the same answers. Waits for it as long as a leg may
    /// run, and while `client` is there.
    pub(super) async fn claim(&self, client: &NotificationSender) -> Result<Claim, ErrorObject> {
        let mut attempt = [0; 16];
        getrandom::fill(&mut attempt).map_err(|_| ErrorObject::internal("no random numbers"))?;
        let mine = self.entry(CLAIMED, &attempt);
        let ask = || within(self.store.claim(&self.key, &mine, self.time()));
        // A guard may have recorded what it could not say; then it is found to be ours.
        let found = match ask().await {
            Ok(found) => found,
            Err(StoreError::Full) => return Err(unavailable(&StoreError::Full)),
            Err(_) => ask().await.map_err(|error| unavailable(&error))?,
        };
        let Some(mut found) = found.filter(|found| *found != mine) else {
            return Ok(Claim::Mine);
        };
        let waiting = async {
            let mut pause = SOONEST;
            loop {
                let (kind, kept) =
                    self.read(&found).ok_or_else(|| used("used_with_other_answers"))?;
                match kind {
                    ANSWERED => {
                        let answer = self.unseal(kept).ok_or_else(|| used("used_unreadable"))?;
                        return Ok(Claim::Answered(answer));
                    }
                    CLAIMED if !client.is_closed() => tokio::time::sleep(pause).await,
                    CLAIMED => return Err(used("outcome_unknown")),
                    _ => return Err(used("used_and_not_kept")),
                }
                pause = LATEST.min(pause * 2);
                // What is gone by now was somebody's claim.
                let asked = ask().await.map_err(|error| unavailable(&error))?;
                found = asked.ok_or_else(|| used("outcome_unknown"))?;
            }
        };
        // The first leg may have ended with its replica.
        let late = |_| Err(used("outcome_unknown"));
        tokio::time::timeout(self.wait(), waiting).await.unwrap_or_else(late)
    }

    /// Keeps the response for whoever comes again.
    pub(super) async fn settle(&self, answer: &Outcome) {
        let settle = async |entry: &[u8]| {
            within(self.store.settle(&self.key, entry, self.time())).await.inspect_err(|error| {
                tracing::error!(target: "mrtr::state", %error, "the single-use store did not keep the response");
            })
        };
        let spent = self.entry(SPENT, &[]);
        let token = if self.strict { None } else { self.seal(answer) };
        let kept = token.map(|token| self.entry(ANSWERED, token.as_bytes()));
        if settle(kept.as_ref().unwrap_or(&spent)).await.is_err() && kept.is_some() {
            let _ = settle(&spent).await;
        }
    }

    /// How long a second leg waits for the first.
    fn wait(&self) -> Duration {
        self.timeout.saturating_add(GRACE)
    }

    /// How long an entry is kept: until no replica takes the state any more, and nobody waits for its response.
    fn time(&self) -> Duration {
        let left = self.expires.0.saturating_sub(self.server.clock.now().0);
        Duration::from_secs(left).saturating_add(SKEW).saturating_add(self.wait())
    }

    fn entry(&self, kind: u8, kept: &[u8]) -> Vec<u8> {
        let mut entry = Encoder::with_capacity(1 + self.answers.as_bytes().len() + kept.len());
        entry.byte(kind).raw(self.answers.as_bytes()).raw(kept);
        entry.finish()
    }

    /// Reads an entry that was made for the same answers.
    fn read<'e>(&self, entry: &'e [u8]) -> Option<(u8, &'e [u8])> {
        let mut input = Decoder::new(entry);
        let (kind, answers) = (input.byte().ok()?, input.array::<32>().ok()?);
        (answers == *self.answers.as_bytes()).then(|| (kind, input.rest()))
    }

    /// What the guard keeps is encrypted, and good for this state and these answers only. No request has this method, so
    /// it is no `requestState`.
    fn binding(&self) -> Binding<'_> {
        let (method, target) = ("mrtr kept response", &self.key);
        Binding { principal: None, method, target, arguments: self.answers }
    }

    fn seal(&self, answer: &Outcome) -> Option<String> {
        let mut body = Encoder::new();
        match answer {
            Ok(result) => body.byte(0).raw(result.as_str().as_bytes()),
            Err(error) => body.byte(1).raw(&serde_json::to_vec(error).ok()?),
        };
        let validity = Validity::starting(self.server.clock.now(), self.time().as_secs());
        let sealed = seal(&*self.server.sealer, &self.binding(), validity, &body.finish());
        sealed
            .inspect_err(|error| {
                tracing::warn!(target: "mrtr::state", %error, "the response is not kept and is sent only once");
            })
            .ok()
    }

    fn unseal(&self, kept: &[u8]) -> Option<Outcome> {
        let token = std::str::from_utf8(kept).ok()?;
        let now = self.server.clock.now();
        let opened = open(&*self.server.sealer, token, &self.binding(), now).ok()?;
        let (kind, text) = opened.body().split_first()?;
        let text = std::str::from_utf8(text).ok()?;
        match kind {
            0 => Some(Ok(RawValue::from_string(text.to_owned()).ok()?.into())),
            _ => Some(Err(serde_json::from_str(text).ok()?)),
        }
    }
}

/// A guard that does not answer is one that cannot be used.
async fn within<T>(asked: impl Future<Output = Result<T, StoreError>>) -> Result<T, StoreError> {
    let late = |elapsed| Err(StoreError::Unavailable(Box::new(elapsed)));
    tokio::time::timeout(GUARD_TIME, asked).await.unwrap_or_else(late)
}

/// Answers are the same if they mean the same, whatever order or spelling a client chooses.
fn digest(responses: &InputResponses) -> Result<Digest, ErrorObject> {
    let mut parts = Vec::new();
    for (key, answer) in &responses.0 {
        let digest = Digest::from_json(Some(answer.get())).map_err(|error| {
            let key = quote(key);
            ErrorObject::invalid_params(format!("Invalid params: the response to {key}: {error}"))
        })?;
        parts.push((key.as_bytes(), digest));
    }
    Ok(unordered(parts))
}

/// The leg did not run. Unless the guard has recorded what it could not say, the state can be used.
fn unavailable(error: &StoreError) -> ErrorObject {
    tracing::error!(target: "mrtr::state", %error, "the single-use store failed");
    ErrorObject::internal("The server cannot tell whether this requestState was used; try again")
        .with_data(json!({ "reason": "single_use_store_unavailable" }))
}
