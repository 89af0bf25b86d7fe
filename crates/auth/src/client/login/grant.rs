//! The grants: by a refresh token, by the user, by the client itself, or by an assertion.

use std::collections::HashMap;

use base64::Engine as _;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use serde::de::DeserializeOwned;
use serde_json::value::RawValue;
use url::Url;

use super::{
    Action, Login, Next, Purpose, Reason, State, Subject, Target, push_scopes, unsupported,
};
use crate::client::authorization::{AuthorizationPage, Parameters, Pending};
use crate::client::error::LoginError;
use crate::client::login::Moment;
use crate::client::message::{HttpRequest, HttpResponse};
use crate::client::options::Grant;
use crate::client::registration::{ClientMetadata, ClientRegistration, DynamicClient};
use crate::client::secret::Secret;
use crate::client::signing_key::SigningKey;
use crate::client::token::{TokenRequest, TokenResponse};
use crate::client::token_client::client_of_tokens;
use crate::identifier::{Issuer, is_loopback};
use crate::scope::Scopes;

impl Login {
    /// The authorization server is known: refreshes the token, or obtains a new one.
    pub(super) fn located(&mut self, mut target: Target, moment: &Moment) -> Next {
        let can_refresh = self.may_refresh && !matches!(self.reason, Reason::MoreScopes(_));
        if let Some(tokens) = self.session.tokens.clone().filter(|_| can_refresh)
            && tokens.issuer == target.issuer.as_str()
            && let Some(refresh_token) = tokens.refresh_token
        {
            let client =
                client_of_tokens(&self.options, &self.session, &target.issuer, &self.bound_issuer);
            let form =
                vec![("grant_type", "refresh_token".into()), ("refresh_token", refresh_token)];
            target.resource = tokens.resource;
            return self.request(target, client, form, Purpose::Refresh, moment);
        }
        self.obtain(target, moment)
    }

    /// Obtains a token without an earlier one.
    pub(super) fn obtain(&mut self, mut target: Target, moment: &Moment) -> Next {
        match &self.options.grant {
            // Only the user can renew what cannot be refreshed.
            Grant::AuthorizationCode if matches!(self.reason, Reason::Expiring) => {
                Err(LoginError::Expired)
            }
            Grant::AuthorizationCode if self.redirect_uri.is_empty() => {
                Err(LoginError::NoUserAgent)
            }
            Grant::AuthorizationCode => {
                let is_trusted = self.options.trusted_for_pkce.contains(&target.issuer);
                if !is_trusted && !target.metadata.supports_pkce() {
                    return Err(LoginError::NoPkce(target.issuer));
                }
                if target.metadata.supports_scope("offline_access") {
                    target.scopes = target.scopes.union(&Scopes::new(["offline_access"])?);
                }
                match self.known_client(&target, moment)? {
                    Some(client) => self.authorize(target, client, true, moment),
                    None => self.register(target),
                }
            }
            Grant::ClientCredentials => {
                let client = self.registered_client(&target.issuer)?;
                let client = client.ok_or_else(|| LoginError::NoClient(target.issuer.clone()))?;
                let form = vec![("grant_type", "client_credentials".into())];
                self.request(target, client, form, Purpose::Grant, moment)
            }
            Grant::JwtBearer | Grant::IdentityAssertion(_) => {
                Ok(asserting(target, Subject::Identity))
            }
        }
    }

    /// Returns the client by the preference of the specification: registered beforehand, by a
    /// metadata document, registered dynamically before. `None` if it has to be registered.
    fn known_client(
        &self,
        target: &Target,
        moment: &Moment,
    ) -> Result<Option<ClientRegistration>, LoginError> {
        if let Some(client) = self.registered_client(&target.issuer)? {
            return Ok(Some(client));
        }
        if let Some(url) = &self.options.client_metadata_url
            && target.metadata.client_id_metadata_document_supported
        {
            return Ok(Some(ClientRegistration::public(url)));
        }
        let known = self.session.clients.get(target.issuer.as_str());
        let usable = known.filter(|client| client.is_usable(&self.redirect_uri, moment.now));
        Ok(usable.map(DynamicClient::registration))
    }

    /// Returns the client that was registered beforehand.
    fn registered_client(&self, issuer: &Issuer) -> Result<Option<ClientRegistration>, LoginError> {
        let Some((known, client)) = self.options.registered_at(issuer) else { return Ok(None) };
        if known.is_none() {
            self.bound_issuer.check(issuer)?;
        }
        Ok(Some(client.clone()))
    }

    fn register(&mut self, target: Target) -> Next {
        let endpoint = target.metadata.registration_endpoint.as_deref();
        let Some(url) = endpoint.and_then(|url| Url::parse(url).ok()) else {
            self.restore_client(&target.issuer);
            return Err(LoginError::NoClient(target.issuer));
        };
        let Some(body) = ClientMetadata::for_registration(
            &self.options.client_name,
            &self.redirect_uri,
            &target.metadata,
            self.uses_dpop,
        ) else {
            return Err(unsupported(&target.issuer, "no method of client authentication is ours"));
        };
        let request = HttpRequest::post_json(url, &body);
        Ok((State::Registering(target), Action::Fetch(request)))
    }

