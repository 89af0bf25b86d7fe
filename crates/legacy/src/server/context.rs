//! What a request of a legacy client becomes for the handler.

use std::sync::Arc;

use mrtr_schema::PROTOCOL_VERSION;
use mrtr_schema::jsonrpc::Request;
use mrtr_schema::meta::RequestMeta;
use mrtr_transport::{IncomingRequest, NotificationSender, ProtocolVersion};

use super::claims::SessionClaims;

/// What arrived with a request, besides the message.
#[derive(Debug, Clone, Default)]
pub(crate) struct Context {
    pub(crate) headers: ::http::HeaderMap,
    pub(crate) extensions: ::http::Extensions,
}

impl Context {
    /// Creates the request for the handler.
    pub(crate) fn incoming(
        &self,
        claims: &SessionClaims,
        request: Request,
        meta: Arc<RequestMeta>,
    ) -> IncomingRequest {
        let mut incoming = IncomingRequest::new(request, Some(meta), NotificationSender::closed());
        incoming.headers.clone_from(&self.headers);
        incoming.extensions.clone_from(&self.extensions);
        incoming.extensions.insert(ProtocolVersion(claims.version.as_str()));
        incoming
    }
}

/// Returns the `_meta` that a client of the current revision would send.
pub(crate) fn meta(claims: &SessionClaims) -> RequestMeta {
    RequestMeta::new(PROTOCOL_VERSION, claims.capabilities.clone())
        .with_client_info(claims.client.clone())
}
