//! The responses to requests that do not pass.

use bytes::Bytes;
use http::{HeaderValue, Response, StatusCode, header};

use super::challenge::Challenges;
use super::claims::InvalidToken;
use super::credentials::Scheme;
use super::proof::InvalidProof;
use super::refresh::{RETRY_INTERVAL, Unavailable};

/// The reason for which a request does not pass.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Refusal {
    /// There is no token.
    NoCredentials,
    /// The request breaks a rule.
    Malformed(&'static str),
    /// The token is not accepted.
    InvalidToken(InvalidToken),
    /// The proof is not accepted.
    InvalidProof(InvalidProof),
    /// The proof lacks a nonce, or has an old one.
    NonceRequired,
    /// The token lacks a scope that all requests need.
    InsufficientScope,
    /// The issuer is unreachable.
    Unavailable,
}

/// A kind of response.
struct Kind {
    status: StatusCode,
    error: &'static str,
    description: &'static str,
}

impl Refusal {
    /// Logs the reason, which the response does not tell.
    pub(super) fn log(&self) {
        match self {
            Self::NoCredentials => tracing::trace!(target: "mrtr::auth", "no access token"),
            Self::Malformed(reason) => {
                tracing::debug!(target: "mrtr::auth", reason, "malformed request");
            }
            Self::InvalidToken(reason) => {
                tracing::debug!(target: "mrtr::auth", %reason, "invalid access token");
            }
            Self::InvalidProof(reason) => {
                tracing::debug!(target: "mrtr::auth", %reason, "invalid DPoP proof");
            }
            Self::NonceRequired => tracing::trace!(target: "mrtr::auth", "no current DPoP nonce"),
            Self::InsufficientScope => tracing::debug!(target: "mrtr::auth", "insufficient scope"),
            Self::Unavailable => {
                tracing::debug!(target: "mrtr::auth", "cannot check an access token");
            }
        }
    }

    fn kind(&self) -> Kind {
        let (status, error, description) = match self {
            Self::NoCredentials => (StatusCode::UNAUTHORIZED, "", "An access token is required"),
            Self::Malformed(rule) => (StatusCode::BAD_REQUEST, "invalid_request", *rule),
            Self::InvalidToken(_) => (
                StatusCode::UNAUTHORIZED,
                "invalid_token",
                "The access token is not valid for this resource",
            ),
            Self::InvalidProof(_) => (
                StatusCode::UNAUTHORIZED,
                "invalid_dpop_proof",
                "The DPoP proof is not valid for this request",
            ),
            Self::NonceRequired => (
                StatusCode::UNAUTHORIZED,
                "use_dpop_nonce",
                "The DPoP proof needs the nonce of this response",
            ),
            Self::InsufficientScope => (
                StatusCode::FORBIDDEN,
                "insufficient_scope",
                "The access token lacks a scope that all requests need",
            ),
            Self::Unavailable => (
                StatusCode::SERVICE_UNAVAILABLE,
                "temporarily_unavailable",
                "The access token cannot be checked at the moment",
            ),
        };
        Kind { status, error, description }
    }

    /// Creates the response to a request whose token came by `scheme`.
    pub(super) fn into_response(
        self,
        scheme: Option<Scheme>,
        challenges: &Challenges,
    ) -> Response<Bytes> {
        let Kind { status, error, description } = self.kind();
        let body = serde_json::json!({ "error": error, "error_description": description });
        let body = if error.is_empty() { Bytes::new() } else { Bytes::from(body.to_string()) };
        let is_empty = body.is_empty();
        let mut response = Response::new(body);
        *response.status_mut() = status;
        let headers = response.headers_mut();
        headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
        if !is_empty {
            let json = HeaderValue::from_static("application/json");
            headers.insert(header::CONTENT_TYPE, json);
        }
        let challenges = match self {
            Self::Unavailable => {
                headers.insert(header::RETRY_AFTER, RETRY_INTERVAL.into());
                Vec::new()
            }
            Self::NoCredentials => challenges.without_error(),
            _ => vec![challenges.with_error(scheme, error, description)],
        };
        for challenge in challenges {
            headers.append(header::WWW_AUTHENTICATE, challenge);
        }
        response
    }
}

impl From<InvalidProof> for Refusal {
    fn from(reason: InvalidProof) -> Self {
        Self::InvalidProof(reason)
    }
}

impl From<InvalidToken> for Refusal {
    fn from(reason: InvalidToken) -> Self {
        Self::InvalidToken(reason)
    }
}

impl From<Unavailable> for Refusal {
    fn from(_: Unavailable) -> Self {
        Self::Unavailable
    }
}
