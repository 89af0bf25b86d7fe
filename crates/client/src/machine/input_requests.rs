//! Input requests, before a handler sees them.

use mrtr_schema::capabilities::ClientCapabilities;
use mrtr_schema::input::{InputRequest, InputRequests};
use mrtr_schema::meta::RequestMeta;
use mrtr_schema::peer_text::quote;

use crate::error::CallError;

/// Checks input requests before a handler can see them: that they are valid, and that the client
/// has declared what they need. Optional parts that it has not declared are removed.
pub(crate) fn check_requests(
    requests: &mut InputRequests,
    meta: &RequestMeta,
) -> Result<(), CallError> {
    validate(requests)?;
    let nothing = ClientCapabilities::default();
    let declared = meta.client_capabilities.as_ref().unwrap_or(&nothing);
    for (key, request) in &mut requests.0 {
        if let Some(capability) = request.undeclared_capability(declared) {
            return Err(CallError::undeclared(key, capability));
        }
        request.remove_undeclared(declared);
    }
    Ok(())
}

/// Validates what the types of input requests do not, such as the URLs.
fn validate(requests: &InputRequests) -> Result<(), CallError> {
    requests.0.iter().try_for_each(|(key, request)| {
        request.validate().map_err(|why| {
            CallError::protocol(format!("invalid input request {}: {why}", quote(key)))
        })
    })
}

/// Summarizes input requests for error messages.
pub(super) fn summary(requests: &InputRequests) -> String {
    /// Enough to recognize the call, and short enough for one line.
    const MOST: usize = 3;
    let one = |(key, request): &(String, InputRequest)| match request {
        InputRequest::Elicit(params) => {
            format!("{} {}", quote(key), quote(params.message()))
        }
        other => format!("{} ({})", quote(key), other.method()),
    };
    requests.0.iter().take(MOST).map(one).collect::<Vec<_>>().join(", ")
}
