//! The state of a call in an event id: what another replica needs to continue it.

use mrtr_codec::{Binding, Digest, Validity, open, seal};
use mrtr_schema::jsonrpc::{Params, Request, RequestId};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use super::gateway::{Gateway, now};
use super::session::Session;

/// The longest sealed call in bytes. An event id comes back as the header `Last-Event-ID`, and
/// common proxies limit a header to 8 KiB.
const MAX_SEALED_CALL: usize = 6 << 10;

/// A call that stands at a question.
#[derive(Serialize, Deserialize)]
struct SealedCall<'a> {
    #[serde(rename = "i")]
    id: RequestId,
    #[serde(rename = "m")]
    method: String,
    #[serde(rename = "p", borrow)]
    params: Option<&'a RawValue>,
    #[serde(rename = "s")]
    state: String,
}

impl<H> Gateway<H> {
    /// Seals a call for its session. `None` if it is too long for an event id: such a call can be
    /// resumed at this replica only.
    pub(crate) fn seal_call(
        &self,
        session: &Session,
        request: &Request,
        state: &str,
    ) -> Option<String> {
        let params = request.params.as_ref().map(Params::as_str);
        let call = SealedCall {
            id: request.id.clone(),
            method: request.method.clone(),
            params: params.map(serde_json::from_str).transpose().ok()?,
            state: state.to_owned(),
        };
        let body = serde_json::to_vec(&call).ok()?;
        // Base64 adds a third.
        if body.len() * 4 / 3 > MAX_SEALED_CALL {
            return None;
        }
        // The state inside has an expiry of its own.
        let validity = Validity::starting(now(), self.options.session_lifetime.as_secs());
        seal(&*self.sealer, &binding(session), validity, &body)
            .inspect_err(
                |error| tracing::warn!(target: "mrtr::legacy", %error, "sealing a call failed"),
            )
            .ok()
            .filter(|token| token.len() <= MAX_SEALED_CALL)
    }

    /// Opens a call that was sealed for this session, and its state.
    pub(crate) fn open_call(&self, session: &Session, token: &str) -> Option<(Request, String)> {
        let opened = open(&*self.sealer, token, &binding(session), now()).ok()?;
        let call: SealedCall<'_> = serde_json::from_slice(opened.body()).ok()?;
        let params = call.params.map(|params| Params::new(&params)).transpose().ok()?;
        Some((Request::new(call.id, call.method, params), call.state))
    }
}

/// Ties a call to its session and caller.
fn binding(session: &Session) -> Binding<'_> {
    Binding {
        principal: session.principal.as_ref(),
        proof_key: None,
        method: "Last-Event-ID",
        target: "call",
        arguments: Digest::from_parts(&[session.key.as_bytes()]),
    }
}
