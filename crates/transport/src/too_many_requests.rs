//! The error of a request beyond a rate limit.

use std::time::Duration;

use mrtr_schema::jsonrpc::ErrorObject;
use serde_json::json;

/// The code of the error, and of the HTTP status. The specification defines none, and asks for
/// codes outside the range that JSON-RPC reserves (specification: basic, "Error Codes").
const CODE: i64 = 429;

/// The `data.reason` of the error.
const REASON: &str = "too_many_requests";

/// Creates the error for a request that exceeds a rate limit. The client may retry after
/// `retry_after`, in whole milliseconds in the data. The message and the header `Retry-After` round
/// up to whole seconds.
///
/// An [`Endpoint`](crate::http::Endpoint) sends it with status 429 and the header `Retry-After`
/// (RFC 6585, section 4), unless it has already started an event stream.
///
/// ```
/// use std::time::Duration;
///
/// use mrtr_transport::{retry_after, too_many_requests};
/// use serde_json::json;
///
/// let error = too_many_requests(Duration::from_millis(2_500));
/// assert_eq!(error.to_string(), "Too many requests: retry after 3 s (429)");
/// assert_eq!(error.data, Some(json!({ "reason": "too_many_requests", "retryAfterMs": 2500 })));
/// assert_eq!(retry_after(&error), Some(Duration::from_millis(2_500)));
/// ```
pub fn too_many_requests(retry_after: Duration) -> ErrorObject {
    let ms = retry_after.as_nanos().div_ceil(1_000_000);
    let ms = u64::try_from(ms).unwrap_or(u64::MAX);
    let message = format!("Too many requests: retry after {} s", ms.div_ceil(1_000));
    ErrorObject::new(CODE, message).with_data(json!({ "reason": REASON, "retryAfterMs": ms }))
}

/// Returns the time after which a request may be sent again, if `error` is that of
/// [`too_many_requests`].
pub fn retry_after(error: &ErrorObject) -> Option<Duration> {
    let data = error.data.as_ref().filter(|data| data.get("reason") == Some(&REASON.into()))?;
    let ms = data.get("retryAfterMs")?.as_u64()?;
    (error.code == CODE).then(|| Duration::from_millis(ms))
}
