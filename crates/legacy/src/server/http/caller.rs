//! The session and the caller of a request.

use ::http::{HeaderMap, HeaderName, Request, StatusCode};
use bytes::Bytes;
use mrtr_codec::Principal;
use mrtr_transport::RequestHandler;

use super::rejected::Rejected;
use crate::LegacyVersion;
use crate::server::context::Context;
use crate::server::gateway::{Gateway, OpenedSession};
use crate::server::session::Session;
use crate::server::sessions::{NoSession, SessionRef};

pub(super) const SESSION_ID: HeaderName = HeaderName::from_static("mcp-session-id");
pub(super) const PROTOCOL_VERSION: HeaderName = HeaderName::from_static("mcp-protocol-version");

/// The parts of a request that identify its session and caller.
pub(super) struct Caller<'r> {
    headers: &'r HeaderMap,
    principal: Option<&'r Principal>,
}

impl<'r> Caller<'r> {
    pub(super) fn of(request: &'r Request<Bytes>) -> Self {
        Self { headers: request.headers(), principal: request.extensions().get() }
    }

    /// Opens the session of the request.
    pub(super) fn open<H: RequestHandler>(
        &self,
        gateway: &Gateway<H>,
    ) -> Result<OpenedSession, Box<Rejected>> {
        let mut ids = self.headers.get_all(&SESSION_ID).iter();
        let (Some(id), None) = (ids.next(), ids.next()) else {
            return Err(Rejected::new(
                StatusCode::BAD_REQUEST,
                "the request needs one Mcp-Session-Id; `initialize` opens a session",
            ));
        };
        if let Some(version) = self.headers.get(&PROTOCOL_VERSION)
            && !version.to_str().is_ok_and(|name| LegacyVersion::from_name(name).is_some())
        {
            return Err(Rejected::new(
                StatusCode::BAD_REQUEST,
                "MCP-Protocol-Version is not a version of this session",
            ));
        }
        let opened = id.to_str().ok().and_then(|id| gateway.open_session(id, self.principal));
        opened.ok_or_else(no_such_session)
    }

    /// Returns the session's state in this process.
    pub(super) fn session<H: RequestHandler>(
        &self,
        gateway: &Gateway<H>,
    ) -> Result<SessionRef, Box<Rejected>> {
        let OpenedSession { key, claims, .. } = self.open(gateway)?;
        let principal = self.principal.cloned();
        let session = gateway.sessions.get_or_add(key, || Session::new(key, claims, principal));
        session.map_err(|error| match error {
            NoSession::Terminated => no_such_session(),
            NoSession::TooMany => Rejected::new(
                StatusCode::SERVICE_UNAVAILABLE,
                "the server has too many sessions in use",
            ),
        })
    }
}

pub(super) fn no_such_session() -> Box<Rejected> {
    Rejected::new(StatusCode::NOT_FOUND, "there is no such session; open a new one")
}

/// Returns the context of a request for its handler.
pub(super) fn context_of(request: &Request<Bytes>) -> Context {
    Context { headers: request.headers().clone(), extensions: request.extensions().clone() }
}
