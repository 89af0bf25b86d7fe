//! The key that a caller proves to have.

use std::sync::Arc;

/// The key that the sender of a request has proved to have, such as by `DPoP`: the SHA-256
/// thumbprint of its JWK, as base64url (RFC 7638; RFC 9449, section 6.1).
///
/// The layer that checks the proof attaches it to the extensions of the request. A server binds the
/// request states of the call to it: a state that was sealed for one key opens for that key only.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct ProofKey(Arc<str>);

impl ProofKey {
    /// Creates it from the thumbprint of a key whose possession was verified.
    pub fn new(thumbprint: impl Into<Arc<str>>) -> Self {
        Self(thumbprint.into())
    }

    /// Returns the thumbprint.
    pub fn thumbprint(&self) -> &str {
        &self.0
    }
}
