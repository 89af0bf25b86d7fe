//! The request to the token endpoint, and the tokens in its response.

use super::{Action, Login, Next, Purpose, Reason, State, Target, push_scopes, unsupported};
use crate::client::error::LoginError;
use crate::client::login::Moment;
use crate::client::message::HttpResponse;
use crate::client::options::Grant;
use crate::client::registration::ClientRegistration;
use crate::client::secret::Secret;
use crate::client::session::Tokens;
use crate::client::token::{Granted, INVALID_GRANT, TokenRequest, TokenResponse, is_client_lost};
use crate::identifier::Issuer;
use crate::scope::Scopes;

/// The longest lifetime of a token that is believed, in seconds: 10 years.
const MAX_LIFETIME: u64 = 10 * 365 * 86_400;

impl Login {
    /// Sends a request to the token endpoint.
    pub(super) fn request(
        &self,
        target: Target,
        client: ClientRegistration,
        mut form: Vec<(&'static str, Secret)>,
        purpose: Purpose,
        moment: &Moment,
    ) -> Next {
        form.push(("resource", target.resource.as_str().into()));
        // Refreshed tokens keep their scopes, and a code carries those that were asked for.
        let is_direct = !form.iter().any(|(name, _)| ["code", "refresh_token"].contains(name));
        if is_direct {
            push_scopes(&mut form, &target.scopes);
        }
        let request = TokenRequest::new(&target.issuer, &target.metadata, client, form)
            .map_err(|error| unsupported(&target.issuer, &error.to_string()))?;
        self.send(target, request, purpose, moment)
    }

    pub(super) fn send(
        &self,
        target: Target,
        request: TokenRequest,
        purpose: Purpose,
        moment: &Moment,
    ) -> Next {
        // A refresh token is sent by a client that is bound already.
        if purpose == Purpose::Grant
            && let Some((None, _)) = self.options.registered_at(&target.issuer)
        {
            self.bound_issuer.bind(&target.issuer)?;
        }
        let key = self.key.as_ref().filter(|_| self.uses_dpop);
        let action = Action::Fetch(request.write(key, &moment.seed, moment.now)?);
        Ok((State::Requesting(target, request, purpose), action))
    }

    pub(super) fn token_response(
        &mut self,
        target: Target,
        mut request: TokenRequest,
        purpose: Purpose,
        response: &HttpResponse,
        moment: &Moment,
    ) -> Next {
        let issuer = target.issuer.clone();
        match TokenResponse::parse(response) {
            TokenResponse::Granted(granted) => {
                let tokens = self.tokens(target, &request, granted, purpose, moment.now)?;
                if let Some(client) = self.new_client.take() {
                    self.session.clients.insert(tokens.issuer.clone(), client);
                }
                self.session.tokens = Some(tokens);
                Ok((State::Done, Action::Finish))
            }
            TokenResponse::Nonce(nonce) if self.uses_dpop && request.nonce.is_none() => {
                request.nonce = Some(nonce);
                self.send(target, request, purpose, moment)
            }
            TokenResponse::Nonce(_) => {
                let reason = "it asked for a DPoP nonce again".to_owned();
                Err(LoginError::TokenFailed { issuer, reason })
            }
            TokenResponse::Refused(error) => {
                // Nothing is registered without the user.
                if is_client_lost(&error) && !matches!(self.reason, Reason::Expiring) {
                    self.lose_client(&issuer, request.client_id());
                }
                if purpose != Purpose::Refresh {
                    return Err(LoginError::TokenRefused { issuer, error });
                }
                // Another process may have used the refresh token, or it has expired. Other errors,
                // such as a wrong secret of the client, are not about the token.
                if let Some(tokens) = &mut self.session.tokens
                    && error == INVALID_GRANT
                {
                    tokens.refresh_token = None;
                }
                self.obtain(target, moment)
            }
            TokenResponse::Failed(reason) => {
                Err(LoginError::TokenFailed { issuer, reason: reason.to_owned() })
            }
        }
    }

    /// Marks the client that was registered dynamically as lost, so that the next login registers a
    /// new one.
    pub(super) fn lose_client(&mut self, issuer: &Issuer, id: &str) {
        let client = self.session.clients.get_mut(issuer.as_str());
        if let Some(client) = client.filter(|client| client.registration().id() == id) {
            client.is_lost = true;
        }
    }

    /// Uses the client that seemed lost again, because a new one cannot be registered.
    pub(super) fn restore_client(&mut self, issuer: &Issuer) {
        if let Some(client) = self.session.clients.get_mut(issuer.as_str()) {
            client.is_lost = false;
        }
    }

    /// Returns true if the session has a refresh token of an authorization server.
    pub(super) fn can_refresh(&self, issuer: &str) -> bool {
        let is_of = |tokens: &Tokens| tokens.issuer == issuer && tokens.refresh_token.is_some();
        self.session.tokens.as_ref().is_some_and(is_of)
    }

    fn tokens(
        &self,
        target: Target,
        request: &TokenRequest,
        granted: Granted,
        purpose: Purpose,
        now: u64,
    ) -> Result<Tokens, LoginError> {
        let is_bound = granted.is_of_type("DPoP");
        if !is_bound && !granted.is_of_type("Bearer") && !granted.is_of_type("") {
            let reason = "it issued a token of another type than Bearer and DPoP".to_owned();
            return Err(LoginError::TokenFailed { issuer: target.issuer, reason });
        }
        if is_bound && !self.uses_dpop {
            return Err(unsupported(&target.issuer, "it bound a token to a key without a proof"));
        }
        if self.needs_dpop && !is_bound {
            return Err(LoginError::NotBound(target.issuer));
        }
        let former = self.session.tokens.as_ref().filter(|_| purpose == Purpose::Refresh);
        let parse = |scopes: &str| Scopes::parse(scopes).unwrap_or_default();
        let requested =
            former.map_or_else(|| target.scopes.clone(), |tokens| parse(&tokens.requested));
        let unchanged = former.map_or_else(|| requested.clone(), |tokens| parse(&tokens.granted));
        let refresh_token = granted
            .refresh_token
            .clone()
            .or_else(|| former.and_then(|tokens| tokens.refresh_token.clone()));
        // Only the user can renew a token of the user without a refresh token.
        let is_renewable =
            refresh_token.is_some() || !matches!(self.options.grant, Grant::AuthorizationCode);
        let lifetime = granted.expires_in.map(|seconds| seconds.min(MAX_LIFETIME));
        let after = |seconds: u64| now.saturating_add(seconds);
        Ok(Tokens {
            issuer: target.issuer.to_string(),
            resource: target.resource,
            client_id: request.client_id().to_owned(),
            is_bound,
            refresh_at: lifetime.filter(|_| is_renewable).map(|seconds| after(seconds / 5 * 4)),
            expires_at: lifetime.map(after),
            requested: requested.to_string(),
            granted: granted.scopes(&unchanged).to_string(),
            refresh_token,
            access_token: granted.access_token,
        })
    }
}
