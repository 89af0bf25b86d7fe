//! Tests of the client against scripted servers.

#![expect(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test fails by panicking"
)]

mod answers;
mod apps;
mod cache;
mod calls;
#[cfg(feature = "validate")]
mod output_schema;
mod resume;
mod retries;
mod task_handles;
mod tasks;
mod tracing_context;

use std::sync::{Arc, Mutex};

use mrtr_client::{Client, ClientBuilder, OutgoingRequest, Transport, TransportError};
use mrtr_schema::jsonrpc::{ErrorObject, Notification, Request, RequestId, Response};
use serde_json::Value;
use serde_json::value::to_raw_value;

/// The reply of a scripted server to one request.
enum Reply {
    Result(Value),
    Error(ErrorObject),
    /// Notifications, and never a response.
    Notifications(Vec<Notification>),
    /// A transport error.
    Interrupted,
}

/// A server whose replies come from a closure. It records the requests.
#[derive(Clone)]
struct ScriptedServer {
    reply: Arc<dyn Fn(&ReceivedRequest) -> Reply + Send + Sync>,
    received: Arc<Mutex<Vec<ReceivedRequest>>>,
}

/// The parts of a request that tests check.
#[derive(Debug, Clone, PartialEq)]
struct ReceivedRequest {
    id: RequestId,
    method: String,
    /// Without `_meta`.
    params: Value,
    meta: Value,
    headers: Vec<(String, String)>,
}

impl ScriptedServer {
    fn new(reply: impl Fn(&ReceivedRequest) -> Reply + Send + Sync + 'static) -> Self {
        Self { reply: Arc::new(reply), received: Arc::default() }
    }

    fn client(&self) -> ClientBuilder<Self> {
        Client::builder(self.clone())
    }

    /// Returns the requests since the last call.
    fn received(&self) -> Vec<ReceivedRequest> {
        self.received.lock().unwrap().drain(..).collect()
    }

    /// Returns the methods of the requests since the last call.
    fn methods(&self) -> Vec<String> {
        self.received().into_iter().map(|received| received.method).collect()
    }
}

impl Transport for ScriptedServer {
    async fn send(&self, outgoing: OutgoingRequest<'_>) -> Result<Response, TransportError> {
        let Request { id, method, params, .. } = outgoing.request;
        let mut params: Value = serde_json::from_str(params.unwrap().as_str()).unwrap();
        let meta = params.as_object_mut().unwrap().remove("_meta").unwrap();
        let headers = outgoing.param_headers;
        let received = ReceivedRequest { id: id.clone(), method, params, meta, headers };
        self.received.lock().unwrap().push(received.clone());
        let outcome = match (self.reply)(&received) {
            Reply::Result(result) => Ok(to_raw_value(&result).unwrap()),
            Reply::Error(error) => Err(error),
            Reply::Interrupted => return Err(TransportError::interrupted("interrupted")),
            Reply::Notifications(notifications) => {
                notifications.into_iter().for_each(outgoing.on_notification);
                std::future::pending().await
            }
        };
        Ok(Response { id: Some(id), outcome })
    }
}

/// A buffer for log lines.
#[derive(Clone, Default)]
struct LogBuffer(Arc<Mutex<Vec<u8>>>);

impl std::io::Write for LogBuffer {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}
