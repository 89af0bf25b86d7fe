//! States, sealed again for one dialect.
//!
//! The engine's state is sealed already. The second seal binds it to the dialect: a state of the
//! standard endpoint, or of another dialect, does not open here, nor does this one elsewhere.

use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use mrtr_codec::{Binding, Digest, Principal, Seal, UnixSeconds, Validity, open, seal};
use mrtr_schema::jsonrpc::ErrorObject;
use serde_json::json;

use crate::Dialect;

/// How long a seal is valid, in seconds. A state or a task inside can expire earlier. A session has
/// no other expiry, nor has a turn without a state.
const LIFETIME: u64 = 30 * 24 * 60 * 60;

/// The beginning of the codec's tokens.
const TOKEN: &str = "mrtr1.";

/// What is sealed.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Part {
    State,
    Turn,
    Session,
}

impl Part {
    fn method(self) -> &'static str {
        match self {
            Self::State => "dialect/state",
            Self::Turn => "dialect/turn",
            Self::Session => "dialect/session",
        }
    }
}

#[derive(Clone)]
pub(crate) struct StateSeal {
    sealer: Arc<dyn Seal>,
    dialect: Dialect,
}

impl StateSeal {
    pub(crate) fn new(sealer: Arc<dyn Seal>, dialect: Dialect) -> Self {
        Self { sealer, dialect }
    }

    fn binding<'a>(&self, part: Part, principal: Option<&'a Principal>) -> Binding<'a> {
        Binding {
            principal,
            proof_key: None,
            method: part.method(),
            target: self.dialect.name(),
            arguments: Digest::from_parts(&[]),
        }
    }

    /// Seals bytes for the caller.
    pub(crate) fn seal(
        &self,
        part: Part,
        principal: Option<&Principal>,
        body: &[u8],
    ) -> Result<String, ErrorObject> {
        let validity = Validity::starting(now(), LIFETIME);
        seal(&*self.sealer, &self.binding(part, principal), validity, body).map_err(|error| {
            tracing::error!(target: "mrtr::dialects", %error, "sealing a state failed");
            ErrorObject::internal("Internal error")
        })
    }

    /// Opens what was sealed for the caller.
    ///
    /// # Errors
    ///
    /// [`invalid_state`], whatever the cause.
    pub(crate) fn open(
        &self,
        part: Part,
        principal: Option<&Principal>,
        token: &str,
    ) -> Result<Vec<u8>, ErrorObject> {
        let opened = open(&*self.sealer, token, &self.binding(part, principal), now());
        match opened {
            Ok(opened) => Ok(opened.body().to_vec()),
            Err(error) => {
                let reason = error.reason();
                tracing::warn!(
                    target: "mrtr::dialects",
                    dialect = %self.dialect,
                    reason,
                    "a state was not opened"
                );
                Err(invalid_state())
            }
        }
    }
}

/// The one error for a state that does not open: that of the current revision.
pub(crate) fn invalid_state() -> ErrorObject {
    ErrorObject::invalid_params("Invalid or expired requestState")
        .with_data(json!({ "reason": "invalid_request_state" }))
}

/// Packs a state of the engine. A token of the codec is packed without its base64, so that it does
/// not grow twice.
pub(crate) fn pack(state: &str) -> Vec<u8> {
    let bytes = state.strip_prefix(TOKEN).and_then(|text| {
        let bytes = URL_SAFE_NO_PAD.decode(text).ok()?;
        (URL_SAFE_NO_PAD.encode(&bytes) == text).then_some(bytes)
    });
    match bytes {
        Some(bytes) => [&[1], &bytes[..]].concat(),
        None => [&[0], state.as_bytes()].concat(),
    }
}

/// Unpacks a state of the engine.
pub(crate) fn unpack(packed: &[u8]) -> Result<String, ErrorObject> {
    match packed.split_first() {
        Some((1, bytes)) => Ok(format!("{TOKEN}{}", URL_SAFE_NO_PAD.encode(bytes))),
        Some((0, text)) => str::from_utf8(text).map(str::to_owned).map_err(|_| invalid_state()),
        _ => Err(invalid_state()),
    }
}

fn now() -> UnixSeconds {
    let elapsed = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    UnixSeconds(elapsed.as_secs())
}

#[cfg(test)]
mod tests {
    use mrtr_codec::KeyRing;

    use super::*;

    #[test]
    fn unpack_reverses_pack() {
        for state in ["mrtr1.AAAA", "mrtr1.AAA", "mrtr1.AB", "mrtr1.!", "mrtr1.", "kms:x", ""] {
            assert_eq!(unpack(&pack(state)).unwrap(), state);
        }
        assert_eq!(pack("mrtr1.AAAA").len(), 4);
        assert!(unpack(&[]).is_err() && unpack(&[2]).is_err() && unpack(&[0, 0xff]).is_err());
    }

    #[test]
    fn seals_do_not_cross_dialects_parts_or_callers() {
        let ring: Arc<dyn Seal> = Arc::new(KeyRing::ephemeral().unwrap());
        let seals = |dialect| StateSeal::new(Arc::clone(&ring), dialect);
        let alice = Principal::new("https://login.example", "alice");
        let (ours, other) = (seals(Dialect::Incomplete), seals(Dialect::Dependent));
        let token = ours.seal(Part::State, Some(&alice), b"x").unwrap();
        assert_eq!(ours.open(Part::State, Some(&alice), &token).unwrap(), b"x");
        for refused in [
            ours.open(Part::State, None, &token),
            ours.open(Part::Turn, Some(&alice), &token),
            other.open(Part::State, Some(&alice), &token),
            ours.open(Part::State, Some(&alice), "mrtr1.AAAA"),
        ] {
            assert_eq!(refused.unwrap_err(), invalid_state());
        }
    }
}
