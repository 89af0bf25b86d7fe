//! A server of any revision that runs as a child process.

use std::fmt;
use std::pin::pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex as SyncMutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures_util::future::FusedFuture;
use futures_util::{FutureExt, TryFutureExt};
use mrtr_schema::PROTOCOL_VERSION;
use mrtr_schema::capabilities::ClientCapabilities;
use mrtr_schema::jsonrpc::Response;
use mrtr_schema::meta::RequestMeta;
use mrtr_schema::request_head::RequestHead;
use mrtr_transport::stdio::{ChildServer, StreamClient};
use mrtr_transport::{OutgoingRequest, Transport, TransportError};
use tokio::sync::Mutex;
use tokio::time::{Instant, timeout};

use super::session::StreamSession;
use crate::LegacyVersion;
use crate::client::adapter::{Adapter, ClientFacts};
use crate::client::era::{Era, era_of, probe_request};
use crate::client::mode::RevisionMode;

/// The default of [`AnyRevisionChild::probe_timeout`], and how much longer one of the two requests
/// is awaited when the other was answered.
const PROBE_TIMEOUT: Duration = Duration::from_secs(10);

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
    child: ChildServer,
    mode: RevisionMode,
    probe_timeout: Duration,
    /// How often a process was probed.
    probes: AtomicU64,
    process: Mutex<Option<Process>>,
    /// The process that has got `initialize`, since when, and may not have answered it.
    uncertain: SyncMutex<Option<(StreamClient, Instant)>>,
}

/// The process that runs, and what it speaks.
#[derive(Clone)]
struct Process {
    stream: StreamClient,
    /// `None` for the current revision.
    legacy: Option<Arc<Adapter<StreamSession>>>,
}

impl Process {
    fn current(stream: &StreamClient) -> Self {
        Self { stream: stream.clone(), legacy: None }
    }
}

impl AnyRevisionChild {
    /// Creates a client. Nothing is started yet.
    pub fn new(child: ChildServer, mode: RevisionMode) -> Self {
        Self {
            child,
            mode,
            probe_timeout: PROBE_TIMEOUT,
            probes: AtomicU64::new(0),
            process: Mutex::new(None),
            uncertain: SyncMutex::new(None),
        }
    }

    /// Sets how long a server may take to answer `server/discover` before it gets `initialize`,
    /// too. Default: 10 s. It applies to [`RevisionMode::Auto`] only.
    ///
    /// After this time both requests are open. If `initialize` succeeds, the server is a legacy
    /// one. If `initialize` fails while the process runs, or is not answered within 10 s of the
    /// answer to `server/discover`, that answer decides. It gets 10 s more if it is still missing.
    /// Then the request that started the process fails with the error of `initialize`.
    ///
    /// Dropping that request ends the attempt, and the next request begins anew with the same
    /// process. The process is replaced if it has accepted `initialize` between two attempts, or if
    /// it has not answered that for the [start timeout](ChildServer::start_timeout).
    pub fn probe_timeout(mut self, time: Duration) -> Self {
        self.probe_timeout = time;
        self
    }

    /// Returns the running process, and starts and probes it if there is none.
    async fn process(&self, meta: &RequestMeta) -> Result<Process, TransportError> {
        let shutdowns = self.child.shutdowns();
        let mut process = self.process.lock().await;
        if self.child.shutdowns() != shutdowns {
            return Err(TransportError::not_sent("the server was shut down"));
        }
        let mut stream = self.child.start()?;
        if let Some(process) = process.as_ref().filter(|own| own.stream.is_same_stream(&stream)) {
            return Ok(process.clone());
        }
        let probe_timeout = match self.sent_since(&stream) {
            None => self.probe_timeout,
            Some(since)
                if stream.has_accepted_first() || since.elapsed() >= self.child.start_limit() =>
            {
                stream = self.child.replace(&stream)?;
                self.probe_timeout
            }
            // It is slow. Its first answer to `initialize` counts.
            Some(_) => Duration::ZERO,
        };
        let started = match self.mode {
            RevisionMode::Current => Process::current(&stream),
            RevisionMode::Legacy => self.open(stream, meta).await?,
            RevisionMode::Auto => self.probe(stream, meta, probe_timeout).await?,
        };
        let era = if started.legacy.is_some() { Era::Legacy } else { Era::Current };
        tracing::debug!(target: "mrtr::client", ?era, "era of the server detected");
        *process = Some(started.clone());
        Ok(started)
    }

