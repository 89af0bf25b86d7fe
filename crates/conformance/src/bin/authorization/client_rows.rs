//! The rows about clients.

use std::future::ready;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

use futures_util::future::{join_all, try_join};
use mrtr::auth::client::{ClientRegistration, Logout, OAuthClient, SigningKey};
use mrtr::http::HttpConnection;
use mrtr::{Client, ElicitResult};
use serde_json::{Value, json};

use crate::user::{Browser, User};
use crate::{Result, World, causes, expect};

/// The text of `whoami` for a user with the scope that all requests need.
pub(crate) const READER: &str = "alice may booking:read";

/// The seconds by which the clock of the client in the row `refresh` is ahead.
static REFRESH_AHEAD: AtomicU64 = AtomicU64::new(0);

/// Returns the time in seconds since 1970.
pub(crate) fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |elapsed| elapsed.as_secs())
}

/// Calls `whoami`, and expects its text.
pub(crate) async fn whoami(client: &Client<HttpConnection>, wanted: &str) -> Result {
    let text = client.call_tool("whoami", json!({})).await?.text();
    expect("the text of the tool", &*text, wanted)
}

/// Returns a member of the tokens in a session.
pub(crate) fn token(session: &Value, name: &str) -> Result<String> {
    let token = session.get("tokens").and_then(|tokens| tokens.get(name)).and_then(Value::as_str);
    Ok(token.ok_or_else(|| format!("the session has no {name}"))?.to_owned())
}

impl World {
    /// Returns a client with a user, and the session of the user after the login at a server.
    pub(crate) async fn logged_in(&self, path: &str) -> Result<(OAuthClient, Value)> {
        let oauth = OAuthClient::builder("mrtr").user_agent(User::default().agent()).build()?;
        whoami(&self.servers.connect(path, &oauth)?, READER).await?;
        let session = self.session(path, &oauth).await?;
        Ok((oauth, session))
    }

    /// Returns what a client stores, with the secrets.
    pub(crate) async fn session(&self, path: &str, oauth: &OAuthClient) -> Result<Value> {
        Ok(serde_json::to_value(oauth.session(&self.servers.url(path)).await?)?)
    }

    pub(crate) async fn login(&self) -> Result {
        let chromium = self.browser.as_ref().ok_or("no browser")?;
        let mut browser = Browser::start(&self.node, &self.folder, chromium).await?;
        let oauth = OAuthClient::builder("mrtr").user_agent(browser.agent()).build()?;
        let client = self.servers.connect("/mcp", &oauth)?;
        let (text, ()) = try_join(browser.log_in(), whoami(&client, READER)).await?;
        browser.close().await?;
        let wanted = "You can close this window and return to the application.";
        expect("the last page", &*text, wanted)?;
        let session = oauth.session(&self.servers.url("/mcp")).await?;
        expect("a refresh token was issued", session.has_refresh_token(), true)
    }

    pub(crate) async fn refresh(&self) -> Result {
        let (path, url) = ("/refresh", self.servers.url("/refresh"));
        let oauth = OAuthClient::builder("mrtr")
            .user_agent(User::default().agent())
            .clock(|| now() + REFRESH_AHEAD.load(Ordering::Relaxed))
            .build()?;
        let client = self.servers.connect(path, &oauth)?;
        let calls = async || {
            let calls = join_all((0..20).map(|_| whoami(&client, READER))).await;
            calls.into_iter().collect::<Result<Vec<_>>>()
        };
        self.provider.set_lifetime(60).await?;
        whoami(&client, READER).await?;
        let first = self.session(path, &oauth).await?;
        // The token has expired for both parties.
        self.provider.set_lifetime(3600).await?;
        REFRESH_AHEAD.fetch_add(100, Ordering::Relaxed);
        self.servers.advance(path, 100);
        calls().await?;
        let mut grants = "authorization_code refresh_token".to_owned();
        expect("the grants", &self.provider.grants(&url).await?, &grants)?;
        let second = self.session(path, &oauth).await?;
        let is_rotated = token(&first, "refresh_token")? != token(&second, "refresh_token")?;
        expect("the refresh token is rotated", is_rotated, true)?;
        // For the server only, which refuses it.
        self.provider.set_lifetime(10_000).await?;
        self.servers.advance(path, 3700);
        calls().await?;
        self.provider.set_lifetime(3600).await?;
        grants.push_str(" refresh_token");
        expect("the grants", self.provider.grants(&url).await?, grants)?;
        // A refresh token that is used twice was stolen from one of its users.
        expect("the status", self.provider.refresh(&first).await?.0, 400)
    }

