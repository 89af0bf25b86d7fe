//! Error codes that only legacy revisions have.

/// A resource does not exist.
#[cfg(feature = "server")]
pub(crate) const RESOURCE_NOT_FOUND: i64 = -32002;

/// The user has to visit pages before the request can succeed.
#[cfg(any(feature = "server", feature = "client"))]
pub(crate) const URL_ELICITATION_REQUIRED: i64 = -32042;
