//! An authorization server, an MCP server and a user, which follow a script and record what they
//! get.

use std::collections::{BTreeMap, HashSet};
use std::error::Error as _;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use axum::Router;
use axum::body::Bytes;
use axum::extract::Request;
use axum::response::{IntoResponse as _, Response};
use base64::Engine as _;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use http::{HeaderMap, Method, StatusCode, header};
use mrtr_auth::client::{
    AuthorizationPage, CallbackReceiver, DriverFuture, LoginError, OAuthClient, OAuthClientBuilder,
    UserAgent,
};
use mrtr_transport::TransportError;
use mrtr_transport::http::HttpClient;
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::sync::Notify;

pub(crate) type Pairs = BTreeMap<String, String>;

/// What the parties do.
#[expect(clippy::struct_excessive_bools, reason = "independent switches of a script")]
pub(crate) struct Script {
    /// The issuer in the metadata of the MCP server.
    pub(crate) issuer: String,
    /// Others before it.
    pub(crate) more_issuers: Vec<&'static str>,
    /// Replaces the challenge of the MCP server.
    pub(crate) challenge: Option<&'static str>,
    /// Replaces the metadata of the MCP server.
    pub(crate) resource_metadata: Value,
    /// Replaces the metadata of the authorization server.
    pub(crate) server_metadata: Value,
    /// Responds instead of the authorization server, by path.
    pub(crate) overrides: BTreeMap<&'static str, fn() -> Response>,
    pub(crate) scheme: &'static str,
    pub(crate) nonces: bool,
    /// A scope that calls need.
    pub(crate) needs: String,
    pub(crate) refuses_always: bool,
    /// How many of the next calls get a 401.
    pub(crate) refuse_next: usize,
    pub(crate) accepts_any_token: bool,
    pub(crate) valid_tokens: BTreeMap<String, String>,
    pub(crate) valid_refresh_tokens: HashSet<String>,
    pub(crate) grants_only: Option<String>,
    pub(crate) token_error: Option<&'static str>,
    pub(crate) expires_in: Value,
    pub(crate) holds_pages: bool,
    pub(crate) holds_tokens: bool,
    /// Pages end without a callback.
    pub(crate) abandons_pages: bool,
    pub(crate) has_refresh_tokens: bool,
    /// The metadata of the authorization server is that of OpenID Connect.
    pub(crate) is_openid: bool,
    /// Replaces the parameters of the callback.
    pub(crate) callback: fn(&mut Pairs),
    issued: usize,
    /// The scopes of the next token, from the page.
    scope: String,
}

struct Recorded {
    server: &'static str,
    method: Method,
    path: String,
    headers: HeaderMap,
    body: Vec<u8>,
}

pub(crate) struct World {
    state: Arc<State>,
    pub(crate) calls: Arc<AtomicUsize>,
}

struct State {
    mcp: String,
    server: String,
    script: Mutex<Script>,
    recorded: Mutex<Vec<Recorded>>,
    pages: Mutex<Vec<Pairs>>,
    opened: Notify,
    released: Notify,
}

impl World {
    pub(crate) async fn start() -> Self {
        let mcp = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let server = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = |listener: &TcpListener| format!("http://{}", listener.local_addr().unwrap());
        let (mcp_url, server_url) = (url(&mcp), url(&server));
        let script = Script {
            more_issuers: Vec::new(),
            challenge: None,
            issuer: server_url.clone(),
            resource_metadata: json!({
                "resource": format!("{mcp_url}/mcp"),
                "scopes_supported": ["booking:read"],
            }),
            server_metadata: json!({
                "issuer": server_url,
                "authorization_endpoint": format!("{server_url}/authorize"),
                "token_endpoint": format!("{server_url}/token"),
                "registration_endpoint": format!("{server_url}/register"),
                "revocation_endpoint": format!("{server_url}/revoke"),
                "code_challenge_methods_supported": ["S256"],
                "authorization_response_iss_parameter_supported": true,
                "token_endpoint_auth_methods_supported": ["none", "client_secret_basic"],
            }),
            overrides: BTreeMap::new(),
            scheme: "Bearer",
            nonces: false,
            needs: String::new(),
            refuses_always: false,
            refuse_next: 0,
            accepts_any_token: false,
            valid_tokens: BTreeMap::new(),
            valid_refresh_tokens: HashSet::new(),
            grants_only: None,
            token_error: None,
            expires_in: json!(3600),
            holds_pages: false,
            holds_tokens: false,
            abandons_pages: false,
            has_refresh_tokens: true,
            is_openid: false,
            callback: |_| {},
            issued: 0,
            scope: String::new(),
        };
        let state = Arc::new(State {
            mcp: mcp_url,
            server: server_url,
            script: Mutex::new(script),
            recorded: Mutex::default(),
            pages: Mutex::default(),
            opened: Notify::new(),
            released: Notify::new(),
        });
        for (listener, name) in [(mcp, "MCP"), (server, "AS")] {
            let state = Arc::clone(&state);
            let app = Router::new().fallback(move |request: Request| {
                let state = Arc::clone(&state);
                async move { state.respond(name, request).await }
            });
            tokio::spawn(async move { axum::serve(listener, app).await });
        }
        Self { state, calls: Arc::default() }
    }

