//! Requests that the endpoint answers itself, without calling the handler.

use ::http::{HeaderValue, Response, StatusCode, header};
use mrtr_schema::jsonrpc::{self, ErrorObject, RequestId};

use super::response::{ResponseBody, json};
use crate::headers;
use crate::server_side::metrics;

/// The error response to a request that does not reach the handler.
pub(super) struct Rejection {
    status: StatusCode,
    id: Option<RequestId>,
    error: ErrorObject,
}

impl Rejection {
    /// Creates a rejection of a request whose id is not known. Boxed, since it is the rare outcome
    /// of functions that every request passes through.
    pub(super) fn new(status: StatusCode, error: ErrorObject) -> Box<Self> {
        Box::new(Self { status, id: None, error })
    }

    /// Creates a rejection with the HTTP status that belongs to the error.
    pub(super) fn with_id(id: Option<RequestId>, error: ErrorObject) -> Box<Self> {
        Box::new(Self { status: headers::status_for_error(&error), id, error })
    }

    /// Creates a rejection with [`code::INVALID_REQUEST`](jsonrpc::code::INVALID_REQUEST).
    pub(super) fn invalid(status: StatusCode, message: impl Into<String>) -> Box<Self> {
        Self::new(status, ErrorObject::invalid_request(message))
    }

    /// Creates the rejection of a request that exceeds the limits on requests in flight.
    pub(super) fn overloaded() -> Box<Self> {
        let error = ErrorObject::internal("The server is overloaded; try again later");
        Self::new(StatusCode::SERVICE_UNAVAILABLE, error)
    }

    pub(super) fn into_response(self) -> Response<ResponseBody> {
        metrics::count_rejection(metrics::reason_for_status(self.status, &self.error));
        tracing::debug!(
            target: "mrtr::http",
            status = self.status.as_u16(),
            error = %self.error,
            "request rejected"
        );
        let mut response = json(self.status, &jsonrpc::Response::error(self.id, self.error));
        if self.status == StatusCode::METHOD_NOT_ALLOWED {
            response.headers_mut().insert(header::ALLOW, HeaderValue::from_static("POST"));
        }
        if self.status == StatusCode::SERVICE_UNAVAILABLE {
            // In seconds: requests end fast enough for a slot to be free by then.
            response.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from_static("1"));
        }
        response
    }
}
