//! The two traits that separate servers and clients from transports.

use std::fmt;
use std::future::Future;
use std::sync::Arc;

use mrtr_schema::RawJson;
use mrtr_schema::jsonrpc::{Notification, Request, Response};
use mrtr_schema::meta::RequestMeta;

use crate::error::TransportError;
use crate::notifications::NotificationSender;

/// A request that a transport has admitted, on its way to a [`RequestHandler`].
///
/// Its [`Debug`](fmt::Debug) form has neither the headers, which may contain credentials, nor the
/// values of the parameters, which may be answers.
#[non_exhaustive]
pub struct IncomingRequest {
    /// The JSON-RPC request.
    pub request: Request,
    /// The request's `_meta`, already parsed. `None` if the request has none.
    pub meta: Option<Arc<RequestMeta>>,
    /// The HTTP headers of the request. Empty for other transports.
    pub headers: ::http::HeaderMap,
    /// Values that layers in front of the server attached, such as the authenticated principal.
    pub extensions: ::http::Extensions,
    /// Sends notifications about this request, ahead of its response.
    pub notifications: NotificationSender,
}

impl IncomingRequest {
    /// Creates a request without headers and extensions, as a custom transport hands it to a
    /// [`RequestHandler`].
    pub fn new(
        request: Request,
        meta: Option<Arc<RequestMeta>>,
        notifications: NotificationSender,
    ) -> Self {
        Self {
            request,
            meta,
            headers: ::http::HeaderMap::new(),
            extensions: ::http::Extensions::new(),
            notifications,
        }
    }
}

impl fmt::Debug for IncomingRequest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("IncomingRequest").field("request", &self.request).finish_non_exhaustive()
    }
}

/// The revision that a client of a legacy revision speaks: a value in the extensions of its
/// requests. Requests of the current revision have none.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ProtocolVersion(pub &'static str);

/// Marks a request that came over HTTP in a form without `Mcp-Param-*` headers: a value in the
/// extensions of the request. A server does not compare its arguments with its headers.
///
/// A transport whose wire format has no such headers inserts it. Clients cannot.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WithoutParamHeaders;

/// Answers requests: a server, as a transport sees it.
///
/// The result in the response is [`RawJson`]: text that is known to be JSON and is written to the
/// wire as it is, without being parsed again. There are two ways to get it:
///
/// - a handler with a result of its own serializes it with [`RawJson::new`];
/// - a gateway that forwards requests through a [`Transport`] converts the result that it received
///   (a `Box<RawValue>`) with `RawJson::from`, which does not copy it.
///
/// ```
/// use std::sync::Arc;
///
/// use mrtr_schema::RawJson;
/// use mrtr_schema::jsonrpc::{ErrorObject, Response};
/// use mrtr_transport::{IncomingRequest, OutgoingRequest, RequestHandler, Transport};
///
/// /// Forwards requests to another server.
/// struct Gateway<T>(T);
///
/// impl<T: Transport> RequestHandler for Gateway<T> {
///     async fn handle(self: Arc<Self>, incoming: IncomingRequest) -> Response<RawJson> {
///         let id = incoming.request.id.clone();
///         let notifications = incoming.notifications;
///         let forward = move |notification| {
///             notifications.try_send(notification);
///         };
///         let outgoing =
///             OutgoingRequest::new(incoming.request).with_notification_handler(&forward);
///         match self.0.send(outgoing).await {
///             Ok(response) => Response {
///                 id: response.id,
///                 outcome: response.outcome.map(RawJson::from),
///             },
///             Err(_) => Response::error(Some(id), ErrorObject::internal("Upstream unavailable")),
///         }
///     }
/// }
/// ```
pub trait RequestHandler: Send + Sync + 'static {
    /// Answers one request. Errors are responses, too.
    ///
    /// Dropping the future cancels the request: the transport does so when the client disconnects
    /// or cancels. The transport does not catch panics: an implementation converts them into error
    /// responses itself.
    fn handle(
        self: Arc<Self>,
        incoming: IncomingRequest,
    ) -> impl Future<Output = Response<RawJson>> + Send + 'static;

    /// Completes when the server begins to shut down and other replicas can continue its calls. A
    /// gateway that holds a call between two rounds then gives it up. Default: never.
    fn shutdown_begun(&self) -> impl Future<Output = ()> + Send + 'static {
        std::future::pending()
    }

    /// Announces the names of the legacy revisions that a transport serves with this handler.
    /// `server/discover` and the error for unsupported versions list them. Default: does nothing.
    fn also_serves(&self, versions: &[&'static str]) {
        let _ = versions;
    }
}