    pub(crate) fn mcp_url(&self) -> String {
        format!("{}/mcp", self.state.mcp)
    }

    pub(crate) fn issuer(&self) -> String {
        self.state.server.clone()
    }

    pub(crate) fn script(&self, change: impl FnOnce(&mut Script)) {
        change(&mut self.state.script.lock().unwrap());
    }

    pub(crate) fn builder(&self) -> OAuthClientBuilder {
        OAuthClient::builder("Test app").user_agent(User(Arc::clone(&self.state)))
    }

    pub(crate) fn client(&self) -> OAuthClient {
        self.builder().build().unwrap()
    }

    pub(crate) fn http(&self, client: OAuthClient) -> HttpClient {
        HttpClient::builder(self.mcp_url()).credentials(client).build().unwrap()
    }

    /// Sends a request, and returns the status of its response.
    pub(crate) async fn call(&self, http: &HttpClient) -> Result<StatusCode, TransportError> {
        self.calls.fetch_add(1, Ordering::Relaxed);
        let response = http.exchange(Method::POST, HeaderMap::new(), Bytes::from("{}"), false);
        Ok(response.await?.status())
    }

    /// Returns the types of the grants that were requested.
    pub(crate) fn grants(&self) -> Vec<String> {
        self.forms("/token").iter().map(|form| form["grant_type"].clone()).collect()
    }

    /// Sends a request until a page or a token is held.
    pub(crate) async fn send_until_held<T>(&self, request: &mut (impl Future<Output = T> + Unpin)) {
        tokio::select! {
            biased;
            _ = request => panic!("nothing is held"),
            () = self.held() => {}
        }
    }

    /// Waits for a page or a token that is held.
    pub(crate) async fn held(&self) {
        self.state.opened.notified().await;
    }

    pub(crate) fn release(&self) {
        self.state.released.notify_one();
    }

    /// Returns all requests in their order.
    pub(crate) fn paths(&self) -> Vec<String> {
        let recorded = self.state.recorded.lock().unwrap();
        let line = |one: &Recorded| format!("{} {} {}", one.server, one.method, one.path);
        recorded.iter().map(line).collect()
    }

    pub(crate) fn bodies(&self, path: &str) -> Vec<Vec<u8>> {
        let recorded = self.state.recorded.lock().unwrap();
        recorded.iter().filter(|one| one.path == path).map(|one| one.body.clone()).collect()
    }

    /// Returns the forms that were posted to a path.
    pub(crate) fn forms(&self, path: &str) -> Vec<Pairs> {
        self.bodies(path).iter().map(|body| pairs(body)).collect()
    }

    /// Returns the queries of the pages that the user has seen.
    pub(crate) fn pages(&self) -> Vec<Pairs> {
        self.state.pages.lock().unwrap().clone()
    }

    /// Returns the `Authorization` header of each request to the MCP server.
    pub(crate) fn credentials(&self) -> Vec<Option<String>> {
        let recorded = self.state.recorded.lock().unwrap();
        let requests = recorded.iter().filter(|one| one.path == "/mcp");
        let value = |one: &Recorded| Some(one.headers.get("authorization")?.to_str().ok()?.into());
        requests.map(value).collect()
    }

    /// Returns the claims of all proofs, with the paths that they were sent to.
    pub(crate) fn proofs(&self) -> Vec<(String, Value)> {
        let recorded = self.state.recorded.lock().unwrap();
        let with_proof = recorded.iter().filter_map(|one| {
            let claims = proof_claims(&one.headers)?;
            Some((one.path.clone(), claims))
        });
        with_proof.collect()
    }

