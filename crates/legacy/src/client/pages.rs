//! Pages that a user has to visit before a call can succeed (2025-11-25, client: elicitation, "URL
//! Elicitation Required Error").
//!
//! The error becomes an input request, and the call is sent anew when the user has consented.

use mrtr_schema::capabilities::ClientCapabilities;
use mrtr_schema::elicitation::{ElicitAction, ElicitResult, UrlParams};
use mrtr_schema::input::{InputRequest, InputRequiredResult, InputResponses};
use mrtr_schema::jsonrpc::ErrorObject;
use serde::Deserialize;

use crate::code;

/// The request state of such a call. Nothing of it is kept here.
pub(super) const STATE: &str = "legacy-pages";

/// The most pages of an error.
const MAX_PAGES: usize = 16;

#[derive(Deserialize)]
struct Data {
    elicitations: Vec<Page>,
}

#[derive(Deserialize)]
struct Page {
    url: String,
    message: String,
}

/// Returns the input request for the pages that the error names. `None` if it is another error, or
/// the client visits no pages.
pub(super) fn required(
    error: &ErrorObject,
    capabilities: &ClientCapabilities,
) -> Option<InputRequiredResult> {
    if error.code != code::URL_ELICITATION_REQUIRED || !capabilities.has_url() {
        return None;
    }
    let Data { elicitations } = serde_json::from_value(error.data.clone()?).ok()?;
    if elicitations.is_empty() || elicitations.len() > MAX_PAGES {
        return None;
    }
    let requests = elicitations.into_iter().enumerate().map(|(n, Page { url, message })| {
        (format!("page-{}", n + 1), InputRequest::Elicit(UrlParams::new(message, url).into()))
    });
    Some(InputRequiredResult::new(requests.collect::<Vec<_>>(), Some(STATE.to_owned())))
}

/// Returns true if the user has consented to visit all pages.
pub(super) fn were_visited(responses: &InputResponses) -> bool {
    let is_accepted = |response: &str| {
        serde_json::from_str::<ElicitResult>(response)
            .is_ok_and(|result| result.action == ElicitAction::Accept)
    };
    !responses.0.is_empty() && responses.0.iter().all(|(_, response)| is_accepted(response.get()))
}

/// Returns the error of a call whose pages the user did not visit.
pub(super) fn not_visited() -> ErrorObject {
    let message = "the server requires the user to visit a page, and the user did not consent";
    ErrorObject::new(code::URL_ELICITATION_REQUIRED, message)
}
