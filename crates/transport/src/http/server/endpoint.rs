//! The server's endpoint as a `tower` service (specification: streamable HTTP).

use std::convert::Infallible;
use std::fmt;
use std::future::Future;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use ::http::{HeaderValue, Request, Response, StatusCode, header};
use bytes::Bytes;
use http_body::Body;
use mrtr_schema::json::MAX_DEPTH;
use mrtr_schema::jsonrpc::{self, ErrorObject, Message, RequestId};
use mrtr_schema::meta::RequestMeta;
use tower_service::Service;

use super::admission::Admission;
use super::body::{drain, read};
use super::meta_cache::MetaCache;
use super::response::{self, ResponseBody, json, plain};
use crate::headers;
use crate::host_policy::HostPolicy;
use crate::response_parts::{Received, ResponseParts};
use crate::traits::RequestHandler;
use crate::{initialize, metrics};

/// Bounds on what a client may send.
#[derive(Debug, Clone, Copy)]
pub struct RequestLimits {
    /// The longest body in bytes. Default: 4 MiB. A longer one is answered with 413.
    pub body: usize,
    /// How deeply the JSON of a body may be nested. Default, and the most: 128. Deeper is answered with -32700.
    pub depth: usize,
    /// How much of a body that is too long is read and thrown away, so that a client that writes all
    /// of it before it reads can see the 413. Default: 32 MiB. Beyond, the connection is closed.
    pub drain: usize,
    /// How long a body may take to arrive. Default: 30 s. A slower one is answered with 408.
    pub body_time: Duration,
    /// How many requests may be in flight, listening clients included. Default: 10 000. More are answered
    /// with 503, to be tried again.
    pub in_flight: usize,
    /// How many bytes the bodies of all requests in flight may have together. Default: 256 MiB. More are answered with 503, to be tried again.
    pub bodies: usize,
}

impl Default for RequestLimits {
    fn default() -> Self {
        Self {
            body: 4 << 20,
            depth: MAX_DEPTH,
            drain: 32 << 20,
            body_time: Duration::from_secs(30),
            in_flight: 10_000,
            bodies: 256 << 20,
        }
    }
}

/// The MCP endpoint: a [`Service`] that checks requests, hands them to a [`RequestHandler`] and writes the
/// responses. Mount it at a path of any router that takes such services, under any layers.
///
/// It must run in a tokio runtime with time enabled. When the client goes away, the HTTP server drops
/// the call's future, and with it the handler's.
pub struct Endpoint<D> {
    shared: Arc<Shared<D>>,
}

struct Shared<D> {
    dispatch: Arc<D>,
    access: HostPolicy,
    limits: RequestLimits,
    load: Admission,
}

impl<D> Clone for Endpoint<D> {
    fn clone(&self) -> Self {
        Self { shared: Arc::clone(&self.shared) }
    }
}

impl<D> fmt::Debug for Endpoint<D> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Endpoint").field("access", &self.shared.access).finish_non_exhaustive()
    }
}

impl<D: RequestHandler> Endpoint<D> {
    /// An endpoint for calls that name this machine as their host, with the default [`RequestLimits`].
    pub fn new(dispatch: D) -> Self {
        Self::with(Arc::new(dispatch), HostPolicy::default(), RequestLimits::default())
    }

    fn with(dispatch: Arc<D>, access: HostPolicy, limits: RequestLimits) -> Self {
        let load = Admission::new(&limits);
        Self { shared: Arc::new(Shared { dispatch, access, limits, load }) }
    }

    /// Which hosts and origins may call. Default: only this machine's own names.
    pub fn access(self, access: HostPolicy) -> Self {
        Self::with(Arc::clone(&self.shared.dispatch), access, self.shared.limits)
    }

    /// Bounds on what a client may send.
    pub fn limits(self, limits: RequestLimits) -> Self {
        Self::with(Arc::clone(&self.shared.dispatch), self.shared.access.clone(), limits)
    }
}