    pub(super) fn registered(
        &mut self,
        target: Target,
        response: &HttpResponse,
        moment: &Moment,
    ) -> Next {
        let client = if response.status().is_success() {
            let client = DynamicClient::parse(response.body(), &self.redirect_uri);
            client.map_err(|_| "malformed response".to_owned())
        } else {
            let code = response.error_code();
            Err(code.unwrap_or_else(|| response.status().to_string()))
        };
        let client = client.map_err(|error| {
            self.restore_client(&target.issuer);
            LoginError::RegistrationRefused { issuer: target.issuer.clone(), error }
        })?;
        let registration = client.registration();
        let issuer = target.issuer.to_string();
        if self.can_refresh(&issuer) {
            self.new_client = Some(client);
        } else {
            self.session.clients.insert(issuer, client);
        }
        self.authorize(target, registration, false, moment)
    }

    fn authorize(
        &self,
        target: Target,
        client: ClientRegistration,
        is_known: bool,
        moment: &Moment,
    ) -> Next {
        let key = self.key.as_ref().filter(|_| self.uses_dpop);
        let thumbprint = key.map(SigningKey::thumbprint).transpose()?;
        let parameters = Parameters {
            client_id: client.id(),
            redirect_uri: &self.redirect_uri,
            scopes: &target.scopes,
            resource: Some(&target.resource),
            dpop_jkt: thumbprint.as_deref(),
            prompts_consent: self.options.prompts_consent,
        };
        let pending = Pending::new(&target.issuer, &target.metadata, &parameters, &moment.seed);
        let Some((url, pending)) = pending else {
            return Err(unsupported(&target.issuer, "it has no authorization_endpoint"));
        };
        // The user's browser would send its cookies to a service of this machine.
        let is_remote = !Url::parse(self.server.as_str()).is_ok_and(|url| is_loopback(&url));
        if is_remote && is_loopback(&url) {
            let why = "its authorization_endpoint is on the loopback interface";
            return Err(unsupported(&target.issuer, why));
        }
        let page = AuthorizationPage {
            url,
            state: pending.state().clone(),
            server: self.server.clone(),
            issuer: target.issuer.clone(),
            scopes: target.scopes.clone(),
        };
        let action = Action::Authorize(page);
        Ok((State::Authorizing(target, client, pending, is_known), action))
    }

    pub(super) fn asserted(
        &mut self,
        target: Target,
        subject: Subject,
        assertion: Secret,
        moment: &Moment,
    ) -> Next {
        let Grant::IdentityAssertion(provider) = &self.options.grant else {
            // A client may be known to the authorization server, but need not.
            let client = self.registered_client(&target.issuer)?;
            let client = client.unwrap_or_else(|| ClientRegistration::public(""));
            check_audience(&assertion, &target)?;
            return self.request(target, client, jwt_bearer(assertion), Purpose::Grant, moment);
        };
        if subject == Subject::Identity && provider.has_refresh_token {
            let expires_at = claim::<f64>(&assertion, "exp");
            #[expect(clippy::cast_precision_loss, reason = "exact for thousands of years")]
            if expires_at.is_some_and(|expires_at| expires_at <= moment.now as f64) {
                return Ok(asserting(target, Subject::RefreshToken));
            }
        }
        let subject_token_type = match subject {
            Subject::Identity => "urn:ietf:params:oauth:token-type:id_token",
            Subject::RefreshToken => "urn:ietf:params:oauth:token-type:refresh_token",
        };
        let mut form = vec![
            ("grant_type", "urn:ietf:params:oauth:grant-type:token-exchange".into()),
            ("requested_token_type", ID_JAG.into()),
            ("audience", target.issuer.as_str().into()),
            ("resource", target.resource.as_str().into()),
            ("subject_token", assertion),
            ("subject_token_type", subject_token_type.into()),
        ];
        push_scopes(&mut form, &target.scopes);
        let request =
            TokenRequest::at(provider.token_endpoint.clone(), provider.client.clone(), form);
        let action = Action::Fetch(request.write(None, &moment.seed, moment.now)?);
        Ok((State::ExchangingIdentity(target, request, subject), action))
    }

    /// Continues with the refresh token of the identity provider, if there is one and it was not
    /// tried yet.
    pub(super) fn other_subject(&self, target: Target, tried: Subject) -> Option<Next> {
        let Grant::IdentityAssertion(provider) = &self.options.grant else { return None };
        (tried == Subject::Identity && provider.has_refresh_token)
            .then(|| Ok(asserting(target, Subject::RefreshToken)))
    }

