//! Signature algorithms.

use std::fmt;

/// An algorithm that signs tokens (RFC 7518, section 3.1; RFC 8037).
///
/// There is no `none` and no symmetric algorithm: a shared secret would let the resource server
/// forge tokens.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Algorithm {
    /// ECDSA with P-256 and SHA-256.
    Es256,
    /// ECDSA with P-384 and SHA-384.
    Es384,
    /// EdDSA with Ed25519.
    EdDsa,
    /// RSASSA-PKCS1-v1.5 with SHA-256.
    Rs256,
    /// RSASSA-PKCS1-v1.5 with SHA-384.
    Rs384,
    /// RSASSA-PKCS1-v1.5 with SHA-512.
    Rs512,
    /// RSASSA-PSS with SHA-256.
    Ps256,
    /// RSASSA-PSS with SHA-384.
    Ps384,
    /// RSASSA-PSS with SHA-512.
    Ps512,
}

impl Algorithm {
    /// The algorithms that are accepted by default.
    pub(super) const DEFAULT: [Self; 5] =
        [Self::Es256, Self::Es384, Self::EdDsa, Self::Rs256, Self::Ps256];

    pub(super) const ALL: [Self; 9] = [
        Self::Es256,
        Self::Es384,
        Self::EdDsa,
        Self::Rs256,
        Self::Rs384,
        Self::Rs512,
        Self::Ps256,
        Self::Ps384,
        Self::Ps512,
    ];

    /// Returns the value of `alg`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Es256 => "ES256",
            Self::Es384 => "ES384",
            Self::EdDsa => "EdDSA",
            Self::Rs256 => "RS256",
            Self::Rs384 => "RS384",
            Self::Rs512 => "RS512",
            Self::Ps256 => "PS256",
            Self::Ps384 => "PS384",
            Self::Ps512 => "PS512",
        }
    }

    /// Parses a value of `alg`. `Ed25519` is the name that RFC 9864 gives to EdDSA with that curve.
    pub(super) fn parse(name: &str) -> Option<Self> {
        let name = if name == "Ed25519" { "EdDSA" } else { name };
        Self::ALL.into_iter().find(|algorithm| algorithm.name() == name)
    }
}

impl fmt::Display for Algorithm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}
