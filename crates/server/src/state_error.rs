//! The error responses to request states that are not accepted.

use mrtr_codec::OpenError;
use mrtr_schema::jsonrpc::ErrorObject;
use serde_json::json;

use crate::rounds::Fault;

/// Counts a refused state in the metric `mrtr.state.rejections`.
fn count_refusal(reason: &'static str) {
    tracing::event!(
        target: "mrtr::metrics",
        tracing::Level::TRACE,
        monotonic_counter.mrtr.state.rejections = 1_u64,
        reason = reason
    );
}

/// Creates the error response to an invalid state.
///
/// It is the same for every cause, so that clients cannot probe the server with forged states. A
/// client that reads `data.reason` may start the call over.
fn invalid_state() -> ErrorObject {
    ErrorObject::invalid_params("Invalid or expired requestState")
        .with_data(json!({ "reason": "invalid_request_state" }))
}

/// Refuses a single-use state that was used. `reason` is for the log.
///
/// The response names the reason, unlike that to an invalid state: the state was sealed for this
/// caller. A client that starts the call over repeats its side effects.
pub(crate) fn refuse_used(reason: &'static str) -> ErrorObject {
    count_refusal(reason);
    tracing::warn!(target: "mrtr::state", reason, "requestState refused");
    let (message, reason) = match reason {
        "outcome_unknown" => {
            ("This requestState was used, and its outcome is unknown", "outcome_unknown")
        }
        _ => ("This requestState was already used", "request_state_used"),
    };
    ErrorObject::invalid_params(message).with_data(json!({ "reason": reason }))
}

/// Refuses a state of a newer, incompatible version of the handler.
pub(crate) fn refuse_newer(version: u32, method: &str, target: &str) -> ErrorObject {
    count_refusal("newer_version");
    tracing::warn!(
        target: "mrtr::state",
        reason = "newer_version",
        version,
        method,
        target,
        "requestState refused"
    );
    invalid_state()
}

/// Refuses a state that cannot be opened, and logs the cause.
pub(crate) fn refuse(error: OpenError, method: &str, target: &str) -> ErrorObject {
    count_refusal(error.reason());
    tracing::warn!(
        target: "mrtr::state",
        reason = error.reason(),
        method,
        target,
        "requestState refused"
    );
    invalid_state()
}

/// Refuses a state that made a custom sealer panic, and logs the panic.
pub(crate) fn refuse_panic(
    panic: &(dyn std::any::Any + Send),
    method: &str,
    target: &str,
) -> ErrorObject {
    count_refusal("sealer_panicked");
    let fault = Fault::panicked(panic);
    tracing::error!(
        target: "mrtr::state",
        reason = "sealer_panicked",
        %fault,
        method,
        target,
        "requestState refused"
    );
    invalid_state()
}
