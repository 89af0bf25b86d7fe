//! A client of servers of any revision over HTTP.

use std::fmt;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use mrtr_schema::PROTOCOL_VERSION;
use mrtr_schema::capabilities::ClientCapabilities;
use mrtr_schema::jsonrpc::{Response, code};
use mrtr_schema::meta::RequestMeta;
use mrtr_schema::request_head::RequestHead;
use mrtr_transport::http::HttpClient;
use mrtr_transport::{OutgoingRequest, Transport, TransportError};
use tokio::time::Instant;

use super::session::HttpSession;
use crate::LegacyVersion;
use crate::client::adapter::{Adapter, ClientFacts};
use crate::client::era::{Era, denies_current, era_of, probe_request};
use crate::client::mode::RevisionMode;

/// A client of servers of any revision over HTTP.
///
/// It finds out what the server speaks with the first request. If the server later refuses a
/// session, or a request of the current revision, it is asked again: it may have been upgraded
/// since, or an earlier release restored. To a legacy server, the client opens a session. Requests
/// that the server sends in the middle of a call become input requests, so that the handlers of a
/// client answer both.
///
/// A call with a legacy server cannot be put down: its request state works only with this client,
/// while it exists.
///
/// ```
/// use mrtr_legacy::{AnyRevisionClient, RevisionMode};
/// use mrtr_transport::http::HttpClient;
///
/// # fn example() -> Result<(), mrtr_transport::TransportError> {
/// let http = HttpClient::builder("https://booking.example/mcp").build()?;
/// let transport = AnyRevisionClient::new(http, RevisionMode::Auto);
/// # Ok(()) }
/// ```
pub struct AnyRevisionClient {
    http: HttpClient,
    mode: RevisionMode,
    legacy: Adapter<HttpSession>,
    era: Mutex<Option<Era>>,
    /// Held while the server is asked, so that concurrent requests ask it once. The time at which
    /// it first answered with an internal error, if it did.
    probing: tokio::sync::Mutex<Option<Instant>>,
}

/// The time after an internal error in which the server is not asked again.
const DOUBT: Duration = Duration::from_secs(10);

impl AnyRevisionClient {
    /// Creates a client. Nothing is sent yet.
    pub fn new(http: HttpClient, mode: RevisionMode) -> Self {
        let legacy = Adapter::new(HttpSession::new(http.clone()));
        Self { http, mode, legacy, era: Mutex::default(), probing: tokio::sync::Mutex::default() }
    }

    fn known_era(&self) -> MutexGuard<'_, Option<Era>> {
        self.era.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the era of the server, which the first request finds out.
    async fn era(&self, meta: &RequestMeta) -> Result<Era, TransportError> {
        match self.mode {
            RevisionMode::Current => Ok(Era::Current),
            RevisionMode::Legacy => Ok(Era::Legacy),
            RevisionMode::Auto => {
                let known = *self.known_era();
                if let Some(era) = known {
                    return Ok(era);
                }
                let mut failed_at = self.probing.lock().await;
                let known = *self.known_era();
                match known {
                    Some(era) => Ok(era),
                    None if failed_at.is_some_and(|at| at.elapsed() < DOUBT) => Ok(Era::Legacy),
                    None => self.probe(meta, &mut failed_at).await,
                }
            }
        }
    }

    /// Asks the server by a request of the current revision (specification: streamable HTTP,
    /// "Backward Compatibility").
    async fn probe(
        &self,
        meta: &RequestMeta,
        failed_at: &mut Option<Instant>,
    ) -> Result<Era, TransportError> {
        let answer = self.http.send(OutgoingRequest::new(probe_request(meta, 1)?)).await;
        let has_answered = answer.is_ok();
        let is_failure = answer.as_ref().is_ok_and(is_internal_error);
        let era = match answer {
            Ok(response) => era_of(response),
            Err(error) if is_rejection(&error) => Era::Legacy,
            Err(error) => return Err(error),
        };
        if era == Era::Legacy
            && let Err(error) = self.legacy.open(&ClientFacts::of(meta)).await
        {
            // A server that knows neither has an error of its own, such as one about the caller.
            // The request itself will get it. Nothing is remembered.
            return if has_answered { Ok(Era::Current) } else { Err(error) };
        }
        // A layer in front of a server of the current revision may fail for a moment.
        if is_failure && era == Era::Legacy && failed_at.is_none() {
            *failed_at = Some(Instant::now());
            return Ok(era);
        }
        *self.known_era() = Some(era);
        tracing::debug!(target: "mrtr::client", ?era, "era of the server detected");
        Ok(era)
    }
}

fn is_internal_error(response: &Response) -> bool {
    response.outcome.as_ref().is_err_and(|error| error.code == code::INTERNAL_ERROR)
}

/// Returns true if the server has rejected a request without a JSON-RPC error.
fn is_rejection(error: &TransportError) -> bool {
    error
        .status()
        .is_some_and(|status| (400..500).contains(&status) && ![401, 403, 429].contains(&status))
}

impl Transport for AnyRevisionClient {
    /// In legacy revisions, the level of log messages is that of the session.
    fn correlates_logs(&self) -> bool {
        self.protocol_version() == Some(PROTOCOL_VERSION)
    }

    async fn send(&self, outgoing: OutgoingRequest<'_>) -> Result<Response, TransportError> {
        let head = RequestHead::from_request(&outgoing.request);
        let meta = match head {
            Ok(head) => head.meta,
            Err(error) => return Ok(Response::error(Some(outgoing.request.id), error)),
        };
        let unknown = || RequestMeta::new(PROTOCOL_VERSION, ClientCapabilities::default());
        let meta = meta.as_deref().cloned().unwrap_or_else(unknown);
        let mut era = self.era(&meta).await?;
        if era == Era::Legacy && self.legacy.open(&ClientFacts::of(&meta)).await.is_err() {
            *self.known_era() = None;
            era = self.era(&meta).await?;
        }
        if era == Era::Legacy {
            return self.legacy.send(outgoing).await;
        }
        let sent = self.http.send(outgoing).await;
        let is_denied = match &sent {
            Ok(response) => denies_current(response),
            Err(error) => is_rejection(error),
        };
        if is_denied {
            *self.known_era() = None;
        }
        sent
    }

    fn authorization_epoch(&self) -> u64 {
        self.http.authorization_epoch()
    }

    fn protocol_version(&self) -> Option<&'static str> {
        let era = match self.mode {
            RevisionMode::Auto => (*self.known_era())?,
            RevisionMode::Current => Era::Current,
            RevisionMode::Legacy => Era::Legacy,
        };
        match era {
            Era::Current => Some(PROTOCOL_VERSION),
            Era::Legacy => self.legacy.version().map(LegacyVersion::as_str),
        }
    }
}

impl fmt::Debug for AnyRevisionClient {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AnyRevisionClient")
            .field("http", &self.http)
            .field("mode", &self.mode)
            .field("era", &*self.known_era())
            .finish_non_exhaustive()
    }
}
