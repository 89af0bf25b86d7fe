//! Counters of rejected requests.
//!
//! They are events with the target `mrtr::metrics` and the level TRACE, in the form that the
//! `MetricsLayer` of `tracing-opentelemetry` turns into metrics. They cost nothing without a
//! subscriber.

/// Counts a request that did not reach the handler, as `mrtr.rejections` by `reason`.
pub(crate) fn count_rejection(reason: &'static str) {
    tracing::event!(
        target: "mrtr::metrics",
        tracing::Level::TRACE,
        monotonic_counter.mrtr.rejections = 1_u64,
        reason = reason,
    );
}

/// Returns the reason for a rejection with this HTTP status and error.
#[cfg(feature = "http-endpoint")]
pub(crate) fn reason_for_status(
    status: ::http::StatusCode,
    error: &mrtr_schema::jsonrpc::ErrorObject,
) -> &'static str {
    match status.as_u16() {
        403 => "access",
        405 => "method_not_allowed",
        406 => "not_acceptable",
        408 => "body_too_slow",
        413 => "body_too_long",
        415 => "media_type",
        503 => "busy",
        _ => reason_for_error(error),
    }
}

/// Returns the reason for a rejection with this JSON-RPC error.
pub(crate) fn reason_for_error(error: &mrtr_schema::jsonrpc::ErrorObject) -> &'static str {
    use mrtr_schema::jsonrpc::code;
    match error.code {
        code::PARSE_ERROR => "parse_error",
        code::INVALID_REQUEST => "invalid_request",
        code::METHOD_NOT_FOUND => "method_not_found",
        code::INVALID_PARAMS => "invalid_params",
        code::INTERNAL_ERROR => "busy",
        code::HEADER_MISMATCH => "header_mismatch",
        code::UNSUPPORTED_PROTOCOL_VERSION => "unsupported_protocol_version",
        _ => "other",
    }
}