    /// Finds out what a new process speaks.
    async fn probe(
        &self,
        stream: StreamClient,
        meta: &RequestMeta,
        probe_timeout: Duration,
    ) -> Result<Process, TransportError> {
        let attempt = self.probes.fetch_add(1, Ordering::Relaxed) + 1;
        let probe = OutgoingRequest::new(probe_request(meta, attempt)?);
        let mut answer = pin!(stream.send(probe).map_ok(era_of).fuse());
        let era = match timeout(probe_timeout, &mut answer).await {
            // The process may have ended because of the probe.
            Ok(answered) => answered.unwrap_or(Era::Legacy),
            Err(_) => {
                let mut opening = pin!(self.open(stream.clone(), meta));
                let (opened, answered) = tokio::select! {
                    biased;
                    opened = &mut opening => (opened, None),
                    // It may still accept `initialize`, which was sent.
                    Ok(Era::Current) = &mut answer => match timeout(PROBE_TIMEOUT, opening).await {
                        Ok(opened) => (opened, Some(Era::Current)),
                        Err(_) => return Ok(Process::current(&stream)),
                    },
                };
                match opened {
                    Ok(legacy) => return Ok(legacy),
                    Err(error) if error.is_transient() && stream.is_closed() => Era::Legacy,
                    Err(_) if answered.is_some() => Era::Current,
                    Err(error) if answer.is_terminated() => return Err(error),
                    Err(error) => match timeout(PROBE_TIMEOUT, answer).await {
                        Ok(Ok(Era::Current)) => Era::Current,
                        _ => return Err(error),
                    },
                }
            }
        };
        match era {
            Era::Current => Ok(Process::current(&stream)),
            // Starts the process again if it has ended.
            Era::Legacy => self.open(self.child.restart()?, meta).await,
        }
    }

    /// Opens a session of a legacy revision.
    async fn open(
        &self,
        stream: StreamClient,
        meta: &RequestMeta,
    ) -> Result<Process, TransportError> {
        let session = StreamSession::new(&stream, self.child.request_timeout());
        let adapter = Arc::new(Adapter::new(session));
        let since = self.sent_since(&stream).unwrap_or_else(Instant::now);
        *self.uncertain() = Some((stream.clone(), since));
        let opened = adapter.open(&ClientFacts::of(meta)).await;
        let is_refused = opened.as_ref().is_err_and(|error| !error.is_transient());
        // If it has accepted an earlier attempt, the next request replaces it.
        if opened.is_ok() || (is_refused && !stream.has_accepted_first()) {
            *self.uncertain() = None;
        }
        opened?;
        Ok(Process { stream, legacy: Some(adapter) })
    }

    /// Returns since when `initialize` is unanswered at this process, if it was sent.
    fn sent_since(&self, stream: &StreamClient) -> Option<Instant> {
        let uncertain = self.uncertain();
        let (own, since) = uncertain.as_ref()?;
        own.is_same_stream(stream).then_some(*since)
    }

    fn uncertain(&self) -> MutexGuard<'_, Option<(StreamClient, Instant)>> {
        self.uncertain.lock().unwrap_or_else(PoisonError::into_inner)
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
        // Others may wait for the same process, too.
        let limit = self.probe_timeout.saturating_add(self.child.request_timeout());
        let process = timeout(limit, self.process(&meta)).await;
        let Process { stream, legacy } = process.map_err(|_| {
            TransportError::not_sent(format!("the server did not start within {limit:?}"))
        })??;
        match legacy {
            None => stream.send(outgoing).await,
            Some(adapter) => adapter.send(outgoing).await,
        }
    }

    fn protocol_version(&self) -> Option<&'static str> {
        let process = self.process.try_lock().ok()?;
        match &process.as_ref()?.legacy {
            None => Some(PROTOCOL_VERSION),
            Some(adapter) => adapter.version().map(LegacyVersion::as_str),
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