impl<D, B> Service<Request<B>> for Endpoint<D>
where
    D: RequestHandler,
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
        let checked = shared.check_head(&head);
        let (headers, extensions) = (head.headers, head.extensions);
        // Boxed one by one where it is rare: what a request needs most often is all that it carries.
        Box::pin(async move {
            let mut body = pin!(body);
            if let Err(refused) = checked {
                // The client may be writing its body still; let it finish, so that it sees the answer.
                Box::pin(drain(&shared.limits, body, 0, &headers)).await;
                return Ok(refused.respond());
            }
            let Some(mut share) = shared.load.share() else {
                Box::pin(drain(&shared.limits, body, 0, &headers)).await;
                return Ok(busy().respond());
            };
            let bytes = match read(&shared.limits, body.as_mut(), &mut share).await {
                Ok(bytes) => bytes,
                Err((refused, read)) => {
                    if let Some(read) = read {
                        Box::pin(drain(&shared.limits, body, read, &headers)).await;
                    }
                    return Ok(refused.respond());
                }
            };
            Ok(match MetaCache::with(|same| shared.message(&headers, &bytes, same)) {
                Ok(Some((request, meta))) => {
                    drop(bytes);
                    // A server may go on with a request whose client has gone: it counts for as long as it does.
                    let received = Received { request, meta, headers, extensions };
                    response::reply(ResponseParts::new(&shared.dispatch, received, share)).await
                }
                Ok(None) => plain(StatusCode::ACCEPTED),
                Err(refused) => refused.respond(),
            })
        })
    }
}

impl<D> Shared<D> {
    /// What can be refused before the body is read.
    fn check_head(&self, head: &::http::request::Parts) -> Result<(), Box<Refused>> {
        let invalid = |status, why: String| Refused::new(status, ErrorObject::invalid_request(why));
        if let Err(denied) = self.access.check(&head.uri, &head.headers) {
            tracing::warn!(target: "mrtr::access", %denied, "request refused");
            return Err(invalid(StatusCode::FORBIDDEN, denied.to_string()));
        }
        if head.method != ::http::Method::POST {
            let why = "the MCP endpoint takes POST only".to_owned();
            return Err(invalid(StatusCode::METHOD_NOT_ALLOWED, why));
        }
        if !headers::is_json(&head.headers) {
            let why =
                "Content-Type must be application/json, in UTF-8 and not compressed".to_owned();
            return Err(invalid(StatusCode::UNSUPPORTED_MEDIA_TYPE, why));
        }
        if !headers::accepts_both(&head.headers) {
            let why = "Accept must allow application/json and text/event-stream".to_owned();
            return Err(invalid(StatusCode::NOT_ACCEPTABLE, why));
        }
        Ok(())
    }

    /// Reads the message; `None` is a notification.
    fn message(
        &self,
        headers: &::http::HeaderMap,
        body: &[u8],
        same: &mut MetaCache,
    ) -> Result<Option<(jsonrpc::Request, Meta)>, Box<Refused>> {
        let request = match Message::parse_with_known_meta(body, self.limits.depth, same.text()) {
            Ok(Message::Request(request)) => request,
            // This revision has no notification for servers over HTTP; unknown ones are ignored.
            Ok(Message::Notification(_)) => return Ok(None),
            Ok(Message::Response(response)) => {
                let why = "clients send requests, not responses; answers go into `inputResponses`";
                return Err(Refused::of(response.id, ErrorObject::invalid_request(why)));
            }
            Err(error) => return Err(Refused::of(Message::salvage_id(body), error)),
        };
        let refused = |error| Refused::of(Some(request.id.clone()), error);
        let mirrored = same.mirrored(&request).map_err(refused)?;
        if let Some(error) = initialize::refuse(&request, &mirrored) {
            return Err(refused(error));
        }
        headers::check(headers, &request.method, &mirrored).map_err(refused)?;
        let meta = mirrored.meta;
        Ok(Some((request, meta)))
    }
}

pub(super) fn busy() -> Box<Refused> {
    let error = ErrorObject::internal("The server has too much to do; try again later");
    Refused::new(StatusCode::SERVICE_UNAVAILABLE, error)
}

type Meta = Option<Arc<RequestMeta>>;

/// A request that is answered here and does not reach the server.
pub(super) struct Refused {
    status: StatusCode,
    id: Option<RequestId>,
    error: ErrorObject,
}

impl Refused {
    pub(super) fn new(status: StatusCode, error: ErrorObject) -> Box<Self> {
        Box::new(Self { status, id: None, error })
    }

    fn of(id: Option<RequestId>, error: ErrorObject) -> Box<Self> {
        Box::new(Self { status: headers::status_of(&error), id, error })
    }

    fn respond(self) -> Response<ResponseBody> {
        metrics::refused(metrics::reason(self.status, &self.error));
        tracing::debug!(target: "mrtr::http", status = self.status.as_u16(), error = %self.error, "request refused");
        let mut response = json(self.status, &jsonrpc::Response::error(self.id, self.error));
        if self.status == StatusCode::METHOD_NOT_ALLOWED {
            response.headers_mut().insert(header::ALLOW, HeaderValue::from_static("POST"));
        }
        if self.status == StatusCode::SERVICE_UNAVAILABLE {
            response.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from_static("1"));
        }
        response
    }
}
