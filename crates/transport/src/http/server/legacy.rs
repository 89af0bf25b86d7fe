//! Requests that do not name the current revision, at an endpoint with a [`LegacyHandler`].

use std::convert::Infallible;
use std::fmt;
use std::pin::pin;
use std::sync::Arc;

use ::http::request::Parts;
use ::http::{HeaderMap, Request, Response, StatusCode};
use bytes::Bytes;
use http_body::Body;

use super::body::{BodyError, discard, read};
use super::legacy_handler::LegacyHandler;
use super::meta_cache::MetaCache;
use super::rejection::Rejection;
use super::response::{self, ResponseBody, empty};
use super::shared::Shared;
use crate::headers::PROTOCOL_VERSION;
use crate::response_parts::{AdmittedRequest, ResponseParts};
use crate::traits::RequestHandler;

/// Returns true if the request names the current revision in `MCP-Protocol-Version`.
pub(super) fn is_current_revision(headers: &HeaderMap) -> bool {
    headers.get(&PROTOCOL_VERSION).is_some_and(|version| version == mrtr_schema::PROTOCOL_VERSION)
}

/// Serves a request that does not name the current revision.
pub(super) async fn serve<H, B>(
    shared: Arc<Shared<H>>,
    legacy: Arc<dyn LegacyHandler>,
    head: Parts,
    body: B,
) -> Result<Response<ResponseBody>, Infallible>
where
    H: RequestHandler,
    B: Body<Data = Bytes> + Send + 'static,
    B::Error: fmt::Display,
{
    Ok(serve_or_reject(&shared, &*legacy, head, body)
        .await
        .unwrap_or_else(|rejection| rejection.into_response()))
}

async fn serve_or_reject<H, B>(
    shared: &Shared<H>,
    legacy: &dyn LegacyHandler,
    head: Parts,
    body: B,
) -> Result<Response<ResponseBody>, Box<Rejection>>
where
    H: RequestHandler,
    B: Body<Data = Bytes>,
    B::Error: fmt::Display,
{
    let mut body = pin!(body);
    let is_legacy = legacy.claims(&head, None);
    let checked = if is_legacy { shared.check_access(&head) } else { shared.check_head(&head) };
    if let Err(rejection) = checked {
        discard(&shared.limits, body, 0, &head.headers).await;
        return Err(rejection);
    }
    let admitted =
        if is_legacy { shared.admission.try_admit_message() } else { shared.admission.try_admit() };
    let Some(mut permit) = admitted else {
        discard(&shared.limits, body, 0, &head.headers).await;
        return Err(Rejection::overloaded());
    };
    let bytes = match read(&shared.limits, body.as_mut(), &mut permit).await {
        Ok(bytes) => bytes,
        Err(BodyError { rejection, discard_after }) => {
            if let Some(read) = discard_after {
                discard(&shared.limits, body, read, &head.headers).await;
            }
            return Err(rejection);
        }
    };
    if is_legacy || legacy.claims(&head, Some(&bytes)) {
        return Ok(legacy.handle(Request::from_parts(head, bytes), permit).await);
    }
    let (headers, extensions) = (head.headers, head.extensions);
    match MetaCache::with(|cache| shared.parse(&headers, &bytes, cache))? {
        Some((request, meta)) => {
            let admitted = AdmittedRequest { request, meta, headers, extensions };
            Ok(response::respond(ResponseParts::new(&shared.handler, admitted, permit)).await)
        }
        None => Ok(empty(StatusCode::ACCEPTED)),
    }
}
