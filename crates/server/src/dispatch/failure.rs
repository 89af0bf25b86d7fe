//! The error responses of calls that fail.

use mrtr_schema::jsonrpc::ErrorObject;
use serde_json::json;

use crate::error::Error;
use crate::rounds::Fault;

/// Logs an error that a handler returned.
pub(crate) fn log_error(error: &Error, method: &str, target: &str) {
    if error.is_internal() {
        let error = format!("{error:#}");
        tracing::error!(target: "mrtr::handler", method, target, error, "handler failed");
    } else {
        tracing::debug!(
            target: "mrtr::handler",
            method, target, %error,
            "handler returned an error"
        );
    }
}

/// Logs a fault, and returns the error response, which hides the details from the client.
pub(crate) fn fault_response(fault: &Fault, method: &str, target: &str) -> ErrorObject {
    match fault {
        Fault::Capability(missing) => {
            tracing::debug!(
                target: "mrtr::rounds",
                method, target, ?missing,
                "client lacks capabilities"
            );
            ErrorObject::missing_client_capability(missing)
        }
        Fault::AnswerTooLong(..) => ErrorObject::invalid_params(format!("Invalid params: {fault}")),
        Fault::Changed(_) => {
            tracing::error!(
                target: "mrtr::rounds",
                method, target, %fault,
                "the call cannot continue"
            );
            ErrorObject::internal("The server has changed since this call began; start it over")
                .with_data(json!({ "reason": "call_changed" }))
        }
        Fault::Handler(_) | Fault::Panicked(_) => {
            tracing::error!(target: "mrtr::rounds", method, target, %fault, "the call failed");
            ErrorObject::internal("Internal error")
        }
    }
}
