//! Errors of sealing and opening.

/// The cause of a rejected token.
///
/// The cause is for the server's log and metrics. Tell the peer only that its token was rejected: a
/// more precise answer would let it probe for other callers, keys and formats.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, thiserror::Error)]
#[non_exhaustive]
pub enum OpenError {
    /// The prefix, the base64url encoding or the length is invalid, or the encoding is not the only
    /// one of these bytes.
    #[error("malformed token")]
    Malformed,
    /// The token is longer than [`MAX_TOKEN_LEN`](crate::MAX_TOKEN_LEN).
    #[error("token is longer than 128 KiB")]
    TooLong,
    /// The ring has no key with the token's key id. Tokens of another audience cause this error
    /// too.
    #[error("token was sealed with a key that is not in the key ring")]
    UnknownKey,
    /// The token was not sealed with the key that it names, or it was changed afterwards.
    #[error("token is not authentic")]
    Forged,
    /// The claims are in a format that this release cannot read.
    #[error("token has an unknown claims format")]
    UnknownFormat,
    /// The token has expired.
    #[error("token has expired")]
    Expired,
    /// The token was issued more than 60 seconds in the future.
    #[error("token is not valid yet")]
    NotYetValid,
    /// The token was sealed for another principal. An anonymous caller is a principal of its own.
    #[error("token was sealed for another principal")]
    WrongPrincipal,
    /// The token was sealed for a caller that proved another key.
    #[error("token was sealed for another key")]
    WrongKey,
    /// The token was sealed for another method.
    #[error("token was sealed for another method")]
    WrongMethod,
    /// The token was sealed for another tool, prompt or resource.
    #[error("token was sealed for another target")]
    WrongTarget,
    /// The token was sealed for other arguments.
    #[error("token was sealed for other arguments")]
    WrongArguments,
}

impl OpenError {
    /// Returns a stable name, for a log field or a metric label.
    ///
    /// The token format defines these names. They do not change between releases.
    pub fn reason(self) -> &'static str {
        match self {
            Self::Malformed => "malformed",
            Self::TooLong => "too_long",
            Self::UnknownKey => "unknown_key",
            Self::Forged => "forged",
            Self::UnknownFormat => "unknown_format",
            Self::Expired => "expired",
            Self::NotYetValid => "not_yet_valid",
            Self::WrongPrincipal => "wrong_principal",
            Self::WrongKey => "wrong_key",
            Self::WrongMethod => "wrong_method",
            Self::WrongTarget => "wrong_target",
            Self::WrongArguments => "wrong_arguments",
        }
    }
}

/// The cause of a failure to seal.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SealError {
    /// The token would be longer than [`MAX_TOKEN_LEN`](crate::MAX_TOKEN_LEN). The field is the
    /// length of the plaintext in bytes.
    #[error("{0} bytes do not fit into a token of at most 128 KiB")]
    TooLong(usize),
    /// The source of nonces failed.
    #[error("the random number generator failed")]
    RandomSourceFailed,
    /// Another implementation of [`Seal`](crate::Seal) failed, such as a remote KMS.
    #[error("the sealer is unavailable")]
    Unavailable,
}
