//! Rounds of single-use calls: each request state is claimed for its answers, and its response is
//! kept in the [store](crate::single_use).

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

use crate::registry::{Outcome, Registry};
use crate::rounds::{hex, order_independent_digest};
use crate::single_use::{ErasedStore, StoreError};
use crate::state_error::refuse_used;

/// The time for which an entry outlives its state: the clocks of replicas differ.
const CLOCK_SKEW: Duration = Duration::from_mins(1);

/// The timeout of one operation of the store. [`SingleUseStore`](crate::single_use::SingleUseStore)
/// documents it.
const STORE_TIMEOUT: Duration = Duration::from_secs(5);

/// The time that a repeated request waits for the response in addition to the request timeout of
/// the first one.
const GRACE: Duration = Duration::from_secs(2);

/// The shortest and the longest pause between two queries of a repeated request for the response.
const MIN_POLL_PAUSE: Duration = Duration::from_millis(20);
const MAX_POLL_PAUSE: Duration = Duration::from_millis(500);

/// The first byte of an entry: the state is claimed and its round is running.
const CLAIMED: u8 = 0;
/// The entry contains the response.
const ANSWERED: u8 = 1;
/// The response is not kept: it is too long, the store is full, or single use is strict.
const SPENT: u8 = 2;
/// The outcome of the round is unknown, so only the same answers may try it again. The entry
/// contains the random identity of the next attempt, which is claimed under a key of its own.
const AGAIN: u8 = 3;

/// A single-use state, and the answers that arrived with it.
pub(super) struct SingleUseClaim<'a> {
    server: &'a Registry,
    store: &'a dyn ErasedStore,
    /// The key of the state in the store.
    key: String,
    answers: Digest,
    expires: UnixSeconds,
    /// The timeout of a request.
    timeout: Duration,
    /// True if even the identical request is refused once the first has completed.
    strict: bool,
}

/// The result of claiming a state.
pub(super) enum Claim {
    /// This request is the first with the state, and may run.
    First,
    /// An earlier request with the same answers got this response.
    Answered(Outcome),
}

