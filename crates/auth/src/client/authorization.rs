//! The authorization request, which the user's browser carries, and the response to it
//! (specification: Authorization; RFC 6749, section 4.1; RFC 7636; RFC 9207).

use std::borrow::Cow;
use std::fmt;

use url::{Url, form_urlencoded};

use super::random::{Seed, sha256_base64url};
use super::secret::Secret;
use crate::identifier::{Issuer, ResourceId};
use crate::metadata::ServerMetadata;
use crate::scope::Scopes;

/// The longest callback that is read, in bytes.
const MAX_CALLBACK: usize = 8 << 10;

/// What is known about an authorization request until its response comes.
#[derive(Debug)]
pub(crate) struct Pending {
    issuer: Issuer,
    names_issuer: bool,
    state: Secret,
    pub(crate) verifier: Secret,
    pub(crate) redirect_uri: String,
}

/// The parameters of an authorization request.
pub(crate) struct Parameters<'a> {
    pub(crate) client_id: &'a str,
    pub(crate) redirect_uri: &'a str,
    pub(crate) scopes: &'a Scopes,
    /// `None` for other servers than those of MCP.
    pub(crate) resource: Option<&'a str>,
    /// The thumbprint of the key that the code is bound to (RFC 9449, section 10).
    pub(crate) dpop_jkt: Option<&'a str>,
    pub(crate) prompts_consent: bool,
}

/// A response to an authorization request that carries no code.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum CallbackError {
    /// The response belongs to another request, or its `state` is missing or repeated.
    #[error("the callback does not belong to this login")]
    OtherState,
    /// The response is malformed: a parameter is repeated, or there is neither a code nor an error.
    #[error("malformed callback: {0}")]
    Malformed(&'static str),
    /// The response comes from another authorization server (RFC 9207). Nothing else in it is
    /// trusted.
    #[error("the callback does not come from {0}, which was asked to authorize")]
    OtherIssuer(Issuer),
    /// The authorization server or the user has refused.
    #[error("{issuer} refused to authorize: {error}")]
    Refused {
        /// The authorization server.
        issuer: Issuer,
        /// The error code (RFC 6749, section 4.1.2.1), such as `access_denied`.
        error: String,
    },
}

impl Pending {
    /// Restores what is known about a request that was created elsewhere from the same seed.
    #[cfg(feature = "connect")]
    pub(crate) fn of_seed(
        issuer: &Issuer,
        names_issuer: bool,
        redirect_uri: &str,
        seed: &Seed,
    ) -> Self {
        Self {
            issuer: issuer.clone(),
            names_issuer,
            state: seed.derive("state").into(),
            verifier: seed.derive("verifier").into(),
            redirect_uri: redirect_uri.to_owned(),
        }
    }

    /// Creates an authorization request: the URL for the browser, and what its response is checked
    /// against. `None` if the authorization server has no page for it.
    pub(crate) fn new(
        issuer: &Issuer,
        metadata: &ServerMetadata,
        parameters: &Parameters<'_>,
        seed: &Seed,
    ) -> Option<(Url, Self)> {
        let mut url = Url::parse(metadata.authorization_endpoint.as_deref()?).ok()?;
        let pending = Self {
            issuer: issuer.clone(),
            names_issuer: metadata.authorization_response_iss_parameter_supported,
            state: seed.derive("state").into(),
            verifier: seed.derive("verifier").into(),
            redirect_uri: parameters.redirect_uri.to_owned(),
        };
        {
            let mut query = url.query_pairs_mut();
            query
                .append_pair("response_type", "code")
                .append_pair("client_id", parameters.client_id)
                .append_pair("redirect_uri", parameters.redirect_uri)
                .append_pair("state", pending.state.expose())
                .append_pair("code_challenge", &sha256_base64url(pending.verifier.expose()))
                .append_pair("code_challenge_method", "S256");
            if let Some(resource) = parameters.resource {
                query.append_pair("resource", resource);
            }
            if !parameters.scopes.is_empty() {
                query.append_pair("scope", &parameters.scopes.to_string());
            }
            if let Some(thumbprint) = parameters.dpop_jkt {
                query.append_pair("dpop_jkt", thumbprint);
            }
            if parameters.prompts_consent && parameters.scopes.contains("offline_access") {
                // OpenID Connect Core, section 11: without it, the scope may be ignored.
                query.append_pair("prompt", "consent");
            }
        }
        Some((url, pending))
    }

