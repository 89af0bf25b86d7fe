//! The one answer to every sealed state that is not accepted.

use mrtr_codec::Refusal;
use mrtr_schema::jsonrpc::ErrorObject;
use serde_json::json;

/// The same words for every cause, so that nobody can probe for what they may not know. A client that
/// reads `data.reason` may start the call over.
pub(crate) fn frozen() -> ErrorObject {
    ErrorObject::invalid_params("Invalid or expired requestState")
        .with_data(json!({ "reason": "invalid_request_state" }))
}

/// Logs the cause, and answers with [`frozen`].
pub(crate) fn refuse(refusal: Refusal, method: &str, target: &str) -> ErrorObject {
    tracing::warn!(
        target: "mrtr::state",
        reason = refusal.reason(),
        method,
        target,
        "requestState refused"
    );
    frozen()
}
