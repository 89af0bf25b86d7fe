//! A server of any revision that runs as a child process.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use mrtr_schema::PROTOCOL_VERSION;
use mrtr_schema::capabilities::ClientCapabilities;
use mrtr_schema::jsonrpc::Response;
use mrtr_schema::meta::RequestMeta;
use mrtr_schema::request_head::RequestHead;
use mrtr_transport::stdio::{ChildServer, StreamClient};
use mrtr_transport::{OutgoingRequest, Transport, TransportError};
use tokio::sync::Mutex;
use tokio::time::timeout;

use super::handshake::{Failed, Handshake, Outcome, PROBE_TIMEOUT, Process, RunningHandshake};
use crate::LegacyVersion;
use crate::client::mode::RevisionMode;

/// A server of any revision that runs as a child process.
///
/// The first request to a new process is `server/discover`. A server that does not answer it as one
/// of the current revision gets `initialize` (specification: stdio, "Backward Compatibility"). So
/// does a server that has not answered within the [timeout](Self::probe_timeout), because it is
/// slow to start or ignores methods that it does not know. If it accepts `initialize`, it is used
/// as a legacy server, also if it would have answered `server/discover`: `initialize` selects the
/// legacy semantics for the process (specification: versioning).
///
/// A call with a legacy server cannot be put down: its request state works only with this client,
/// while the process runs.
///
/// ```
/// use mrtr_legacy::{AnyRevisionChild, RevisionMode};
/// use mrtr_transport::stdio::ChildServer;
///
/// let child = ChildServer::new("file-server", ["--root", "/srv"]);
/// let transport = AnyRevisionChild::new(child, RevisionMode::Auto);
/// ```
pub struct AnyRevisionChild {
    child: Arc<ChildServer>,
    mode: RevisionMode,
    probe_timeout: Duration,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    process: Option<Process>,
    /// The handshake that is in progress, or that ended when no request waited for it.
    handshake: Option<RunningHandshake>,
    /// The number of handshakes that were begun.
    handshakes: u64,
    /// A process that has not answered `initialize`. It may still, to a session that is lost.
    unanswered: Option<StreamClient>,
}

impl State {
    /// Keeps the outcome of the handshake.
    fn end_handshake(&mut self, outcome: Outcome) -> Result<Process, TransportError> {
        self.handshake = None;
        match outcome {
            Ok(Ok(process)) => {
                self.process = Some(process.clone());
                Ok(process)
            }
            Ok(Err(Failed { error, unanswered })) => {
                self.unanswered = unanswered;
                Err(error)
            }
            Err(_) => Err(TransportError::not_sent("the handshake was aborted")),
        }
    }
}

impl AnyRevisionChild {
    /// Creates a client. Nothing is started yet.
    pub fn new(child: ChildServer, mode: RevisionMode) -> Self {
        Self { child: Arc::new(child), mode, probe_timeout: PROBE_TIMEOUT, state: Mutex::default() }
    }

    /// Sets how long a server may take to answer `server/discover` before it gets `initialize`,
    /// too. Default: 10 s. It applies to [`RevisionMode::Auto`] only.
    ///
    /// After this time both requests are open. If `initialize` succeeds, the server is a legacy
    /// one. If `initialize` fails while the process runs, or is not answered within 10 s of the
    /// answer to `server/discover`, that answer decides. It gets 10 s more if it is still missing.
    /// Then the request that waits for the process fails with the error of `initialize`.
    ///
    /// Dropping a request does not end the handshake that it has begun: the next request waits for
    /// the same one. A process that has not answered `initialize` for the
    /// [start timeout](ChildServer::start_timeout) is replaced by the next request. A request waits
    /// for `time` and its own [timeout](ChildServer::timeout) together.
    pub fn probe_timeout(mut self, time: Duration) -> Self {
        self.probe_timeout = time;
        self
    }

    /// Returns the running process, after a handshake if it is new. Starts it if there is none.
    async fn process(&self, meta: &RequestMeta) -> Result<Process, TransportError> {
        let shutdowns = self.child.shutdowns();
        let mut state = self.state.lock().await;
        if self.child.shutdowns() != shutdowns {
            return Err(TransportError::not_sent("the server was shut down"));
        }
        let is_from_before = |running: &mut RunningHandshake| running.shutdowns != shutdowns;
        drop(state.handshake.take_if(is_from_before));
        if let Some(running) = &mut state.handshake {
            // If it has failed before, that was the outcome of other requests.
            let is_stale = running.task.is_finished();
            let outcome = (&mut running.task).await;
            let outcome = state.end_handshake(outcome);
            if self.child.shutdowns() != shutdowns {
                return Err(TransportError::not_sent("the server was shut down"));
            }
            if !is_stale {
                outcome?;
            }
        }
        let mut stream = self.child.start()?;
        if let Some(process) =
            state.process.as_ref().filter(|own| own.stream.is_same_stream(&stream))
        {
            return Ok(process.clone());
        }
        if state.unanswered.take().is_some_and(|silent| silent.is_same_stream(&stream)) {
            stream = self.child.replace(&stream)?;
        }
        state.handshakes += 1;
        let handshake = Handshake {
            child: Arc::downgrade(&self.child),
            shutdowns,
            request_timeout: self.child.request_timeout(),
            start_limit: self.child.start_limit(),
            mode: self.mode,
            probe_timeout: self.probe_timeout,
            number: state.handshakes,
            meta: meta.clone(),
        };
        // Dropped here, the request leaves the handshake to the next one.
        let running = state.handshake.insert(handshake.begin(stream));
        let outcome = (&mut running.task).await;
        state.end_handshake(outcome)
    }

    /// Shuts the process down; see [`ChildServer::shutdown`].
    pub async fn shutdown(&self, timeout: Duration) {
        self.child.shutdown(timeout).await;
    }
}

impl Transport for AnyRevisionChild {
    async fn send(&self, outgoing: OutgoingRequest<'_>) -> Result<Response, TransportError> {
        let meta = match RequestHead::from_request(&outgoing.request) {
            Ok(head) => head.meta,
            Err(error) => return Ok(Response::error(Some(outgoing.request.id), error)),
        };
        let unknown = || RequestMeta::new(PROTOCOL_VERSION, ClientCapabilities::default());
        let meta = meta.as_deref().cloned().unwrap_or_else(unknown);
        let shutdowns = self.child.shutdowns();
        let sent = self.send_once(outgoing, &meta).await;
        sent.map_err(|error| self.child.unless_shut_down(shutdowns, error))
    }

    fn protocol_version(&self) -> Option<&'static str> {
        let state = self.state.try_lock().ok()?;
        match &state.process.as_ref()?.legacy {
            None => Some(PROTOCOL_VERSION),
            Some(adapter) => adapter.version().map(LegacyVersion::as_str),
        }
    }
}

impl AnyRevisionChild {
    async fn send_once(
        &self,
        outgoing: OutgoingRequest<'_>,
        meta: &RequestMeta,
    ) -> Result<Response, TransportError> {
        // Others may wait for the same process, too.
        let limit = self.probe_timeout.saturating_add(self.child.request_timeout());
        let process = timeout(limit, self.process(meta)).await;
        let Process { stream, legacy } = process.map_err(|_| {
            TransportError::not_sent(format!("the server did not start within {limit:?}"))
        })??;
        match legacy {
            None => stream.exchange(outgoing).await,
            Some(adapter) => adapter.send(outgoing).await,
        }
    }
}

impl fmt::Debug for AnyRevisionChild {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AnyRevisionChild")
            .field("child", &self.child)
            .field("mode", &self.mode)
            .finish_non_exhaustive()
    }
}
