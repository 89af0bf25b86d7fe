//! A login, as a state machine: events in, actions out. It does no I/O, and reads neither a clock
//! nor random numbers.

mod discovery;
mod grant;
mod tokens;

use std::sync::Arc;

use super::authorization::{AuthorizationPage, CallbackError, Pending};
use super::bound_issuer::BoundIssuer;
use super::error::LoginError;
use super::message::{HttpRequest, HttpResponse};
use super::options::{DpopMode, Grant, Options};
use super::random::Seed;
use super::registration::{ClientRegistration, DynamicClient};
use super::secret::Secret;
use super::session::StoredSession;
use super::signing_key::SigningKey;
use super::token::{TokenRequest, is_client_lost};
use crate::identifier::{Issuer, ResourceId};
use crate::metadata::{ResourceMetadata, ServerMetadata};
use crate::scope::Scopes;
use crate::www_authenticate::Challenge;
pub(super) use discovery::{Discovery, Found};

/// The most actions of a login. No login needs as many: the limit ends those that would go on
/// forever.
const MAX_ACTIONS: u32 = 40;

/// What a machine wants to be done.
#[derive(Debug)]
pub(crate) enum Action {
    /// Send a request, and return the response.
    Fetch(HttpRequest),
    /// Obtain an assertion for an authorization server and a resource.
    Assertion { subject: Subject, issuer: Issuer, resource: String },
    /// Create a key that tokens are bound to.
    CreateKey,
    /// Let the user open a page, and return the callback.
    Authorize(AuthorizationPage),
    /// The login is complete. The session is to be stored.
    Finish,
}

/// What has happened.
#[derive(Debug)]
pub(crate) enum Event {
    Response(HttpResponse),
    /// There was no response.
    NoResponse(String),
    Assertion(Secret),
    /// There is no assertion.
    NoAssertion(String),
    /// A key, and its stored form.
    Key(SigningKey, Secret),
    Callback(String),
    /// The page did not end with a callback.
    NoCallback(String),
}

/// The kind of an assertion.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Subject {
    /// A token of the platform, or an ID token.
    Identity,
    /// A refresh token of the identity provider.
    RefreshToken,
}

/// The time, and random numbers, for one event.
pub(crate) struct Moment {
    /// Seconds since 1970.
    pub(crate) now: u64,
    pub(crate) seed: Seed,
}

/// Why a login is needed.
#[derive(Debug, Clone)]
pub(crate) enum Reason {
    /// The server demands a token, or refuses the one in use.
    Challenged(Vec<Challenge>),
    /// The server demands further scopes.
    MoreScopes(Vec<Challenge>),
    /// The token expires soon. The user is not asked.
    Expiring,
}

impl Reason {
    fn challenges(&self) -> &[Challenge] {
        match self {
            Self::Challenged(challenges) | Self::MoreScopes(challenges) => challenges,
            Self::Expiring => &[],
        }
    }

    /// Returns a parameter of a challenge for bearer tokens or bound tokens.
    fn param(&self, name: &str) -> Option<&str> {
        let is_ours = |challenge: &&Challenge| challenge.is("Bearer") || challenge.is("DPoP");
        self.challenges().iter().filter(is_ours).find_map(|challenge| challenge.param(name))
    }
}

/// The settings of a login.
pub(crate) struct Settings {
    pub(crate) options: Arc<Options>,
    pub(crate) bound_issuer: Arc<BoundIssuer>,
    pub(crate) server: ResourceId,
    /// Empty if the user takes no part.
    pub(crate) redirect_uri: String,
    pub(crate) reason: Reason,
    /// False if the user is to log in, although there is a refresh token.
    pub(crate) may_refresh: bool,
    pub(crate) session: StoredSession,
    /// The key of the session, if it has one.
    pub(crate) key: Option<SigningKey>,
}

