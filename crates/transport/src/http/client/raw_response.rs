//! A response of any kind, for the workspace's own crates.

use ::http::{HeaderMap, StatusCode};
use bytes::Bytes;

use super::response::is_overload;
use super::server_name::ServerName;
use crate::error::{HttpResponseInfo, TransportError};

/// A response whose body is still to be read.
#[derive(Debug)]
pub struct RawResponse {
    response: reqwest::Response,
    info: Option<HttpResponseInfo>,
    server: ServerName,
    max_length: usize,
}

impl RawResponse {
    pub(super) fn new(
        response: reqwest::Response,
        info: HttpResponseInfo,
        server: ServerName,
        max_length: usize,
    ) -> Self {
        Self { response, info: Some(info), server, max_length }
    }

    /// Returns the status.
    pub fn status(&self) -> StatusCode {
        self.response.status()
    }

    /// Returns the headers.
    pub fn headers(&self) -> &HeaderMap {
        self.response.headers()
    }

    /// Returns the longest body, or the longest event, that the client accepts, in bytes.
    pub fn max_length(&self) -> usize {
        self.max_length
    }

    /// Reads the next piece of the body; `None` at its end.
    ///
    /// # Errors
    ///
    /// If the connection breaks, or the time is up.
    pub async fn chunk(&mut self) -> Result<Option<Bytes>, TransportError> {
        self.response.chunk().await.map_err(|error| self.server.request_failed(error))
    }

    /// Reads the whole body.
    ///
    /// # Errors
    ///
    /// The errors of [`chunk`](Self::chunk), and if the body is too long.
    pub async fn body(&mut self) -> Result<Vec<u8>, TransportError> {
        let mut body = Vec::new();
        while let Some(chunk) = self.chunk().await? {
            if body.len() + chunk.len() > self.max_length {
                let max = self.max_length;
                return Err(self.violation(&format!("sent a response of more than {max} bytes")));
            }
            body.extend_from_slice(&chunk);
        }
        Ok(body)
    }

    /// Creates the error of a response that violates the protocol. `what` continues a sentence
    /// whose subject is the server.
    pub fn violation(&mut self, what: &str) -> TransportError {
        let error = self.server.violation(what);
        self.with_info(error)
    }

    /// Creates the error of a response whose status is not a success. `why` is empty, or follows
    /// the status.
    pub fn rejection(&mut self, why: &str) -> TransportError {
        let status = self.status();
        if is_overload(status) {
            let error = self.server.gateway_error(status);
            return self.with_info(error);
        }
        self.violation(&format!("answered {status}{why}"))
    }

    fn with_info(&mut self, error: TransportError) -> TransportError {
        match self.info.take() {
            Some(info) => error.with_http_response(info),
            None => error,
        }
    }

    /// Creates the error of a connection that ended too early.
    pub fn interrupted(&self, what: &str) -> TransportError {
        TransportError::interrupted(format!("{} {what}", self.server))
    }
}
