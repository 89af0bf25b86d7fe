//! What replicas tell each other about their sessions.

use mrtr_codec::Principal;
use mrtr_schema::jsonrpc::{ErrorObject, RequestId};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use crate::server::claims::SessionClaims;
use crate::server::context::Authorization;
use crate::server::session::{Answer, Change, Session, SessionKey};

/// A message to the other replicas.
#[derive(Serialize, Deserialize)]
pub(crate) enum Message {
    /// A client has answered a question, which another replica has asked.
    #[serde(rename = "a")]
    Answered {
        session: SessionKey,
        id: String,
        result: Option<Box<RawValue>>,
        error: Option<ErrorObject>,
        authorization: Authorization,
    },
    /// A client has cancelled a request, which another replica answers.
    #[serde(rename = "c")]
    Cancelled { session: SessionKey, id: RequestId },
    /// A client resumes a call here, on a new stream, so no other replica continues it.
    #[serde(rename = "r")]
    Resumed { session: SessionKey, stream: String, id: RequestId, new: String },
    /// A client has ended its session.
    #[serde(rename = "e")]
    Ended { session: SessionKey, expires: u64 },
    /// A client has changed what its session keeps between requests.
    #[serde(rename = "s")]
    Changed {
        session: SessionKey,
        claims: Box<SessionClaims>,
        principal: Option<Caller>,
        change: Change,
    },
}

/// A principal: issuer, subject and client.
#[derive(Serialize, Deserialize)]
pub(crate) struct Caller(String, String, Option<String>);

impl From<&Principal> for Caller {
    fn from(principal: &Principal) -> Self {
        let client = principal.client().map(str::to_owned);
        Self(principal.issuer().to_owned(), principal.subject().to_owned(), client)
    }
}

impl From<Caller> for Principal {
    fn from(Caller(issuer, subject, client): Caller) -> Self {
        let principal = Self::new(issuer, subject);
        match client {
            Some(client) => principal.with_client(client),
            None => principal,
        }
    }
}

impl Message {
    pub(crate) fn answered(
        session: SessionKey,
        id: String,
        answer: Answer,
        authorization: Authorization,
    ) -> Self {
        let (result, error) = match answer {
            Ok(result) => (Some(result), None),
            Err(error) => (None, Some(error)),
        };
        Self::Answered { session, id, result, error, authorization }
    }

    pub(crate) fn changed(session: &Session, change: Change) -> Self {
        let principal = session.principal.as_ref().map(Caller::from);
        Self::Changed {
            session: session.key,
            claims: Box::new(session.claims.clone()),
            principal,
            change,
        }
    }
}
