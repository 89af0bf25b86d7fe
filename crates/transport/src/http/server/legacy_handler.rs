//! The hook for clients of legacy revisions, at the same path as those of the current one.

use std::future::Future;
use std::pin::Pin;

use ::http::{HeaderMap, Method, Request, Response};
use bytes::Bytes;

use super::admission::Permit;
use super::response::ResponseBody;

/// Serves the clients of legacy revisions at the path of an [`Endpoint`](super::Endpoint); see
/// [`Endpoint::legacy`](super::Endpoint::legacy).
///
/// It is asked about requests without the header `MCP-Protocol-Version`, or with another version
/// than the current one. The endpoint has checked the host and the origin.
pub trait LegacyHandler: Send + Sync + 'static {
    /// Returns true if the request belongs to a legacy revision. It is asked first without a body,
    /// and, if it returns false, again with the body. What it does not claim is handled by the
    /// rules of the current revision.
    fn claims(&self, method: &Method, headers: &HeaderMap, body: Option<&[u8]>) -> bool;

    /// Answers a request. The permit is the request's share of the endpoint's limits: keep it for
    /// as long as the request is in flight.
    ///
    /// Dropping the future means that the client has disconnected.
    fn handle(
        &self,
        request: Request<Bytes>,
        permit: Permit,
    ) -> Pin<Box<dyn Future<Output = Response<ResponseBody>> + Send>>;
}