/// A login in progress.
pub(crate) struct Login {
    options: Arc<Options>,
    bound_issuer: Arc<BoundIssuer>,
    server: ResourceId,
    redirect_uri: String,
    reason: Reason,
    may_refresh: bool,
    session: StoredSession,
    /// Absent as long as no token is to be bound to a key.
    key: Option<SigningKey>,
    /// A client that was registered while the session's refresh token belongs to another one. It
    /// replaces that with the tokens.
    new_client: Option<DynamicClient>,
    uses_dpop: bool,
    /// A token that is not bound to the key would not be accepted.
    needs_dpop: bool,
    actions: u32,
    state: State,
}

enum State {
    Discovering(Discovery),
    CreatingKey(Target),
    Registering(Target),
    /// Waits for the user. True if the client was known before this login.
    Authorizing(Target, ClientRegistration, Pending, bool),
    /// Waits for an assertion of the platform or the identity provider.
    Asserting(Target, Subject),
    /// Exchanges a login for an assertion at the identity provider.
    ExchangingIdentity(Target, TokenRequest, Subject),
    Requesting(Target, TokenRequest, Purpose),
    Done,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Purpose {
    Grant,
    Refresh,
}

/// The resource and the authorization server of a login.
struct Target {
    resource: String,
    issuer: Issuer,
    metadata: ServerMetadata,
    scopes: Scopes,
}

type Next = Result<(State, Action), LoginError>;

impl Login {
    pub(crate) fn new(settings: Settings) -> Self {
        let Settings {
            options,
            bound_issuer,
            server,
            redirect_uri,
            reason,
            may_refresh,
            session,
            key,
        } = settings;
        let asks_for = |scheme| reason.challenges().iter().any(|challenge| challenge.is(scheme));
        let needs_dpop = options.dpop == DpopMode::Required
            || asks_for("DPoP") && !asks_for("Bearer")
            || session.tokens.as_ref().is_some_and(|tokens| tokens.is_bound);
        let uses_dpop = needs_dpop || asks_for("DPoP");
        Self {
            options,
            bound_issuer,
            server,
            redirect_uri,
            reason,
            may_refresh,
            session,
            key,
            new_client: None,
            uses_dpop,
            needs_dpop,
            actions: 0,
            state: State::Done,
        }
    }

    /// Returns what was learned, also from a login that has failed.
    pub(crate) fn into_session(self) -> StoredSession {
        self.session
    }

    /// Returns the first action.
    pub(crate) fn start(&mut self, moment: &Moment) -> Result<Action, LoginError> {
        let found = match &self.reason {
            Reason::Expiring => {
                let tokens = self.session.tokens.as_ref().ok_or(LoginError::Expired)?;
                let issuer = Issuer::new(tokens.issuer.clone()).map_err(|_| LoginError::Expired)?;
                let scopes = Scopes::parse(&tokens.requested).unwrap_or_default();
                let scopes = scopes.union(&self.options.scopes);
                Discovery::of_issuer(tokens.resource.clone(), issuer, scopes)?
            }
            reason => {
                let named = reason.param("resource_metadata");
                Discovery::of_resource(&self.server, named)?
            }
        };
        let next = self.discovered(found, moment);
        self.advance(next)
    }

    /// Returns true if a request to the token endpoint is under way.
    pub(crate) fn requests_token(&self) -> bool {
        matches!(self.state, State::Requesting(..))
    }

    /// Returns the action after an event. After an error, the login is over.
    pub(crate) fn handle(&mut self, event: Event, moment: &Moment) -> Result<Action, LoginError> {
        let state = std::mem::replace(&mut self.state, State::Done);
        let next = self.next(state, event, moment);
        self.advance(next)
    }

    fn advance(&mut self, next: Next) -> Result<Action, LoginError> {
        let (state, action) = next?;
        self.actions += 1;
        if self.actions > MAX_ACTIONS {
            return Err(LoginError::Driver { what: "the login", reason: "too many steps".into() });
        }
        self.state = state;
        Ok(action)
    }

