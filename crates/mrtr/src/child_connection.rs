//! The transport of clients to a child process.

use mrtr_schema::jsonrpc::Response;
use mrtr_transport::stdio::ChildServer;
use mrtr_transport::{OutgoingRequest, Transport, TransportError};

use crate::client_revisions::{AnyChild, any_child};

/// A connection to a server that runs as a child process.
///
/// With the feature `legacy`, it speaks legacy revisions, too, if the server has no other.
///
/// ```
/// use mrtr::Client;
/// use mrtr::stdio::{ChildConnection, ChildServer};
///
/// let child = ChildServer::new("file-server", ["--root", "/srv"]);
/// let client = Client::builder(ChildConnection::new(child)).build();
/// ```
#[derive(Debug)]
pub struct ChildConnection(AnyChild);

impl ChildConnection {
    /// Creates a connection. Nothing is started yet.
    pub fn new(child: ChildServer) -> Self {
        Self(any_child(child))
    }

    /// Shuts the process down; see [`ChildServer::shutdown`].
    pub async fn shutdown(&self, timeout: std::time::Duration) {
        self.0.shutdown(timeout).await;
    }
}

impl Transport for ChildConnection {
    async fn send(&self, outgoing: OutgoingRequest<'_>) -> Result<Response, TransportError> {
        self.0.send(outgoing).await
    }

    fn protocol_version(&self) -> Option<&'static str> {
        self.0.protocol_version()
    }
}