    /// Returns all secrets that have been sent.
    pub(crate) fn secrets(&self) -> Vec<String> {
        let mut secrets = Vec::new();
        for form in self.forms("/token") {
            for name in ["code", "code_verifier", "refresh_token", "client_secret"] {
                secrets.extend(form.get(name).cloned());
            }
        }
        for page in self.pages() {
            secrets.push(page["state"].clone());
        }
        let script = self.state.script.lock().unwrap();
        secrets.extend(script.valid_tokens.keys().cloned());
        secrets.extend(script.valid_refresh_tokens.iter().cloned());
        secrets
    }
}

/// Returns the reason for which a request failed.
pub(crate) fn login_error(error: &TransportError) -> &LoginError {
    let mut source = error.source();
    while let Some(cause) = source {
        if let Some(error) = cause.downcast_ref::<LoginError>() {
            return error;
        }
        if let Some(error) = cause.downcast_ref::<Arc<LoginError>>() {
            return error;
        }
        source = cause.source();
    }
    panic!("not a failed login: {error:?}")
}

fn pairs(form: &[u8]) -> Pairs {
    url::form_urlencoded::parse(form).into_owned().collect()
}

fn proof_claims(headers: &HeaderMap) -> Option<Value> {
    let proof = headers.get("dpop")?.to_str().ok()?;
    let claims = BASE64_URL_SAFE_NO_PAD.decode(proof.split('.').nth(1)?).ok()?;
    serde_json::from_slice(&claims).ok()
}

impl State {
    async fn respond(&self, server: &'static str, request: Request) -> Response {
        let is_token = request.uri().path() == "/token";
        let response = self.response(server, request).await;
        let holds = is_token && self.script.lock().unwrap().holds_tokens;
        if holds {
            self.opened.notify_one();
            self.released.notified().await;
        }
        response
    }

    async fn response(&self, server: &'static str, request: Request) -> Response {
        let (head, body) = request.into_parts();
        let body = axum::body::to_bytes(body, 1 << 20).await.unwrap();
        let path = head.uri.path().to_owned();
        self.recorded.lock().unwrap().push(Recorded {
            server,
            method: head.method.clone(),
            path: path.clone(),
            headers: head.headers.clone(),
            body: body.to_vec(),
        });
        let mut script = self.script.lock().unwrap();
        if let Some(response) = script.overrides.get(&*path) {
            return response();
        }
        match &*path {
            "/mcp" => self.mcp(&mut script, &head.headers),
            "/.well-known/oauth-protected-resource/mcp" => {
                let mut metadata = script.resource_metadata.clone();
                let mut issuers = script.more_issuers.clone();
                issuers.push(&script.issuer);
                metadata["authorization_servers"] = json!(issuers);
                axum::Json(metadata).into_response()
            }
            "/.well-known/oauth-authorization-server" if !script.is_openid => {
                axum::Json(script.server_metadata.clone()).into_response()
            }
            "/.well-known/openid-configuration" if script.is_openid => {
                axum::Json(script.server_metadata.clone()).into_response()
            }
            "/register" => {
                (StatusCode::CREATED, axum::Json(json!({ "client_id": "dynamic" }))).into_response()
            }
            "/token" => token(&mut script, &pairs(&body), &head.headers),
            "/revoke" => StatusCode::OK.into_response(),
            _ => StatusCode::NOT_FOUND.into_response(),
        }
    }

