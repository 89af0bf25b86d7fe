//! The paved path of a client.

use mrtr_client::{Client, ClientBuilder, TransportError};
use mrtr_transport::http::HttpClient;

/// Starts a client of the server whose MCP endpoint is at `url`.
///
/// # Errors
///
/// If `url` is no `http` or `https` URL. Nothing is sent yet.
pub fn connect(url: impl Into<String>) -> Result<ClientBuilder<HttpClient>, TransportError> {
    Ok(Client::builder(HttpClient::builder(url).build()?))
}
