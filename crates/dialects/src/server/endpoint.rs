//! The endpoint of a dialect, as a tower service.

use std::convert::Infallible;
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use ::http::{HeaderMap, HeaderName, Method, Request, Response, StatusCode};
use bytes::Bytes;
use http_body::Body;
use mrtr_codec::Seal;
use mrtr_schema::RawJson;
use mrtr_schema::capabilities::{ClientCapabilities, ElicitationCapability, SamplingCapability};
use mrtr_schema::jsonrpc::{self, ErrorObject};
use mrtr_transport::host_policy::HostPolicy;
use mrtr_transport::http::{Endpoint, LegacyHandler, Permit, RequestLimits, ResponseBody};
use mrtr_transport::{IncomingRequest, NotificationSender, RequestHandler, headers};
use tower_service::Service;

use super::answer::{Answer, Answering, respond};
use super::engine::{Caller, Engine};
use super::seal::StateSeal;
use super::{envelope, task_calls, turns};
use crate::Dialect;
use crate::wire::envelope::{DEPENDENT, INCOMPLETE};

const PROTOCOL_VERSION: HeaderName = HeaderName::from_static("mcp-protocol-version");

/// The longest event id in bytes: common proxies limit a header to 8 KiB.
const MAX_EVENT_ID: usize = 6 << 10;

/// An endpoint for the clients of one dialect: a tower [`Service`] in front of a
/// [`RequestHandler`]. Mount it at a path of its own, beside the standard endpoint.
///
/// It keeps nothing between the rounds of a call, as the standard endpoint. A state that another
/// dialect or the standard endpoint has sealed does not open here.
///
/// It must run in a tokio runtime with time enabled. When a client disconnects, the future of the
/// handler is dropped.
///
/// ```
/// use std::sync::Arc;
///
/// use mrtr_codec::KeyRing;
/// use mrtr_dialects::{Dialect, DialectEndpoint};
/// use mrtr_schema::RawJson;
/// use mrtr_schema::jsonrpc::Response;
/// use mrtr_transport::{IncomingRequest, RequestHandler};
///
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
/// let endpoint = DialectEndpoint::new(Dialect::Incomplete, Echo, keys);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct DialectEndpoint<H> {
    engine: Arc<Engine<H>>,
    endpoint: Endpoint<Unreachable>,
}

impl<H> Clone for DialectEndpoint<H> {
    fn clone(&self) -> Self {
        Self { engine: Arc::clone(&self.engine), endpoint: self.endpoint.clone() }
    }
}

impl<H> fmt::Debug for DialectEndpoint<H> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DialectEndpoint")
            .field("dialect", &self.engine.dialect)
            .field("endpoint", &self.endpoint)
            .finish_non_exhaustive()
    }
}

impl<H: RequestHandler> DialectEndpoint<H> {
    /// Creates an endpoint that accepts requests to this machine's own names, with the default
    /// [`RequestLimits`]. The clients are taken to be able to answer forms and sampling requests.
    ///
    /// `sealer` binds states to the dialect: the sealer of the server, or another. All replicas of
    /// a service need the same keys.
    pub fn new(dialect: Dialect, handler: H, sealer: Arc<dyn Seal>) -> Self {
        let mut capabilities = ClientCapabilities::default();
        capabilities.elicitation = Some(ElicitationCapability::form());
        capabilities.sampling = Some(SamplingCapability::new());
        let engine = Arc::new(Engine {
            dialect,
            handler: Arc::new(handler),
            seal: StateSeal::new(sealer, dialect),
            capabilities,
            max_event_id: MAX_EVENT_ID,
        });
        let endpoint = Endpoint::new(Unreachable).legacy(Adapter(Arc::clone(&engine)));
        Self { engine, endpoint }
    }

    /// Sets what clients can answer. The proposals have no way to declare it, except for
    /// `multi-turn-sse`, whose clients declare it with `initialize`. A session that declares
    /// neither elicitation nor sampling has these capabilities, too. Default: forms and sampling.
    pub fn client_capabilities(self, capabilities: ClientCapabilities) -> Self {
        let Engine { dialect, handler, seal, max_event_id, .. } = &*self.engine;
        let engine = Arc::new(Engine {
            dialect: *dialect,
            handler: Arc::clone(handler),
            seal: seal.clone(),
            capabilities,
            max_event_id: *max_event_id,
        });
        let endpoint = self.endpoint.legacy(Adapter(Arc::clone(&engine)));
        Self { engine, endpoint }
    }

