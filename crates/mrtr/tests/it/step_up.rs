//! A login for further scopes in the middle of a call: client, authorization server and two
//! replicas.

use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use axum::Router;
use axum::extract::Request;
use http::Response;
use mrtr::auth::client::{
    AuthorizationPage, CallbackReceiver, DriverFuture, OAuthClient, UserAgent,
};
use mrtr::auth::resource::{IntrospectionIssuer, Protected, ProtectedResource};
use mrtr::http::{Endpoint, HttpClient, HttpConnection};
use mrtr::{
    CallError, Client, ClientBuilder, ClientSet, Context, ElicitResult, KeyRing, Secret, Server,
    Tool,
};
use mrtr_testkit::Issuer;
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::json;
use tokio::net::TcpListener;
use tower_service::Service;

struct User(Arc<Issuer>);

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
        let callback = self.0.consent(page.url().as_str());
        Box::pin(async { Ok(callback) })
    }
}

#[derive(Deserialize, JsonSchema)]
struct Seat {
    place: String,
}

/// Counts what must happen once.
#[derive(Clone, Default)]
struct Counts {
    held: Arc<AtomicUsize>,
    paid: Arc<AtomicUsize>,
    asked: Arc<AtomicUsize>,
}

impl Counts {
    fn get(&self) -> [usize; 3] {
        [&self.held, &self.paid, &self.asked].map(|count| count.load(Ordering::SeqCst))
    }
}

fn server(counts: &Counts) -> Server {
    let (counts, other) = (counts.clone(), counts.clone());
    let book = move |cx: Context| {
        let Counts { held, paid, .. } = counts.clone();
        async move {
            let Seat { place } = cx.elicit("seat", "Where?").await?;
            let seat = cx.step("hold", async |_| Ok(held.fetch_add(1, Ordering::SeqCst))).await?;
            cx.progress(1.0, Some(2.0), None);
            cx.require_scope("booking:pay").await?;
            let bill = cx.step("pay", async |_| Ok(paid.fetch_add(1, Ordering::SeqCst))).await?;
            Ok::<_, mrtr::Error>(format!("{place}: held {seat}, paid {bill}"))
        }
    };
    let reserve = move || {
        let Counts { held, .. } = other.clone();
        async move { format!("held {}", held.fetch_add(1, Ordering::SeqCst)) }
    };
    let secret = Secret::from_bytes(&(0..32).collect::<Vec<_>>()).unwrap();
    let ring = KeyRing::builder("booking").active(secret).build().unwrap();
    let server = Server::builder("booking", "1").require_principal().key_ring(ring);
    let tool = Tool::new("hold", "Holds a seat", reserve).requires_scope("booking:hold");
    server.tool(Tool::new("book", "Books a seat", book)).tool(tool).build().unwrap()
}

/// Sends each request to the next replica.
#[derive(Clone)]
struct Balanced {
    replicas: Vec<Protected<Endpoint<Server>>>,
    next: Arc<AtomicUsize>,
}

impl Service<Request> for Balanced {
    type Response = axum::response::Response;
    type Error = Infallible;
    type Future = std::pin::Pin<
        Box<dyn Future<Output = Result<axum::response::Response, Infallible>> + Send>,
    >;

    fn poll_ready(
        &mut self,
        _: &mut std::task::Context<'_>,
    ) -> std::task::Poll<Result<(), Infallible>> {
        std::task::Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request) -> Self::Future {
        let at = self.next.fetch_add(1, Ordering::SeqCst) % self.replicas.len();
        let response = self.replicas[at].call(request);
        Box::pin(async { Ok(Response::map(response.await?, axum::body::Body::new)) })
    }
}

/// Starts everything with some replicas. Returns the URL of the server, and the user.
async fn start(replicas: usize, counts: &Counts) -> (String, Arc<Issuer>) {
    let server = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let resource = format!("http://{}/mcp", server.local_addr().unwrap());
    let user = Issuer::start(resource.clone()).await.unwrap();
    let protected = || {
        let issuer = IntrospectionIssuer::new(user.url(), "server", "secret");
        let protected = ProtectedResource::builder(resource.clone());
        let protected = protected.issuer(issuer).scopes(["booking:read"]).build().unwrap();
        protected.protect(mrtr::endpoint(self::server(counts)).unwrap())
    };
    let replicas = (0..replicas).map(|_| protected()).collect();
    let balanced = Balanced { replicas, next: Arc::default() };
    let app = Router::new().fallback_service(balanced);
    tokio::spawn(async move { axum::serve(server, app).await.unwrap() });
    (resource, user)
}

