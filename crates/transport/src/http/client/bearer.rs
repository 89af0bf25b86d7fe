//! Tokens that change.

use std::error::Error;
use std::future::Future;
use std::panic::AssertUnwindSafe;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use ::http::HeaderValue;
use futures_util::FutureExt as _;
use futures_util::future::Shared;

use crate::error::{BoxError, Kind, ResponseFacts, TransportError};

/// How a server refused a token, or that there was none (specification: Authorization; RFC 6750, section 3).
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Challenge {
    /// 401 where a token is missing, has expired or is none; 403 where it may not do this.
    pub status: u16,
    /// The value of `WWW-Authenticate`, which says where tokens are to be had (`resource_metadata`) and what they must be good for
    /// (`scope`). Several values are joined by commas; empty if there is none.
    pub authenticate: String,
}

impl Challenge {
    /// A challenge, for tests of a source.
    pub fn new(status: u16, authenticate: impl Into<String>) -> Self {
        Self { status, authenticate: authenticate.into() }
    }

    /// What was refused for want of a better token.
    pub(super) fn of(answer: &ResponseFacts) -> Option<Self> {
        let authenticate = answer.authenticate.as_deref();
        match (answer.status?, authenticate) {
            (status @ 401, _) => Some(Self::new(status, authenticate.unwrap_or_default())),
            (status @ 403, Some(authenticate)) => Some(Self::new(status, authenticate)),
            _ => None,
        }
    }
}

type Token = Result<String, Arc<dyn Error + Send + Sync>>;
type Asked = Pin<Box<dyn Future<Output = Token> + Send>>;

/// Somebody who has tokens, and the one that is in use.
pub(super) struct Bearer {
    source: Box<dyn Fn(Option<Challenge>) -> Asked + Send + Sync>,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    current: Option<HeaderValue>,
    /// It is asked once, however many requests wait for it, and goes on for the others when one of them gives up.
    asked: Option<Shared<Asked>>,
}

impl Bearer {
    pub(super) fn new<F, Fut>(source: F) -> Self
    where
        F: Fn(Option<Challenge>) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<String, BoxError>> + Send + 'static,
    {
        let source = Box::new(move |challenge| {
            // Nobody could wait for what has panicked.
            let asked = AssertUnwindSafe(source(challenge)).catch_unwind();
            let token = asked.map(|token| token.unwrap_or_else(|_| Err("it panicked".into())));
            Box::pin(token.map(|token| token.map_err(Arc::from))) as Asked
        });
        Self { source, state: Mutex::default() }
    }

    /// The token in use, or another one if the server refused `refused`.
    pub(super) async fn token(
        &self,
        refused: Option<(HeaderValue, Challenge)>,
    ) -> Result<HeaderValue, TransportError> {
        let asked = {
            let mut state = self.lock();
            if let Some(current) = &state.current
                && refused.as_ref().is_none_or(|(refused, _)| refused != current)
            {
                return Ok(current.clone());
            }
            let challenge = refused.map(|(_, challenge)| challenge);
            state.asked.get_or_insert_with(|| (self.source)(challenge).shared()).clone()
        };
        let token = asked.clone().await;
        let mut state = self.lock();
        // The first one of those who waited.
        let is_first = state.asked.as_ref().is_some_and(|other| other.ptr_eq(&asked));
        if is_first {
            state.asked = None;
        }
        let token = token.map_err(|error| {
            TransportError::new(Kind::Request, "there is no token for the server").because(error)
        })?;
        let token = value(&token)?;
        if is_first {
            state.current = Some(token.clone());
        }
        Ok(token)
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The header for a token.
pub(super) fn value(token: &str) -> Result<HeaderValue, TransportError> {
    let mut value = HeaderValue::from_str(&format!("Bearer {token}"))
        .map_err(|_| TransportError::new(Kind::Request, "the token is no header value"))?;
    value.set_sensitive(true);
    Ok(value)
}
