//! The server's endpoint as a `tower` service (specification: streamable HTTP).

use std::convert::Infallible;
use std::fmt;
use std::future::Future;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll};

use ::http::{Request, Response, StatusCode};
use bytes::Bytes;
use http_body::Body;
use mrtr_schema::jsonrpc::Message;
use tower_service::Service;

use super::admission::Admission;
use super::body::{BodyError, Rest, discard, read};
use super::legacy::Candidate;
use super::legacy_handler::LegacyHandler;
use super::limits::RequestLimits;
use super::meta_cache::MetaCache;
use super::rejection::Rejection;
use super::response::{self, ResponseBody, empty};
use super::shared::Shared;
use crate::host_policy::HostPolicy;
use crate::response_parts::{AdmittedRequest, ResponseParts};
use crate::traits::RequestHandler;
use crate::unread::Length as _;

/// An MCP endpoint: a tower [`Service`] that validates requests, hands them to a [`RequestHandler`]
/// and writes the responses. Mount it at a path of any router that takes such services, under any
/// layers.
///
/// A response is JSON, or an event stream if the handler sends a notification before it.
///
/// It must run in a tokio runtime with time enabled. When a client disconnects, the HTTP server
/// drops the service's future or the response's body, and with it the handler's future. With hyper,
/// it notices that only at the next write if the client has sent more than the request.
///
/// ```
/// use std::sync::Arc;
///
/// use http::{Request, StatusCode};
/// use http_body_util::Full;
/// use mrtr_schema::RawJson;
/// use mrtr_schema::jsonrpc::Response;
/// use mrtr_transport::host_policy::HostPolicy;
/// use mrtr_transport::http::{Endpoint, RequestLimits};
/// use mrtr_transport::{IncomingRequest, RequestHandler};
/// use tower_service::Service;
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
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() {
/// let mut endpoint = Endpoint::new(Echo)
///     .host_policy(HostPolicy::loopback().allow_host("mcp.example.com"))
///     .limits(RequestLimits::default().with_max_in_flight(500));
///
/// // A body that is not JSON does not reach the handler.
/// let request = Request::post("/mcp")
///     .header("host", "mcp.example.com")
///     .body(Full::<bytes::Bytes>::from("hello"))
///     .unwrap();
/// let response = endpoint.call(request).await.unwrap();
/// assert_eq!(response.status(), StatusCode::UNSUPPORTED_MEDIA_TYPE);
/// # }
/// ```
pub struct Endpoint<H> {
    shared: Arc<Shared<H>>,
}

impl<H> Clone for Endpoint<H> {
    fn clone(&self) -> Self {
        Self { shared: Arc::clone(&self.shared) }
    }
}

impl<H> fmt::Debug for Endpoint<H> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Endpoint")
            .field("host_policy", &self.shared.host_policy)
            .finish_non_exhaustive()
    }
}

impl<H: RequestHandler> Endpoint<H> {
    /// Creates an endpoint that accepts requests to this machine's own names, with the default
    /// [`RequestLimits`].
    pub fn new(handler: H) -> Self {
        let limits = RequestLimits::default();
        let shared = Shared {
            handler: Arc::new(handler),
            host_policy: HostPolicy::default(),
            limits,
            admission: Admission::new(&limits),
            legacy: None,
        };
        Self { shared: Arc::new(shared) }
    }

    /// Returns the endpoint with other settings.
    fn with(self, change: impl FnOnce(&mut Shared<H>)) -> Self {
        let Shared { handler, host_policy, limits, admission, legacy } = &*self.shared;
        let mut shared = Shared {
            handler: Arc::clone(handler),
            host_policy: host_policy.clone(),
            limits: *limits,
            admission: admission.clone(),
            legacy: legacy.clone(),
        };
        change(&mut shared);
        Self { shared: Arc::new(shared) }
    }

    /// Sets the hosts and origins that may call. Default: only this machine's own names.
    pub fn host_policy(self, policy: HostPolicy) -> Self {
        self.with(|shared| shared.host_policy = policy)
    }

    /// Sets the limits on what clients may send.
    pub fn limits(self, limits: RequestLimits) -> Self {
        self.with(|shared| {
            shared.admission = Admission::new(&limits);
            shared.limits = limits;
        })
    }

    /// Serves clients of legacy revisions, too. Default: they are rejected.
    ///
    /// `mrtr-legacy` has such a handler. It gets the requests that it claims, within the same
    /// limits and for the same hosts and origins.
    pub fn legacy(self, handler: impl LegacyHandler) -> Self {
        self.with(|shared| shared.legacy = Some(Arc::new(handler)))
    }
}

impl<H, B> Service<Request<B>> for Endpoint<H>
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

    fn call(&mut self, request: Request<B>) -> Self::Future {
        let shared = Arc::clone(&self.shared);
        let (head, body) = request.into_parts();
        let legacy = shared.legacy.as_ref().and_then(|legacy| Candidate::new(legacy, &head));
        let checked =
            shared.check_head(&head, legacy.as_deref().is_some_and(Candidate::is_claimed));
        let (headers, extensions) = (head.headers, head.extensions);
        if let Err(rejection) = checked {
            return Box::pin(async move {
                // The client may still be writing its body. It reads the response when it is done.
                discard(&shared.limits, pin!(body), Rest::DiscardUnless100Continue, &headers).await;
                Ok(rejection.into_response())
            });
        }
        // A future is as large as the largest future that it awaits. The rare ones are boxed, so
        // that a request carries only what the common path needs.
        Box::pin(async move {
            let mut body = pin!(body);
            let Some(mut permit) =
                shared.admission.try_admit(legacy.as_deref().is_some_and(Candidate::is_claimed))
            else {
                let rest = Rest::DiscardUnless100Continue;
                Box::pin(discard(&shared.limits, body, rest, &headers)).await;
                return Ok(Rejection::overloaded().into_response());
            };
            let bytes = match read(&shared.limits, body.as_mut(), &mut permit).await {
                Ok(bytes) => bytes,
                Err(BodyError { rejection, rest }) => {
                    Box::pin(discard(&shared.limits, body, rest, &headers)).await;
                    return Ok(rejection.into_response());
                }
            };
            if let Some(legacy) = legacy
                && legacy.claims(&headers, &bytes)
            {
                if let Err(error) = Message::check_depth(&bytes, shared.limits.max_depth) {
                    let id = Message::salvage_id(&bytes);
                    return Ok(Rejection::with_id(id, error).into_response());
                }
                return Ok(Box::pin(legacy.handle(headers, extensions, bytes, permit)).await);
            }
            Ok(match MetaCache::with(|cache| shared.parse(&headers, &bytes, cache)) {
                Ok(Some((request, meta))) => {
                    drop(bytes);
                    permit.keep(request.length());
                    // The permit goes with the request: a handler may continue after its client has
                    // disconnected, and counts for as long as it does.
                    let admitted = AdmittedRequest { request, meta, headers, extensions };
                    let parts = ResponseParts::new(&shared.handler, admitted, permit);
                    response::respond(parts).await
                }
                Ok(None) => empty(StatusCode::ACCEPTED),
                Err(rejection) => rejection.into_response(),
            })
        })
    }
}
