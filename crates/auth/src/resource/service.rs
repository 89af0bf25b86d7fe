//! The service around another one.

use std::future::Future;
use std::mem;
use std::pin::{Pin, pin};
use std::task::{Context, Poll};
use std::time::Duration;

use http::{Request, Response};
use http_body::Body;
use http_body_util::BodyExt as _;
use tokio::time::timeout;
use tower_service::Service;

use super::body::ResponseBody;
use super::protected_resource::ProtectedResource;

/// The part of a body that is read before a rejection is sent, in bytes.
const MAX_DISCARDED: usize = 256 << 10;
/// The longest time for that.
const DISCARD_TIMEOUT: Duration = Duration::from_secs(5);

/// A tower service that checks the access token of each request, and answers requests for the
/// metadata of the resource. See [`ProtectedResource::protect`].
///
/// When a client disconnects, the HTTP server drops the future, and with it the future of the inner
/// service. A fetch of keys continues.
#[derive(Debug, Clone)]
pub struct Protected<S> {
    resource: ProtectedResource,
    inner: S,
}

impl ProtectedResource {
    /// Wraps `service`: requests must have an access token to reach it. Requests for the metadata
    /// are answered (RFC 9728, section 3), so the service must get them too.
    ///
    /// ```
    /// # fn example<S>(resource: mrtr_auth::resource::ProtectedResource, endpoint: S) {
    /// let service = resource.protect(endpoint);
    /// # }
    /// ```
    pub fn protect<S>(&self, service: S) -> Protected<S> {
        Protected { resource: self.clone(), inner: service }
    }
}

impl<S, B, R> Service<Request<B>> for Protected<S>
where
    S: Service<Request<B>, Response = Response<R>> + Clone + Send + 'static,
    S::Future: Send,
    B: Body + Send + 'static,
    B::Data: Send,
{
    type Response = Response<ResponseBody<R>>;
    type Error = S::Error;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, S::Error>> + Send>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        // The service that is ready is the one that is called. Its clone may not be ready.
        let inner = self.inner.clone();
        let mut inner = mem::replace(&mut self.inner, inner);
        let resource = self.resource.clone();
        Box::pin(async move {
            if resource.is_for_metadata(request.uri()) {
                let response = resource.metadata_service().response(request.method());
                return Ok(response.map(ResponseBody::from_bytes));
            }
            let (mut head, body) = request.into_parts();
            let passed = match resource.check(&mut head).await {
                Ok(passed) => passed,
                Err(response) => {
                    // A future is as large as the largest one in it, so the rare one is boxed.
                    Box::pin(discard(body)).await;
                    return Ok(response.map(ResponseBody::from_bytes));
                }
            };
            let mut response = inner.call(Request::from_parts(head, body)).await?;
            resource.complete(&passed, &mut response);
            let stream_time = passed.stream_time;
            Ok(response.map(|body| ResponseBody::from_inner(body, stream_time)))
        })
    }
}

/// Reads some of a body. A client may read the response only when its body is sent.
async fn discard<B: Body>(body: B) {
    let mut body = pin!(body);
    let read = async {
        let mut bytes = 0;
        while let Some(Ok(frame)) = body.frame().await {
            bytes += frame.data_ref().map_or(0, bytes::Buf::remaining);
            if bytes > MAX_DISCARDED {
                break;
            }
        }
    };
    let _ = timeout(DISCARD_TIMEOUT, read).await;
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::convert::Infallible;

    use bytes::Bytes;
    use http_body::Frame;

    /// A body of 64 KiB pieces without end, or one whose client stops after the first piece.
    struct Endless {
        pieces: usize,
        stops: bool,
    }

    impl Body for Endless {
        type Data = Bytes;
        type Error = Infallible;

        fn poll_frame(
            mut self: Pin<&mut Self>,
            _: &mut Context<'_>,
        ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
            if self.stops && self.pieces > 0 {
                return Poll::Pending;
            }
            self.pieces += 1;
            assert!(self.pieces < 10, "at most 256 KiB are read");
            Poll::Ready(Some(Ok(Frame::data(Bytes::from(vec![0; 64 << 10])))))
        }
    }

    #[tokio::test(start_paused = true)]
    async fn body_of_a_rejected_request_is_read_within_limits() {
        discard(Endless { pieces: 0, stops: false }).await;
        let started = tokio::time::Instant::now();
        discard(Endless { pieces: 0, stops: true }).await;
        assert_eq!(started.elapsed(), DISCARD_TIMEOUT);
    }
}