    /// Returns the `state`, by which a callback is told from those of other logins.
    pub(crate) fn state(&self) -> &Secret {
        &self.state
    }

    /// Reads the code from a callback: the URL that the browser was redirected to, or its query.
    pub(crate) fn code(&self, callback: &str) -> Result<Secret, CallbackError> {
        let response = Callback::parse(callback)?;
        if response.state.as_deref() != Some(self.state.expose()) {
            return Err(CallbackError::OtherState);
        }
        let is_issuer = match (&response.iss, self.names_issuer) {
            (Some(iss), _) => iss == self.issuer.as_str(),
            (None, names_issuer) => !names_issuer,
        };
        if !is_issuer {
            return Err(CallbackError::OtherIssuer(self.issuer.clone()));
        }
        match (response.code, response.error) {
            (Some(code), None) if !code.is_empty() => Ok(Secret::new(code)),
            (None, Some(error)) => {
                Err(CallbackError::Refused { issuer: self.issuer.clone(), error: code(&error) })
            }
            _ => Err(CallbackError::Malformed("expected either a code or an error")),
        }
    }
}

/// Returns an error code in the characters that error codes have (RFC 6749, section 4.1.2.1), cut
/// to 64.
fn code(error: &str) -> String {
    let is_allowed = |c: &char| c.is_ascii_alphanumeric() || "_-. ".contains(*c);
    error.chars().filter(is_allowed).take(64).collect()
}

/// A page of an authorization server, at which the user logs in.
///
/// Its [`Debug`](fmt::Debug) form leaves out the query of its URL, which has secrets.
pub struct AuthorizationPage {
    pub(crate) url: Url,
    pub(crate) state: Secret,
    pub(crate) server: ResourceId,
    pub(crate) issuer: Issuer,
    pub(crate) scopes: Scopes,
}

impl AuthorizationPage {
    /// Returns the URL: `https`, or `http` on the loopback interface.
    pub fn url(&self) -> &Url {
        &self.url
    }

    /// Returns the MCP server that demands the login.
    pub fn server(&self) -> &ResourceId {
        &self.server
    }

    /// Returns the authorization server, which the MCP server has named.
    pub fn issuer(&self) -> &Issuer {
        &self.issuer
    }

    /// Returns the scopes that are asked for.
    pub fn scopes(&self) -> &Scopes {
        &self.scopes
    }

    /// Returns true if a callback belongs to this page. Ignore others, and continue to wait:
    /// another program or a web page may have sent them.
    pub fn is_answered_by(&self, callback: &str) -> bool {
        Callback::parse(callback)
            .is_ok_and(|response| response.state.as_deref() == Some(self.state.expose()))
    }
}

impl fmt::Debug for AuthorizationPage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AuthorizationPage")
            .field("server", &self.server)
            .field("issuer", &self.issuer)
            .field("scopes", &self.scopes)
            .finish_non_exhaustive()
    }
}

#[derive(Default)]
struct Callback {
    code: Option<String>,
    state: Option<String>,
    iss: Option<String>,
    error: Option<String>,
}