    pub(super) fn identity_exchanged(
        &mut self,
        target: Target,
        subject: Subject,
        request: &TokenRequest,
        response: &HttpResponse,
        moment: &Moment,
    ) -> Next {
        let issuer = target.issuer.clone();
        let failed = |what: &str| LoginError::TokenFailed {
            issuer: issuer.clone(),
            reason: format!("the identity provider at {}: {what}", request.url()),
        };
        match TokenResponse::parse(response) {
            TokenResponse::Granted(granted)
                if granted.issued_token_type.as_deref() == Some(ID_JAG)
                    && granted.is_of_type("N_A") =>
            {
                let client = self.registered_client(&target.issuer)?;
                let client = client.ok_or_else(|| LoginError::NoClient(target.issuer.clone()))?;
                check_audience(&granted.access_token, &target)?;
                let form = jwt_bearer(granted.access_token);
                self.request(target, client, form, Purpose::Grant, moment)
            }
            TokenResponse::Granted(_) => Err(failed("issued another kind of token than an ID-JAG")),
            TokenResponse::Nonce(_) => Err(failed("asked for a DPoP nonce")),
            TokenResponse::Refused(error) => {
                // The codes of an invalid subject token (RFC 6749, section 5.2; RFC 8693, section
                // 2.2.2). Others, such as `access_denied`, are a decision that stands.
                let is_of_subject = ["invalid_grant", "invalid_request"].contains(&error.as_str());
                let other = is_of_subject.then(|| self.other_subject(target, subject)).flatten();
                other.unwrap_or_else(|| Err(failed(&format!("refused: {error}"))))
            }
            TokenResponse::Failed(why) => Err(failed(why)),
        }
    }
}

fn asserting(target: Target, subject: Subject) -> (State, Action) {
    let (issuer, resource) = (target.issuer.clone(), target.resource.clone());
    (State::Asserting(target, subject), Action::Assertion { subject, issuer, resource })
}

/// Checks that an assertion is meant for the authorization server, which the MCP server has named:
/// another one could use it elsewhere.
///
/// The token endpoint is an audience, too (RFC 7523, section 3), unless it is at another place than
/// the server: then the server has only named the endpoint of another one.
fn check_audience(assertion: &Secret, target: &Target) -> Result<(), LoginError> {
    let origin = |url: &str| Url::parse(url).ok().map(|url| url.origin());
    let endpoint = target.metadata.token_endpoint.as_deref();
    let endpoint = endpoint.filter(|url| origin(url) == origin(target.issuer.as_str()));
    let is_meant = |audience: &str| {
        audience.trim_end_matches('/') == target.issuer.as_str().trim_end_matches('/')
            || Some(audience) == endpoint
    };
    match audiences(assertion) {
        Some(audiences) if audiences.iter().any(|audience| is_meant(audience)) => Ok(()),
        _ => Err(LoginError::AssertionForOther(target.issuer.clone())),
    }
}

/// Returns the audiences of an assertion. `None` if it is not a JSON Web Token that has some.
fn audiences(assertion: &Secret) -> Option<Vec<String>> {
    let one = claim(assertion, "aud").map(|one| vec![one]);
    one.or_else(|| claim(assertion, "aud"))
}

/// Returns a claim of an assertion, which is not verified: the server that gets it does that.
fn claim<T: DeserializeOwned>(assertion: &Secret, name: &str) -> Option<T> {
    let payload = assertion.expose().split('.').nth(1)?;
    let payload = zeroize::Zeroizing::new(BASE64_URL_SAFE_NO_PAD.decode(payload).ok()?);
    let claims: HashMap<String, &RawValue> = serde_json::from_slice(&payload).ok()?;
    serde_json::from_str(claims.get(name)?.get()).ok()
}

const ID_JAG: &str = "urn:ietf:params:oauth:token-type:id-jag";

fn jwt_bearer(assertion: Secret) -> Vec<(&'static str, Secret)> {
    vec![
        ("grant_type", "urn:ietf:params:oauth:grant-type:jwt-bearer".into()),
        ("assertion", assertion),
    ]
}

#[cfg(test)]
mod tests {
    use base64::Engine as _;
    use base64::prelude::BASE64_URL_SAFE_NO_PAD;

    use super::{audiences, claim};
    use crate::client::secret::Secret;

    fn assertion(claims: &str) -> Secret {
        Secret::from(format!("e30.{}.AA", BASE64_URL_SAFE_NO_PAD.encode(claims)))
    }

    #[test]
    fn claims_are_read_without_the_others() {
        let other = r#""x":{"$serde_json::private::RawValue":"["}"#;
        for (claims, expected) in [
            (format!(r#"{{"aud":"a",{other}}}"#), Some(vec!["a"])),
            (format!(r#"{{{other},"aud":["a","b"]}}"#), Some(vec!["a", "b"])),
            (r#"{"aud":["a",5]}"#.to_owned(), None),
            ("{}".to_owned(), None),
            ("[]".to_owned(), None),
        ] {
            let expected = expected.map(|all| all.into_iter().map(str::to_owned).collect());
            assert_eq!(audiences(&assertion(&claims)), expected, "{claims}");
        }
        assert_eq!(claim(&assertion(r#"{"exp":5.5}"#), "exp"), Some(5.5));
        assert_eq!(claim::<f64>(&assertion(r#"{"exp":"5"}"#), "exp"), None);
        assert_eq!(claim::<f64>(&Secret::from("opaque"), "exp"), None);
    }
}
