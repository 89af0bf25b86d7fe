//! What a request of a legacy client becomes for the handler.

use std::sync::Arc;

use mrtr_schema::PROTOCOL_VERSION;
use mrtr_schema::jsonrpc::Request;
use mrtr_schema::meta::RequestMeta;
use mrtr_transport::{
    GrantedScopes, IncomingRequest, NotificationSender, ProofKey, ProtocolVersion,
};
use serde::{Deserialize, Serialize};

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

/// What a request was allowed to do, by its access token.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub(crate) struct Authorization {
    #[serde(rename = "s")]
    scopes: Option<Vec<String>>,
    #[serde(rename = "k")]
    proof_key: Option<String>,
}

impl Authorization {
    pub(crate) fn of(extensions: &::http::Extensions) -> Self {
        let scopes = extensions.get::<GrantedScopes>();
        let scopes = scopes.map(|granted| granted.iter().map(str::to_owned).collect());
        let proof_key = extensions.get::<ProofKey>().map(|key| key.thumbprint().to_owned());
        Self { scopes, proof_key }
    }

    /// Replaces the authorization of an earlier request.
    fn replace_in(self, extensions: &mut ::http::Extensions) {
        extensions.remove::<GrantedScopes>();
        extensions.remove::<ProofKey>();
        if let Some(scopes) = self.scopes {
            extensions.insert(GrantedScopes::new(scopes));
        }
        if let Some(key) = self.proof_key {
            extensions.insert(ProofKey::new(key));
        }
    }
}

/// Where the answer to a question came from.
#[derive(Debug)]
pub(crate) enum AnsweredBy {
    /// The connection of the call, such as stdio.
    Connection,
    /// A request to this replica.
    Request(Context),
    /// A request to another replica.
    Elsewhere(Authorization),
}

impl AnsweredBy {
    /// Returns the context of the round that follows, if it is not that of the round before.
    pub(crate) fn next_context(self, former: &Context) -> Option<Context> {
        match self {
            Self::Connection => None,
            Self::Request(context) => Some(context),
            Self::Elsewhere(authorization) => {
                let mut context = former.clone();
                authorization.replace_in(&mut context.extensions);
                Some(context)
            }
        }
    }
}

/// Returns the `_meta` that a client of the current revision would send.
pub(crate) fn meta(claims: &SessionClaims) -> RequestMeta {
    RequestMeta::new(PROTOCOL_VERSION, claims.capabilities.clone())
        .with_client_info(claims.client.clone())
}
