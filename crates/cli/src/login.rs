//! The commands `login`, `logout` and `whoami`, and the login that other commands offer.

use std::io::{self, BufRead as _, IsTerminal as _, Write as _};
use std::process::ExitCode;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use mrtr::ClientBuilder;
use mrtr::auth::client::{
    AuthorizationPage, CallbackReceiver, ClientRegistration, DriverFuture, FileStore, Logout,
    Loopback, OAuthClient, OAuthClientBuilder, StoredSession, UserAgent,
};
use mrtr::client::UserTime;
use mrtr::http::HttpConnection;
use mrtr::schema::uri;
use mrtr::terminal::sanitize_line;
use serde_json::json;

use crate::failure::{Failure, LOGIN_NEEDED, Result};
use crate::options::{Login, Server};
use crate::output::{self, bold, dim};

/// The redirect URI if no browser can reach this machine. Nothing listens there: the user copies
/// the URL from the browser.
const PASTED_REDIRECT_URI: &str = "http://127.0.0.1:7777/callback";

pub(crate) async fn login(login: &Login, json: bool) -> Result<ExitCode> {
    let server = &login.server;
    let oauth = login.oauth()?;
    let session = oauth.session(&server.url).await.map_err(Failure::login)?;
    let has_scopes = |session: &StoredSession| {
        let granted = session.scopes().unwrap_or_default();
        login.scopes.iter().all(|scope| granted.split(' ').any(|one| one == scope))
    };
    if session.needs_login(now()) {
        // The server's challenge names the scopes. Not every server sends one for this request.
        // Other failures of it do not concern the login.
        let discovered = server.connect(oauth.clone())?.build().discover().await;
        if let Err(failure) = discovered.map_err(Failure::from)
            && failure.code == LOGIN_NEEDED
        {
            return Err(failure);
        }
    }
    let session = oauth.session(&server.url).await.map_err(Failure::login)?;
    // Other commands do not know the secret of a client, which a renewal may need.
    let is_of_other_client = login.client_id.as_deref().is_some_and(|id| {
        session.client_id() != Some(id) || session.expires_at().is_some_and(|at| at <= now())
    });
    if session.needs_login(now()) || !has_scopes(&session) || is_of_other_client {
        oauth.log_in(&server.url).await.map_err(Failure::login)?;
    }
    print(&server.url, &oauth.session(&server.url).await.map_err(Failure::login)?, json);
    Ok(ExitCode::SUCCESS)
}

pub(crate) async fn logout(url: &str, json: bool) -> Result<ExitCode> {
    let oauth = builder()?.build().map_err(Failure::usage)?;
    let outcome = oauth.log_out(url).await.map_err(Failure::login)?;
    let (text, reason) = match outcome {
        Logout::NotLoggedIn => ("not logged in", None),
        Logout::NotRevoked(reason) => ("logged out, without revocation", Some(reason)),
        _ => ("logged out", None),
    };
    if json {
        output::json(&json!({ "outcome": text, "reason": reason }));
    } else {
        let reason = reason.map_or(String::new(), |reason| format!(": {}", sanitize_line(&reason)));
        output::line(&format!("{}: {text}{reason}", host(url)));
    }
    Ok(ExitCode::SUCCESS)
}

pub(crate) async fn whoami(url: &str, json: bool) -> Result<ExitCode> {
    let oauth = builder()?.build().map_err(Failure::usage)?;
    let session = oauth.session(url).await.map_err(Failure::login)?;
    print(url, &session, json);
    Ok(if session.is_logged_in() { ExitCode::SUCCESS } else { ExitCode::from(LOGIN_NEEDED) })
}

impl Login {
    fn oauth(&self) -> Result<OAuthClient> {
        let mut oauth = builder()?.scopes(self.scopes.iter().cloned());
        if let (Some(issuer), Some(id)) = (&self.issuer, &self.client_id) {
            let client = match &self.client_secret_env {
                Some(name) => {
                    let secret = std::env::var(name).map_err(|_| {
                        Failure::usage(format!("environment variable {name} is not set"))
                    })?;
                    ClientRegistration::with_secret(id, secret)
                }
                None => ClientRegistration::public(id),
            };
            oauth = oauth.registered(issuer, client);
        }
        for issuer in &self.trust_for_pkce {
            oauth = oauth.trust_for_pkce(issuer);
        }
        let user = TerminalUser {
            asks_first: false,
            opens_browser: !self.no_browser,
            time: UserTime::default(),
        };
        oauth.user_agent(user).build().map_err(Failure::usage)
    }
}

impl Server {
    /// Returns a client builder for the server. Without a bearer token, it uses the login.
    pub(crate) fn client(&self) -> Result<ClientBuilder<HttpConnection>> {
        let user_time = UserTime::default();
        let client = match &self.token_env {
            Some(name) => self.connect_with_token(name),
            None => self.connect(credentials(user_time.clone())?),
        }?;
        let client = client.exclude_handler_time().exclude_user_time(user_time);
        Ok(client.call_timeout(Duration::from_secs(self.timeout)))
    }
}

/// Returns the credentials of a command other than `login`: those of an earlier login, or of one
/// that is offered at a terminal.
fn credentials(time: UserTime) -> Result<OAuthClient> {
    let mut oauth = builder()?;
    if io::stdin().is_terminal() && io::stderr().is_terminal() {
        oauth = oauth.user_agent(TerminalUser { asks_first: true, opens_browser: true, time });
    }
    oauth.build().map_err(Failure::usage)
}