    fn mcp(&self, script: &mut Script, headers: &HeaderMap) -> Response {
        let metadata = format!("{}/.well-known/oauth-protected-resource/mcp", self.mcp);
        let challenge = |scheme: &str, rest: String| {
            [(
                header::WWW_AUTHENTICATE,
                format!(r#"{scheme} resource_metadata="{metadata}"{rest}"#),
            )]
        };
        let credentials = headers.get(header::AUTHORIZATION).and_then(|value| value.to_str().ok());
        let token = credentials.and_then(|value| value.strip_prefix(script.scheme)).map(str::trim);
        let known = token.and_then(|token| script.valid_tokens.get(token).cloned());
        let known = known
            .or_else(|| token.filter(|_| script.accepts_any_token).map(|_| script.needs.clone()));
        let nonce =
            proof_claims(headers).and_then(|claims| claims["nonce"].as_str().map(str::to_owned));
        if script.nonces && token.is_some() && nonce.as_deref() != Some("rs-nonce") {
            let challenge = challenge("DPoP", r#", error="use_dpop_nonce""#.to_owned());
            let nonce = [("dpop-nonce", "rs-nonce")];
            return (StatusCode::UNAUTHORIZED, challenge, nonce).into_response();
        }
        match known {
            Some(scopes) if script.refuse_next == 0 => {
                let has_scope = scopes.split(' ').any(|scope| scope == script.needs);
                if script.needs.is_empty() || has_scope && !script.refuses_always {
                    return StatusCode::OK.into_response();
                }
                let rest = format!(r#", error="insufficient_scope", scope="{}""#, script.needs);
                (StatusCode::FORBIDDEN, challenge(script.scheme, rest)).into_response()
            }
            _ => {
                script.refuse_next = script.refuse_next.saturating_sub(1);
                let challenge = match script.challenge {
                    Some(challenge) => [(header::WWW_AUTHENTICATE, challenge.to_owned())],
                    None => challenge(script.scheme, String::new()),
                };
                (StatusCode::UNAUTHORIZED, challenge).into_response()
            }
        }
    }

    /// Consents, and returns the callback.
    fn consent(&self, page: &AuthorizationPage) -> String {
        let query = pairs(page.url().query().unwrap_or_default().as_bytes());
        self.pages.lock().unwrap().push(query.clone());
        let mut script = self.script.lock().unwrap();
        script.scope = query.get("scope").cloned().unwrap_or_default();
        let mut callback = Pairs::from([
            ("code".to_owned(), format!("code-{}", self.pages.lock().unwrap().len())),
            ("state".to_owned(), query["state"].clone()),
            ("iss".to_owned(), page.issuer().to_string()),
        ]);
        (script.callback)(&mut callback);
        let mut url = url::Url::parse(&query["redirect_uri"]).unwrap();
        url.query_pairs_mut().extend_pairs(callback);
        url.into()
    }
}

fn token(script: &mut Script, form: &Pairs, headers: &HeaderMap) -> Response {
    let error = |code: &str| {
        (StatusCode::BAD_REQUEST, axum::Json(json!({ "error": code }))).into_response()
    };
    if let Some(code) = script.token_error {
        return error(code);
    }
    let proof = proof_claims(headers);
    if script.nonces && proof.as_ref().is_some_and(|claims| claims["nonce"] != "as-nonce") {
        return ([("dpop-nonce", "as-nonce")], error("use_dpop_nonce")).into_response();
    }
    match &*form["grant_type"] {
        "refresh_token" if !script.valid_refresh_tokens.remove(&form["refresh_token"]) => {
            // A token that is used twice revokes all (OAuth 2.1, section 4.3.1).
            script.valid_refresh_tokens.clear();
            return error("invalid_grant");
        }
        "client_credentials" => script.scope = form.get("scope").cloned().unwrap_or_default(),
        _ => {}
    }
    script.issued += 1;
    let scope = script.grants_only.clone().unwrap_or_else(|| script.scope.clone());
    let (access, refresh) =
        (format!("access-{}", script.issued), format!("refresh-{}", script.issued));
    script.valid_tokens.insert(access.clone(), scope.clone());
    let refresh = script.has_refresh_tokens.then_some(refresh);
    script.valid_refresh_tokens.extend(refresh.clone());
    axum::Json(json!({
        "access_token": access,
        "token_type": if proof.is_some() && script.scheme == "DPoP" { "DPoP" } else { "Bearer" },
        "expires_in": script.expires_in,
        "refresh_token": refresh,
        "scope": scope,
    }))
    .into_response()
}

struct User(Arc<State>);

impl UserAgent for User {
    fn prepare<'a>(&'a self, _: Option<&'a str>) -> DriverFuture<'a, Box<dyn CallbackReceiver>> {
        let receiver = Self(Arc::clone(&self.0));
        Box::pin(async { Ok(Box::new(receiver) as Box<dyn CallbackReceiver>) })
    }
}

impl CallbackReceiver for User {
    fn redirect_uri(&self) -> &'static str {
        "http://127.0.0.1:7/callback"
    }

    fn authorize(self: Box<Self>, page: AuthorizationPage) -> DriverFuture<'static, String> {
        Box::pin(async move {
            let callback = self.0.consent(&page);
            let (holds, abandons) = {
                let script = self.0.script.lock().unwrap();
                (script.holds_pages, script.abandons_pages)
            };
            if holds {
                self.0.opened.notify_one();
                self.0.released.notified().await;
            }
            if abandons { Err("no callback".into()) } else { Ok(callback) }
        })
    }
}

/// The directory of a store.
pub(crate) struct Directory(pub(crate) std::path::PathBuf);

impl Directory {
    pub(crate) fn new(name: &str) -> Self {
        let name = format!("mrtr-auth-{name}-{}", std::process::id());
        Self(std::env::temp_dir().join(name))
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}
