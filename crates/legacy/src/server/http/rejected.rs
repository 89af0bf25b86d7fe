//! Responses that are complete at once.

use ::http::{HeaderName, HeaderValue, Response, StatusCode, header};
use mrtr_schema::RawJson;
use mrtr_schema::jsonrpc::{self, ErrorObject, RequestId, code};
use mrtr_transport::headers;
use mrtr_transport::http::ResponseBody;

/// A request that no session answers.
pub(super) struct Rejected {
    pub(super) status: StatusCode,
    pub(super) id: Option<RequestId>,
    pub(super) error: ErrorObject,
}

impl Rejected {
    pub(super) fn new(status: StatusCode, message: impl Into<String>) -> Box<Self> {
        Box::new(Self { status, id: None, error: ErrorObject::invalid_request(message) })
    }

    /// Rejects a request because too many are in flight.
    pub(super) fn overloaded(id: impl Into<Option<RequestId>>) -> Box<Self> {
        let error = ErrorObject::internal("The server is overloaded; try again later");
        Box::new(Self { status: StatusCode::SERVICE_UNAVAILABLE, id: id.into(), error })
    }

    /// Rejects a batch because too many requests would be in flight with its calls.
    pub(super) fn batch_too_large(calls: usize) -> Box<Self> {
        let error = ErrorObject::internal(format!(
            "Too many requests would be in flight with the {calls} calls of this batch: send them \
             in smaller batches, or try again later"
        ));
        Box::new(Self { status: StatusCode::SERVICE_UNAVAILABLE, id: None, error })
    }

    /// Rejects a request because the handler refused a request of our own.
    pub(super) fn unavailable(error: ErrorObject) -> Box<Self> {
        Box::new(Self { status: StatusCode::SERVICE_UNAVAILABLE, id: None, error })
    }

    /// Rejects a message that the other replicas did not get.
    pub(super) fn unreached(error: ErrorObject) -> Box<Self> {
        let is_too_long = error.code == code::INVALID_REQUEST;
        let status = if is_too_long {
            StatusCode::PAYLOAD_TOO_LARGE
        } else {
            StatusCode::SERVICE_UNAVAILABLE
        };
        Box::new(Self { status, id: None, error })
    }

    pub(super) fn into_response(self) -> Response<ResponseBody> {
        tracing::debug!(
            target: "mrtr::legacy",
            status = self.status.as_u16(),
            error = %self.error,
            "request rejected"
        );
        let (status, header) = match headers::status_and_header(&self.error) {
            Some((status, name, value)) => (status, Some((name, value))),
            None => (self.status, header_of(self.status)),
        };
        let mut response = json(&jsonrpc::Response::error(self.id, self.error));
        *response.status_mut() = status;
        response.headers_mut().extend(header);
        response
    }
}

/// Returns the header that belongs to a status.
fn header_of(status: StatusCode) -> Option<(HeaderName, HeaderValue)> {
    match status {
        StatusCode::METHOD_NOT_ALLOWED => {
            Some((header::ALLOW, HeaderValue::from_static("POST, GET, DELETE")))
        }
        // In seconds.
        StatusCode::SERVICE_UNAVAILABLE => {
            Some((header::RETRY_AFTER, HeaderValue::from_static("1")))
        }
        _ => None,
    }
}

pub(super) fn json(message: &jsonrpc::Response<RawJson>) -> Response<ResponseBody> {
    json_text(message.to_json())
}

pub(super) fn json_text(message: RawJson) -> Response<ResponseBody> {
    let mut response = Response::new(ResponseBody::from(String::from(message)));
    let json = HeaderValue::from_static("application/json");
    response.headers_mut().insert(header::CONTENT_TYPE, json);
    response
}

pub(super) fn empty(status: StatusCode) -> Response<ResponseBody> {
    let mut response = Response::new(ResponseBody::from(String::new()));
    *response.status_mut() = status;
    response
}
