//! The scopes of an access token, and the error if some are missing.

use std::fmt;
use std::sync::Arc;

use ::http::HeaderValue;
use mrtr_schema::jsonrpc::{ErrorObject, code};
use serde_json::{Value, json};

/// The `data.reason` of the error.
const REASON: &str = "insufficient_scope";

/// The scopes of the access token that came with a request (RFC 6749, section 3.3).
///
/// The layer that checks the token attaches them to the extensions of the request. They include the
/// scopes that others imply: what is not in the set is not granted.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct GrantedScopes(Arc<[String]>);

impl GrantedScopes {
    /// Creates a set of scopes.
    pub fn new<S: Into<String>>(scopes: impl IntoIterator<Item = S>) -> Self {
        Self(scopes.into_iter().map(Into::into).collect())
    }

    /// Returns true if `scope` was granted.
    pub fn contains(&self, scope: &str) -> bool {
        self.0.iter().any(|granted| granted == scope)
    }

    /// Returns the scopes.
    pub fn iter(&self) -> impl Iterator<Item = &str> {
        self.0.iter().map(String::as_str)
    }
}

/// Separates the scopes by spaces.
impl fmt::Display for GrantedScopes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0.join(" "))
    }
}

/// Creates the error of a request whose access token lacks scopes that its operation needs
/// (specification: insufficient scope errors). `scopes` are all that the operation needs.
///
/// An [`Endpoint`](crate::http::Endpoint) sends it with status 403 and a challenge that names the
/// scopes, unless the response has begun.
///
/// ```
/// use mrtr_transport::insufficient_scope;
/// use serde_json::json;
///
/// let error = insufficient_scope(["booking:read", "booking:pay"]);
/// let data =
///     json!({ "reason": "insufficient_scope", "scopes": ["booking:read", "booking:pay"] });
/// assert_eq!(error.data, Some(data));
/// ```
pub fn insufficient_scope<'a>(scopes: impl IntoIterator<Item = &'a str>) -> ErrorObject {
    let scopes: Vec<_> = scopes.into_iter().collect();
    let message = format!("Insufficient scope: the request needs {}", scopes.join(" "));
    ErrorObject::new(code::INVALID_REQUEST, message)
        .with_data(json!({ "reason": REASON, "scopes": scopes }))
}

/// Returns the challenge for an error of [`insufficient_scope`] (RFC 6750, section 3.1). `None` for
/// other errors, and for scopes that a header cannot carry.
///
/// Not part of the public API: only the workspace's own crates need it.
#[doc(hidden)]
pub fn scope_challenge(error: &ErrorObject) -> Option<HeaderValue> {
    let data = error.data.as_ref().filter(|data| data.get("reason") == Some(&REASON.into()))?;
    let scopes = data.get("scopes")?.as_array()?;
    let scopes: Vec<_> = scopes.iter().filter_map(Value::as_str).collect();
    let is_allowed = |byte: u8| matches!(byte, b'!' | b'#'..=b'[' | b']'..=b'~');
    if scopes.iter().any(|scope| scope.is_empty() || !scope.bytes().all(is_allowed)) {
        return None;
    }
    let scopes = scopes.join(" ");
    HeaderValue::try_from(format!(r#"Bearer error="insufficient_scope", scope="{scopes}""#)).ok()
}
