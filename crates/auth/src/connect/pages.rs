//! The pages: the browser's side.

use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use http::request::Parts;
use http::{HeaderValue, Method, Request, Response, StatusCode, header};
use http_body_util::Full;
use mrtr_codec::Principal;
use tower_service::Service;
use url::form_urlencoded;

use super::connector::{AccountConnector, Inner, TokenError, is_about_client};
use super::page::{escape, page};
use super::ticket::{LIFETIME, Visit, user};
use crate::client::Secret;
use crate::client::authorization::{CallbackError, Parameters, Pending};

type Page = Response<Full<Bytes>>;

/// Answers requests for [`start_path`](AccountConnector::start_path) and
/// [`redirect_path`](AccountConnector::redirect_path), and others with 404. It reads no bodies.
impl<B> Service<Request<B>> for AccountConnector {
    type Response = Page;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Page, Infallible>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        let inner = Arc::clone(&self.inner);
        let (head, _) = request.into_parts();
        Box::pin(async move { Ok(inner.respond(&head).await.unwrap_or_else(Refusal::into_page)) })
    }
}

impl Inner {
    async fn respond(self: &Arc<Self>, head: &Parts) -> Result<Page, Refusal> {
        let path = head.uri.path();
        if path != self.path && path != self.redirect_path {
            return Err(Refusal(StatusCode::NOT_FOUND, "There is no such page."));
        }
        let visitor = (self.identify)(head);
        let visitor = visitor.ok_or_else(|| {
            let why = "Sign in first, and open the link again.";
            Refusal(StatusCode::UNAUTHORIZED, why)
        })?;
        let visitor = user(&visitor);
        match (&head.method, path == self.path) {
            (&Method::GET, true) => self.ask(head, &visitor),
            (&Method::POST, true) => self.redirect(head, &visitor),
            (&Method::GET, false) => {
                let mut response =
                    self.finish(head, &visitor).await.unwrap_or_else(Refusal::into_page);
                // The cookie is used up, whatever the outcome.
                self.set_cookie(&mut response, "", 0);
                Ok(response)
            }
            (_, is_start) => {
                let refusal = Refusal(StatusCode::METHOD_NOT_ALLOWED, "This is not possible.");
                let mut response = refusal.into_page();
                let allowed = if is_start { "GET, POST" } else { "GET" };
                response.headers_mut().insert(header::ALLOW, HeaderValue::from_static(allowed));
                Ok(response)
            }
        }
    }

    /// Shows the page that asks the user to agree.
    fn ask(&self, head: &Parts, visitor: &Principal) -> Result<Page, Refusal> {
        let (ticket, client) = self.link_of(head, visitor)?;
        let application = match &client {
            Some(client) => format!("The application <b>{}</b>", escape(client)),
            None => "An application".to_owned(),
        };
        let (name, path) = (escape(&self.name), escape(&self.path));
        let query: String = form_urlencoded::byte_serialize(ticket.as_bytes()).collect();
        let body = format!(
            "<p>{application} asks to use your account at {name} through this server.</p>\
             <p>If you have not just asked for it, close this page.</p>\
             <form method=\"post\" action=\"{path}?ticket={query}\">\
             <button>Continue to {name}</button></form>"
        );
        let failed = || Refusal(StatusCode::INTERNAL_SERVER_ERROR, "Please try again later.");
        let visit = Visit::new(&ticket, client).map_err(|_| failed())?;
        let cookie = self.seal_cookie(visitor, &visit).ok_or_else(failed)?;
        let mut response = page(StatusCode::OK, &format!("Connect {}", self.name), &body);
        self.set_cookie(&mut response, &cookie, LIFETIME);
        Ok(response)
    }

    /// Sends the user to the third party.
    fn redirect(&self, head: &Parts, visitor: &Principal) -> Result<Page, Refusal> {
        let (ticket, _) = self.link_of(head, visitor)?;
        let visit = self.visit_of(head, visitor)?;
        if !visit.is_of(&ticket) {
            return Err(self.refuse("the cookie belongs to another link"));
        }
        let parameters = Parameters {
            client_id: self.client.id(),
            redirect_uri: &self.redirect_uri,
            scopes: &self.scopes,
            resource: None,
            dpop_jkt: None,
            prompts_consent: false,
        };
        let pending = Pending::new(&self.issuer, &self.metadata, &parameters, &visit.seed);
        let (url, _) = pending.ok_or_else(|| self.refuse("no authorization endpoint"))?;
        let location = HeaderValue::try_from(String::from(url));
        let location = location.map_err(|_| self.refuse("the URL is not a header value"))?;
        let mut response = page(StatusCode::SEE_OTHER, &self.name, "");
        response.headers_mut().insert(header::LOCATION, location);
        Ok(response)
    }

