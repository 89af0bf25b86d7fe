//! Issuers of opaque tokens, which are checked by introspection (RFC 7662).

use std::fmt;
use std::sync::Arc;

use tokio::sync::Semaphore;
use tokio::time::timeout;
use url::Url;
use url::form_urlencoded::{Serializer, byte_serialize};

use super::algorithm::Algorithm;
use super::audience;
use super::claims::{self, Claims, InvalidToken, Policy};
use super::clock::Clock;
use super::config_error::ConfigError;
use super::discovery;
use super::fetch::{self, FetchError};
use super::refresh::{Load, Refreshed, Unavailable};
use super::rejection::Refusal;
use super::strict_json;
use crate::Issuer;
use crate::fetch::{Fetcher, TIMEOUT};

/// The largest number of introspection requests in flight, for each issuer.
const MAX_IN_FLIGHT: usize = 64;

/// An authorization server whose tokens are checked by introspection (RFC 7662).
///
/// The endpoint is the `introspection_endpoint` of its metadata. The resource server authenticates
/// with HTTP basic authentication. Responses must have the resource in `aud`, and a `sub`. A
/// positive response is used for 30 seconds, and a negative one for 5 seconds. At most 64 requests
/// are in flight.
///
/// An opaque token does not name its issuer. So it is sent to the introspection issuers in the
/// order in which they were added, until one of them accepts it. An issuer therefore sees the
/// tokens of the issuers after it: put the most trusted first.
#[derive(Clone)]
pub struct IntrospectionIssuer {
    url: String,
    client_id: String,
    client_secret: String,
    client_as_subject: bool,
    audiences: Option<Vec<String>>,
}

impl IntrospectionIssuer {
    /// Creates an issuer, with the ID and the secret of this resource server. `url` is `https`, or
    /// `http` on the loopback interface.
    pub fn new(
        url: impl Into<String>,
        client_id: impl Into<String>,
        client_secret: impl Into<String>,
    ) -> Self {
        let (client_id, client_secret) = (client_id.into(), client_secret.into());
        let url = url.into();
        Self { url, client_id, client_secret, client_as_subject: false, audiences: None }
    }

    /// Takes the client for the subject of tokens that have no `sub`. Default: such tokens are
    /// rejected. See [`JwtIssuer`](super::JwtIssuer::with_client_as_subject).
    #[must_use]
    pub fn with_client_as_subject(mut self) -> Self {
        self.client_as_subject = true;
        self
    }

    /// Sets the accepted audiences (`aud`) of the tokens of this issuer, instead of the URL of the
    /// resource. Audiences that stand for other servers, too, let the tokens of those servers in.
    /// See [`JwtIssuer`](super::JwtIssuer::with_audiences).
    #[must_use]
    pub fn with_audiences<S: Into<String>>(
        mut self,
        audiences: impl IntoIterator<Item = S>,
    ) -> Self {
        self.audiences = Some(audiences.into_iter().map(Into::into).collect());
        self
    }

    pub(super) fn into_state(
        self,
        fetcher: &Fetcher,
        clock: &Clock,
    ) -> Result<IntrospectionState, ConfigError> {
        let issuer = Issuer::new(self.url)?;
        let audiences = audience::check(&issuer, self.audiences)?;
        fetch::check(&issuer)?;
        // RFC 6749, section 2.3.1: both are encoded as in a form.
        let encode = |text: &str| byte_serialize(text.as_bytes()).collect::<String>();
        let loader = EndpointLoader { issuer, fetcher: fetcher.clone() };
        Ok(IntrospectionState {
            client_id: encode(&self.client_id),
            client_secret: encode(&self.client_secret),
            client_as_subject: self.client_as_subject,
            audiences,
            issuer: loader.issuer.clone(),
            endpoint: Refreshed::new(loader, clock.clone()),
            fetcher: fetcher.clone(),
            slots: Semaphore::new(MAX_IN_FLIGHT),
        })
    }
}

impl fmt::Debug for IntrospectionIssuer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("IntrospectionIssuer")
            .field("url", &self.url)
            .field("client_id", &self.client_id)
            .finish_non_exhaustive()
    }
}

/// An [`IntrospectionIssuer`] at work.
pub(super) struct IntrospectionState {
    issuer: Issuer,
    client_id: String,
    client_secret: String,
    client_as_subject: bool,
    audiences: Vec<String>,
    endpoint: Arc<Refreshed<EndpointLoader>>,
    fetcher: Fetcher,
    slots: Semaphore,
}

impl IntrospectionState {
    pub(super) fn issuer(&self) -> &Issuer {
        &self.issuer
    }

    /// Asks the issuer about a token.
    pub(super) async fn check(
        &self,
        token: &str,
        audience: &str,
        clock: &Clock,
    ) -> Result<Claims, Refusal> {
        let endpoint = self.endpoint.get(None, |_| true).await?;
        let unavailable = |error: FetchError| {
            let issuer = &self.issuer;
            tracing::warn!(target: "mrtr::auth", %issuer, %error, "cannot introspect a token");
            Unavailable
        };
        let response = timeout(TIMEOUT, self.ask(&endpoint, token)).await;
        let response = response.unwrap_or(Err(FetchError::Timeout)).map_err(unavailable)?;
        let response =
            strict_json::object(&response).map_err(|_| unavailable(FetchError::Introspection))?;
        let policy = Policy {
            issuer: self.issuer.as_str(),
            audience,
            audiences: &self.audiences,
            algorithms: &Algorithm::DEFAULT,
            any_typ: true,
            client_as_subject: self.client_as_subject,
        };
        Ok(claims::check_introspection(&response, &policy, clock.now())?)
    }

    async fn ask(&self, endpoint: &Url, token: &str) -> Result<Vec<u8>, FetchError> {
        // The semaphore is never closed, so this is never an error.
        let _slot = self.slots.acquire().await.ok();
        let form = Serializer::new(String::new())
            .append_pair("token", token)
            .append_pair("token_type_hint", "access_token")
            .finish();
        let credentials = (self.client_id.as_str(), self.client_secret.as_str());
        Ok(fetch::post(&self.fetcher, endpoint.clone(), credentials, form).await?.bytes)
    }
}

/// Finds the introspection endpoint of an issuer.
struct EndpointLoader {
    issuer: Issuer,
    fetcher: Fetcher,
}

impl Load for EndpointLoader {
    type Value = Url;

    async fn load(&self) -> Result<(Url, Option<u64>), FetchError> {
        let metadata = discovery::discover(&self.issuer, &self.fetcher).await?;
        let url = metadata.introspection_endpoint.as_deref();
        Ok((discovery::endpoint(&self.issuer, "introspection_endpoint", url)?, None))
    }

    fn issuer(&self) -> &str {
        self.issuer.as_str()
    }
}

/// Returns true if another issuer may know the token.
pub(super) fn may_be_of_another(refusal: &Refusal) -> bool {
    matches!(
        refusal,
        Refusal::Unavailable | Refusal::InvalidToken(InvalidToken::Inactive | InvalidToken::Issuer)
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secret_is_not_printed() {
        let issuer = IntrospectionIssuer::new("https://a.example", "id", "hunter2");
        assert!(!format!("{issuer:?}").contains("hunter2"));
    }
}
