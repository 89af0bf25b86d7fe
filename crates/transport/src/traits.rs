//! The two traits that keep servers and clients apart from how bytes travel.

use std::fmt;
use std::future::Future;
use std::sync::Arc;

use mrtr_schema::json::RawJson;
use mrtr_schema::jsonrpc::{Notification, Request, Response};
use mrtr_schema::meta::RequestMeta;
use mrtr_schema::request_head::RequestHead;
use serde_json::value::RawValue;

use crate::error::TransportError;
use crate::notifications::NotificationSender;
use crate::response_parts::{Part, Received, ResponseParts};

/// A request that a transport has let through.
#[derive(Debug)]
pub struct IncomingRequest {
    /// The request.
    pub request: Request,
    /// Its `_meta`, already read; `None` if it has none.
    pub meta: Option<Arc<RequestMeta>>,
    /// Its HTTP headers; none where it did not come over HTTP.
    pub headers: ::http::HeaderMap,
    /// What layers in front left for the server, such as who calls.
    pub extensions: ::http::Extensions,
    /// Where notifications about this request go.
    pub outbox: NotificationSender,
}

/// Answers requests: a server, as a transport sees it.
pub trait RequestHandler: Send + Sync + 'static {
    /// Answers one request. Errors are answers too.
    ///
    /// Dropping the future cancels the request; the transport does so when the client goes away.
    fn handle(
        self: Arc<Self>,
        call: IncomingRequest,
    ) -> impl Future<Output = Response<RawJson>> + Send + 'static;
}

/// Sends requests: a connection to a server, as a client sees it.
pub trait Transport: Send + Sync + 'static {
    /// Sends one request and waits for its response. Nothing is sent twice, unless it was refused for want of another token.
    ///
    /// Dropping the future cancels the request.
    fn send(
        &self,
        outgoing: OutgoingRequest<'_>,
    ) -> impl Future<Output = Result<Response, TransportError>> + Send;
}

/// A request on its way out.
pub struct OutgoingRequest<'a> {
    /// The request.
    pub request: Request,
    /// Arguments to be mirrored in `Mcp-Param-*` headers, as name and value. Transports without headers
    /// pass them over.
    pub param_headers: Vec<(String, String)>,
    /// The response comes when the server wants, or never: no time limit, and no limit on how much comes
    /// before it.
    pub long_lived: bool,
    /// Is told of each notification that comes before the response.
    pub heard: &'a (dyn Fn(Notification) + Send + Sync),
}

impl OutgoingRequest<'static> {
    /// A request alone; notifications are passed over.
    pub fn new(request: Request) -> Self {
        Self { request, param_headers: Vec::new(), long_lived: false, heard: &|_| () }
    }
}

impl fmt::Debug for OutgoingRequest<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OutgoingRequest").field("request", &self.request).finish_non_exhaustive()
    }
}

/// A client and a server in one process, without a socket: an [`Transport`] that hands requests to a
/// [`RequestHandler`]. For tests, and for servers that call their own tools.
#[derive(Debug)]
pub struct InProcess<D> {
    server: Arc<D>,
    extensions: ::http::Extensions,
}

impl<D> Clone for InProcess<D> {
    fn clone(&self) -> Self {
        Self { server: Arc::clone(&self.server), extensions: self.extensions.clone() }
    }
}

impl<D: RequestHandler> InProcess<D> {
    /// Calls `server`.
    pub fn new(server: D) -> Self {
        Self { server: Arc::new(server), extensions: ::http::Extensions::new() }
    }

    /// Leaves `value` with every request, as a layer in front of the server would: who calls, for
    /// example.
    pub fn with<T: Clone + Send + Sync + 'static>(mut self, value: T) -> Self {
        self.extensions.insert(value);
        self
    }
}

impl<D: RequestHandler> Transport for InProcess<D> {
    async fn send(&self, outgoing: OutgoingRequest<'_>) -> Result<Response, TransportError> {
        let OutgoingRequest { request, heard, .. } = outgoing;
        let RequestHead { meta, .. } = RequestHead::from_request(&request)
            .map_err(|e| TransportError::unsent(e.to_string()))?;
        let extensions = self.extensions.clone();
        let received = Received { extensions, ..Received::new(request, meta) };
        let mut answering = ResponseParts::new(&self.server, received, ());
        loop {
            match answering.next().await {
                Some(Part::Notification(notification)) => heard(notification),
                Some(Part::Response(Response { id, outcome })) => {
                    let raw = |text: RawJson| RawValue::from_string(text.into());
                    let outcome =
                        outcome.map(raw).map_or_else(|error| Ok(Err(error)), |raw| raw.map(Ok));
                    let broken =
                        |e| TransportError::broken(format!("the server wrote no JSON: {e}"));
                    return Ok(Response { id, outcome: outcome.map_err(broken)? });
                }
                None => return Err(TransportError::broken("the server did not answer")),
            }
        }
    }
}