fn with_answers<X: mrtr::client::Transport>(
    client: ClientBuilder<X>,
    counts: &Counts,
) -> Client<X> {
    let asked = Arc::clone(&counts.asked);
    let client = client.on_form(move |_, _| {
        asked.fetch_add(1, Ordering::SeqCst);
        async { Ok(ElicitResult::accept(json!({ "place": "inside" }))?) }
    });
    client.on_progress(|_| {}).build()
}

fn credentials(user: &Arc<Issuer>) -> OAuthClient {
    OAuthClient::builder("app").user_agent(User(Arc::clone(user))).build().unwrap()
}

#[tokio::test]
async fn call_continues_on_another_replica_with_another_token() {
    let counts = Counts::default();
    let (url, user) = start(2, &counts).await;
    let http = HttpClient::builder(url).credentials(credentials(&user)).build().unwrap();
    let client = with_answers(Client::builder(HttpConnection::new(http)), &counts);
    let result = client.call_tool("book", json!({})).await.unwrap();
    assert_eq!(result.text(), "inside: held 0, paid 0");
    assert_eq!(counts.get(), [1, 1, 1], "held, paid and asked once");
    assert_eq!(user.consents(), ["booking:read", "booking:read booking:pay"]);
    // The token has what the second call needs.
    client.call_tool("book", json!({})).await.unwrap();
    assert_eq!(user.consents().len(), 2);
}

#[tokio::test]
async fn challenge_names_the_scopes_of_the_tool_and_of_all_requests() {
    let counts = Counts::default();
    let (url, user) = start(1, &counts).await;
    let http = HttpClient::builder(url).credentials(credentials(&user)).build().unwrap();
    let client = with_answers(Client::builder(HttpConnection::new(http)), &counts);
    let result = client.call_tool("hold", json!({})).await.unwrap();
    assert_eq!(result.text(), "held 0");
    assert_eq!(user.consents(), ["booking:read", "booking:read booking:hold"]);
}

#[tokio::test]
async fn clients_of_a_configuration_log_in() {
    let counts = Counts::default();
    let (url, user) = start(1, &counts).await;
    let config = json!({ "mcpServers": { "one": { "url": url }, "two": { "url": url } } });
    let oauth = credentials(&user);
    let set = ClientSet::from_json_with_http(
        &config.to_string(),
        |_, http| http.credentials(oauth.clone()),
        |_, client| client,
    );
    let set = set.unwrap();
    let tools = set.list_tools().await;
    assert!(tools.iter().all(|server| server.tools.as_ref().is_ok_and(|tools| tools.len() == 2)));
    assert_eq!(user.consents(), ["booking:read"], "one login for one URL");
}

/// A client of a legacy revision holds the call on a stream, which cannot become a 403.
#[cfg(feature = "legacy")]
#[tokio::test]
async fn legacy_client_logs_in_for_declared_scopes_only() {
    use mrtr::legacy::{AnyRevisionClient, RevisionMode};

    let counts = Counts::default();
    let (url, user) = start(1, &counts).await;
    let http = HttpClient::builder(url).credentials(credentials(&user)).build().unwrap();
    let legacy = AnyRevisionClient::new(http, RevisionMode::Legacy);
    let client = with_answers(Client::builder(legacy), &counts);
    let result = client.call_tool("hold", json!({})).await.unwrap();
    assert_eq!(result.text(), "held 0");
    assert_eq!(user.consents().len(), 2);
    let error = client.call_tool("book", json!({})).await.unwrap_err();
    let refused = CallError::as_server_error(&error).unwrap();
    assert!(refused.message.contains("booking:pay"), "{refused}");
    assert_eq!(counts.get()[1], 0);
}
