//! Sends the requests of a login.

use super::message::{HttpRequest, HttpResponse};
use crate::fetch::Fetcher;

/// Sends a request. The error is a text that names the reason, but not the URL.
pub(crate) async fn fetch(fetcher: &Fetcher, request: HttpRequest) -> Result<HttpResponse, String> {
    let HttpRequest { method, url, headers, body } = request;
    let response = fetcher.send(method, url, headers, body).await;
    let (head, body) = response.map_err(|error| error.to_string())?.into_parts();
    Ok(HttpResponse::new(head.status, head.headers, body))
}
