//! The body of a response: one of the inner service, or a short text.

use std::future::Future as _;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use pin_project_lite::pin_project;
use tokio::time::{Sleep, sleep};

pin_project! {
    /// The body of a response of a [`Protected`](super::Protected) service: the body of the inner
    /// service, or a short text if the request did not reach it.
    #[derive(Debug)]
    pub struct ResponseBody<B> {
        #[pin]
        inner: Option<B>,
        text: Bytes,
        end: Option<Pin<Box<Sleep>>>,
    }
}

impl<B> ResponseBody<B> {
    /// Creates the body of the inner service. It ends after `time`, if that is set.
    pub(super) fn from_inner(inner: B, time: Option<Duration>) -> Self {
        let end = time.map(|time| Box::pin(sleep(time)));
        Self { inner: Some(inner), text: Bytes::new(), end }
    }

    pub(super) fn from_bytes(text: Bytes) -> Self {
        Self { inner: None, text, end: None }
    }
}

impl<B: Body<Data = Bytes>> Body for ResponseBody<B> {
    type Data = Bytes;
    type Error = B::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, B::Error>>> {
        let mut this = self.project();
        if let Some(end) = this.end
            && end.as_mut().poll(cx).is_ready()
        {
            this.inner.set(None);
            *this.end = None;
        }
        if let Some(inner) = this.inner.as_pin_mut() {
            return inner.poll_frame(cx);
        }
        let text = std::mem::take(this.text);
        Poll::Ready((!text.is_empty()).then(|| Ok(Frame::data(text))))
    }

    fn is_end_stream(&self) -> bool {
        self.inner.as_ref().map_or(self.text.is_empty(), Body::is_end_stream)
    }

    fn size_hint(&self) -> SizeHint {
        let text = || SizeHint::with_exact(u64::try_from(self.text.len()).unwrap_or(u64::MAX));
        self.inner.as_ref().map_or_else(text, Body::size_hint)
    }
}
