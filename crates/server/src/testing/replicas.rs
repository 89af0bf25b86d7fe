//! In-memory replicas, their clock, and the record of their requests.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use mrtr_codec::{Principal, UnixSeconds};
use mrtr_schema::jsonrpc::Response;
use mrtr_transport::{GrantedScopes, InProcess, OutgoingRequest, Transport, TransportError};
use serde_json::Value;

use super::steps::{StepExecution, StepLog};
use crate::clock::Clock;
use crate::server::Server;

/// A clock that stands still until it is advanced. Clones share the time.
///
/// Give it to [`ServerBuilder::clock`](crate::ServerBuilder::clock).
#[derive(Debug, Clone)]
pub struct TestClock(Arc<AtomicU64>);

impl Default for TestClock {
    /// Creates a clock that stands at 2026-07-28T00:00:00Z.
    fn default() -> Self {
        Self(Arc::new(AtomicU64::new(1_785_196_800)))
    }
}

impl TestClock {
    /// Advances the time by `seconds`.
    pub fn advance(&self, seconds: u64) {
        self.0.fetch_add(seconds, Ordering::SeqCst);
    }
}

impl Clock for TestClock {
    fn now(&self) -> UnixSeconds {
        UnixSeconds(self.0.load(Ordering::SeqCst))
    }
}

/// Replicas of a server behind a round-robin load balancer: each request goes to the next replica.
///
/// Like real replicas, they need a shared key ring. `Replicas` is a [`Transport`], so a client can
/// use it like a remote server.
///
/// ```
/// # tokio::runtime::Builder::new_current_thread().enable_time().build()?.block_on(async {
/// use mrtr_server::testing::{Replicas, TestCall, TestClock};
/// use mrtr_server::{KeyRing, Principal, Server, SharedKeyRing, Tool};
/// use serde_json::json;
///
/// async fn whoami(caller: Principal) -> String {
///     caller.subject().to_owned()
/// }
///
/// let clock = TestClock::default();
/// let ring = SharedKeyRing::new(KeyRing::ephemeral()?);
/// let replica = || {
///     Server::builder("accounts", "1")
///         .sealer(ring.clone())
///         .clock(clock.clone())
///         .require_principal()
///         .tool(Tool::new("whoami", "Names the caller", whoami))
///         .build()
/// };
/// let replicas = Replicas::new([replica()?, replica()?])
///     .as_principal(Principal::new("https://issuer.example", "alice"));
/// let log = replicas.log();
///
/// let transcript = TestCall::tool("whoami", json!({})).run(&replicas).await?;
/// assert_eq!(transcript.text(), "alice");
/// assert_eq!(log.exchanges().len(), 1);
/// assert_eq!(log.exchanges()[0].replica, 0);
/// # Ok::<(), Box<dyn std::error::Error>>(()) }).unwrap();
/// # Ok::<(), std::io::Error>(())
/// ```
pub struct Replicas {
    servers: Vec<Server>,
    next: AtomicUsize,
    principal: Option<Principal>,
    scopes: Mutex<Option<GrantedScopes>>,
    log: RequestLog,
}

/// One request and its response.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Exchange {
    /// The index of the replica that responded.
    pub replica: usize,
    /// The parameters of the request.
    pub params: Value,
    /// The result, or the JSON-RPC error as the member `error`.
    pub outcome: Value,
}

impl Replicas {
    /// Creates a load balancer in front of these replicas.
    pub fn new(replicas: impl IntoIterator<Item = Server>) -> Self {
        let servers = replicas.into_iter().collect();
        Self {
            servers,
            next: AtomicUsize::new(0),
            principal: None,
            scopes: Mutex::default(),
            log: RequestLog::default(),
        }
    }

    /// Sets the authenticated caller of every request. Default: none.
    #[must_use]
    pub fn as_principal(mut self, principal: Principal) -> Self {
        self.principal = Some(principal);
        self
    }

    /// Sets the scopes of the access tokens that later requests come with. Default: requests come
    /// without a token, and may do everything, as over stdio.
    pub fn grant_scopes<S: Into<String>>(&self, scopes: impl IntoIterator<Item = S>) {
        let scopes = GrantedScopes::new(scopes);
        *self.scopes.lock().unwrap_or_else(PoisonError::into_inner) = Some(scopes);
    }

    /// Returns a handle to the record of all requests. It stays valid after the replicas have been
    /// moved into a client.
    pub fn log(&self) -> RequestLog {
        self.log.clone()
    }

    /// Sends one request to the next replica.
    pub(super) async fn exchange(
        &self,
        outgoing: OutgoingRequest<'_>,
        principal: Option<&Principal>,
    ) -> Result<Response, TransportError> {
        let OutgoingRequest { request, on_notification, .. } = outgoing;
        let replica = self.next.fetch_add(1, Ordering::SeqCst) % self.servers.len().max(1);
        let server = self.servers.get(replica).cloned();
        let server = server.ok_or_else(|| TransportError::not_sent("there are no replicas"))?;
        let mut server = InProcess::new(server).with_extension(self.log.steps.clone());
        if let Some(principal) = principal {
            server = server.with_extension(principal.clone());
        }
        let scopes = self.scopes.lock().unwrap_or_else(PoisonError::into_inner).clone();
        if let Some(scopes) = scopes {
            server = server.with_extension(scopes);
        }
        let sent: Value = request.decode_params().unwrap_or_default();
        let outgoing = OutgoingRequest::new(request).with_notification_handler(on_notification);
        let response = server.send(outgoing).await?;
        let outcome = match &response.outcome {
            Ok(result) => serde_json::from_str(result.get()).unwrap_or_default(),
            Err(error) => serde_json::json!({ "error": error }),
        };
        self.log.record(Exchange { replica, params: sent, outcome });
        Ok(response)
    }

    pub(super) fn principal(&self) -> Option<&Principal> {
        self.principal.as_ref()
    }
}

/// The record of all requests to some [`Replicas`]. Clones share the record.
#[derive(Debug, Clone, Default)]
pub struct RequestLog {
    exchanges: Arc<Mutex<Vec<Exchange>>>,
    steps: StepLog,
}

impl RequestLog {
    fn record(&self, exchange: Exchange) {
        self.exchanges.lock().unwrap_or_else(PoisonError::into_inner).push(exchange);
    }

    /// Returns all requests that got a response so far.
    pub fn exchanges(&self) -> Vec<Exchange> {
        self.exchanges.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Returns all executions of steps so far, including those of cancelled requests.
    pub fn steps(&self) -> Vec<StepExecution> {
        self.steps.all()
    }

    /// Returns the keys of the input requests in each response.
    pub fn input_keys(&self) -> Vec<Vec<String>> {
        let keys = |exchange: &Exchange| {
            let requests = exchange.outcome.get("inputRequests").and_then(Value::as_object);
            requests.map(|all| all.keys().cloned().collect()).unwrap_or_default()
        };
        self.exchanges().iter().map(keys).collect()
    }
}

impl Transport for Replicas {
    fn correlates_logs(&self) -> bool {
        true
    }

    async fn send(&self, outgoing: OutgoingRequest<'_>) -> Result<Response, TransportError> {
        self.exchange(outgoing, self.principal.as_ref()).await
    }
}

impl std::fmt::Debug for Replicas {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Replicas").field("replicas", &self.servers.len()).finish_non_exhaustive()
    }
}
