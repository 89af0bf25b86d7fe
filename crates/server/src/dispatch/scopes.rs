//! The scopes that a call needs (specification: authorization).

use mrtr_schema::jsonrpc::ErrorObject;
use mrtr_transport::insufficient_scope;

use crate::call_options::CallOptions;
use crate::request_parts::RequestParts;
use crate::rounds::Journal;

/// Checks that the access token has the scopes that the call is known to need.
pub(super) fn check_scopes(
    options: &CallOptions,
    parts: &RequestParts,
    journal: Option<&Journal>,
) -> Result<(), ErrorObject> {
    let recorded = || journal.into_iter().flat_map(Journal::scopes);
    let mut needed = options.scopes.iter().map(String::as_str).chain(recorded());
    if needed.all(|scope| parts.has_scope(scope)) {
        return Ok(());
    }
    Err(scopes_error(options, recorded()))
}

/// Creates the error of a task whose access token lacks scopes.
pub(crate) fn missing_scopes(options: &CallOptions, journal: &Journal) -> ErrorObject {
    scopes_error(options, journal.scopes())
}

/// Creates the error of a call whose access token lacks scopes. It names all that the call needs.
pub(super) fn scopes_error<'a>(
    options: &'a CallOptions,
    recorded: impl Iterator<Item = &'a str>,
) -> ErrorObject {
    let mut scopes: Vec<&str> = options.scopes.iter().map(String::as_str).collect();
    for scope in recorded {
        if !scopes.contains(&scope) {
            scopes.push(scope);
        }
    }
    tracing::debug!(target: "mrtr::access", ?scopes, "insufficient scope");
    insufficient_scope(scopes)
}
