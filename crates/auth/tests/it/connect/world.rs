//! A server with two replicas, a third party, and browsers.

use std::collections::{HashMap, HashSet};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, UNIX_EPOCH};

use axum::extract::State;
use axum::http::StatusCode;
use axum::routing::post;
use axum::{Json, Router};
use base64::Engine as _;
use futures_util::future::BoxFuture;
use http::{HeaderMap, Method, Request, header};
use http_body_util::BodyExt as _;
use mrtr_auth::client::ClientRegistration;
use mrtr_auth::connect::{AccountConnector, AccountConnectorBuilder, MemoryAccounts};
use mrtr_codec::{KeyRing, Principal, SharedKeyRing};
use mrtr_schema::jsonrpc::{Params, Request as Message, RequestId};
use mrtr_server::{Context, Server, Tool};
use mrtr_transport::{InProcess, OutgoingRequest, Transport as _};
use serde_json::{Value, json};
use tower_service::Service as _;
use url::{Url, form_urlencoded};

pub(crate) const ISSUER: &str = "https://third.example";
const SECRET: &str = "secret-of-the-server";

/// The token endpoint of the third party.
#[derive(Clone, Default)]
pub(crate) struct ThirdParty(Arc<Mutex<Issued>>);

#[derive(Default)]
struct Issued {
    /// The challenges of codes that were not used.
    codes: HashMap<String, String>,
    refresh_tokens: HashSet<String>,
    requests: usize,
    granted: usize,
    expires_in: Option<u64>,
    /// Refuses all requests.
    error: Option<&'static str>,
    /// What happens before the next response.
    before_response: Option<BoxFuture<'static, ()>>,
}

impl ThirdParty {
    async fn start(&self) -> String {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}/token", listener.local_addr().unwrap());
        let app = Router::new().route("/token", post(token)).with_state(self.clone());
        tokio::spawn(async move { axum::serve(listener, app).await.unwrap() });
        url
    }

    /// The user consents at `page`. Returns the query of the callback.
    pub(crate) fn consent(&self, page: &str) -> String {
        let page = Url::parse(page).unwrap();
        let query: HashMap<_, _> = page.query_pairs().into_owned().collect();
        assert_eq!(query["code_challenge_method"], "S256");
        let mut issued = self.0.lock().unwrap();
        let code = format!("code-{}", issued.codes.len() + issued.granted);
        issued.codes.insert(code.clone(), query["code_challenge"].clone());
        format!("code={code}&state={}", query["state"])
    }

    pub(crate) fn requests(&self) -> usize {
        self.0.lock().unwrap().requests
    }

    pub(crate) fn granted(&self) -> usize {
        self.0.lock().unwrap().granted
    }

    pub(crate) fn issue_for(&self, seconds: u64) {
        self.0.lock().unwrap().expires_in = Some(seconds);
    }

    pub(crate) fn refuse_with(&self, error: Option<&'static str>) {
        self.0.lock().unwrap().error = error;
    }

    /// Lets something happen before the next response.
    pub(crate) fn before_response(&self, event: impl Future<Output = ()> + Send + 'static) {
        self.0.lock().unwrap().before_response = Some(Box::pin(event));
    }

    pub(crate) fn revoke_refresh_tokens(&self) {
        self.0.lock().unwrap().refresh_tokens.clear();
    }
}

async fn token(State(third): State<ThirdParty>, body: String) -> (StatusCode, Json<Value>) {
    let form: HashMap<_, _> = form_urlencoded::parse(body.as_bytes()).into_owned().collect();
    let event = third.0.lock().unwrap().before_response.take();
    if let Some(event) = event {
        event.await;
    }
    let mut issued = third.0.lock().unwrap();
    issued.requests += 1;
    let refuse = |error| (StatusCode::BAD_REQUEST, Json(json!({ "error": error })));
    if let Some(error) = issued.error {
        return refuse(error);
    }
    assert_eq!((form["client_id"].as_str(), form["client_secret"].as_str()), ("booking", SECRET));
    let is_valid = match form["grant_type"].as_str() {
        "refresh_token" => issued.refresh_tokens.remove(&form["refresh_token"]),
        _ => {
            let digest = challenge_of(&form["code_verifier"]);
            issued.codes.remove(&form["code"]) == Some(digest)
                && form["redirect_uri"] == "https://booking.example/connect/third/callback"
        }
    };
    if !is_valid {
        return refuse("invalid_grant");
    }
    issued.granted += 1;
    let n = issued.granted;
    issued.refresh_tokens.insert(format!("refresh-token-{n}"));
    let expires_in = issued.expires_in;
    let body = json!({
        "access_token": format!("access-token-{n}"), "token_type": "Bearer",
        "refresh_token": format!("refresh-token-{n}"), "expires_in": expires_in,
    });
    (StatusCode::OK, Json(body))
}