    fn next(&mut self, state: State, event: Event, moment: &Moment) -> Next {
        match (state, event) {
            (State::Discovering(discovery), Event::Response(response)) => {
                let found = discovery.response(Some(&response), "", &self.server, &self.options)?;
                self.discovered(found, moment)
            }
            (State::Discovering(discovery), Event::NoResponse(why)) => {
                let found = discovery.response(None, &why, &self.server, &self.options)?;
                self.discovered(found, moment)
            }
            (State::Registering(target), Event::Response(response)) => {
                self.registered(target, &response, moment)
            }
            (State::Registering(target), Event::NoResponse(error)) => {
                self.restore_client(&target.issuer);
                Err(LoginError::RegistrationRefused { issuer: target.issuer, error })
            }
            (State::Authorizing(target, client, _, is_known), Event::NoCallback(reason)) => {
                // Perhaps the page has told the user that the client is unknown. With a refresh
                // token, the authorization server has said by now whether it knows the client.
                if is_known && !self.can_refresh(target.issuer.as_str()) {
                    self.lose_client(&target.issuer, client.id());
                }
                Err(LoginError::Driver { what: "the user agent", reason })
            }
            (State::Authorizing(target, client, pending, _), Event::Callback(callback)) => {
                let code = pending.code(&callback).inspect_err(|error| {
                    if matches!(error, CallbackError::Refused { error, .. } if is_client_lost(error)) {
                        self.lose_client(&target.issuer, client.id());
                    }
                })?;
                let form = vec![
                    ("grant_type", "authorization_code".into()),
                    ("code", code),
                    ("redirect_uri", pending.redirect_uri.as_str().into()),
                    ("code_verifier", pending.verifier),
                ];
                self.request(target, client, form, Purpose::Grant, moment)
            }
            (State::CreatingKey(target), Event::Key(key, stored)) => {
                (self.key, self.session.dpop_key) = (Some(key), Some(stored));
                self.located(target, moment)
            }
            (State::Asserting(target, subject), Event::Assertion(assertion)) => {
                self.asserted(target, subject, assertion, moment)
            }
            (State::Asserting(target, subject), Event::NoAssertion(reason)) => {
                let failed = LoginError::Driver { what: "the assertion source", reason };
                self.other_subject(target, subject).unwrap_or(Err(failed))
            }
            (State::ExchangingIdentity(target, request, subject), Event::Response(response)) => {
                self.identity_exchanged(target, subject, &request, &response, moment)
            }
            (State::Requesting(target, request, purpose), Event::Response(response)) => {
                self.token_response(target, request, purpose, &response, moment)
            }
            (
                State::ExchangingIdentity(target, ..) | State::Requesting(target, ..),
                Event::NoResponse(reason),
            ) => Err(LoginError::TokenFailed { issuer: target.issuer, reason }),
            _ => {
                let reason = "an event that does not belong to the state".into();
                Err(LoginError::Driver { what: "the login", reason })
            }
        }
    }

    fn discovered(&mut self, found: Found, moment: &Moment) -> Next {
        match found {
            Found::Fetch(discovery, url) => {
                Ok((State::Discovering(discovery), Action::Fetch(HttpRequest::get(url))))
            }
            Found::Resource(mut discovery, metadata) => {
                if metadata.dpop_bound_access_tokens_required == Some(true) {
                    (self.uses_dpop, self.needs_dpop) = (true, true);
                }
                discovery.scopes = self.scopes(&metadata)?;
                self.prefer(&mut discovery.issuers)?;
                let found = discovery.next_server(&self.options)?;
                self.discovered(found, moment)
            }
            Found::Server { resource, issuer, metadata, scopes } => {
                let target = Target { resource, issuer, metadata, scopes };
                if self.uses_dpop && self.key.is_none() {
                    return Ok((State::CreatingKey(target), Action::CreateKey));
                }
                self.located(target, moment)
            }
        }
    }

