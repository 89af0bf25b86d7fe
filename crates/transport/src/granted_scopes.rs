//! The scopes of an access token.

use std::fmt;
use std::sync::Arc;

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