/// Several transports can share a handler.
impl<H: RequestHandler> RequestHandler for Arc<H> {
    fn handle(
        self: Arc<Self>,
        incoming: IncomingRequest,
    ) -> impl Future<Output = Response<RawJson>> + Send + 'static {
        Arc::clone(&*self).handle(incoming)
    }

    fn shutdown_begun(&self) -> impl Future<Output = ()> + Send + 'static {
        (**self).shutdown_begun()
    }

    fn also_serves(&self, versions: &[&'static str]) {
        (**self).also_serves(versions);
    }
}

/// Sends requests: a connection to a server, as a client sees it.
///
/// ```
/// use mrtr_schema::jsonrpc::Response;
/// use mrtr_transport::{OutgoingRequest, Transport, TransportError};
///
/// /// Logs the method of each request that passes through.
/// struct Logged<T>(T);
///
/// impl<T: Transport> Transport for Logged<T> {
///     async fn send(&self, outgoing: OutgoingRequest<'_>) -> Result<Response, TransportError> {
///         tracing::info!(method = outgoing.request.method, "request");
///         self.0.send(outgoing).await
///     }
/// }
/// ```
pub trait Transport: Send + Sync + 'static {
    /// Sends one request and waits for its response.
    ///
    /// A request is not sent twice, except by the HTTP client after the server has refused its
    /// bearer token. Dropping the future cancels the request.
    ///
    /// # Errors
    ///
    /// If there is no response: the request could not be sent, the connection broke, the request
    /// timed out, or the peer violated the protocol. See the predicates of [`TransportError`].
    fn send(
        &self,
        outgoing: OutgoingRequest<'_>,
    ) -> impl Future<Output = Result<Response, TransportError>> + Send;

    /// Returns true if log messages reach the notification handler of the request that they belong
    /// to, and no other. They do not name their request, so a connection that carries several
    /// requests at once cannot tell. Default: false.
    fn correlates_logs(&self) -> bool {
        false
    }

    /// Returns a number that changes when a request is sent with another authorization than the
    /// last one, such as a new access token. It does not return to an earlier value. Clients use no
    /// cached result from before a change (specification: server utilities, "Caching"). Default: 0,
    /// for transports whose authorization never changes.
    fn authorization_epoch(&self) -> u64 {
        0
    }

    /// Returns the revision that is spoken with the server; `None` if that is not known yet.
    /// Default: the current revision.
    fn protocol_version(&self) -> Option<&'static str> {
        Some(mrtr_schema::PROTOCOL_VERSION)
    }
}

/// A request on its way to a server.
#[non_exhaustive]
pub struct OutgoingRequest<'a> {
    /// The JSON-RPC request.
    pub request: Request,
    /// Arguments to mirror in `Mcp-Param-*` headers, as name and value. Transports without headers
    /// ignore them.
    pub param_headers: Vec<(String, String)>,
    /// True if the response may take arbitrarily long, as that of a subscription: the timeout
    /// applies only until the server sends its first message, and there is no limit on the total
    /// size of the notifications before the response.
    pub long_lived: bool,
    /// The caller, as an opaque key, if several callers share the connection. None must get what is
    /// meant for another, and a question of a legacy server that does not name its request is
    /// refused. The key is not sent to the server.
    pub caller: Option<&'a str>,
    /// Called with each notification that comes before the response.
    pub on_notification: &'a (dyn Fn(Notification) + Send + Sync),
}

impl OutgoingRequest<'static> {
    /// Creates a request that is not long-lived, on a connection of its caller's own, without
    /// parameter headers, that ignores notifications.
    pub fn new(request: Request) -> Self {
        Self {
            request,
            param_headers: Vec::new(),
            long_lived: false,
            caller: None,
            on_notification: &|_| (),
        }
    }
}

impl<'a> OutgoingRequest<'a> {
    /// Sets the arguments to mirror in `Mcp-Param-*` headers, as name and value.
    #[must_use]
    pub fn with_param_headers(mut self, headers: Vec<(String, String)>) -> Self {
        self.param_headers = headers;
        self
    }

    /// Sets [`long_lived`](Self::long_lived). Default: false.
    #[must_use]
    pub fn with_long_lived(mut self, long_lived: bool) -> Self {
        self.long_lived = long_lived;
        self
    }

    /// Sets the [`caller`](Self::caller). Default: none; the connection has one caller.
    #[must_use]
    pub fn with_caller(mut self, caller: Option<&'a str>) -> Self {
        self.caller = caller;
        self
    }

    /// Sets the callback for notifications that come before the response. Default: they are
    /// ignored.
    #[must_use]
    pub fn with_notification_handler<'b>(
        self,
        on_notification: &'b (dyn Fn(Notification) + Send + Sync),
    ) -> OutgoingRequest<'b>
    where
        'a: 'b,
    {
        OutgoingRequest { on_notification, ..self }
    }
}

impl fmt::Debug for OutgoingRequest<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OutgoingRequest").field("request", &self.request).finish_non_exhaustive()
    }
}