    /// Returns the scopes to ask for (specification: scope selection strategy).
    fn scopes(&self, metadata: &ResourceMetadata) -> Result<Scopes, LoginError> {
        let challenged = self.reason.param("scope").map(Scopes::parse).transpose()?;
        let named = match (challenged, &metadata.scopes_supported) {
            (Some(scopes), _) => scopes,
            // More than the limits allow is asked for without a list.
            (None, Some(supported)) => Scopes::new(supported).unwrap_or_default(),
            (None, None) => Scopes::default(),
        };
        let scopes = match &self.session.tokens {
            // Scopes of another authorization server say nothing about this one.
            Some(tokens) if metadata.authorization_servers.contains(&tokens.issuer) => {
                let parse = |scopes| Scopes::parse(scopes).unwrap_or_default();
                parse(&tokens.requested).union(&parse(&tokens.granted))
            }
            _ => Scopes::default(),
        };
        let all = scopes.union(&self.options.scopes).union(&named);
        // Beyond the limits, the challenge alone has to do.
        Ok(if Scopes::parse(&all.to_string()).is_ok() { all } else { named })
    }

    /// Moves the issuers to the front that the client is known to.
    fn prefer(&self, issuers: &mut [Issuer]) -> Result<(), LoginError> {
        let tokens = self.session.tokens.as_ref();
        issuers.sort_by_key(|issuer| {
            let is_current = tokens.is_some_and(|tokens| tokens.issuer == issuer.as_str());
            (!is_current, !self.is_registered_at(issuer))
        });
        // A client for one authorization server is not used at another, and not replaced either.
        let mut bound = self.options.registered.iter().filter_map(|(issuer, _)| issuer.as_ref());
        let needs_registered = !matches!(self.options.grant, Grant::AuthorizationCode);
        if let (Some(expected), true) = (bound.next(), needs_registered)
            && let Some(found) = issuers.first()
            && !self.is_registered_at(found)
        {
            let expected = expected.to_string();
            return Err(LoginError::ClientOfOtherIssuer { expected, found: found.clone() });
        }
        Ok(())
    }

