//! The short way to create a client: one URL.

use mrtr_client::{Client, ClientBuilder, TransportError};
use mrtr_transport::http::HttpClient;

/// Starts to build a client of the server whose MCP endpoint is at `url`. Nothing is sent yet.
///
/// # Errors
///
/// Fails if `url` is not an `http` or `https` URL.
pub fn connect(url: impl Into<String>) -> Result<ClientBuilder<HttpClient>, TransportError> {
    Ok(Client::builder(HttpClient::builder(url).build()?))
}
