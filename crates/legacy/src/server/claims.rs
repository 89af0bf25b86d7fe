//! The session id: what was negotiated, sealed. Any replica can read it, and none stores it.

use mrtr_codec::{Binding, Digest, OpenError, Principal, Seal, UnixSeconds, Validity, open, seal};
use mrtr_schema::apps;
use mrtr_schema::capabilities::{
    ClientCapabilities, ElicitationCapability, Implementation, SamplingCapability,
};
use serde::{Deserialize, Serialize};

use crate::LegacyVersion;
use crate::handshake::InitializeParams;
use crate::legacy_method;

/// The longest session id in bytes: it is a header of every request.
const MAX_SESSION_ID: usize = 4 << 10;

/// What `initialize` has negotiated.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct SessionClaims {
    #[serde(rename = "v")]
    pub(crate) version: LegacyVersion,
    #[serde(rename = "c")]
    pub(crate) capabilities: ClientCapabilities,
    #[serde(rename = "i")]
    pub(crate) client: Implementation,
}

/// The error of a session id that cannot be created.
#[derive(Debug, thiserror::Error)]
pub(crate) enum SessionError {
    #[error("the session id would be longer than {MAX_SESSION_ID} bytes")]
    TooLong,
    #[error("sealing the session failed: {0}")]
    Seal(#[from] mrtr_codec::SealError),
}

impl SessionClaims {
    /// Negotiates the version and the capabilities. Without questions, only the capabilities remain
    /// that need no answer: a page to visit, and MCP Apps.
    pub(crate) fn negotiate(params: InitializeParams, has_questions: bool) -> Self {
        let version = LegacyVersion::negotiate(&params.protocol_version);
        let mut client = Implementation::new(params.client_info.name, params.client_info.version);
        client.title = params.client_info.title;
        let mut capabilities = effective_capabilities(version, params.capabilities);
        if !has_questions {
            let (has_url, extensions) = (capabilities.has_url(), capabilities.extensions.take());
            capabilities = ClientCapabilities::default();
            capabilities.elicitation = has_url.then(ElicitationCapability::url);
            capabilities.extensions = extensions;
        }
        Self { version, capabilities, client }
    }

    /// Seals the claims for the caller.
    pub(crate) fn seal(
        &self,
        sealer: &dyn Seal,
        principal: Option<&Principal>,
        validity: Validity,
    ) -> Result<String, SessionError> {
        // Serializing plain data cannot fail.
        let body = serde_json::to_vec(self).unwrap_or_default();
        let token = seal(sealer, &binding(principal), validity, &body)?;
        if token.len() > MAX_SESSION_ID { Err(SessionError::TooLong) } else { Ok(token) }
    }

    /// Opens a session id that this caller presents.
    pub(crate) fn open(
        sealer: &dyn Seal,
        token: &str,
        principal: Option<&Principal>,
        now: UnixSeconds,
    ) -> Result<(Self, UnixSeconds), OpenError> {
        if token.len() > MAX_SESSION_ID {
            return Err(OpenError::UnknownFormat);
        }
        let opened = open(sealer, token, &binding(principal), now)?;
        let claims = serde_json::from_slice(opened.body()).map_err(|_| OpenError::UnknownFormat)?;
        Ok((claims, opened.validity().expires))
    }
}

fn binding(principal: Option<&Principal>) -> Binding<'_> {
    Binding {
        principal,
        proof_key: None,
        method: legacy_method::INITIALIZE,
        target: "session",
        arguments: Digest::from_parts(&[]),
    }
}

/// Returns the capabilities that a client of this version can have declared.
///
/// What the version does not define is left out, so that a server does not use it. MCP Apps is for
/// all versions.
fn effective_capabilities(
    version: LegacyVersion,
    mut declared: ClientCapabilities,
) -> ClientCapabilities {
    let has_apps = apps::is_supported_by(&declared);
    declared.extensions = None;
    if has_apps {
        declared = declared.with_extension(apps::EXTENSION, apps::client_settings());
    }
    declared.experimental = None;
    if !version.has_elicitation() {
        declared.elicitation = None;
    }
    if !version.has_url_elicitation() {
        declared.elicitation = declared.elicitation.map(|_| ElicitationCapability::form());
        declared.sampling = declared.sampling.map(|_| SamplingCapability::new());
    }
    declared
}

#[cfg(test)]
mod tests {
    use super::*;
    use mrtr_codec::KeyRing;
    use serde_json::json;

    fn declared() -> ClientCapabilities {
        serde_json::from_value(json!({
            "elicitation": { "form": {}, "url": {} },
            "sampling": { "tools": {} },
            "roots": { "listChanged": true },
            "extensions": {
                "com.example/x": {},
                apps::EXTENSION: { "mimeTypes": ["a/b", apps::MIME_TYPE], "more": {} },
            },
        }))
        .unwrap()
    }

    #[test]
    fn capabilities_of_later_revisions_are_left_out() {
        for (version, form, url, tools) in [
            (LegacyVersion::V2025_03_26, false, false, false),
            (LegacyVersion::V2025_06_18, true, false, false),
            (LegacyVersion::V2025_11_25, true, true, true),
        ] {
            let effective = effective_capabilities(version, declared());
            assert_eq!(
                (effective.has_form(), effective.has_url(), effective.has_sampling_tools()),
                (form, url, tools),
                "{version}"
            );
            assert!(effective.has_sampling() && effective.has_roots());
            let pages = json!({ apps::EXTENSION: { "mimeTypes": [apps::MIME_TYPE] } });
            assert_eq!(json!(effective.extensions), pages);
            let without = effective_capabilities(version, ClientCapabilities::new());
            assert!(without.extensions.is_none());
        }
    }

    const NOW: UnixSeconds = UnixSeconds(1_800_000_000);

    fn claims(name: &str) -> SessionClaims {
        let info = Implementation::new(name, "1");
        let version = LegacyVersion::V2025_06_18;
        let params = InitializeParams::new(version, ClientCapabilities::default(), info);
        SessionClaims::negotiate(params, true)
    }

    #[test]
    fn session_id_opens_for_its_caller_and_in_its_time_only() {
        let ring = KeyRing::ephemeral().unwrap();
        let alice = Principal::new("https://login.example", "alice");
        let bob = Principal::new("https://login.example", "bob");
        let token = claims("x").seal(&ring, Some(&alice), Validity::starting(NOW, 60)).unwrap();
        assert!(token.bytes().all(|byte| byte.is_ascii_graphic()), "{token}");
        let open = |token: &str, principal, now| SessionClaims::open(&ring, token, principal, now);
        let (opened, expires) = open(&token, Some(&alice), NOW).unwrap();
        assert_eq!((opened, expires), (claims("x"), UnixSeconds(NOW.0 + 60)));
        assert_eq!(open(&token, Some(&bob), NOW), Err(OpenError::WrongPrincipal));
        assert_eq!(open(&token, None, NOW), Err(OpenError::WrongPrincipal));
        assert_eq!(open(&token, Some(&alice), UnixSeconds(NOW.0 + 60)), Err(OpenError::Expired));
        let guessed = token.replace(&token[20..24], "AAAA");
        assert!(open(&guessed, Some(&alice), NOW).is_err());
    }

    #[test]
    fn session_id_has_a_maximum_length() {
        let ring = KeyRing::ephemeral().unwrap();
        let validity = Validity::starting(NOW, 60);
        let seal = |length| claims(&"n".repeat(length)).seal(&ring, None, validity);
        assert!(seal(1_000).is_ok());
        assert!(matches!(seal(MAX_SESSION_ID), Err(SessionError::TooLong)));
    }
}
