//! A client and a server in one process.

use std::fmt;
use std::sync::Arc;

use mrtr_schema::RawJson;
use mrtr_schema::jsonrpc::Response;
use mrtr_schema::request_head::RequestHead;
use serde_json::value::RawValue;

use crate::error::TransportError;
use crate::response_parts::{AdmittedRequest, Part, ResponseParts};
use crate::traits::{OutgoingRequest, RequestHandler, Transport};

/// A [`Transport`] that hands requests to a [`RequestHandler`] in the same process, without a
/// socket: for tests, and for servers that call their own tools.
///
/// No timeouts and no limits apply. Dropping a request's future drops the handler's.
///
/// ```
/// use std::sync::Arc;
///
/// use mrtr_schema::RawJson;
/// use mrtr_schema::jsonrpc::{Request, RequestId, Response};
/// use mrtr_transport::{InProcess, IncomingRequest, OutgoingRequest, RequestHandler, Transport};
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
/// let echo = InProcess::new(Echo);
/// let request = Request::new(RequestId::Number(1), "example/echo", None);
/// let response = echo.send(OutgoingRequest::new(request)).await.unwrap();
/// assert_eq!(response.outcome.unwrap().get(), r#""example/echo""#);
/// # }
/// ```
pub struct InProcess<H> {
    handler: Arc<H>,
    extensions: ::http::Extensions,
}

impl<H: RequestHandler> InProcess<H> {
    /// Creates a transport to `handler`.
    pub fn new(handler: H) -> Self {
        Self { handler: Arc::new(handler), extensions: ::http::Extensions::new() }
    }

    /// Attaches `value` to the extensions of every request, as a layer in front of the server
    /// would: the principal of the caller, for example.
    pub fn with_extension<T: Clone + Send + Sync + 'static>(mut self, value: T) -> Self {
        self.extensions.insert(value);
        self
    }
}

impl<H: RequestHandler> Transport for InProcess<H> {
    fn correlates_logs(&self) -> bool {
        true
    }

    async fn send(&self, outgoing: OutgoingRequest<'_>) -> Result<Response, TransportError> {
        let OutgoingRequest { request, on_notification, .. } = outgoing;
        let RequestHead { meta, .. } = RequestHead::from_request(&request)
            .map_err(|e| TransportError::not_sent(e.to_string()))?;
        let extensions = self.extensions.clone();
        let admitted = AdmittedRequest { extensions, ..AdmittedRequest::new(request, meta) };
        let mut parts = ResponseParts::new(&self.handler, admitted, ());
        loop {
            match parts.next().await {
                Some(Part::Notification(notification)) => on_notification(notification),
                Some(Part::Response(response)) => return into_raw_value(response),
                None => return Err(TransportError::interrupted("the server did not answer")),
            }
        }
    }
}

/// Converts the text that the server wrote to the form in which clients receive results.
fn into_raw_value(response: Response<RawJson>) -> Result<Response, TransportError> {
    let outcome = match response.outcome {
        Ok(text) => Ok(RawValue::from_string(text.into()).map_err(|error| {
            TransportError::interrupted(format!("the server's result is not valid JSON: {error}"))
        })?),
        Err(error) => Err(error),
    };
    Ok(Response { id: response.id, outcome })
}

impl<H> Clone for InProcess<H> {
    fn clone(&self) -> Self {
        Self { handler: Arc::clone(&self.handler), extensions: self.extensions.clone() }
    }
}

impl<H> fmt::Debug for InProcess<H> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("InProcess").finish_non_exhaustive()
    }
}
