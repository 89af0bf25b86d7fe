//! The rows about resource servers.

use std::sync::atomic::{AtomicU64, Ordering};

use futures_util::future::{join_all, try_join3};
use mrtr::auth::client::{
    ClientRegistration, Logout, MemoryStore, OAuthClient, StoredSession, TokenStore as _,
};
use serde_json::Value;
use tokio::sync::watch;

use crate::client_rows::{READER, now, token, whoami};
use crate::user::User;
use crate::{Result, World, expect};

/// The seconds by which the clock of the client in the row `dpop` is ahead.
static DPOP_AHEAD: AtomicU64 = AtomicU64::new(0);

impl World {
    pub(crate) async fn dpop(&self) -> Result {
        let (path, url) = ("/dpop", self.servers.url("/dpop"));
        let oauth = OAuthClient::builder("mrtr")
            .user_agent(User::default().agent())
            .clock(|| now() + DPOP_AHEAD.load(Ordering::Relaxed))
            .build()?;
        let client = self.servers.connect(path, &oauth)?;
        self.provider.set_lifetime(60).await?;
        whoami(&client, READER).await?;
        self.provider.set_lifetime(3600).await?;
        let calls = join_all((0..20).map(|_| whoami(&client, READER))).await;
        calls.into_iter().collect::<Result<Vec<_>>>()?;
        // The refreshed token is bound to the same key.
        DPOP_AHEAD.fetch_add(61, Ordering::Relaxed);
        whoami(&client, READER).await?;
        let grants = self.provider.grants(&url).await?;
        expect("the grants", &*grants, "authorization_code refresh_token")?;
        let session = self.session(path, &oauth).await?;
        // Another key is of no use for the token.
        expect("the owner of the key may call", self.may_call(path, &session).await?, true)?;
        let (_, other) = self.logged_in(path).await?;
        let mut stolen = session.clone();
        if let (Some(key), Some(other)) = (stolen.get_mut("dpop_key"), other.get("dpop_key")) {
            key.clone_from(other);
        }
        expect("another key was taken", stolen == session, false)?;
        expect("the owner of another key may call", self.may_call(path, &stolen).await?, false)?;
        // Neither is no proof.
        let bound = token(&session, "access_token")?;
        let (status, challenge) = self.servers.send(path, &bound).await?;
        expect("the status without proof", status, 401)?;
        expect(&format!("{challenge:?} is for DPoP"), challenge.starts_with("DPoP "), true)
    }

    /// Returns true if a client without a user may call a server with a stored session.
    async fn may_call(&self, path: &str, session: &Value) -> Result<bool> {
        let store = MemoryStore::new();
        let session: StoredSession = serde_json::from_value(session.clone())?;
        store.save(&self.servers.url(path), &session).await.map_err(|error| error.to_string())?;
        let oauth = OAuthClient::builder("mrtr").store(store).build()?;
        Ok(whoami(&self.servers.connect(path, &oauth)?, READER).await.is_ok())
    }

    pub(crate) async fn wrong_audience(&self) -> Result {
        let (_, session) = self.logged_in("/other").await?;
        let other = token(&session, "access_token")?;
        let (status, challenge) = self.servers.send("/mcp", &other).await?;
        expect("the status for a token for another resource", status, 401)?;
        let is_invalid = challenge.contains(r#"error="invalid_token""#);
        expect(&format!("{challenge:?} has invalid_token"), is_invalid, true)?;
        let (status, _) = self.servers.send("/other", &other).await?;
        expect("the token passes at its own resource", status == 401, false)
    }

    pub(crate) async fn introspection(&self) -> Result {
        let (path, url) = ("/opaque", self.servers.url("/opaque"));
        let (oauth, session) = self.logged_in(path).await?;
        let opaque = token(&session, "access_token")?;
        expect("the token is a JWT", opaque.contains('.'), false)?;
        expect("the logout", oauth.log_out(&url).await?, Logout::Revoked)?;
        // A positive response is used for 30 seconds.
        self.servers.advance(path, 31);
        let (status, _) = self.servers.send(path, &opaque).await?;
        expect("the status for a revoked token", status, 401)
    }

    /// Half of the calls use a token of the last key, before and after the rotation, and half one of
    /// the next key.
    pub(crate) async fn key_rotation(&self) -> Result {
        let (path, url) = ("/rotation", self.servers.url("/rotation"));
        let oauth = || {
            let client = ClientRegistration::with_secret("basic", "a secret: 100 %");
            OAuthClient::client_credentials(client).build()
        };
        let wanted = "basic may booking:read";
        let (first, second, third) = (oauth()?, oauth()?, oauth()?);
        let last = self.servers.connect(path, &first)?;
        let next = self.servers.connect(path, &second)?;
        whoami(&last, wanted).await?;
        let (rotated, rotation) = watch::channel(false);
        let (finished, mut calls) = watch::channel(0);
        let before_and_after = join_all((0..25).map(|_| async {
            loop {
                let is_rotated = *rotation.borrow();
                whoami(&last, wanted).await?;
                finished.send_modify(|count| *count += 1);
                if is_rotated {
                    return Ok(());
                }
            }
        }));
        let after = join_all((0..25).map(|_| async {
            rotation.clone().wait_for(|is_rotated| *is_rotated).await?;
            whoami(&next, wanted).await
        }));
        let rotate = async {
            calls.wait_for(|count| *count >= 25).await?;
            self.provider.rotate_keys().await?;
            rotated.send_replace(true);
            Ok(())
        };
        let all = |calls: Vec<Result>| calls.into_iter().collect::<Result<Vec<_>>>();
        let before_and_after = async { all(before_and_after.await) };
        try_join3(before_and_after, async { all(after.await) }, rotate).await?;
        let mut grants = "client_credentials client_credentials".to_owned();
        expect("the grants", &self.provider.grants(&url).await?, &grants)?;
        let header = async |oauth: &OAuthClient| -> Result<String> {
            let token = token(&self.session(path, oauth).await?, "access_token")?;
            Ok(token.split('.').next().unwrap_or_default().to_owned())
        };
        let is_new = header(&first).await? != header(&second).await?;
        expect("the tokens have different keys", is_new, true)?;
        // After another rotation, the key of the first token is gone.
        self.servers.advance(path, 61);
        self.provider.rotate_keys().await?;
        whoami(&self.servers.connect(path, &third)?, wanted).await?;
        whoami(&next, wanted).await?;
        grants.push_str(" client_credentials");
        expect("the grants", &self.provider.grants(&url).await?, &grants)?;
        whoami(&last, wanted).await?;
        grants.push_str(" client_credentials");
        expect("the grants", self.provider.grants(&url).await?, grants)
    }
}
