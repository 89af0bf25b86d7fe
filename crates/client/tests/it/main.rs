//! The client against servers that are a closure.

#![expect(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

mod answers;
mod cache;
mod calls;
#[cfg(feature = "validate")]
mod output_schema;
mod resume;
mod retries;
mod tracing_context;

use std::sync::{Arc, Mutex};

use mrtr_client::{Client, ClientBuilder, OutgoingRequest, Transport, TransportError};
use mrtr_schema::jsonrpc::{ErrorObject, Notification, Request, RequestId, Response, raw};
use serde_json::Value;

/// What a closure answers a request with.
enum Answer {
    Result(Value),
    Error(ErrorObject),
    /// Notifications, and no end.
    Notifications(Vec<Notification>),
    /// The connection breaks.
    Broken,
}

/// A server that is a closure, and remembers what it was asked.
#[derive(Clone)]
struct Scripted {
    answer: Arc<dyn Fn(&Asked) -> Answer + Send + Sync>,
    asked: Arc<Mutex<Vec<Asked>>>,
}

/// A request, as far as tests look at it.
#[derive(Debug, Clone, PartialEq)]
struct Asked {
    id: RequestId,
    method: String,
    /// Without `_meta`.
    params: Value,
    meta: Value,
    headers: Vec<(String, String)>,
}

impl Scripted {
    fn new(answer: impl Fn(&Asked) -> Answer + Send + Sync + 'static) -> Self {
        Self { answer: Arc::new(answer), asked: Arc::default() }
    }

    fn client(&self) -> ClientBuilder<Self> {
        Client::builder(self.clone())
    }

    /// What was asked since this was last called.
    fn asked(&self) -> Vec<Asked> {
        self.asked.lock().unwrap().drain(..).collect()
    }

    /// The methods that were asked for since this was last called.
    fn methods(&self) -> Vec<String> {
        self.asked().into_iter().map(|asked| asked.method).collect()
    }
}

impl Transport for Scripted {
    async fn send(&self, outgoing: OutgoingRequest<'_>) -> Result<Response, TransportError> {
        let Request { id, method, params, .. } = outgoing.request;
        let mut params: Value = serde_json::from_str(params.unwrap().get()).unwrap();
        let meta = params.as_object_mut().unwrap().remove("_meta").unwrap();
        let headers = outgoing.param_headers;
        let asked = Asked { id: id.clone(), method, params, meta, headers };
        self.asked.lock().unwrap().push(asked.clone());
        let outcome = match (self.answer)(&asked) {
            Answer::Result(result) => Ok(raw(&result).unwrap()),
            Answer::Error(error) => Err(error),
            Answer::Broken => return Err(TransportError::interrupted("broken")),
            Answer::Notifications(notifications) => {
                notifications.into_iter().for_each(outgoing.on_notification);
                std::future::pending().await
            }
        };
        Ok(Response { id: Some(id), outcome })
    }
}

/// Collects what is logged on this thread.
#[derive(Clone, Default)]
struct Lines(Arc<Mutex<Vec<u8>>>);

impl std::io::Write for Lines {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}