    fn is_registered_at(&self, issuer: &Issuer) -> bool {
        self.options.registered.iter().any(|(known, _)| known.as_ref() == Some(issuer))
            || self.session.clients.contains_key(issuer.as_str())
    }
}

fn push_scopes(form: &mut Vec<(&'static str, Secret)>, scopes: &Scopes) {
    if !scopes.is_empty() {
        form.push(("scope", scopes.to_string().into()));
    }
}

fn unsupported(issuer: &Issuer, reason: &str) -> LoginError {
    LoginError::Unsupported { issuer: issuer.clone(), reason: reason.to_owned() }
}

#[cfg(test)]
mod tests {
    use http::{HeaderMap, StatusCode};
    use serde_json::json;

    use super::*;
    use crate::client::OAuthClient;

    const SERVER: &str = "https://a.example/mcp";

    fn login(scheme: &str) -> Login {
        let client = OAuthClient::builder("app").build().unwrap();
        Login::new(Settings {
            options: Arc::clone(&client.0.options),
            bound_issuer: Arc::default(),
            server: ResourceId::new(SERVER).unwrap(),
            redirect_uri: "http://127.0.0.1/callback".to_owned(),
            reason: Reason::Challenged(Challenge::parse(scheme).unwrap()),
            may_refresh: true,
            session: StoredSession::default(),
            key: None,
        })
    }

    fn moment() -> Moment {
        Moment { now: 0, seed: Seed::random().unwrap() }
    }

    /// Returns the action after the discovery.
    fn discovered(login: &mut Login, resource: &serde_json::Value) -> Action {
        discovered_with(login, resource, "https://login.example/authorize")
    }

    fn discovered_with(
        login: &mut Login,
        resource: &serde_json::Value,
        authorization_endpoint: &str,
    ) -> Action {
        let server = json!({
            "issuer": "https://login.example",
            "authorization_endpoint": authorization_endpoint,
            "token_endpoint": "https://login.example/token",
            "registration_endpoint": "https://login.example/register",
            "code_challenge_methods_supported": ["S256"],
        });
        let mut action = login.start(&moment()).unwrap();
        for document in [resource, &server] {
            assert!(matches!(action, Action::Fetch(_)), "{action:?}");
            let body = document.to_string().into_bytes();
            let response = HttpResponse::new(StatusCode::OK, HeaderMap::new(), body);
            action = login.handle(Event::Response(response), &moment()).unwrap();
        }
        action
    }

    #[test]
    fn key_is_created_for_bound_tokens_only() {
        let unbound =
            json!({ "resource": SERVER, "authorization_servers": ["https://login.example"] });
        let mut bound = unbound.clone();
        bound["dpop_bound_access_tokens_required"] = true.into();
        for (scheme, resource, is_created) in
            [("Bearer", &unbound, false), ("DPoP", &unbound, true), ("Bearer", &bound, true)]
        {
            let mut login = login(scheme);
            let action = discovered(&mut login, resource);
            if !is_created {
                assert!(matches!(action, Action::Fetch(_)), "{scheme}: {action:?}");
                assert_eq!(login.into_session().dpop_key, None);
                continue;
            }
            assert!(matches!(action, Action::CreateKey), "{scheme}: {action:?}");
            let (key, stored) = crate::client::key::new_key().unwrap();
            let action = login.handle(Event::Key(key, stored.clone()), &moment()).unwrap();
            assert!(matches!(action, Action::Fetch(_)), "{scheme}: {action:?}");
            assert_eq!(login.into_session().dpop_key, Some(stored));
        }
    }

    #[test]
    fn remote_server_cannot_open_a_page_of_this_machine() {
        let resource =
            json!({ "resource": SERVER, "authorization_servers": ["https://login.example"] });
        for page in ["http://127.0.0.1:8080/reset", "https://localhost/reset"] {
            let mut login = login("Bearer");
            assert!(matches!(discovered_with(&mut login, &resource, page), Action::Fetch(_)));
            let body = json!({ "client_id": "new" }).to_string().into_bytes();
            let registered = HttpResponse::new(StatusCode::CREATED, HeaderMap::new(), body);
            let error = login.handle(Event::Response(registered), &moment()).unwrap_err();
            assert!(error.to_string().contains("loopback"), "{error}");
        }
    }

    /// The former client is needed for the refresh token, until there are new tokens.
    #[test]
    fn client_of_the_refresh_token_stays_until_there_are_new_tokens() {
        const ISSUER: &str = "https://login.example";
        let tokens = json!({ "issuer": ISSUER, "resource": SERVER, "client_id": "former",
            "requested": "", "granted": "", "access_token": "a", "refresh_token": "r" });
        let client =
            json!({ "client_id": "former", "redirect_uri": "http://127.0.0.1:7/callback" });
        for (has_refresh_token, kept) in [(true, "former"), (false, "new")] {
            let mut session =
                json!({ "format": 1, "tokens": tokens, "clients": { ISSUER: client } });
            if !has_refresh_token {
                session["tokens"]["refresh_token"] = json!(null);
            }
            let mut login = login("Bearer");
            (login.may_refresh, login.session) = (false, serde_json::from_value(session).unwrap());
            let resource = json!({ "resource": SERVER, "authorization_servers": [ISSUER] });
            assert!(matches!(discovered(&mut login, &resource), Action::Fetch(_)));
            let body = json!({ "client_id": "new" }).to_string().into_bytes();
            let registered = HttpResponse::new(StatusCode::CREATED, HeaderMap::new(), body);
            let action = login.handle(Event::Response(registered), &moment()).unwrap();
            let Action::Authorize(page) = action else { panic!("{action:?}") };
            let id = |login: &Login| login.session.clients[ISSUER].registration().id().to_owned();
            assert_eq!(id(&login), kept);
            let mut callback = url::Url::parse("http://127.0.0.1/callback").unwrap();
            callback
                .query_pairs_mut()
                .extend_pairs([("code", "c"), ("state", page.state.expose())]);
            login.handle(Event::Callback(callback.into()), &moment()).unwrap();
            let body = json!({ "access_token": "b", "token_type": "Bearer" }).to_string();
            let granted = HttpResponse::new(StatusCode::OK, HeaderMap::new(), body.into_bytes());
            login.handle(Event::Response(granted), &moment()).unwrap();
            assert_eq!(id(&login), "new");
        }
    }
}
