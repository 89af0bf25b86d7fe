//! Legs of what is for single use: each state is claimed for its answers, and its response is kept.

use std::time::Duration;

use mrtr_codec::pack::{Packer, Unpacker};
use mrtr_codec::{Binding, Digest, UnixSeconds, Validity, open, seal};
use mrtr_schema::input::InputResponses;
use mrtr_schema::jsonrpc::{ErrorObject, raw};
use serde_json::json;
use serde_json::value::RawValue;

use super::Answer;
use crate::refusal::frozen;
use crate::replay::{ErasedGuard, GuardError};
use crate::server::Inner;

/// How long an entry is kept after its state has expired: the clocks of a fleet differ.
const SKEW: u64 = 60;

/// How long a second leg waits before it asks again whether the first has its response.
const SOONEST: Duration = Duration::from_millis(20);
const LATEST: Duration = Duration::from_millis(500);

/// The first byte of an entry.
const CLAIMED: u8 = 0;
const ANSWERED: u8 = 1;
/// The response was too long to be kept, or the guard had no room for it.
const SPENT: u8 = 2;

/// A state that is for single use, and the answers that came with it.
pub(super) struct Once<'a> {
    server: &'a Inner,
    guard: &'a dyn ErasedGuard,
    /// What the guard knows the state by.
    key: String,
    answers: Digest,
    expires: UnixSeconds,
}

/// What became of a claim.
pub(super) enum Claim {
    /// This leg is the first.
    Mine,
    /// Another was, with the same answers; this was its response.
    Answered(Answer),
}

impl<'a> Once<'a> {
    pub(super) fn new(
        server: &'a Inner,
        guard: &'a dyn ErasedGuard,
        token: &str,
        expires: UnixSeconds,
        responses: &InputResponses,
    ) -> Result<Self, ErrorObject> {
        let id = Digest::of_parts(&[b"mrtr single use", token.as_bytes()]);
        let key = id.0.iter().flat_map(|byte| [byte >> 4, byte & 15]);
        let key = key.filter_map(|digit| char::from_digit(digit.into(), 16)).collect();
        Ok(Self { server, guard, key, answers: digest(responses)?, expires })
    }

    /// Claims the state, or gets the response of who did, if that had the same answers. Waits for it up to `deadline`.
    pub(super) async fn claim(&self, deadline: Duration) -> Result<Claim, ErrorObject> {
        let mine = self.entry(CLAIMED, &[]);
        let waiting = async {
            let mut pause = SOONEST;
            loop {
                let claimed = self.guard.claim(&self.key, &mine, self.time()).await;
                let Some(entry) = claimed.map_err(|error| unavailable(&error))? else {
                    return Ok(Claim::Mine);
                };
                let Some((kind, kept)) = self.read(&entry) else {
                    return Err(refused("used_with_other_answers"));
                };
                match kind {
                    CLAIMED => tokio::time::sleep(pause).await,
                    ANSWERED => {
                        let answer = self.unseal(kept).ok_or_else(|| refused("used_unreadable"))?;
                        return Ok(Claim::Answered(answer));
                    }
                    _ => return Err(refused("used_and_not_kept")),
                }
                pause = LATEST.min(pause * 2);
            }
        };
        // The first leg may have ended with its replica.
        let late = |_| Err(refused("used_and_not_answered"));
        tokio::time::timeout(deadline, waiting).await.unwrap_or_else(late)
    }

    /// Keeps the response for whoever comes again.
    pub(super) async fn settle(&self, answer: &Answer) {
        let kept = match self.seal(answer) {
            Some(token) => self.entry(ANSWERED, token.as_bytes()),
            None => self.entry(SPENT, &[]),
        };
        let mut settled = self.guard.settle(&self.key, &kept, self.time()).await;
        if settled.is_err() {
            settled = self.guard.settle(&self.key, &self.entry(SPENT, &[]), self.time()).await;
            tracing::warn!(target: "mrtr::state", "the replay guard did not keep a response");
        }
        if let Err(error) = settled {
            unavailable(&error);
        }
    }

    fn time(&self) -> Duration {
        let left = self.expires.0.saturating_sub(self.server.clock.now().0);
        Duration::from_secs(left.saturating_add(SKEW))
    }

    fn entry(&self, kind: u8, kept: &[u8]) -> Vec<u8> {
        let mut entry = Packer::with_capacity(1 + self.answers.0.len() + kept.len());
        entry.byte(kind).raw(&self.answers.0).raw(kept);
        entry.finish()
    }

    /// Reads an entry that was made for the same answers.
    fn read<'e>(&self, entry: &'e [u8]) -> Option<(u8, &'e [u8])> {
        let mut input = Unpacker::new(entry);
        let (kind, answers) = (input.byte().ok()?, input.array::<32>().ok()?);
        (answers == self.answers.0).then(|| (kind, input.rest()))
    }

    /// What the guard keeps is encrypted, and good for this state and these answers only. No request has this method, so
    /// it is no `requestState`.
    fn binding(&self) -> Binding<'_> {
        let (method, target) = ("mrtr kept response", &self.key);
        Binding { principal: None, method, target, arguments: self.answers }
    }

    fn seal(&self, answer: &Answer) -> Option<String> {
        let mut body = Packer::new();
        match answer {
            Ok(result) => body.byte(0).raw(result.get().as_bytes()),
            Err(error) => body.byte(1).raw(raw(error).ok()?.get().as_bytes()),
        };
        let validity = Validity::starting(self.server.clock.now(), self.time().as_secs());
        seal(&*self.server.sealer, &self.binding(), validity, &body.finish()).ok()
    }

    fn unseal(&self, kept: &[u8]) -> Option<Answer> {
        let token = std::str::from_utf8(kept).ok()?;
        let now = self.server.clock.now();
        let opened = open(&*self.server.sealer, token, &self.binding(), now).ok()?;
        let (kind, text) = opened.body().split_first()?;
        let text = std::str::from_utf8(text).ok()?;
        match kind {
            0 => Some(Ok(RawValue::from_string(text.to_owned()).ok()?)),
            _ => Some(Err(serde_json::from_str(text).ok()?)),
        }
    }
}

/// Answers are the same if they mean the same, whatever order or spelling a client chooses.
fn digest(responses: &InputResponses) -> Result<Digest, ErrorObject> {
    let mut parts = Vec::new();
    for (key, answer) in &responses.0 {
        let digest = Digest::of_json(Some(answer.get())).map_err(|error| {
            let key = ErrorObject::quote(key);
            ErrorObject::invalid_params(format!("Invalid params: the response to {key}: {error}"))
        })?;
        parts.push((key.as_bytes(), digest.0));
    }
    parts.sort_unstable();
    let flat: Vec<&[u8]> = parts.iter().flat_map(|(key, value)| [*key, value.as_slice()]).collect();
    Ok(Digest::of_parts(&flat))
}

fn refused(reason: &str) -> ErrorObject {
    tracing::warn!(target: "mrtr::state", reason, "requestState refused");
    frozen()
}

/// Nothing was done with the state, as far as the server knows: the client may come again with it.
fn unavailable(error: &GuardError) -> ErrorObject {
    tracing::error!(target: "mrtr::state", %error, "the replay guard failed");
    ErrorObject::internal("The server cannot tell whether this requestState was used; try again")
        .with_data(json!({ "reason": "replay_guard_unavailable" }))
}