    pub(crate) async fn client_credentials_basic(&self) -> Result {
        let client = ClientRegistration::with_secret("basic", "a secret: 100 %");
        let oauth = OAuthClient::client_credentials(client).build()?;
        whoami(&self.servers.connect("/mcp", &oauth)?, "basic may booking:read").await
    }

    pub(crate) async fn client_credentials_jwt(&self) -> Result {
        let key = SigningKey::from_pkcs8_pem(&self.provider.client_key().await?, "ES256")?;
        let client = ClientRegistration::with_key("jwt", key.with_id("client key"));
        let oauth = OAuthClient::client_credentials(client.clone())
            .registered(&*self.provider.issuer, client)
            .build()?;
        whoami(&self.servers.connect("/mcp", &oauth)?, "jwt may booking:read").await
    }

    pub(crate) async fn revocation(&self) -> Result {
        let (path, url) = ("/revocation", self.servers.url("/revocation"));
        let (_, other) = self.logged_in(path).await?;
        expect("the status of a refresh", self.provider.refresh(&other).await?.0, 200)?;
        let (oauth, session) = self.logged_in(path).await?;
        expect("the logout", oauth.log_out(&url).await?, Logout::Revoked)?;
        expect("the client is logged in", oauth.session(&url).await?.is_logged_in(), false)?;
        let (status, body) = self.provider.refresh(&session).await?;
        expect("the status of a refresh", status, 400)?;
        expect(&format!("{body} is invalid_grant"), body.contains("\"invalid_grant\""), true)
    }

    pub(crate) async fn step_up(&self) -> Result {
        let user = User::default();
        let oauth = OAuthClient::builder("mrtr").user_agent(user.agent()).build()?;
        let client = self.servers.connect("/step-up", &oauth)?;
        whoami(&client, READER).await?;
        let text = client.call_tool("pay", json!({})).await?.text();
        let mut scopes: Vec<_> = text.trim_start_matches("alice may ").split(' ').collect();
        scopes.sort_unstable();
        expect("the scopes", scopes, vec!["booking:pay", "booking:read"])?;
        let pages = user.scopes().into_iter();
        let pages: Vec<_> = pages.map(|page| page.contains("booking:pay")).collect();
        expect("the pages ask for booking:pay", pages, vec![false, true])
    }

    /// The handler has run a step and asked a question before it requires the scope.
    pub(crate) async fn step_up_in_a_call(&self) -> Result {
        let user = User::default();
        let oauth = OAuthClient::builder("mrtr").user_agent(user.agent()).build()?;
        let asked = Arc::new(AtomicUsize::new(0));
        let count = Arc::clone(&asked);
        let client = self.servers.connect_with("/step-up", &oauth, |builder| {
            builder.on_form(move |_, _| {
                count.fetch_add(1, Ordering::Relaxed);
                ready(ElicitResult::accept(json!({ "yes": true })).map_err(Into::into))
            })
        })?;
        whoami(&client, READER).await?;
        let text = client.call_tool("deposit", json!({})).await?.text();
        expect("the deposit", &*text, "1 hold, 1 charge")?;
        expect("the questions", asked.load(Ordering::Relaxed), 1)?;
        let pages = user.scopes().into_iter();
        let pages: Vec<_> = pages.map(|page| page.contains("booking:pay")).collect();
        expect("the pages ask for booking:pay", pages, vec![false, true])
    }

    pub(crate) async fn no_login(&self) -> Result {
        let oauth = OAuthClient::builder("mrtr").build()?;
        let call = self.servers.connect("/mcp", &oauth)?.call_tool("whoami", json!({})).await;
        let error = call.err().ok_or("the call succeeded without a user")?;
        let text = causes(&error);
        let is_clear = text.contains("demands a login, and the client has no user agent");
        expect(&format!("{text:?} is clear"), is_clear, true)
    }
}
