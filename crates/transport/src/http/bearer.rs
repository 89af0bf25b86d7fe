//! Tokens that change.

use std::future::Future;
use std::pin::Pin;

use ::http::{HeaderValue, StatusCode, header};
use tokio::sync::Mutex;

use crate::error::{BoxError, Kind, TransportError};

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
    /// What is refused for want of a better token.
    pub(super) fn of(response: &reqwest::Response) -> Option<Self> {
        let values = response.headers().get_all(header::WWW_AUTHENTICATE);
        let values: Vec<_> = values.iter().filter_map(|value| value.to_str().ok()).collect();
        let is_one = match response.status() {
            StatusCode::UNAUTHORIZED => true,
            StatusCode::FORBIDDEN => !values.is_empty(),
            _ => false,
        };
        let (status, authenticate) = (response.status().as_u16(), values.join(", "));
        is_one.then_some(Self { status, authenticate })
    }
}

type Asked = Pin<Box<dyn Future<Output = Result<String, BoxError>> + Send>>;

/// Somebody who has tokens, and the one that is in use.
pub(super) struct Bearer {
    source: Box<dyn Fn(Option<Challenge>) -> Asked + Send + Sync>,
    current: Mutex<Option<HeaderValue>>,
}

impl Bearer {
    pub(super) fn new<F, Fut>(source: F) -> Self
    where
        F: Fn(Option<Challenge>) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<String, BoxError>> + Send + 'static,
    {
        let source = Box::new(move |challenge| Box::pin(source(challenge)) as Asked);
        Self { source, current: Mutex::new(None) }
    }

    /// The token in use, or another one if the server refused `refused`. It is asked for once, however many requests wait for it.
    pub(super) async fn token(
        &self,
        refused: Option<(HeaderValue, Challenge)>,
    ) -> Result<HeaderValue, TransportError> {
        let mut current = self.current.lock().await;
        if let Some(value) = &*current
            && refused.as_ref().is_none_or(|(refused, _)| refused != value)
        {
            return Ok(value.clone());
        }
        let challenge = refused.map(|(_, challenge)| challenge);
        let token = (self.source)(challenge).await.map_err(|error| {
            TransportError::new(Kind::Request, "there is no token for the server").because(error)
        })?;
        let value = value(&token)?;
        *current = Some(value.clone());
        Ok(value)
    }
}

/// The header for a token.
pub(super) fn value(token: &str) -> Result<HeaderValue, TransportError> {
    let mut value = HeaderValue::from_str(&format!("Bearer {token}"))
        .map_err(|_| TransportError::new(Kind::Request, "the token is no header value"))?;
    value.set_sensitive(true);
    Ok(value)
}
