//! Support for development tools such as `mrtr dev`.
//!
//! `mrtr dev` passes a key to the server in the environment variable [`KEYS_VARIABLE`]. A server
//! with an [ephemeral key](crate::ServerBuilder::ephemeral_key) uses it, so that calls continue
//! after a restart. With [`STDIO_VARIABLE`], it lets a program that calls `mrtr::serve` use
//! standard input and output instead of a port. With the feature `development`, a tool can read
//! request states (`RequestState::open`).

use mrtr_codec::KeyRing;
#[cfg(feature = "development")]
use mrtr_codec::LoadError;

use crate::build_error::BuildError;

#[cfg(feature = "development")]
mod request_state;

#[cfg(feature = "development")]
pub use request_state::{RequestState, StateEntry, StateEntryKind};

/// The environment variable with the keys of a server in development, in the form of
/// [`KeyRing::from_text`].
pub const KEYS_VARIABLE: &str = "MRTR_DEVELOPMENT_KEYS";

/// The environment variable that lets `mrtr::serve` serve standard input and output. Its value does
/// not matter.
pub const STDIO_VARIABLE: &str = "MRTR_DEVELOPMENT_STDIO";

const AUDIENCE: &str = "development";

/// Creates the key ring that a server uses if [`KEYS_VARIABLE`] has this text. Its audience is
/// fixed, so no other ring opens these states.
///
/// ```
/// use mrtr_server::Secret;
/// use mrtr_server::development::key_ring;
///
/// let ring = key_ring(&format!("active {}", *Secret::generate()?.to_base64url()))?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Errors
///
/// Those of [`KeyRing::from_text`].
#[cfg(feature = "development")]
pub fn key_ring(text: &str) -> Result<KeyRing, LoadError> {
    KeyRing::from_text(AUDIENCE, text)
}

/// Returns the keys of the environment, if there are any.
pub(crate) fn key_ring_from_env() -> Result<Option<KeyRing>, BuildError> {
    if std::env::var_os(KEYS_VARIABLE).is_none() {
        return Ok(None);
    }
    let ring = KeyRing::from_env(AUDIENCE, KEYS_VARIABLE);
    ring.map(Some).map_err(|error| BuildError::DevelopmentKeys(error.to_string()))
}
