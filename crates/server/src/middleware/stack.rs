//! The stack of layers around a server or a feature.

use std::error::Error as StdError;
use std::fmt;
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use mrtr_schema::jsonrpc::ErrorObject;
use tower_layer::Layer;
use tower_service::Service;

use super::request::{Request, ResponseFuture};
use super::response::Response;

/// The future of a response.
pub struct LayerFuture(ResponseFuture);

impl Future for LayerFuture {
    type Output = Result<Response, ErrorObject>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        self.0.as_mut().poll(cx)
    }
}

impl fmt::Debug for LayerFuture {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("LayerFuture")
    }
}

/// The next layer, or the handler of the request if there is none.
#[derive(Clone)]
pub struct Next(Inner);

#[derive(Clone)]
enum Inner {
    /// The layers of the feature that the request names, and then its method.
    Feature,
    /// The method of the request.
    Method,
    Layer(Arc<dyn ErasedService>),
}

impl Next {
    /// The innermost part of the layers around a server.
    pub(crate) fn feature() -> Self {
        Self(Inner::Feature)
    }

    /// The innermost part of the layers around a feature.
    pub(crate) fn method() -> Self {
        Self(Inner::Method)
    }

    /// Wraps this service in `layer`.
    pub(crate) fn wrapped_by<L>(self, layer: &L) -> Self
    where
        L: Layer<Self, Service: RequestService>,
    {
        Self(Inner::Layer(Arc::new(layer.layer(self))))
    }

    /// Passes the request to the next layer, and returns its response. Dropping the future cancels
    /// the request, except for detached work such as single-use rounds.
    pub fn run(&self, request: Request) -> LayerFuture {
        LayerFuture(match &self.0 {
            Inner::Feature => Arc::clone(&request.dispatch).run_feature(request),
            Inner::Method => Arc::clone(&request.dispatch).run_method(request),
            Inner::Layer(service) => service.respond(request),
        })
    }
}

impl Service<Request> for Next {
    type Response = Response;
    type Error = ErrorObject;
    type Future = LayerFuture;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), ErrorObject>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request) -> LayerFuture {
        self.run(request)
    }
}

impl fmt::Debug for Next {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Next")
    }
}

/// A service that a layer creates: a [`Service`] of [`Request`]s that can be cloned, and whose
/// errors can be boxed. Implemented for all such services; other crates cannot implement it.
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be around MCP requests",
    note = "its layer must create a `Clone + Send + Sync + 'static` service that takes a `middleware::Request` and returns a `middleware::Response`",
    note = "a layer for HTTP requests belongs in front of the endpoint"
)]
#[expect(private_bounds, reason = "other crates cannot implement this trait")]
pub trait RequestService: ErasedService + Clone + 'static {}

impl<S> RequestService for S
where
    S: Service<Request, Response = Response> + Clone + Send + Sync + 'static,
    S::Error: Into<Box<dyn StdError + Send + Sync>>,
    S::Future: Send,
{
}

/// A service without its type.
trait ErasedService: Send + Sync {
    fn respond(&self, request: Request) -> ResponseFuture;
}

impl<S> ErasedService for S
where
    S: Service<Request, Response = Response> + Clone + Send + Sync + 'static,
    S::Error: Into<Box<dyn StdError + Send + Sync>>,
    S::Future: Send,
{
    fn respond(&self, request: Request) -> ResponseFuture {
        let mut service = self.clone();
        Box::pin(async move {
            let ready = poll_fn(|cx| service.poll_ready(cx)).await;
            ready.map_err(|error| error_response(error.into()))?;
            let outcome = service.call(request).await;
            outcome.map_err(|error| error_response(error.into()))
        })
    }
}

/// Converts the error of a layer.
fn error_response(error: Box<dyn StdError + Send + Sync>) -> ErrorObject {
    match error.downcast::<ErrorObject>() {
        Ok(response) => *response,
        Err(error) => {
            tracing::error!(target: "mrtr::server", %error, "a layer failed");
            ErrorObject::internal("Internal error")
        }
    }
}

/// Creates a layer from an async function. See the [module](super) for an example.
pub fn from_fn<F, Fut>(function: F) -> FromFnLayer<F>
where
    F: Fn(Request, Next) -> Fut + Clone + Send + Sync + 'static,
    Fut: Future<Output = Result<Response, ErrorObject>> + Send + 'static,
{
    FromFnLayer(function)
}

/// The layer of [`from_fn`].
#[derive(Clone)]
pub struct FromFnLayer<F>(F);

impl<F, Fut> Layer<Next> for FromFnLayer<F>
where
    F: Fn(Request, Next) -> Fut + Clone + Send + Sync + 'static,
    Fut: Future<Output = Result<Response, ErrorObject>> + Send + 'static,
{
    type Service = Next;

    fn layer(&self, next: Next) -> Next {
        Next(Inner::Layer(Arc::new(FromFn { function: self.0.clone(), next })))
    }
}

impl<F> fmt::Debug for FromFnLayer<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("FromFnLayer")
    }
}

/// A function around the next layer.
struct FromFn<F> {
    function: F,
    next: Next,
}

impl<F, Fut> ErasedService for FromFn<F>
where
    F: Fn(Request, Next) -> Fut + Send + Sync,
    Fut: Future<Output = Result<Response, ErrorObject>> + Send + 'static,
{
    fn respond(&self, request: Request) -> ResponseFuture {
        Box::pin((self.function)(request, self.next.clone()))
    }
}
