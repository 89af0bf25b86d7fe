//! Replicas, and their clock.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use mrtr_codec::{Principal, UnixSeconds};
use mrtr_schema::jsonrpc::Response;
use mrtr_transport::{InProcess, OutgoingRequest, Transport, TransportError};
use serde_json::Value;

use super::steps::{StepBegun, StepLog};
use crate::clock::Clock;
use crate::server::Server;

/// A clock that stands still until it is told to move on ([`ServerBuilder::clock`](crate::ServerBuilder::clock)). Clones are one
/// clock.
#[derive(Debug, Clone)]
pub struct TestClock(Arc<AtomicU64>);

impl Default for TestClock {
    /// 2026-07-28T00:00:00Z.
    fn default() -> Self {
        Self(Arc::new(AtomicU64::new(1_785_196_800)))
    }
}

impl TestClock {
    /// Moves on by so many seconds.
    pub fn advance(&self, seconds: u64) {
        self.0.fetch_add(seconds, Ordering::SeqCst);
    }
}

impl Clock for TestClock {
    fn now(&self) -> UnixSeconds {
        UnixSeconds(self.0.load(Ordering::SeqCst))
    }
}

/// Replicas of a server, reached in turn: each request goes to the next one. They need one key ring, as any replicas do.
pub struct Replicas {
    servers: Vec<Server>,
    next: AtomicUsize,
    principal: Option<Principal>,
    log: Log,
}

/// One request and its response.
#[derive(Debug, Clone)]
pub struct Leg {
    /// Which replica answered.
    pub replica: usize,
    /// The request's parameters.
    pub params: Value,
    /// The result, or the error under `error`.
    pub outcome: Value,
}

impl Replicas {
    /// A fleet of these replicas.
    pub fn new(replicas: impl IntoIterator<Item = Server>) -> Self {
        let servers = replicas.into_iter().collect();
        Self { servers, next: AtomicUsize::new(0), principal: None, log: Log::default() }
    }

    /// The caller, as an authentication layer would have established it.
    #[must_use]
    pub fn as_principal(mut self, principal: Principal) -> Self {
        self.principal = Some(principal);
        self
    }

    /// A handle on the record of all legs, to keep when the fleet goes into a client.
    pub fn log(&self) -> Log {
        self.log.clone()
    }

    /// One request, to the next replica.
    pub(super) async fn leg(
        &self,
        outgoing: OutgoingRequest<'_>,
        principal: Option<&Principal>,
    ) -> Result<Response, TransportError> {
        let OutgoingRequest { request, heard, .. } = outgoing;
        let replica = self.next.fetch_add(1, Ordering::SeqCst) % self.servers.len().max(1);
        let server = self.servers.get(replica).cloned();
        let server = server.ok_or_else(|| TransportError::unsent("the fleet is empty"))?;
        let mut server = InProcess::new(server).with(self.log.steps.clone());
        if let Some(principal) = principal {
            server = server.with(principal.clone());
        }
        let sent: Value = request.decode_params().unwrap_or_default();
        let outgoing = OutgoingRequest { heard, ..OutgoingRequest::new(request) };
        let response = server.send(outgoing).await?;
        let outcome = match &response.outcome {
            Ok(result) => serde_json::from_str(result.get()).unwrap_or_default(),
            Err(error) => serde_json::json!({ "error": error }),
        };
        let leg = Leg { replica, params: sent, outcome };
        self.log.legs.lock().unwrap_or_else(PoisonError::into_inner).push(leg);
        Ok(response)
    }

    pub(super) fn principal(&self) -> Option<&Principal> {
        self.principal.as_ref()
    }
}

/// The record of a fleet's legs. Clones are one record.
#[derive(Debug, Clone, Default)]
pub struct Log {
    legs: Arc<Mutex<Vec<Leg>>>,
    steps: StepLog,
}

impl Log {
    /// All legs that were answered so far.
    pub fn legs(&self) -> Vec<Leg> {
        self.legs.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// All steps that were begun so far, on legs that nobody waited for too.
    pub fn steps(&self) -> Vec<StepBegun> {
        self.steps.all()
    }

    /// The keys that each leg asked for.
    pub fn asked(&self) -> Vec<Vec<String>> {
        let keys = |leg: &Leg| {
            let requests = leg.outcome.get("inputRequests").and_then(Value::as_object);
            requests.map(|all| all.keys().cloned().collect()).unwrap_or_default()
        };
        self.legs().iter().map(keys).collect()
    }
}

impl Transport for Replicas {
    async fn send(&self, outgoing: OutgoingRequest<'_>) -> Result<Response, TransportError> {
        self.leg(outgoing, self.principal.as_ref()).await
    }
}

impl std::fmt::Debug for Replicas {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Replicas").field("replicas", &self.servers.len()).finish_non_exhaustive()
    }
}
