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
    /// Returns the scopes of the request with the answer. `None` without a request.
    fn scopes(&self) -> Option<Vec<&str>> {
        match self {
            Self::Connection => None,
            Self::Request(context) => {
                let granted = context.extensions.get::<GrantedScopes>();
                Some(granted.into_iter().flat_map(GrantedScopes::iter).collect())
            }
            Self::Elsewhere(Authorization { scopes, .. }) => {
                Some(scopes.iter().flatten().map(String::as_str).collect())
            }
        }
    }
}

impl Context {
    /// Returns the context of the round after these answers: that of the last question, with the
    /// scopes that all answers came with. Which of them the client has sent last is not known.
    pub(crate) fn after(&self, mut answers: Vec<AnsweredBy>) -> Option<Self> {
        let mut scopes: Option<Vec<String>> = None;
        for of_one in answers.iter().filter_map(AnsweredBy::scopes) {
            let common = match scopes {
                None => of_one.into_iter().map(str::to_owned).collect(),
                Some(mut all) => {
                    all.retain(|scope| of_one.contains(&scope.as_str()));
                    all
                }
            };
            scopes = Some(common);
        }
        let mut next = match answers.pop()? {
            AnsweredBy::Connection => return None,
            AnsweredBy::Request(context) => context,
            AnsweredBy::Elsewhere(authorization) => {
                let mut context = self.clone();
                authorization.replace_in(&mut context.extensions);
                context
            }
        };
        // A request without a token has no set of scopes.
        if next.extensions.get::<GrantedScopes>().is_some() {
            next.extensions.insert(GrantedScopes::new(scopes.unwrap_or_default()));
        }
        Some(next)
    }
}

/// Returns the `_meta` that a client of the current revision would send.
pub(crate) fn meta(claims: &SessionClaims) -> RequestMeta {
    RequestMeta::new(PROTOCOL_VERSION, claims.capabilities.clone())
        .with_client_info(claims.client.clone())
}
