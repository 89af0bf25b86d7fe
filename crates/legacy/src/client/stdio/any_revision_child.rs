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

use super::session::StreamSession;
use crate::LegacyVersion;
use crate::client::adapter::{Adapter, ClientFacts};
use crate::client::era::{Era, era_of, probe_request};
use crate::client::mode::RevisionMode;

/// How long a legacy server may take to reject a request that it does not know. Some do not answer.
const PROBE_TIMEOUT: Duration = Duration::from_secs(5);

/// A server of any revision that runs as a child process.
///
/// The first request to a new process is `server/discover`. A server that does not answer it as one
/// of the current revision gets `initialize` (specification: stdio, "Backward Compatibility").
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
    process: Mutex<Option<Process>>,
}

/// The process that runs, and what it speaks.
#[derive(Clone)]
struct Process {
    stream: StreamClient,
    /// `None` for the current revision.
    legacy: Option<Arc<Adapter<StreamSession>>>,
}

impl AnyRevisionChild {
    /// Creates a client. Nothing is started yet.
    pub fn new(child: ChildServer, mode: RevisionMode) -> Self {
        Self { child, mode, process: Mutex::new(None) }
    }

    /// Returns the running process, and starts and probes it if there is none.
    async fn process(&self, meta: &RequestMeta) -> Result<Process, TransportError> {
        let mut process = self.process.lock().await;
        let stream = self.child.start().await?;
        if let Some(process) = process.as_ref().filter(|own| own.stream.is_same_stream(&stream)) {
            return Ok(process.clone());
        }
        let era = match self.mode {
            RevisionMode::Current => Era::Current,
            RevisionMode::Legacy => Era::Legacy,
            RevisionMode::Auto => {
                let probe = OutgoingRequest::new(probe_request(meta)?);
                match tokio::time::timeout(PROBE_TIMEOUT, stream.send(probe)).await {
                    Ok(Ok(response)) => era_of(response),
                    // It did not answer, or it ended.
                    Ok(Err(_)) | Err(_) => Era::Legacy,
                }
            }
        };
        // A process that has ended because of the probe is started again.
        let stream = self.child.start().await?;
        let started = match era {
            Era::Current => Process { stream, legacy: None },
            Era::Legacy => {
                let session = StreamSession::new(&stream, self.child.request_timeout());
                let adapter = Arc::new(Adapter::new(session));
                adapter.open(&ClientFacts::of(meta)).await?;
                Process { stream, legacy: Some(adapter) }
            }
        };
        tracing::debug!(target: "mrtr::client", ?era, "revision of the server found out");
        *process = Some(started.clone());
        Ok(started)
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
        let Process { stream, legacy } = self.process(&meta).await?;
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
