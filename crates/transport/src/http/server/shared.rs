//! What all requests of an endpoint share: the handler, the limits, and the checks.

use std::sync::Arc;

use ::http::{HeaderMap, StatusCode};
use mrtr_schema::jsonrpc::{self, ErrorObject, Message};
use mrtr_schema::meta::RequestMeta;

use super::admission::Admission;
use super::legacy_handler::LegacyHandler;
use super::limits::RequestLimits;
use super::meta_cache::MetaCache;
use super::rejection::Rejection;
use crate::headers;
use crate::host_policy::HostPolicy;
use crate::server_side::initialize;

pub(super) struct Shared<H> {
    pub(super) handler: Arc<H>,
    pub(super) host_policy: HostPolicy,
    pub(super) limits: RequestLimits,
    pub(super) admission: Admission,
    pub(super) legacy: Option<Arc<dyn LegacyHandler>>,
}

type Meta = Option<Arc<RequestMeta>>;

impl<H> Shared<H> {
    /// Makes the checks that do not need the body. A legacy handler makes most of them itself.
    pub(super) fn check_head(
        &self,
        head: &::http::request::Parts,
        is_legacy: bool,
    ) -> Result<(), Box<Rejection>> {
        if let Err(denied) = self.host_policy.check(&head.uri, &head.headers) {
            tracing::warn!(target: "mrtr::access", %denied, "request rejected");
            return Err(Rejection::invalid(StatusCode::FORBIDDEN, denied.to_string()));
        }
        if is_legacy {
            return Ok(());
        }
        if head.method != ::http::Method::POST {
            let message = "the MCP endpoint accepts POST only";
            return Err(Rejection::invalid(StatusCode::METHOD_NOT_ALLOWED, message));
        }
        if !headers::has_json_content_type(&head.headers) {
            let message = "Content-Type must be application/json, in UTF-8 and not compressed";
            return Err(Rejection::invalid(StatusCode::UNSUPPORTED_MEDIA_TYPE, message));
        }
        if !headers::accepts_json_and_sse(&head.headers) {
            let message = "Accept must allow application/json and text/event-stream";
            return Err(Rejection::invalid(StatusCode::NOT_ACCEPTABLE, message));
        }
        Ok(())
    }

    /// Parses the body and compares it with the headers. Returns `None` for a notification.
    pub(super) fn parse(
        &self,
        headers: &HeaderMap,
        body: &[u8],
        cache: &mut MetaCache,
    ) -> Result<Option<(jsonrpc::Request, Meta)>, Box<Rejection>> {
        let request =
            match Message::parse_with_known_meta(body, self.limits.max_depth, cache.known()) {
                Ok(Message::Request(request)) => request,
                // This revision defines no notification to servers over HTTP; unknown ones are
                // ignored.
                Ok(Message::Notification(_)) => return Ok(None),
                Ok(Message::Response(response)) => {
                    let message =
                        "clients send requests, not responses; send answers in `inputResponses`";
                    let error = ErrorObject::invalid_request(message);
                    return Err(Rejection::with_id(response.id, error));
                }
                Err(error) => return Err(Rejection::with_id(Message::salvage_id(body), error)),
            };
        let reject = |error| Rejection::with_id(Some(request.id.clone()), error);
        let mirrored = cache.mirrored(&request).map_err(reject)?;
        if let Some(error) = initialize::reject_older_revision(&request, &mirrored) {
            return Err(reject(error));
        }
        headers::check_request(headers, &request.method, &mirrored).map_err(reject)?;
        let meta = mirrored.meta;
        Ok(Some((request, meta)))
    }
}
