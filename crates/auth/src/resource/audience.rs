//! The audiences that are accepted instead of the resource.

use super::config_error::ConfigError;
use crate::Issuer;

/// Checks the audiences that were set for an issuer. Returns none if none were set.
///
/// # Errors
///
/// If the list is empty, or has an empty audience.
pub(super) fn check(
    issuer: &Issuer,
    audiences: Option<Vec<String>>,
) -> Result<Vec<String>, ConfigError> {
    let Some(audiences) = audiences else { return Ok(Vec::new()) };
    if audiences.is_empty() {
        return Err(ConfigError::new(format!("issuer {issuer} has no audiences")));
    }
    if audiences.iter().any(String::is_empty) {
        return Err(ConfigError::new(format!("issuer {issuer} has an empty audience")));
    }
    Ok(audiences)
}
