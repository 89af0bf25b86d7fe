//! The short way to create a client: one URL.

use mrtr_client::{Client, ClientBuilder, TransportError};
use mrtr_transport::http::HttpClient;

use crate::http_connection::HttpConnection;

/// Returns a client builder for the server whose MCP endpoint is at `url`. Nothing is sent yet.
///
/// With the feature `legacy`, which is on by default, the client also calls servers of the
/// revisions 2025-11-25, 2025-06-18 and 2025-03-26: its first request is preceded by one that finds
/// out what the server speaks.
///
/// # Errors
///
/// Fails if `url` is not an `http` or `https` URL.
pub fn connect(url: impl Into<String>) -> Result<ClientBuilder<HttpConnection>, TransportError> {
    Ok(Client::builder(HttpConnection::new(HttpClient::builder(url).build()?)))
}
