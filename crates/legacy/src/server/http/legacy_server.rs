//! The server of legacy clients, at the path of an endpoint.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use ::http::{HeaderMap, HeaderValue, Method, Request, Response, StatusCode};
use bytes::Bytes;
use mrtr_codec::Seal;
use mrtr_transport::RequestHandler;
use mrtr_transport::http::{LegacyHandler, Permit, ResponseBody};

use super::caller::{Caller, PROTOCOL_VERSION, SESSION_ID, no_such_session};
use super::rejected::{Rejected, empty};
use super::{get, post};
use crate::LegacyVersion;
use crate::server::bus::Message;
use crate::server::gateway::{Gateway, OpenedSession, now};
use crate::server::opening::{names_current_revision, opens_session};
use crate::server::options::LegacyOptions;

/// Serves legacy clients over HTTP, by a handler of the current revision.
///
/// Give it to [`Endpoint::legacy`](mrtr_transport::http::Endpoint::legacy), beside the same
/// handler.
///
/// A session is a sealed token: opening one costs the server no memory. What a client changes in
/// its session (the log level, subscriptions), and the calls that wait for an answer, are in the
/// memory of one process.
///
/// ```
/// use std::sync::Arc;
///
/// use mrtr_codec::KeyRing;
/// use mrtr_legacy::{LegacyOptions, LegacyServer};
/// use mrtr_schema::RawJson;
/// use mrtr_schema::jsonrpc::Response;
/// use mrtr_transport::http::Endpoint;
/// use mrtr_transport::{IncomingRequest, RequestHandler};
///
/// #[derive(Clone)]
/// struct Echo;
///
/// impl RequestHandler for Echo {
///     async fn handle(self: Arc<Self>, incoming: IncomingRequest) -> Response<RawJson> {
///         let result = RawJson::new(&incoming.request.method);
///         Response { id: Some(incoming.request.id), outcome: Ok(result.expect("a string")) }
///     }
/// }
///
/// let keys = Arc::new(KeyRing::ephemeral()?);
/// let legacy = LegacyServer::new(Echo, keys, LegacyOptions::default())?;
/// let endpoint = Endpoint::new(Echo).legacy(legacy);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct LegacyServer<H>(Arc<Gateway<H>>);

impl<H> Clone for LegacyServer<H> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<H: RequestHandler> LegacyServer<H> {
    /// Creates a server of legacy clients. All replicas of a service need the same keys.
    ///
    /// # Errors
    ///
    /// If the operating system has no random numbers, or if there is a bus and no Tokio runtime, or
    /// another server uses the bus.
    pub fn new(handler: H, sealer: Arc<dyn Seal>, options: LegacyOptions) -> std::io::Result<Self> {
        handler.also_serves(&LegacyVersion::names());
        let gateway = Gateway::new(handler, sealer, options).map_err(std::io::Error::other)?;
        let gateway = Arc::new(gateway);
        gateway.listen_to_bus()?;
        Ok(Self(gateway))
    }

    /// Ends all sessions that have state in this process: requests in flight are aborted, and
    /// streams end. A later request with the same session id starts with empty state, as on another
    /// replica.
    pub fn close(&self) {
        self.0.sessions.close();
    }
}

impl<H: RequestHandler> LegacyHandler for LegacyServer<H> {
    fn claims(&self, method: &Method, headers: &HeaderMap, body: Option<&[u8]>) -> bool {
        if *method != Method::POST {
            return true;
        }
        let version = headers.get(&PROTOCOL_VERSION);
        let is_legacy = |version: &HeaderValue| {
            version.to_str().is_ok_and(|name| LegacyVersion::from_name(name).is_some())
        };
        if !version.is_none_or(is_legacy) {
            return false;
        }
        // Outside a session, the body says which revision it is.
        headers.contains_key(&SESSION_ID)
            || body.is_some_and(|body| match version {
                Some(_) => !names_current_revision(body),
                None => opens_session(body),
            })
    }

    fn handle(
        &self,
        request: Request<Bytes>,
        permit: Permit,
    ) -> Pin<Box<dyn Future<Output = Response<ResponseBody>> + Send>> {
        let gateway = Arc::clone(&self.0);
        Box::pin(async move {
            let answered = match *request.method() {
                Method::POST => post::handle(&gateway, request, permit).await,
                Method::GET => get::handle(&gateway, request, permit).await,
                Method::DELETE => delete(&gateway, &request).await,
                _ => Err(Rejected::new(
                    StatusCode::METHOD_NOT_ALLOWED,
                    "the MCP endpoint accepts POST, GET and DELETE",
                )),
            };
            answered.unwrap_or_else(|rejected| rejected.into_response())
        })
    }
}

/// Ends a session.
async fn delete<H: RequestHandler>(
    gateway: &Gateway<H>,
    request: &Request<Bytes>,
) -> Result<Response<ResponseBody>, Box<Rejected>> {
    let caller = Caller::of(request);
    let OpenedSession { key, expires, .. } = caller.open(gateway)?;
    // It is published again if it had ended here before: the first time may have failed.
    let ended = Message::Ended { session: key, expires: expires.0 };
    let is_new = gateway.sessions.terminate(key, now(), expires);
    gateway.publish(&ended).await.map_err(Rejected::unreached)?;
    if !is_new {
        return Err(no_such_session());
    }
    tracing::debug!(target: "mrtr::legacy", "session ended by the client");
    Ok(empty(StatusCode::NO_CONTENT))
}
