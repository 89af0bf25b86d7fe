//! Why a token was not opened.

/// Why a token was not opened. It is for the log and for metrics: the peer that sent the token should
/// learn only that it was refused, or it could probe for what it may not know.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, thiserror::Error)]
#[error("sealed state refused: {}", self.reason())]
#[non_exhaustive]
pub enum OpenError {
    /// Not a token: wrong prefix, alphabet, length, or more than one encoding.
    Malformed,
    /// Longer than [`crate::MAX_LEN`].
    TooLong,
    /// No key of the ring has the token's key id. Also what a token of another audience looks like.
    UnknownKey,
    /// The token was not sealed with the key that it names, or was changed since.
    Forged,
    /// The claims are in a format that this release does not read.
    UnknownFormat,
    /// Its time is over.
    Expired,
    /// It was issued more than 60 seconds in the future.
    NotYetValid,
    /// Sealed for another principal, or for none.
    WrongPrincipal,
    /// Sealed for another method.
    WrongMethod,
    /// Sealed for another tool, prompt or resource.
    WrongTarget,
    /// Sealed for other arguments.
    WrongArguments,
}

impl OpenError {
    /// A stable name: the value of a log field or of a metric's label.
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
            Self::WrongMethod => "wrong_method",
            Self::WrongTarget => "wrong_target",
            Self::WrongArguments => "wrong_arguments",
        }
    }
}
