//! An authorization server for tests of logins.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use axum::Router;
use axum::extract::Request;
use http::{StatusCode, header};
use serde_json::{Value, json};
use tokio::net::TcpListener;

/// An authorization server on the loopback interface that grants whatever is asked for.
///
/// Nothing is shown to a user: [`consent`](Self::consent) returns the callback of an authorization
/// URL. Its tokens are opaque and name their scopes: `token+booking.read+booking.pay`. It tells
/// about them by introspection.
pub struct Issuer {
    url: String,
    resource: String,
    pages: Mutex<Vec<String>>,
}

impl Issuer {
    /// Starts the server until the runtime ends. Its tokens are for `resource`.
    ///
    /// # Errors
    ///
    /// If no port is free.
    pub async fn start(resource: impl Into<String>) -> std::io::Result<Arc<Self>> {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let url = format!("http://{}", listener.local_addr()?);
        let issuer = Arc::new(Self { url, resource: resource.into(), pages: Mutex::default() });
        let app = Router::new().fallback({
            let issuer = Arc::clone(&issuer);
            move |request| respond(issuer, request)
        });
        tokio::spawn(async move { axum::serve(listener, app).await });
        Ok(issuer)
    }

    /// Returns the issuer.
    pub fn url(&self) -> &str {
        &self.url
    }

    /// Returns the scopes of all consents so far.
    pub fn consents(&self) -> Vec<String> {
        self.pages.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Consents to the authorization request with this URL, and returns the callback.
    pub fn consent(&self, url: &str) -> String {
        let query = url.split_once('?').map_or("", |(_, query)| query);
        let query = pairs(query.as_bytes());
        let value = |name: &str| query.get(name).cloned().unwrap_or_default();
        let scopes = value("scope");
        self.pages.lock().unwrap_or_else(PoisonError::into_inner).push(scopes.clone());
        // The code tells the token endpoint which scopes were granted.
        let code = scopes.replace(' ', "+").replace(':', ".");
        format!("{}?code={code}.&state={}", value("redirect_uri"), value("state"))
    }

    fn response(&self, path: &str, form: &BTreeMap<String, String>) -> Option<Value> {
        let endpoint = |path| format!("{}/{path}", self.url);
        let value = |name: &str| form.get(name).cloned().unwrap_or_default();
        Some(match path {
            "/.well-known/oauth-authorization-server" => json!({
                "issuer": self.url,
                "authorization_endpoint": endpoint("authorize"),
                "token_endpoint": endpoint("token"),
                "registration_endpoint": endpoint("register"),
                "introspection_endpoint": endpoint("introspect"),
                "revocation_endpoint": endpoint("revoke"),
                "code_challenge_methods_supported": ["S256"],
                "token_endpoint_auth_methods_supported": ["none", "client_secret_basic"],
            }),
            "/register" => json!({ "client_id": "app" }),
            "/token" => {
                let code = value("code").trim_end_matches('.').replace(' ', "+");
                json!({
                    "access_token": format!("token+{code}"),
                    "token_type": "Bearer",
                    "scope": scopes(&code),
                    "expires_in": 3600,
                })
            }
            "/introspect" => json!({
                "active": true,
                "iss": self.url,
                "sub": "alice",
                "client_id": "app",
                "aud": self.resource,
                "scope": scopes(value("token").trim_start_matches("token+")),
                "exp": 4_000_000_000_u64,
            }),
            "/revoke" => json!({}),
            _ => return None,
        })
    }
}

fn scopes(token: &str) -> String {
    token.replace('+', " ").replace('.', ":")
}

fn pairs(form: &[u8]) -> BTreeMap<String, String> {
    url::form_urlencoded::parse(form).into_owned().collect()
}

async fn respond(
    issuer: Arc<Issuer>,
    request: Request,
) -> (StatusCode, [(header::HeaderName, &'static str); 1], String) {
    let path = request.uri().path().to_owned();
    let body = axum::body::to_bytes(request.into_body(), 1 << 16).await.unwrap_or_default();
    let (status, text) = match issuer.response(&path, &pairs(&body)) {
        Some(body) => (StatusCode::OK, body.to_string()),
        None => (StatusCode::NOT_FOUND, String::new()),
    };
    (status, [(header::CONTENT_TYPE, "application/json")], text)
}
