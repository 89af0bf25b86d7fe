//! The one answer to every sealed state that is not accepted.

use mrtr_codec::OpenError;
use mrtr_schema::jsonrpc::ErrorObject;
use serde_json::json;

use crate::rounds::Fault;

/// Counts a state that is not accepted, by reason, as `mrtr.state.refusals`.
fn count(reason: &'static str) {
    tracing::event!(target: "mrtr::metrics", tracing::Level::TRACE, monotonic_counter.mrtr.state.refusals = 1_u64, reason = reason);
}

/// The same words for every cause, so that nobody can probe for what they may not know. A client that
/// reads `data.reason` may start the call over.
pub(crate) fn frozen() -> ErrorObject {
    ErrorObject::invalid_params("Invalid or expired requestState")
        .with_data(json!({ "reason": "invalid_request_state" }))
}

/// A state that is for single use, and was used: it was sealed for this caller, who may know. Whoever starts over does
/// again what was done.
pub(crate) fn used(reason: &'static str) -> ErrorObject {
    count(reason);
    tracing::warn!(target: "mrtr::state", reason, "requestState refused");
    let (message, reason) = match reason {
        "outcome_unknown" => {
            ("This requestState was used, and what came of it is not known", "outcome_unknown")
        }
        _ => ("This requestState was used already", "request_state_used"),
    };
    ErrorObject::invalid_params(message).with_data(json!({ "reason": reason }))
}

/// Of a handler that is newer than this replica's, and whose calls this one cannot go on with.
pub(crate) fn refuse_newer(version: u32, method: &str, target: &str) -> ErrorObject {
    count("newer_version");
    tracing::warn!(target: "mrtr::state", reason = "newer_version", version, method, target, "requestState refused");
    frozen()
}

/// Logs the cause, and answers with [`frozen`].
pub(crate) fn refuse(refusal: OpenError, method: &str, target: &str) -> ErrorObject {
    count(refusal.reason());
    tracing::warn!(
        target: "mrtr::state",
        reason = refusal.reason(),
        method,
        target,
        "requestState refused"
    );
    frozen()
}

/// Logs that a custom sealer panicked. The client learns no more than from any other refusal.
pub(crate) fn refuse_panic(
    panic: &(dyn std::any::Any + Send),
    method: &str,
    target: &str,
) -> ErrorObject {
    count("sealer_panicked");
    let fault = Fault::panicked(panic);
    tracing::error!(target: "mrtr::state", reason = "sealer_panicked", %fault, method, target, "requestState refused");
    frozen()
}
