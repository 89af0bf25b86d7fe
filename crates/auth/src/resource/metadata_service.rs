//! Serves the metadata of the resource (RFC 9728, section 3).

use std::convert::Infallible;
use std::future::{Ready, ready};
use std::task::{Context, Poll};

use bytes::Bytes;
use http::{HeaderValue, Method, Request, Response, StatusCode, header};
use http_body_util::Full;
use tower_service::Service;

/// A tower service that answers `GET` and `HEAD` with the metadata of a protected resource, and
/// `OPTIONS` with the permission to ask for it from any origin (CORS preflight).
///
/// It is for routers: mount it at [`ProtectedResource::metadata_path`]. A
/// [`Protected`](super::Protected) service has it already.
///
/// The path of the request is not checked. Browsers may read the response from any origin, and
/// everyone may cache it for an hour.
///
/// [`ProtectedResource::metadata_path`]: super::ProtectedResource::metadata_path
#[derive(Debug, Clone)]
pub struct MetadataService {
    document: Bytes,
}

impl MetadataService {
    pub(super) fn new(document: Bytes) -> Self {
        Self { document }
    }

    /// Answers a request with `method`.
    pub(super) fn response(&self, method: &Method) -> Response<Bytes> {
        let mut response = Response::new(Bytes::new());
        if method == Method::OPTIONS {
            *response.status_mut() = StatusCode::NO_CONTENT;
            for (name, value) in [
                (header::ACCESS_CONTROL_ALLOW_ORIGIN, "*"),
                (header::ACCESS_CONTROL_ALLOW_METHODS, "GET"),
                (header::ACCESS_CONTROL_ALLOW_HEADERS, "*"),
            ] {
                response.headers_mut().insert(name, HeaderValue::from_static(value));
            }
            return response;
        }
        if !matches!(*method, Method::GET | Method::HEAD) {
            *response.status_mut() = StatusCode::METHOD_NOT_ALLOWED;
            let allowed = HeaderValue::from_static("GET, HEAD, OPTIONS");
            response.headers_mut().insert(header::ALLOW, allowed);
            return response;
        }
        for (name, value) in [
            (header::CONTENT_TYPE, "application/json"),
            (header::CACHE_CONTROL, "max-age=3600"),
            (header::ACCESS_CONTROL_ALLOW_ORIGIN, "*"),
        ] {
            response.headers_mut().insert(name, HeaderValue::from_static(value));
        }
        if method == Method::HEAD {
            response.headers_mut().insert(header::CONTENT_LENGTH, self.document.len().into());
        } else {
            *response.body_mut() = self.document.clone();
        }
        response
    }
}

impl<B> Service<Request<B>> for MetadataService {
    type Response = Response<Full<Bytes>>;
    type Error = Infallible;
    type Future = Ready<Result<Self::Response, Infallible>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        ready(Ok(self.response(request.method()).map(Full::new)))
    }
}