fn builder() -> Result<OAuthClientBuilder> {
    let store = FileStore::for_application("mrtr")
        .ok_or_else(|| Failure::usage("no home directory: set HOME or XDG_STATE_HOME"))?;
    Ok(OAuthClient::builder("mrtr").store(store))
}

fn host(url: &str) -> String {
    sanitize_line(uri::host(url))
}

fn print(url: &str, session: &StoredSession, json: bool) {
    if json {
        output::json(&json!({
            "server": url,
            "loggedIn": session.is_logged_in(),
            "issuer": session.issuer(),
            "clientId": session.client_id(),
            "scopes": session.scopes().map(|scopes| scopes.split_whitespace().collect::<Vec<_>>()),
            "expiresAt": session.expires_at(),
            "hasRefreshToken": session.has_refresh_token(),
        }));
        return;
    }
    output::line(&bold(&host(url)));
    let row = |label: &str, text: &str| {
        output::line(&format!("  {} {}", dim(&format!("{label:<9}")), sanitize_line(text)));
    };
    if !session.is_logged_in() {
        row("login", "none");
        return;
    }
    row("issuer", session.issuer().unwrap_or_default());
    row("client", session.client_id().unwrap_or_default());
    row("scopes", session.scopes().filter(|scopes| !scopes.is_empty()).unwrap_or("none named"));
    let renewal = if session.has_refresh_token() { ", then renewed" } else { "" };
    row("expires", &format!("{}{renewal}", lifetime(session.expires_at())));
}

/// Returns the time in seconds since 1970.
fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs()
}

fn lifetime(expires_at: Option<u64>) -> String {
    let Some(expires_at) = expires_at else { return "unknown".to_owned() };
    match Duration::from_secs(expires_at).checked_sub(Duration::from_secs(now())) {
        None => "expired".to_owned(),
        Some(left) if left.as_secs() < 7200 => format!("in {} min", left.as_secs() / 60),
        Some(left) => format!("in {} h", left.as_secs() / 3600),
    }
}

/// The user at the terminal, with or without a browser on this machine.
struct TerminalUser {
    asks_first: bool,
    opens_browser: bool,
    /// The time of the user, which does not count against `--timeout`.
    time: UserTime,
}

impl UserAgent for TerminalUser {
    fn prepare<'a>(
        &'a self,
        preferred: Option<&'a str>,
    ) -> DriverFuture<'a, Box<dyn CallbackReceiver>> {
        let (asks_first, time) = (self.asks_first, self.time.clone());
        Box::pin(async move {
            let inner: Box<dyn CallbackReceiver> = if self.opens_browser {
                Loopback::new(open).prepare(preferred).await?
            } else {
                Box::new(Pasted)
            };
            Ok(Box::new(Announced { inner, asks_first, time }) as Box<dyn CallbackReceiver>)
        })
    }
}

/// Says who asks for the login, and asks the user.
struct Announced {
    inner: Box<dyn CallbackReceiver>,
    asks_first: bool,
    time: UserTime,
}

impl CallbackReceiver for Announced {
    fn redirect_uri(&self) -> &str {
        self.inner.redirect_uri()
    }

    fn authorize(self: Box<Self>, page: AuthorizationPage) -> DriverFuture<'static, String> {
        Box::pin(async move {
            let _waiting = self.time.begin();
            let (server, issuer) = (host(page.server().as_str()), host(page.issuer().as_str()));
            output::note(&format!(
                "{} wants you to log in at {}, which it named.",
                bold(&server),
                bold(&issuer)
            ));
            if !page.scopes().is_empty() {
                output::note(&format!(
                    "  It asks for: {}",
                    sanitize_line(&page.scopes().to_string())
                ));
            }
            if self.asks_first && !tokio::task::spawn_blocking(consents).await? {
                return Err("you declined to log in".into());
            }
            self.inner.authorize(page).await
        })
    }
}

fn consents() -> bool {
    let _ = write!(io::stderr(), "Log in? [Y/n] ");
    let _ = io::stderr().flush();
    let mut answer = String::new();
    let read = io::stdin().lock().read_line(&mut answer);
    read.is_ok_and(|length| length > 0)
        && matches!(answer.trim().to_ascii_lowercase().as_str(), "" | "y" | "yes")
}

/// Opens the system's browser.
fn open(page: &AuthorizationPage) -> io::Result<()> {
    let url = page.url().to_string();
    output::note(&format!("The browser opens. If it does not, visit:\n  {url}"));
    output::note(&dim("Waiting for the browser (5 min) …"));
    // Some browsers run until they are closed.
    std::thread::Builder::new().spawn(move || {
        if let Err(error) = webbrowser::open(&url) {
            output::note(&dim(&format!("cannot open a browser: {error}")));
        }
    })?;
    Ok(())
}

/// The user opens the page elsewhere, and pastes the URL at which the browser ends.
struct Pasted;

impl CallbackReceiver for Pasted {
    fn redirect_uri(&self) -> &'static str {
        PASTED_REDIRECT_URI
    }

    fn authorize(self: Box<Self>, page: AuthorizationPage) -> DriverFuture<'static, String> {
        output::note(&format!("Visit:\n  {}", page.url()));
        output::note("Then paste the URL that begins with http://127.0.0.1:7777/ here:");
        Box::pin(async move {
            let callback = tokio::task::spawn_blocking(move || {
                loop {
                    let mut line = String::new();
                    if io::stdin().lock().read_line(&mut line)? == 0 {
                        return Err(io::Error::other("the input ended"));
                    }
                    let callback = line.trim().to_owned();
                    if page.is_answered_by(&callback) {
                        return Ok(callback);
                    }
                    output::note("That URL does not belong to this login. Paste another:");
                }
            });
            Ok(callback.await??)
        })
    }
}
