//! What all sessions of one server share.

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{SystemTime, UNIX_EPOCH};

use mrtr_codec::{Principal, Seal, UnixSeconds, Validity};
use mrtr_schema::capabilities::ServerCapabilities;
use mrtr_schema::discover::DiscoverResult;
use mrtr_schema::jsonrpc::{ErrorObject, Request};
use mrtr_schema::{RawJson, method};
use mrtr_transport::RequestHandler;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::task::AbortHandle;

use super::claims::SessionClaims;
use super::context::{Context, meta};
use super::options::LegacyOptions;
use super::session::{Session, SessionKey};
use super::sessions::Sessions;
use crate::handshake::{InitializeParams, InitializeResult};

/// How many streams are kept although their clients have read them.
const MAX_RETAINED: usize = 1_000;

pub(crate) struct Gateway<H> {
    pub(crate) handler: Arc<H>,
    pub(crate) sealer: Arc<dyn Seal>,
    pub(crate) options: LegacyOptions,
    pub(crate) sessions: Arc<Sessions>,
    /// Room for streams that were read to their end.
    retained: Arc<Semaphore>,
    /// The beginning of the ids that this process chooses.
    process: String,
    next_id: AtomicU64,
    pub(crate) listening: OnceLock<Listening>,
}

impl<H: RequestHandler> Gateway<H> {
    pub(crate) fn new(
        handler: H,
        sealer: Arc<dyn Seal>,
        options: LegacyOptions,
    ) -> Result<Self, getrandom::Error> {
        let process = format!("{:016x}", getrandom::u64()?);
        let sessions = Arc::new(Sessions::new(options.max_sessions));
        let next_id = AtomicU64::new(1);
        let retained = Arc::new(Semaphore::new(MAX_RETAINED));
        let handler = Arc::new(handler);
        let listening = OnceLock::new();
        Ok(Self { handler, sealer, options, sessions, retained, process, next_id, listening })
    }

    /// Takes room for a stream that was read to its end; `None` if there is none.
    pub(crate) fn try_retain(&self) -> Option<OwnedSemaphorePermit> {
        Arc::clone(&self.retained).try_acquire_owned().ok()
    }

    /// Returns an id that no other process chooses.
    pub(crate) fn new_id(&self) -> String {
        format!("{}-{}", self.process, self.next_id.fetch_add(1, Ordering::Relaxed))
    }

    /// Returns true if another process may have chosen this id. It has at most 37 characters.
    pub(crate) fn is_of_other_process(&self, id: &str) -> bool {
        let hex = |byte: u8| matches!(byte, b'0'..=b'9' | b'a'..=b'f');
        id.split_once('-').is_some_and(|(process, number)| {
            process != self.process
                && process.len() == self.process.len()
                && process.bytes().all(hex)
                && number.parse::<u64>().is_ok()
        })
    }

    /// Answers `initialize`: negotiates a session.
    pub(crate) async fn initialize(
        &self,
        request: &Request,
        context: &Context,
    ) -> Result<(SessionClaims, InitializeResult), ErrorObject> {
        let params: InitializeParams = request.decode_params()?;
        let claims = SessionClaims::negotiate(params, self.options.has_questions);
        let discovered = self.discover(&claims, context).await?;
        let result = InitializeResult::from_discovery(claims.version, discovered);
        Ok((claims, result))
    }

    /// Asks the handler what the server supports.
    async fn discover(
        &self,
        claims: &SessionClaims,
        context: &Context,
    ) -> Result<DiscoverResult, ErrorObject> {
        let request =
            Request::new(mrtr_schema::jsonrpc::RequestId::Number(0), method::DISCOVER, None);
        let meta = Arc::new(meta(claims));
        let mut incoming = context.incoming(claims, request, meta);
        incoming.notifications = mrtr_transport::NotificationSender::closed();
        let response = Arc::clone(&self.handler).handle(incoming).await;
        let result: RawJson = response.outcome?;
        serde_json::from_str(result.as_str()).map_err(|error| {
            tracing::error!(target: "mrtr::legacy", %error, "the result of server/discover is invalid");
            ErrorObject::internal("Internal error")
        })
    }

    /// Returns whether the server announces changes at all.
    pub(crate) async fn announces_changes(
        &self,
        session: &Session,
        context: &Context,
    ) -> Result<bool, ErrorObject> {
        let discovered = self.discover(&session.claims, context).await?;
        Ok(has_changes(&discovered.capabilities))
    }

    /// Seals the id of a new session.
    pub(crate) fn session_id(
        &self,
        claims: &SessionClaims,
        principal: Option<&Principal>,
    ) -> Result<String, ErrorObject> {
        let lifetime = self.options.session_lifetime.as_secs();
        let validity = Validity::starting(now(), lifetime);
        claims.seal(&*self.sealer, principal, validity).map_err(|error| {
            tracing::warn!(target: "mrtr::legacy", %error, "a session was not opened");
            ErrorObject::invalid_params(format!("Invalid params: {error}"))
        })
    }

    /// Opens a session id. `None` if it is not one of ours, of another caller, or expired.
    pub(crate) fn open_session(
        &self,
        session_id: &str,
        principal: Option<&Principal>,
    ) -> Option<OpenedSession> {
        let opened = SessionClaims::open(&*self.sealer, session_id, principal, now());
        let (claims, expires) = opened
            .inspect_err(|error| {
                tracing::debug!(target: "mrtr::legacy", %error, "a session id was rejected");
            })
            .ok()?;
        Some(OpenedSession { key: SessionKey::of(session_id), claims, expires })
    }
}

/// The task that receives messages of other replicas. It ends when this is dropped.
pub(crate) struct Listening(pub(crate) AbortHandle);

impl Drop for Listening {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// A session id that was verified. The session may have ended.
pub(crate) struct OpenedSession {
    pub(crate) key: SessionKey,
    pub(crate) claims: SessionClaims,
    pub(crate) expires: UnixSeconds,
}

fn has_changes(capabilities: &ServerCapabilities) -> bool {
    let list = |list: &Option<mrtr_schema::capabilities::ListCapability>| {
        list.as_ref().is_some_and(|list| list.list_changed == Some(true))
    };
    let resources = capabilities.resources.as_ref();
    list(&capabilities.tools)
        || list(&capabilities.prompts)
        || resources.is_some_and(|resources| {
            resources.list_changed == Some(true) || resources.subscribe == Some(true)
        })
}

/// The current time, by the system's clock.
pub(crate) fn now() -> UnixSeconds {
    let elapsed = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    UnixSeconds(elapsed.as_secs())
}

impl<H> fmt::Debug for Gateway<H> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Gateway")
            .field("options", &self.options)
            .field("active_sessions", &self.sessions.count())
            .finish_non_exhaustive()
    }
}