fn challenge_of(text: &str) -> String {
    use aws_lc_rs::digest::{SHA256, digest};
    base64::prelude::BASE64_URL_SAFE_NO_PAD.encode(digest(&SHA256, text.as_bytes()))
}

pub(crate) struct World {
    pub(crate) third: ThirdParty,
    pub(crate) accounts: MemoryAccounts,
    now: Arc<AtomicU64>,
    /// The connectors and the servers of two replicas.
    pub(crate) replicas: Vec<(AccountConnector, Server)>,
}

pub(crate) fn alice() -> Principal {
    Principal::new("https://login.example", "alice").with_client("desk <app>")
}

impl World {
    pub(crate) async fn start() -> Self {
        Self::start_with(|builder| builder).await
    }

    pub(crate) async fn start_with(
        change: impl Fn(AccountConnectorBuilder) -> AccountConnectorBuilder,
    ) -> Self {
        let third = ThirdParty::default();
        let token_endpoint = third.start().await;
        Self::with_endpoint(third, &token_endpoint, change)
    }

    pub(crate) fn with_endpoint(
        third: ThirdParty,
        token_endpoint: &str,
        change: impl Fn(AccountConnectorBuilder) -> AccountConnectorBuilder,
    ) -> Self {
        let ring = SharedKeyRing::new(KeyRing::ephemeral().unwrap());
        let accounts = MemoryAccounts::new();
        let now = Arc::new(AtomicU64::new(1_800_000_000));
        let replica = || {
            let now = Arc::clone(&now);
            let time = move || UNIX_EPOCH + Duration::from_secs(now.load(Ordering::SeqCst));
            let builder =
                AccountConnector::builder("third", "Third <Inc>", "https://booking.example")
                    .issuer(ISSUER)
                    .authorization_endpoint("https://third.example/authorize?tenant=1")
                    .token_endpoint(token_endpoint)
                    .client(ClientRegistration::with_secret("booking", SECRET))
                    .scopes(["repo", "user"])
                    .sealer(ring.clone())
                    .store(accounts.clone())
                    .identify(|head| {
                        let user = head.headers.get("x-user")?.to_str().ok()?;
                        Some(Principal::new("https://login.example", user))
                    })
                    .clock(time);
            let connector = change(builder).build().unwrap();
            let handler = connector.clone();
            let tool = Tool::new("t", "", move |cx: Context| {
                let connector = handler.clone();
                async move {
                    let account = connector.connect(&cx).await?;
                    let length = account.access_token().len();
                    cx.step("after", async move |_| Ok(length)).await?;
                    Ok::<_, mrtr_server::Error>(format!("a token of {length} bytes"))
                }
            });
            let server = Server::builder("booking", "1").sealer(ring.clone()).require_principal();
            (connector, server.tool(tool).build().unwrap())
        };
        let replicas = vec![replica(), replica()];
        Self { third, accounts, now, replicas }
    }

    pub(crate) fn advance(&self, seconds: u64) {
        self.now.fetch_add(seconds, Ordering::SeqCst);
    }

    /// Sends one round of the call. Returns the result.
    pub(crate) async fn call(&self, replica: usize, caller: &Principal, more: &Value) -> Value {
        let mut params = json!({ "name": "t", "_meta": {
            "io.modelcontextprotocol/protocolVersion": "2026-07-28",
            "io.modelcontextprotocol/clientCapabilities": { "elicitation": { "url": {} } },
        } });
        params.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        let server =
            InProcess::new(self.replicas[replica].1.clone()).with_extension(caller.clone());
        let params = Params::new(&params).unwrap();
        let request = Message::new(RequestId::Number(1), "tools/call", Some(params));
        match server.send(OutgoingRequest::new(request)).await.unwrap().outcome {
            Ok(result) => serde_json::from_str(result.get()).unwrap(),
            Err(error) => json!({ "error": error }),
        }
    }

