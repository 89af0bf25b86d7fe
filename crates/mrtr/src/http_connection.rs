//! The transport of clients over HTTP.

use mrtr_schema::jsonrpc::Response;
use mrtr_transport::http::HttpClient;
use mrtr_transport::{OutgoingRequest, Transport, TransportError};

use crate::client_revisions::AnyClient;

/// A connection to a server over HTTP, as [`connect`](crate::connect) creates it.
///
/// With the feature `legacy`, it speaks legacy revisions, too, if the server has no other.
#[derive(Debug)]
pub struct HttpConnection(AnyClient);

impl HttpConnection {
    /// Creates a connection. Nothing is sent yet.
    ///
    /// ```
    /// use mrtr::Client;
    /// use mrtr::http::{HttpClient, HttpConnection};
    ///
    /// # fn example() -> Result<(), mrtr::client::TransportError> {
    /// let http = HttpClient::builder("https://booking.example/mcp").bearer("token")?.build()?;
    /// let client = Client::builder(HttpConnection::new(http)).build();
    /// # Ok(()) }
    /// ```
    pub fn new(http: HttpClient) -> Self {
        Self(crate::client_revisions::any_client(http))
    }
}

impl Transport for HttpConnection {
    fn correlates_logs(&self) -> bool {
        self.0.correlates_logs()
    }

    async fn send(&self, outgoing: OutgoingRequest<'_>) -> Result<Response, TransportError> {
        self.0.send(outgoing).await
    }

    fn authorization_epoch(&self) -> u64 {
        self.0.authorization_epoch()
    }

    fn protocol_version(&self) -> Option<&'static str> {
        self.0.protocol_version()
    }
}