impl Callback {
    fn parse(callback: &str) -> Result<Self, CallbackError> {
        if callback.len() > MAX_CALLBACK {
            return Err(CallbackError::Malformed("longer than 8 KiB"));
        }
        let query: Cow<'_, str> = match Url::parse(callback) {
            Ok(url) => url.query().unwrap_or_default().to_owned().into(),
            Err(_) => callback.split_once('?').map_or(callback, |(_, query)| query).into(),
        };
        let mut response = Self::default();
        for (name, value) in form_urlencoded::parse(query.as_bytes()) {
            let place = match &*name {
                "code" => &mut response.code,
                "state" => &mut response.state,
                "iss" => &mut response.iss,
                "error" => &mut response.error,
                _ => continue,
            };
            // RFC 6749, section 3.1.
            if place.replace(value.into_owned()).is_some() {
                return Err(CallbackError::Malformed("a parameter is repeated"));
            }
        }
        Ok(response)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pending(iss_parameter: bool) -> (Url, Pending) {
        let issuer = Issuer::new("https://login.example").unwrap();
        let document = format!(
            r#"{{"issuer":"{issuer}","authorization_endpoint":"https://login.example/authorize?a=b",
            "authorization_response_iss_parameter_supported":{iss_parameter}}}"#
        );
        let metadata = ServerMetadata::parse(document.as_bytes(), &issuer).unwrap();
        let parameters = Parameters {
            client_id: "app",
            redirect_uri: "http://127.0.0.1:1/callback",
            scopes: &Scopes::parse("read write").unwrap(),
            resource: Some("https://booking.example/mcp"),
            dpop_jkt: None,
            prompts_consent: true,
        };
        Pending::new(&issuer, &metadata, &parameters, &Seed::new([7; 32])).unwrap()
    }

    #[test]
    fn request_has_all_parameters() {
        let (url, pending) = pending(true);
        let query: Vec<_> = url.query_pairs().collect();
        let expected = [
            ("a", "b"),
            ("response_type", "code"),
            ("client_id", "app"),
            ("redirect_uri", "http://127.0.0.1:1/callback"),
            ("state", pending.state.expose()),
            ("code_challenge", &sha256_base64url(pending.verifier.expose())),
            ("code_challenge_method", "S256"),
            ("resource", "https://booking.example/mcp"),
            ("scope", "read write"),
        ];
        let expected: Vec<_> = expected.map(|(a, b)| (a.into(), b.into())).into();
        assert_eq!(query, expected);
        assert!(!format!("{pending:?}").contains(pending.verifier.expose()));
    }

    #[test]
    fn issuer_of_the_response_is_checked_before_anything_else() {
        for (names_issuer, iss, accepted) in [
            (true, Some("https://login.example"), true),
            (true, None, false),
            (true, Some("https://evil.example"), false),
            (false, Some("https://login.example"), true),
            (false, None, true),
            (false, Some("https://evil.example"), false),
            // Equal only after normalization.
            (true, Some("https://login.example/"), false),
            (true, Some("https://login.example:443"), false),
            (true, Some("HTTPS://login.example"), false),
        ] {
            let (_, pending) = pending(names_issuer);
            let iss = iss.map_or(String::new(), |iss| format!("&iss={iss}"));
            for outcome in ["code=x", "error=attack&error_description=text"] {
                let state = pending.state.expose();
                let callback = format!("http://127.0.0.1:1/callback?{outcome}&state={state}{iss}");
                let result = pending.code(&callback);
                if accepted && outcome == "code=x" {
                    assert_eq!(result.unwrap().expose(), "x");
                } else if accepted {
                    assert!(matches!(result, Err(CallbackError::Refused { .. })), "{result:?}");
                } else {
                    assert!(matches!(result, Err(CallbackError::OtherIssuer(_))), "{result:?}");
                }
            }
        }
    }

    #[test]
    fn callback_of_another_login_is_rejected() {
        let (_, pending) = pending(false);
        let state = pending.state.expose();
        for query in ["code=x", "code=x&state=other", "code=x&state="] {
            assert_eq!(pending.code(query), Err(CallbackError::OtherState), "{query}");
            let page = AuthorizationPage {
                url: Url::parse("https://login.example/?secret").unwrap(),
                state: pending.state.clone(),
                server: ResourceId::new("https://booking.example/mcp").unwrap(),
                issuer: pending.issuer.clone(),
                scopes: Scopes::default(),
            };
            assert!(!page.is_answered_by(query));
            assert!(page.is_answered_by(&format!("/callback?code=x&state={state}")));
            assert!(!format!("{page:?}").contains("secret"));
        }
        for query in ["", "&code=x&code=y", "&code=x&error=y", "&code="] {
            let result = pending.code(&format!("state={state}{query}"));
            assert!(matches!(result, Err(CallbackError::Malformed(_))), "{query}: {result:?}");
        }
        let repeated = pending.code(&format!("state={state}&state={state}&code=x"));
        assert!(matches!(repeated, Err(CallbackError::Malformed(_))));
        assert!(pending.code(&format!("state={state}&code={}", "x".repeat(9000))).is_err());
    }

    #[test]
    fn error_code_is_shown_without_markup() {
        let (_, pending) = pending(false);
        let callback = format!("state={}&error=%1b[31m<b>no_access\n", pending.state.expose());
        let error = pending.code(&callback).unwrap_err().to_string();
        assert_eq!(error, "https://login.example refused to authorize: 31mbno_access");
    }
}