impl<'a> SingleUseClaim<'a> {
    /// Prepares the claim of a state.
    ///
    /// The key in the store is made of the state's content, which includes a random number, and not
    /// of its text: a custom sealer may accept several texts for one state.
    ///
    /// # Errors
    ///
    /// An error response, if an answer is not valid JSON.
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
        let answers = answers_digest(responses)?;
        Ok(Self { server, store, key, answers, expires, timeout, strict })
    }

    /// Claims the state. If an earlier request with the same answers has claimed it, waits for the
    /// response of that request, while `client` is connected and at most for [`Self::max_wait`].
    ///
    /// # Errors
    ///
    /// An error response, if the state was used and there is no response to repeat, or if the store
    /// fails.
    pub(super) async fn claim(&self, client: &NotificationSender) -> Result<Claim, ErrorObject> {
        let nonce = nonce().map_err(|_| ErrorObject::internal("no random numbers"))?;
        let own = self.entry(CLAIMED, &nonce);
        let claim_at =
            async |key: &str| with_timeout(self.store.claim(key, &own, self.retention())).await;
        let claim = || claim_at(&self.key);
        // A store that fails may have recorded the claim. The second attempt then finds our own
        // entry.
        let found = match claim().await {
            Ok(found) => found,
            Err(StoreError::Full) => return Err(store_error(&StoreError::Full)),
            Err(_) => claim().await.map_err(|error| store_error(&error))?,
        };
        let Some(mut found) = found.filter(|found| *found != own) else {
            return Ok(Claim::First);
        };
        let wait = async {
            let mut pause = MIN_POLL_PAUSE;
            loop {
                let (kind, kept) =
                    self.read(&found).ok_or_else(|| refuse_used("used_with_other_answers"))?;
                match kind {
                    ANSWERED => {
                        let response = self.unseal(kept);
                        let response = response.ok_or_else(|| refuse_used("used_unreadable"))?;
                        return Ok(Claim::Answered(response));
                    }
                    AGAIN if self.claim_again(kept, &own, claim_at).await? => {
                        return Ok(Claim::First);
                    }
                    CLAIMED | AGAIN if !client.is_closed() => tokio::time::sleep(pause).await,
                    CLAIMED | AGAIN => return Err(refuse_used("outcome_unknown")),
                    _ => return Err(refuse_used("used_and_not_kept")),
                }
                pause = MAX_POLL_PAUSE.min(pause * 2);
                let Some(again) = claim().await.map_err(|error| store_error(&error))? else {
                    // The first request has released the state, and this one has claimed it.
                    self.release().await;
                    return Err(refuse_used("outcome_unknown"));
                };
                found = again;
            }
        };
        // The replica of the first request may have died.
        let timed_out = |_| Err(refuse_used("outcome_unknown"));
        tokio::time::timeout(self.max_wait(), wait).await.unwrap_or_else(timed_out)
    }

    /// Claims another attempt of a round whose outcome is unknown. Returns false if an earlier
    /// request has claimed it.
    async fn claim_again(
        &self,
        attempt: &[u8],
        own: &[u8],
        claim_at: impl AsyncFnOnce(&str) -> Result<Option<Vec<u8>>, StoreError>,
    ) -> Result<bool, ErrorObject> {
        let parts = [b"mrtr single use attempt", self.key.as_bytes(), attempt];
        let found = claim_at(&hex(Digest::from_parts(&parts).as_bytes())).await;
        let found = found.map_err(|error| store_error(&error))?;
        Ok(found.is_none_or(|found| found == own))
    }

    /// Allows a request with the same answers to retry the round, because the outcome is unknown.
    pub(super) async fn allow_again(&self) {
        match nonce() {
            Ok(attempt) => {
                self.write("retry", &self.entry(AGAIN, &attempt), self.retention()).await;
            }
            Err(error) => tracing::error!(target: "mrtr::state", %error, "no random numbers"),
        }
    }

    /// Gives the state back, because the round had no effect.
    pub(super) async fn release(&self) {
        self.write("release", &self.entry(CLAIMED, &[]), Duration::from_millis(1)).await;
    }

    async fn write(&self, operation: &str, entry: &[u8], retention: Duration) {
        if let Err(error) = with_timeout(self.store.settle(&self.key, entry, retention)).await {
            tracing::error!(
                target: "mrtr::state",
                %error,
                operation,
                "the single-use store did not record that a request state can be used again"
            );
        }
    }

    /// Keeps the response for repetitions of the request.
    pub(super) async fn settle(&self, response: &Outcome) {
        // A request with the state may wait for the store twice before it looks for the response.
        let retention = self.time_left().saturating_add(GRACE + STORE_TIMEOUT * 2);
        let settle = async |entry: &[u8]| {
            let settled = with_timeout(self.store.settle(&self.key, entry, retention)).await;
            settled.inspect_err(|error| {
                tracing::error!(
                    target: "mrtr::state",
                    %error,
                    "the single-use store did not keep the response"
                );
            })
        };
        let spent = self.entry(SPENT, &[]);
        let token = if self.strict { None } else { self.seal(response) };
        let kept = token.map(|token| self.entry(ANSWERED, token.as_bytes()));
        if settle(kept.as_ref().unwrap_or(&spent)).await.is_err() && kept.is_some() {
            let _ = settle(&spent).await;
        }
    }

    /// Returns the longest time that a repeated request waits for the response of the first one.
    fn max_wait(&self) -> Duration {
        self.timeout.saturating_add(GRACE)
    }

    /// Returns the time until no replica accepts the state.
    fn time_left(&self) -> Duration {
        let left = self.expires.0.saturating_sub(self.server.clock.now().0);
        Duration::from_secs(left).saturating_add(CLOCK_SKEW)
    }

    /// Returns the time for which an entry without a response is kept: until no replica accepts the
    /// state, and no request waits for the response.
    fn retention(&self) -> Duration {
        self.time_left().saturating_add(self.max_wait())
    }

    fn entry(&self, kind: u8, kept: &[u8]) -> Vec<u8> {
        let mut entry = Encoder::with_capacity(1 + self.answers.as_bytes().len() + kept.len());
        entry.byte(kind).raw(self.answers.as_bytes()).raw(kept);
        entry.finish()
    }

    /// Splits an entry into its kind and its content. `None` if it was made for other answers.
    fn read<'e>(&self, entry: &'e [u8]) -> Option<(u8, &'e [u8])> {
        let mut input = Decoder::new(entry);
        let (kind, answers) = (input.byte().ok()?, input.array::<32>().ok()?);
        (answers == *self.answers.as_bytes()).then(|| (kind, input.rest()))
    }

    /// Returns the binding of kept responses to this state and these answers.
    ///
    /// No request has this method, so a kept response is not accepted as a `requestState`.
    fn binding(&self) -> Binding<'_> {
        let (method, target) = ("mrtr kept response", &self.key);
        Binding { principal: None, proof_key: None, method, target, arguments: self.answers }
    }

    fn seal(&self, response: &Outcome) -> Option<String> {
        let mut body = Encoder::new();
        match response {
            Ok(result) => body.byte(0).raw(result.as_str().as_bytes()),
            Err(error) => body.byte(1).raw(&serde_json::to_vec(error).ok()?),
        };
        let validity = Validity::starting(self.server.clock.now(), self.retention().as_secs());
        let sealed = seal(&*self.server.sealer, &self.binding(), validity, &body.finish());
        sealed
            .inspect_err(|error| {
                tracing::warn!(
                    target: "mrtr::state",
                    %error,
                    "the response is not kept; it is sent only once"
                );
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

fn nonce() -> Result<[u8; 16], getrandom::Error> {
    let mut nonce = [0; 16];
    getrandom::fill(&mut nonce)?;
    Ok(nonce)
}

/// Applies [`STORE_TIMEOUT`] to an operation of the store.
async fn with_timeout<T>(
    operation: impl Future<Output = Result<T, StoreError>>,
) -> Result<T, StoreError> {
    let timed_out = |elapsed| Err(StoreError::Unavailable(Box::new(elapsed)));
    tokio::time::timeout(STORE_TIMEOUT, operation).await.unwrap_or_else(timed_out)
}

/// Returns a digest of answers that depends on their meaning, not on their order or formatting.
fn answers_digest(responses: &InputResponses) -> Result<Digest, ErrorObject> {
    let mut parts = Vec::new();
    for (key, answer) in &responses.0 {
        let digest = Digest::from_json(Some(answer.get())).map_err(|error| {
            let key = quote(key);
            ErrorObject::invalid_params(format!("Invalid params: the response to {key}: {error}"))
        })?;
        parts.push((key.as_bytes(), digest));
    }
    Ok(order_independent_digest(parts))
}

/// Creates the error response of a round that did not run because the store failed. The state stays
/// usable, unless the store recorded the claim and its reply was lost.
fn store_error(error: &StoreError) -> ErrorObject {
    tracing::error!(target: "mrtr::state", %error, "the single-use store failed");
    ErrorObject::internal("The server cannot tell whether this requestState was used; try again")
        .with_data(json!({ "reason": "single_use_store_unavailable" }))
}