    /// Begins a call. Returns the result, and the path and query of the link.
    pub(crate) async fn ask(&self, caller: &Principal) -> (Value, String) {
        let asked = self.call(0, caller, &json!({})).await;
        let link = link(&asked);
        (asked, link)
    }

    /// Connects an account of Alice.
    pub(crate) async fn connect(&self) {
        let connector = &self.replicas[0].0;
        let (_, link) = self.ask(&alice()).await;
        let mut browser = Browser::of("alice");
        let callback = self.third.consent(&browser.agree(connector, &link).await);
        let done = browser.callback(connector, &callback).await;
        assert_eq!(done.status, 200, "{done:?}");
    }
}

/// Returns the path and query of the link in a result.
pub(crate) fn link(asked: &Value) -> String {
    let questions = asked["inputRequests"].as_object();
    let (_, question) = questions.unwrap_or_else(|| panic!("{asked}")).iter().next().unwrap();
    let url = question["params"]["url"].as_str().unwrap();
    url.strip_prefix("https://booking.example").unwrap().to_owned()
}

/// The parameters of the next request: the state of `result`, and an answer to its question.
pub(crate) fn answer(result: &Value, action: &str) -> Value {
    let (key, _) = result["inputRequests"].as_object().unwrap().iter().next().unwrap();
    json!({ "requestState": result["requestState"], "inputResponses": { key: { "action": action } } })
}

/// A browser with its cookies, in which a user is signed in.
#[derive(Clone, Default)]
pub(crate) struct Browser {
    pub(crate) user: Option<&'static str>,
    pub(crate) cookie: Option<String>,
}

#[derive(Debug)]
pub(crate) struct Seen {
    pub(crate) status: u16,
    pub(crate) headers: HeaderMap,
    pub(crate) text: String,
}

impl Seen {
    pub(crate) fn location(&self) -> &str {
        self.headers[header::LOCATION].to_str().unwrap()
    }
}

impl Browser {
    pub(crate) fn of(user: &'static str) -> Self {
        Self { user: Some(user), cookie: None }
    }

    pub(crate) async fn send(
        &mut self,
        connector: &AccountConnector,
        method: Method,
        path: &str,
    ) -> Seen {
        let mut request = Request::builder().method(method).uri(path);
        if let Some(user) = self.user {
            request = request.header("x-user", user);
        }
        if let Some(cookie) = &self.cookie {
            request = request.header("cookie", format!("other=1; {cookie}"));
        }
        let response = connector.clone().call(request.body(()).unwrap()).await.unwrap();
        let (head, body) = response.into_parts();
        if let Some(set) = head.headers.get(header::SET_COOKIE) {
            let set = set.to_str().unwrap();
            let rest = "; Path=/; Secure; HttpOnly; SameSite=Lax";
            assert!(set.starts_with("__Host-connect-third=") && set.ends_with(rest), "{set}");
            let cookie = set.split(';').next().unwrap().to_owned();
            self.cookie = (!cookie.ends_with('=')).then_some(cookie);
        }
        let bytes = body.collect().await.unwrap().to_bytes();
        let text = String::from_utf8(bytes.to_vec()).unwrap();
        Seen { status: head.status.as_u16(), headers: head.headers, text }
    }

    pub(crate) async fn get(&mut self, connector: &AccountConnector, path: &str) -> Seen {
        self.send(connector, Method::GET, path).await
    }

    /// Agrees on the page behind a link. Returns the page of the third party.
    pub(crate) async fn agree(&mut self, connector: &AccountConnector, link: &str) -> String {
        let page = self.get(connector, link).await;
        assert_eq!(page.status, 200, "{page:?}");
        let sent = self.send(connector, Method::POST, link).await;
        assert_eq!(sent.status, 303, "{sent:?}");
        sent.location().to_owned()
    }

    /// Returns to the server with the query of a callback.
    pub(crate) async fn callback(&mut self, connector: &AccountConnector, query: &str) -> Seen {
        self.get(connector, &format!("/connect/third/callback?{query}")).await
    }
}
