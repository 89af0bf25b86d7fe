//! The handshake with a process: finds out what it speaks, and opens a session if that is a legacy
//! revision.

use std::pin::pin;
use std::sync::{Arc, Weak};
use std::time::Duration;

use futures_util::future::FusedFuture;
use futures_util::{FutureExt, TryFutureExt};
use mrtr_schema::meta::RequestMeta;
use mrtr_transport::stdio::{ChildServer, StreamClient};
use mrtr_transport::{OutgoingRequest, TransportError};
use tokio::task::{JoinError, JoinHandle};
use tokio::time::timeout;

use super::session::{NEVER, StreamSession};
use crate::client::adapter::{Adapter, ClientFacts};
use crate::client::era::{Era, era_of, probe_request};
use crate::client::mode::RevisionMode;

/// The default of [`AnyRevisionChild::probe_timeout`], and how much longer one of the two requests
/// is awaited when the other was answered.
///
/// [`AnyRevisionChild::probe_timeout`]: super::AnyRevisionChild::probe_timeout
pub(super) const PROBE_TIMEOUT: Duration = Duration::from_secs(10);

/// The process that runs, and what it speaks.
#[derive(Clone)]
pub(super) struct Process {
    pub(super) stream: StreamClient,
    /// `None` for the current revision.
    pub(super) legacy: Option<Arc<Adapter<StreamSession>>>,
}

impl Process {
    fn current(stream: StreamClient) -> Self {
        Self { stream, legacy: None }
    }
}

pub(super) struct Handshake {
    pub(super) child: Weak<ChildServer>,
    /// How often the server had been shut down before.
    pub(super) shutdowns: u64,
    pub(super) request_timeout: Duration,
    /// How long `initialize` may take.
    pub(super) start_limit: Duration,
    pub(super) mode: RevisionMode,
    pub(super) probe_timeout: Duration,
    /// The number of this handshake, from 1. Probes with different ids cannot be confused.
    pub(super) number: u64,
    /// The metadata of the request that began it.
    pub(super) meta: RequestMeta,
}

/// The failure of a handshake.
pub(super) struct Failed {
    pub(super) error: TransportError,
    /// The process, if it has not answered `initialize`.
    pub(super) unanswered: Option<StreamClient>,
}

impl From<TransportError> for Failed {
    fn from(error: TransportError) -> Self {
        Self { error, unanswered: None }
    }
}

/// The outcome of a handshake, unless its task was aborted.
pub(super) type Outcome = Result<Result<Process, Failed>, JoinError>;

/// A handshake in a task of its own: the requests for which it began may be dropped.
pub(super) struct RunningHandshake {
    pub(super) task: JoinHandle<Result<Process, Failed>>,
    /// How often the server had been shut down before.
    pub(super) shutdowns: u64,
}

impl Drop for RunningHandshake {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Handshake {
    /// Begins it with a process that was just started, or that has refused `initialize`.
    pub(super) fn begin(self, stream: StreamClient) -> RunningHandshake {
        let shutdowns = self.shutdowns;
        RunningHandshake { task: tokio::spawn(self.run(stream)), shutdowns }
    }

    async fn run(self, stream: StreamClient) -> Result<Process, Failed> {
        let started = match self.mode {
            RevisionMode::Current => Process::current(stream),
            RevisionMode::Legacy => self.open(stream).await?,
            RevisionMode::Auto => self.probe(stream).await?,
        };
        let era = if started.legacy.is_some() { Era::Legacy } else { Era::Current };
        tracing::debug!(target: "mrtr::client", ?era, "era of the server detected");
        Ok(started)
    }

    /// Finds out what a process speaks.
    async fn probe(&self, stream: StreamClient) -> Result<Process, Failed> {
        let probe = OutgoingRequest::new(probe_request(&self.meta, self.number)?);
        // Its answer counts for as long as `initialize` is open.
        let asking = stream.clone().timeout(NEVER);
        let mut answer = pin!(asking.exchange(probe).map_ok(era_of).fuse());
        let era = match timeout(self.probe_timeout, &mut answer).await {
            // The process may have ended because of the probe.
            Ok(answered) => answered.unwrap_or(Era::Legacy),
            Err(_) => {
                let mut opening = pin!(self.open(stream.clone()));
                let (opened, answered) = tokio::select! {
                    biased;
                    opened = &mut opening => (opened, None),
                    // It may still accept `initialize`, which was sent.
                    Ok(Era::Current) = &mut answer => match timeout(PROBE_TIMEOUT, opening).await {
                        Ok(opened) => (opened, Some(Era::Current)),
                        Err(_) => return Ok(Process::current(stream.clone())),
                    },
                };
                match opened {
                    Ok(legacy) => return Ok(legacy),
                    Err(Failed { error, .. }) if error.is_transient() && stream.is_closed() => {
                        Era::Legacy
                    }
                    Err(_) if answered.is_some() => Era::Current,
                    Err(failed) if answer.is_terminated() => return Err(failed),
                    Err(failed) => match timeout(PROBE_TIMEOUT, answer).await {
                        Ok(Ok(Era::Current)) => Era::Current,
                        _ => return Err(failed),
                    },
                }
            }
        };
        match era {
            Era::Current => Ok(Process::current(stream.clone())),
            // Starts the process again if it has ended.
            Era::Legacy => self.open(self.restart()?).await,
        }
    }

    /// Returns the running process, and starts it again if it has ended.
    fn restart(&self) -> Result<StreamClient, TransportError> {
        let shut_down = || TransportError::not_sent("the server was shut down");
        self.child.upgrade().ok_or_else(shut_down)?.restart(self.shutdowns)
    }

    /// Opens a session of a legacy revision.
    async fn open(&self, stream: StreamClient) -> Result<Process, Failed> {
        let session = StreamSession::new(&stream, self.request_timeout, self.start_limit);
        let adapter = Arc::new(Adapter::new(session));
        match adapter.open(&ClientFacts::of(&self.meta)).await {
            Ok(_) => Ok(Process { stream, legacy: Some(adapter) }),
            Err(error) => {
                let is_unanswered = error.is_transient() && !stream.is_closed();
                Err(Failed { error, unanswered: is_unanswered.then_some(stream) })
            }
        }
    }
}
