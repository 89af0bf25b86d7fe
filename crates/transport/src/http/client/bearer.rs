//! Bearer tokens that expire and are replaced.

use std::error::Error;
use std::future::Future;
use std::panic::AssertUnwindSafe;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use ::http::{HeaderMap, HeaderValue, header};
use futures_util::FutureExt as _;
use futures_util::future::Shared;

use super::credentials::{Attempt, AttemptResponse, CredentialFuture, Credentials};
use crate::error::{BoxError, Kind, TransportError};

/// Maximum number of new tokens for a request. Two, since a token that replaces an expired one may
/// lack a scope, which the next challenge names.
const MAX_NEW_TOKENS: u32 = 2;

/// A server's refusal of a token, or of a request without one (specification: Authorization;
/// RFC 6750, section 3).
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Challenge {
    /// 401 if a token is missing, expired or invalid; 403 if it lacks a permission.
    pub status: u16,
    /// The value of `WWW-Authenticate`: the place that issues tokens (`resource_metadata`) and the
    /// scopes they need (`scope`). Several values are joined by commas. Empty if there is none.
    pub www_authenticate: String,
}

impl Challenge {
    /// Creates a challenge, for tests of a token source.
    pub fn new(status: u16, www_authenticate: impl Into<String>) -> Self {
        Self { status, www_authenticate: www_authenticate.into() }
    }

    /// Returns the challenge in a response, if the server wants another token.
    ///
    /// A 403 without `WWW-Authenticate` is not about the token: another one would not help.
    fn from_response(response: &AttemptResponse<'_>) -> Option<Self> {
        let challenge = response.www_authenticate();
        match (response.status.as_u16(), challenge) {
            (status @ 401, challenge) => Some(Self::new(status, challenge.unwrap_or_default())),
            (status @ 403, Some(challenge)) => Some(Self::new(status, challenge)),
            _ => None,
        }
    }
}

type TokenResult = Result<String, Arc<dyn Error + Send + Sync>>;
type TokenFuture = Pin<Box<dyn Future<Output = TokenResult> + Send>>;

/// A source of tokens, and the token in use.
pub(super) struct Bearer {
    source: Box<dyn Fn(Option<Challenge>) -> TokenFuture + Send + Sync>,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    current: Option<HeaderValue>,
    /// The call of the source that is running. All requests that need a token share it, and it
    /// continues for the others when one of them is dropped.
    pending: Option<Shared<TokenFuture>>,
}

impl Bearer {
    pub(super) fn new<F, Fut>(source: F) -> Self
    where
        F: Fn(Option<Challenge>) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<String, BoxError>> + Send + 'static,
    {
        let source = Box::new(move |challenge| {
            // A shared future that panics would panic in every request that waits for it.
            let token = AssertUnwindSafe(source(challenge)).catch_unwind();
            let token = token
                .map(|token| token.unwrap_or_else(|_| Err("the token source panicked".into())));
            Box::pin(token.map(|token| token.map_err(Arc::from))) as TokenFuture
        });
        Self { source, state: Mutex::default() }
    }

    /// Returns the token in use, or a new one if there is none or the server has refused the one in
    /// use.
    async fn token(
        &self,
        refused: Option<(&HeaderValue, Challenge)>,
    ) -> Result<HeaderValue, BoxError> {
        let pending = {
            let mut state = self.lock();
            // A refused token that is not the one in use was replaced meanwhile.
            if let Some(current) = &state.current
                && refused.as_ref().is_none_or(|(refused, _)| *refused != current)
            {
                return Ok(current.clone());
            }
            let challenge = refused.map(|(_, challenge)| challenge);
            state.pending.get_or_insert_with(|| (self.source)(challenge).shared()).clone()
        };
        let token = pending.clone().await;
        let mut state = self.lock();
        // Only the first of the waiting requests finds its own call still pending.
        let is_first = state.pending.as_ref().is_some_and(|other| other.ptr_eq(&pending));
        if is_first {
            state.pending = None;
        }
        let token = authorization(&token?)?;
        if is_first {
            state.current = Some(token.clone());
        }
        Ok(token)
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Credentials for Bearer {
    fn headers<'a>(&'a self, _: Attempt<'a>) -> CredentialFuture<'a, HeaderMap> {
        Box::pin(async {
            let token = self.token(None).await?;
            Ok(HeaderMap::from_iter([(header::AUTHORIZATION, token)]))
        })
    }

    fn should_repeat<'a>(
        &'a self,
        attempt: Attempt<'a>,
        response: AttemptResponse<'a>,
    ) -> CredentialFuture<'a, bool> {
        Box::pin(async move {
            let sent = attempt.headers.get(header::AUTHORIZATION);
            let (Some(sent), Some(challenge)) = (sent, Challenge::from_response(&response)) else {
                return Ok(false);
            };
            if attempt.number > MAX_NEW_TOKENS {
                return Ok(false);
            }
            self.token(Some((sent, challenge))).await?;
            Ok(true)
        })
    }
}

/// Returns the value of `Authorization` for a token.
pub(super) fn authorization(token: &str) -> Result<HeaderValue, TransportError> {
    let mut value = HeaderValue::from_str(&format!("Bearer {token}")).map_err(|_| {
        TransportError::new(Kind::InvalidRequest, "the bearer token is not a valid header value")
    })?;
    value.set_sensitive(true);
    Ok(value)
}
