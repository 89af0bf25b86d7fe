//! How a client reads the response to its call.

use std::future::poll_fn;
use std::pin::Pin;
use std::time::Duration;

use http::Response;
use http_body::Body as _;
use http_body_util::BodyExt as _;
use mrtr_transport::http::ResponseBody;
use mrtr_transport::sse::Decoder;
use serde_json::Value;
use tokio::time::timeout;

/// The longest event that a client accepts.
const MAX_EVENT: usize = 1 << 20;

/// What the client has read of a stream.
pub(super) struct Reading {
    body: Pin<Box<ResponseBody>>,
    pub(super) decoder: Decoder,
    events: Vec<Vec<u8>>,
    is_ended: bool,
}

impl Reading {
    pub(super) fn new(response: Response<ResponseBody>) -> Self {
        let body = Box::pin(response.into_body());
        Self { body, decoder: Decoder::new(MAX_EVENT), events: Vec::new(), is_ended: false }
    }

    /// Waits for the next event; `None` at the end of the stream.
    pub(super) async fn next(&mut self) -> Option<Vec<u8>> {
        loop {
            if !self.events.is_empty() {
                return Some(self.events.remove(0));
            }
            if self.is_ended {
                return None;
            }
            match poll_fn(|cx| self.body.as_mut().poll_frame(cx)).await {
                Some(Ok(frame)) => {
                    let bytes = frame.into_data().unwrap_or_default();
                    let events = &mut self.events;
                    self.is_ended |= self.decoder.push(&bytes, |event| events.push(event)).is_err();
                }
                None => self.is_ended = true,
            }
        }
    }

    /// Reads some bytes of what is there, and then no more: the connection is broken.
    pub(super) async fn cut(&mut self, bytes: usize) {
        let frame = poll_fn(|cx| self.body.as_mut().poll_frame(cx));
        if !self.is_ended
            && let Ok(Some(Ok(frame))) = timeout(Duration::from_millis(1), frame).await
        {
            let data = frame.into_data().unwrap_or_default();
            let events = &mut self.events;
            let _ =
                self.decoder.push(data.get(..bytes).unwrap_or(&data), |event| events.push(event));
        }
        self.is_ended = true;
    }
}

pub(super) fn is_json(response: &Response<ResponseBody>) -> bool {
    response.headers().get("content-type").is_some_and(|kind| kind == "application/json")
}

pub(super) async fn read_json(response: Response<ResponseBody>) -> Result<Value, String> {
    let Ok(body) = response.into_body().collect().await;
    serde_json::from_slice(&body.to_bytes()).map_err(|error| error.to_string())
}