    /// Sets the hosts and origins that may call. Default: only this machine's own names.
    pub fn host_policy(self, policy: HostPolicy) -> Self {
        Self { endpoint: self.endpoint.host_policy(policy), ..self }
    }

    /// Sets the limits on what clients may send.
    pub fn limits(self, limits: RequestLimits) -> Self {
        Self { endpoint: self.endpoint.limits(limits), ..self }
    }
}

impl<H, B> Service<Request<B>> for DialectEndpoint<H>
where
    H: RequestHandler,
    B: Body<Data = Bytes> + Send + 'static,
    B::Error: fmt::Display,
{
    type Response = Response<ResponseBody>;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, Infallible>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, mut request: Request<B>) -> Self::Future {
        // The endpoint gives everything to the adapter that does not name the current revision.
        if let Some(version) = request.headers_mut().remove(&PROTOCOL_VERSION) {
            let is_known = self.engine.dialect != Dialect::MultiTurnSse
                || version == self.engine.dialect.protocol_version();
            request.extensions_mut().insert(NamesVersion { is_known });
        }
        self.endpoint.call(request)
    }
}

/// A request has named a protocol version in its header.
#[derive(Debug, Clone, Copy)]
struct NamesVersion {
    is_known: bool,
}

/// The handler of the standard endpoint inside, which gets no request.
struct Unreachable;

impl RequestHandler for Unreachable {
    async fn handle(self: Arc<Self>, incoming: IncomingRequest) -> jsonrpc::Response<RawJson> {
        let error = ErrorObject::method_not_found(&incoming.request.method);
        jsonrpc::Response::error(Some(incoming.request.id), error)
    }
}

struct Adapter<H>(Arc<Engine<H>>);

impl<H: RequestHandler> LegacyHandler for Adapter<H> {
    fn claims(&self, _: &Method, _: &HeaderMap, _: Option<&[u8]>) -> bool {
        true
    }

    fn handle(
        &self,
        request: Request<Bytes>,
        permit: Permit,
    ) -> Pin<Box<dyn Future<Output = Response<ResponseBody>> + Send>> {
        let engine = Arc::clone(&self.0);
        Box::pin(async move {
            if let Some(rejected) = check(&request, &permit) {
                return rejected.into_response();
            }
            let (mut head, body) = request.into_parts();
            head.extensions.remove::<NamesVersion>();
            let caller = Caller {
                headers: head.headers,
                extensions: head.extensions,
                capabilities: engine.capabilities.clone(),
                client: None,
            };
            let (sender, receiver) = NotificationSender::with_permit(permit);
            respond(answer(engine, caller, body, sender), receiver).await
        })
    }
}

/// Makes the checks that do not need the body.
fn check(request: &Request<Bytes>, permit: &Permit) -> Option<Answer> {
    if request.method() != Method::POST {
        let message = "this endpoint accepts POST only";
        return Some(Answer::rejected(StatusCode::METHOD_NOT_ALLOWED, message));
    }
    if !headers::has_json_content_type(request.headers()) {
        let message = "Content-Type must be application/json, in UTF-8 and not compressed";
        return Some(Answer::rejected(StatusCode::UNSUPPORTED_MEDIA_TYPE, message));
    }
    if !headers::accepts_json_and_sse(request.headers()) {
        let message = "Accept must allow application/json and text/event-stream";
        return Some(Answer::rejected(StatusCode::NOT_ACCEPTABLE, message));
    }
    if request.extensions().get::<NamesVersion>().is_some_and(|named| !named.is_known) {
        let message = "unknown MCP-Protocol-Version: this endpoint speaks DRAFT-SEP-1858";
        return Some(Answer::rejected(StatusCode::BAD_REQUEST, message));
    }
    // No message here ends a wait of another request.
    permit.is_reserve().then(|| Answer::Error {
        status: Some(StatusCode::SERVICE_UNAVAILABLE),
        id: None,
        error: ErrorObject::internal("The server is overloaded; try again later"),
    })
}

/// Answers a message in the dialect.
fn answer<H: RequestHandler>(
    engine: Arc<Engine<H>>,
    caller: Caller,
    body: Bytes,
    notifications: NotificationSender,
) -> Answering {
    match engine.dialect {
        Dialect::Incomplete => {
            Box::pin(envelope::answer(engine, INCOMPLETE, caller, body, notifications))
        }
        Dialect::Dependent => {
            Box::pin(envelope::answer(engine, DEPENDENT, caller, body, notifications))
        }
        Dialect::MultiTurnSse => Box::pin(turns::answer(engine, caller, body, notifications)),
        Dialect::Tasks2322 => Box::pin(task_calls::answer(engine, caller, body, notifications)),
    }
}
