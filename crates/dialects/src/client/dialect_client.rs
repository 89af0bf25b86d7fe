//! The client of servers that speak a dialect.

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};

use mrtr_schema::jsonrpc::{ErrorObject, RequestId, Response};
use mrtr_schema::method;
use mrtr_transport::http::HttpClient;
use mrtr_transport::{OutgoingRequest, Transport, TransportError};
use tokio::sync::Mutex;

use super::session::Session;
use crate::Dialect;
use crate::wire::call::Call;

/// A client of servers that speak one dialect, over HTTP: a [`Transport`] for a client of the
/// current revision. The client's handlers answer, and its limits, deadlines and paused calls hold:
/// a paused call can be resumed by any process with the same URL.
///
/// With `tasks-2322` and `incomplete`, a client that declares the extension
/// `io.modelcontextprotocol/tasks` asks for a task with every `tools/call`. It repeats the call
/// without a task if the server answers `-32601`.
///
/// ```
/// use mrtr_dialects::{Dialect, DialectClient};
/// use mrtr_transport::http::HttpClient;
///
/// # fn example() -> Result<(), mrtr_transport::TransportError> {
/// let http = HttpClient::builder("https://weather.example/mcp").build()?;
/// let transport = DialectClient::new(Dialect::Incomplete, http);
/// # Ok(()) }
/// ```
pub struct DialectClient {
    pub(super) dialect: Dialect,
    pub(super) http: HttpClient,
    pub(super) session: Mutex<Option<Session>>,
    own_requests: AtomicU64,
}

impl DialectClient {
    /// Creates a client. Nothing is sent yet.
    pub fn new(dialect: Dialect, http: HttpClient) -> Self {
        Self { dialect, http, session: Mutex::new(None), own_requests: AtomicU64::new(1) }
    }

    /// Returns the id of a request that the application has not sent.
    pub(super) fn own_id(&self) -> RequestId {
        let count = self.own_requests.fetch_add(1, Ordering::Relaxed);
        RequestId::String(format!("mrtr-{}-{count}", self.dialect))
    }
}

impl Transport for DialectClient {
    async fn send(&self, outgoing: OutgoingRequest<'_>) -> Result<Response, TransportError> {
        let OutgoingRequest { request, on_notification, .. } = outgoing;
        let id = request.id.clone();
        let parsed = Call::from_request(request).and_then(|mut call| {
            let meta = call.take_meta()?;
            Ok((call, meta))
        });
        let (call, meta) = match parsed {
            Ok(parsed) => parsed,
            Err(error) => return Ok(Response::error(Some(id), error)),
        };
        if call.request.method == method::LISTEN {
            // No dialect has subscriptions.
            let error = ErrorObject::method_not_found(method::LISTEN);
            return Ok(Response::error(Some(id), error));
        }
        match self.dialect {
            Dialect::MultiTurnSse => self.send_turn(call, &meta, on_notification).await,
            _ => self.send_call(call, &meta, on_notification).await,
        }
    }

    fn protocol_version(&self) -> Option<&'static str> {
        Some(self.dialect.protocol_version())
    }

    fn authorization_epoch(&self) -> u64 {
        self.http.authorization_epoch()
    }
}

impl fmt::Debug for DialectClient {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DialectClient")
            .field("dialect", &self.dialect)
            .field("http", &self.http)
            .finish_non_exhaustive()
    }
}
