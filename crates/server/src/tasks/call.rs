//! The stored call of a task: all that its runs need and that does not change.

use std::sync::Arc;

use http::{Extensions, HeaderMap};
use mrtr_codec::encoding::{DecodeError, Decoder, Encoder};
use mrtr_codec::{Principal, UnixSeconds};
use mrtr_schema::PROTOCOL_VERSION;
use mrtr_schema::capabilities::{ClientCapabilities, Implementation};
use mrtr_schema::meta::RequestMeta;
use mrtr_transport::{GrantedScopes, NotificationSender};

use crate::request_parts::{Notifier, RequestParts};
use crate::rounds::{CallMeta, SharedStr};
use crate::runtime::Runtime;

/// The version of the binary format.
const FORMAT: u8 = 1;

/// The call of a task.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct StoredCall {
    pub(crate) meta: CallMeta,
    /// The answers that were known when the call became a task.
    pub(crate) known: Vec<(SharedStr, SharedStr)>,
    /// A JSON object.
    pub(crate) arguments: String,
    pub(crate) principal: Option<Principal>,
    pub(crate) capabilities: ClientCapabilities,
    pub(crate) client: Option<Implementation>,
    /// The scopes of the access token. `None`: all, since the request came without HTTP.
    pub(crate) scopes: Option<GrantedScopes>,
}

impl StoredCall {
    pub(crate) fn new(
        meta: CallMeta,
        known: &[(SharedStr, SharedStr)],
        arguments: &str,
        parts: &RequestParts,
    ) -> Self {
        let granted = || parts.extensions.get::<GrantedScopes>().cloned().unwrap_or_default();
        Self {
            meta,
            known: known.to_vec(),
            arguments: arguments.to_owned(),
            principal: parts.principal.clone(),
            capabilities: parts.capabilities().clone(),
            client: parts.client().cloned(),
            scopes: (!parts.has_all_scopes()).then(granted),
        }
    }

    pub(crate) fn pack(&self) -> Vec<u8> {
        let mut out = Encoder::with_capacity(512 + self.arguments.len());
        out.byte(FORMAT).raw(&self.meta.id).number(self.meta.started.0);
        out.number(self.meta.rounds).byte(self.meta.hand_overs);
        out.number(self.known.len() as u64);
        for (key, answer) in &self.known {
            out.bytes(key.as_bytes()).bytes(answer.as_bytes());
        }
        out.bytes(self.arguments.as_bytes());
        match &self.principal {
            None => out.byte(0),
            Some(principal) => {
                out.byte(1).bytes(principal.issuer().as_bytes());
                out.bytes(principal.subject().as_bytes());
                out.option(principal.client().map(str::as_bytes))
            }
        };
        // Both were JSON, so they are JSON again.
        out.bytes(&serde_json::to_vec(&self.capabilities).unwrap_or_default());
        let client = self.client.as_ref().map(serde_json::to_vec);
        out.option(client.and_then(Result::ok).as_deref());
        match &self.scopes {
            None => out.byte(0),
            Some(scopes) => {
                out.byte(1).number(scopes.iter().count() as u64);
                scopes.iter().fold(&mut out, |out, scope| out.bytes(scope.as_bytes()))
            }
        };
        out.finish()
    }

    pub(crate) fn unpack(packed: &[u8]) -> Result<Self, DecodeError> {
        let mut input = Decoder::new(packed);
        if input.byte()? != FORMAT {
            return Err(DecodeError);
        }
        let meta = CallMeta {
            id: input.array()?,
            started: UnixSeconds(input.number()?),
            rounds: input.number()?,
            hand_overs: input.byte()?,
        };
        let mut known = Vec::new();
        for _ in 0..input.number()? {
            known.push((input.text()?.into(), input.text()?.into()));
        }
        let arguments = input.text()?.to_owned();
        let principal = match input.byte()? {
            0 => None,
            1 => {
                let principal = Principal::new(input.text()?, input.text()?);
                Some(match input.optional_text()? {
                    None => principal,
                    Some(client) => principal.with_client(client),
                })
            }
            _ => return Err(DecodeError),
        };
        let capabilities = serde_json::from_slice(input.bytes()?).map_err(|_| DecodeError)?;
        let client = input.optional_text()?.map(serde_json::from_str).transpose();
        let client = client.map_err(|_| DecodeError)?;
        let scopes = match input.byte()? {
            0 => None,
            1 => {
                let mut scopes = Vec::new();
                for _ in 0..input.number()? {
                    scopes.push(input.text()?);
                }
                Some(GrantedScopes::new(scopes))
            }
            _ => return Err(DecodeError),
        };
        input.end()?;
        Ok(Self { meta, known, arguments, principal, capabilities, client, scopes })
    }

    /// Returns the parts of a request in whose place a run of the task stands.
    pub(crate) fn parts(&self, runtime: &Arc<Runtime>) -> Box<RequestParts> {
        let mut meta = RequestMeta::new(PROTOCOL_VERSION, self.capabilities.clone());
        meta.client_info.clone_from(&self.client);
        let mut extensions = Extensions::new();
        if let Some(scopes) = &self.scopes {
            extensions.insert(scopes.clone());
        }
        Box::new(RequestParts {
            meta: Arc::new(meta),
            principal: self.principal.clone(),
            headers: HeaderMap::new(),
            notifier: Notifier::new(NotificationSender::closed()),
            extensions,
            runtime: Arc::clone(runtime),
            group_states: Vec::new(),
            hides_target: false,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unpack_reverses_pack_and_rejects_everything_else() {
        let meta = CallMeta { id: [7; 16], started: UnixSeconds(5), rounds: 2, hand_overs: 1 };
        let known = vec![("who".into(), r#"{"action":"accept"}"#.into())];
        let principal = Principal::new("https://login.example", "alice");
        let capabilities: ClientCapabilities =
            serde_json::from_str(r#"{"elicitation":{"form":{}}}"#).unwrap();
        for (principal, client, scopes) in [
            (None, None, None),
            (Some(principal.clone()), None, Some(GrantedScopes::default())),
            (
                Some(principal.with_client("app")),
                Some(Implementation::new("c", "1")),
                Some(GrantedScopes::new(["pay"])),
            ),
        ] {
            let call = StoredCall {
                meta,
                known: known.clone(),
                arguments: "{}".to_owned(),
                principal,
                capabilities: capabilities.clone(),
                client,
                scopes,
            };
            let packed = call.pack();
            assert_eq!(StoredCall::unpack(&packed), Ok(call));
            for end in 0..packed.len() {
                assert!(StoredCall::unpack(&packed[..end]).is_err(), "cut to {end}");
            }
            assert!(StoredCall::unpack(&[&packed[..], b"x"].concat()).is_err());
        }
    }
}