    /// Takes the code of a callback, and connects the account.
    async fn finish(self: &Arc<Self>, head: &Parts, visitor: &Principal) -> Result<Page, Refusal> {
        let visit = self.visit_of(head, visitor)?;
        let names_issuer = self.metadata.authorization_response_iss_parameter_supported;
        let pending = Pending::of_seed(&self.issuer, names_issuer, &self.redirect_uri, &visit.seed);
        let callback = head.uri.query().unwrap_or_default();
        let code = pending.code(callback).map_err(|error| match error {
            CallbackError::Refused { error, .. } => {
                tracing::info!(target: "mrtr::auth", provider = self.id, error, "access refused");
                Refusal(StatusCode::FORBIDDEN, "The access was refused, by you or by the provider.")
            }
            error => self.refuse(&error.to_string()),
        })?;
        let owner = match &visit.client {
            Some(client) => visitor.clone().with_client(client),
            None => visitor.clone(),
        };
        // A task of its own: the code works only once, so the account must be stored even if the
        // browser disconnects.
        let connected = Arc::clone(self).exchange(code, pending.verifier, owner);
        tokio::spawn(connected).await.map_err(|error| {
            tracing::error!(target: "mrtr::auth", provider = self.id, %error, "exchange failed");
            Refusal(StatusCode::INTERNAL_SERVER_ERROR, "Please try again later.")
        })??;
        let body = "<p>You can close this page, and go back to the application.</p>";
        Ok(page(StatusCode::OK, &format!("{} is connected", self.name), body))
    }

    /// Exchanges a code, and stores the account.
    async fn exchange(
        self: Arc<Self>,
        code: Secret,
        verifier: Secret,
        owner: Principal,
    ) -> Result<(), Refusal> {
        let form = vec![
            ("grant_type", "authorization_code".into()),
            ("code", code),
            ("redirect_uri", self.redirect_uri.as_str().into()),
            ("code_verifier", verifier),
        ];
        let account = self.request_token(form).await.map_err(|error| match error {
            TokenError::Refused(code) if !is_about_client(&code) => {
                self.refuse(&format!("the code was refused: {code}"))
            }
            TokenError::Refused(why) => {
                let provider = &self.id;
                tracing::error!(target: "mrtr::auth", provider, why, "this client was refused");
                Refusal(StatusCode::BAD_GATEWAY, "Please try again later.")
            }
            TokenError::Failed(why) => {
                let provider = &self.id;
                tracing::warn!(target: "mrtr::auth", provider, why, "no token for an account");
                Refusal(StatusCode::BAD_GATEWAY, "Please try again later.")
            }
        })?;
        let lock = self.locks.get(owner.clone());
        let _guard = lock.lock().await;
        self.store.save(&owner, &self.id, &account).await.map_err(|error| {
            tracing::error!(target: "mrtr::auth", provider = self.id, %error, "account not stored");
            Refusal(StatusCode::SERVICE_UNAVAILABLE, "Please try again later.")
        })
    }

    /// Returns the link of a request, and the OAuth client that asked, if it is the visitor's.
    fn link_of(
        &self,
        head: &Parts,
        visitor: &Principal,
    ) -> Result<(String, Option<String>), Refusal> {
        let query = head.uri.query().unwrap_or_default();
        let mut tickets =
            form_urlencoded::parse(query.as_bytes()).filter(|(name, _)| name == "ticket");
        let (Some((_, ticket)), None) = (tickets.next(), tickets.next()) else {
            return Err(self.refuse("there is not exactly one ticket"));
        };
        let client = self.open_link(visitor, &ticket);
        let client = client.map_err(|error| self.refuse(&format!("link: {error}")))?;
        Ok((ticket.into_owned(), client))
    }

    /// Returns what the browser has seen before.
    fn visit_of(&self, head: &Parts, visitor: &Principal) -> Result<Visit, Refusal> {
        let name = self.cookie_name();
        let headers = head.headers.get_all(header::COOKIE).iter();
        let cookies = headers.filter_map(|header| header.to_str().ok());
        let cookies = cookies.flat_map(|header| header.split(';'));
        let mut found = cookies.filter_map(|cookie| {
            let (key, value) = cookie.trim().split_once('=')?;
            (key == name).then_some(value)
        });
        let (Some(cookie), None) = (found.next(), found.next()) else {
            return Err(self.refuse("there is not exactly one cookie"));
        };
        let visit = self.open_cookie(visitor, cookie);
        visit.map_err(|error| self.refuse(&format!("cookie: {error}")))
    }

    fn cookie_name(&self) -> String {
        format!("__Host-connect-{}", self.id)
    }

    fn set_cookie(&self, response: &mut Page, value: &str, max_age: u64) {
        let name = self.cookie_name();
        let attributes = "Path=/; Secure; HttpOnly; SameSite=Lax";
        let cookie = format!("{name}={value}; Max-Age={max_age}; {attributes}");
        // Tokens and IDs have only characters that a header can carry.
        if let Ok(mut cookie) = HeaderValue::try_from(cookie) {
            cookie.set_sensitive(true);
            response.headers_mut().insert(header::SET_COOKIE, cookie);
        }
    }

    /// Logs why a visitor is refused. The page is the same for every reason.
    fn refuse(&self, why: &str) -> Refusal {
        tracing::info!(target: "mrtr::auth", provider = self.id, why, "account not connected");
        let text = "The link has expired, was used, or belongs to another user. Go back to the \
                    application, and ask for a new one.";
        Refusal(StatusCode::FORBIDDEN, text)
    }
}

/// The status and the text of a page that refuses a request.
struct Refusal(StatusCode, &'static str);

impl Refusal {
    fn into_page(self) -> Page {
        let Self(status, text) = self;
        page(status, "The account is not connected", &format!("<p>{text}</p>"))
    }
}
