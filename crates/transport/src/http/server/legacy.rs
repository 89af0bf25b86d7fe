//! Requests that may belong to a legacy revision.

use std::sync::Arc;

use ::http::request::Parts;
use ::http::{Extensions, HeaderMap, Method, Request, Response, Uri, Version};
use bytes::Bytes;

use super::admission::Permit;
use super::legacy_handler::LegacyHandler;
use super::response::ResponseBody;
use crate::headers::PROTOCOL_VERSION;

/// A request that does not name the current revision, without its headers and body.
pub(super) struct Candidate {
    handler: Arc<dyn LegacyHandler>,
    is_claimed: bool,
    method: Method,
    uri: Uri,
    version: Version,
}

impl Candidate {
    /// Returns `None` if the request names the current revision in `MCP-Protocol-Version`.
    pub(super) fn new(handler: &Arc<dyn LegacyHandler>, head: &Parts) -> Option<Box<Self>> {
        let version = head.headers.get(&PROTOCOL_VERSION);
        if version.is_some_and(|version| version == mrtr_schema::PROTOCOL_VERSION) {
            return None;
        }
        Some(Box::new(Self {
            is_claimed: handler.claims(&head.method, &head.headers, None),
            handler: Arc::clone(handler),
            method: head.method.clone(),
            uri: head.uri.clone(),
            version: head.version,
        }))
    }

    /// Returns true if the request belongs to a legacy revision, whatever its body is.
    pub(super) fn is_claimed(&self) -> bool {
        self.is_claimed
    }

    /// Returns true if the request belongs to a legacy revision.
    pub(super) fn claims(&self, headers: &HeaderMap, body: &[u8]) -> bool {
        self.is_claimed || self.handler.claims(&self.method, headers, Some(body))
    }

    pub(super) async fn handle(
        self: Box<Self>,
        headers: HeaderMap,
        extensions: Extensions,
        body: Bytes,
        permit: Permit,
    ) -> Response<ResponseBody> {
        let mut request = Request::new(body);
        *request.method_mut() = self.method;
        *request.uri_mut() = self.uri;
        *request.version_mut() = self.version;
        *request.headers_mut() = headers;
        *request.extensions_mut() = extensions;
        self.handler.handle(request, permit).await
    }
}
