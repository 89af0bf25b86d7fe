//! Our client, with legacy servers and with servers of the current revision.

use std::convert::Infallible;
use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context as TaskContext, Poll};
use std::time::Duration;

use futures_util::StreamExt as _;
use http::{Request, Response, StatusCode};
use http_body_util::BodyExt as _;
use hyper::body::Incoming;
use mrtr::client::{CallOutcome, SubscriptionEvent, TransportError};
use mrtr::http::{Endpoint, HttpClient, ResponseBody, ServeOptions};
use mrtr::legacy::{AnyRevisionClient, RevisionMode};
use mrtr::schema::sampling::{CreateMessageParams, CreateMessageResult};
use mrtr::schema::tool::CallToolResult;
use mrtr::{
    Change, ChangeNotifier, Client, ClientBuilder, Context, ElicitResult, Result, Server, Tool,
};
use serde_json::json;
use tokio::net::TcpListener;
use tower_service::Service;

use crate::server_process::{Running, until};

#[derive(serde::Deserialize, schemars::JsonSchema)]
struct Text {
    text: String,
}

fn server(changes: &ChangeNotifier) -> Server {
    Server::builder("test", "1")
        .ephemeral_key()
        .allow_anonymous()
        .changes(changes.clone())
        .tool(Tool::new("version", "", async |cx: Context| cx.protocol_version()))
        .tool(Tool::new("ask", "", async |cx: Context| -> Result<String> {
            cx.progress(1.0, None, None);
            let (a, b) = tokio::try_join!(
                cx.elicit::<Text>("a", "First?"),
                cx.elicit::<Text>("b", "Second?")
            )?;
            cx.progress(2.0, None, None);
            let model = cx.sample("model", CreateMessageParams::user("Third?", 10)).await?;
            Ok(format!("{} {} {}", a.text, b.text, model.content.joined_text()))
        }))
        .tool(Tool::new("wait", "", async |cx: Context| -> Result<&str> {
            cx.progress(1.0, None, None);
            std::future::pending().await
        }))
        .build()
        .unwrap()
}

/// An endpoint that a test can replace.
type SharedEndpoint = Arc<Mutex<Endpoint<Server>>>;

/// An endpoint that knows legacy revisions only, as the servers that most people have.
#[derive(Clone)]
struct LegacyOnly {
    endpoint: SharedEndpoint,
    requests: Arc<AtomicUsize>,
    /// The status of requests of the current revision.
    status: StatusCode,
    /// The number of first requests of the current revision that fail with an internal error. The
    /// later ones are answered.
    failing: Option<usize>,
}

impl Service<Request<Incoming>> for LegacyOnly {
    type Response = Response<ResponseBody>;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, Infallible>> + Send>>;

    fn poll_ready(&mut self, _: &mut TaskContext<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Incoming>) -> Self::Future {
        let number = self.requests.fetch_add(1, Ordering::SeqCst);
        let version = request.headers().get("mcp-protocol-version");
        if version.is_some_and(|version| version == "2026-07-28")
            && self.failing.is_none_or(|failing| number < failing)
        {
            let status = self.status;
            let code = if self.failing.is_some() { -32603 } else { -32000 };
            return Box::pin(async move {
                let _ = request.into_body().collect().await;
                let error = json!({ "code": code, "message": "Bad Request: no session" });
                let body = json!({ "jsonrpc": "2.0", "id": null, "error": error });
                let mut response = Response::new(ResponseBody::from(body.to_string()));
                *response.status_mut() = status;
                let json = http::HeaderValue::from_static("application/json");
                response.headers_mut().insert("content-type", json);
                Ok(response)
            });
        }
        self.endpoint.lock().unwrap().call(request)
    }
}

/// Serves legacy revisions only, and returns the URL.
async fn serve_legacy(server: Server, status: StatusCode) -> (String, Arc<AtomicUsize>) {
    let endpoint = Arc::new(Mutex::new(mrtr::endpoint(server).unwrap()));
    serve_endpoint(endpoint, status, None).await
}

async fn serve_endpoint(
    endpoint: SharedEndpoint,
    status: StatusCode,
    failing: Option<usize>,
) -> (String, Arc<AtomicUsize>) {
    let requests = Arc::<AtomicUsize>::default();
    let service = LegacyOnly { endpoint, requests: Arc::clone(&requests), status, failing };
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/mcp", listener.local_addr().unwrap());
    let forever = std::future::pending();
    tokio::spawn(mrtr::http::serve(listener, service, ServeOptions::default(), forever));
    (url, requests)
}

async fn serve(server: Server) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/mcp", listener.local_addr().unwrap());
    let endpoint = mrtr::endpoint(server).unwrap();
    let forever = std::future::pending();
    tokio::spawn(mrtr::http::serve(listener, endpoint, ServeOptions::default(), forever));
    url
}

fn with_handlers<T: mrtr::client::Transport>(client: ClientBuilder<T>) -> Client<T> {
    client
        .on_form(async |_, form| {
            let first = form.message.chars().next().unwrap_or_default();
            Ok(ElicitResult::accept(json!({ "text": first.to_string() }))?)
        })
        .on_sample(async |_, _| Ok(CreateMessageResult::text("model", "m")))
        .build()
}

fn in_mode(url: &str, mode: RevisionMode) -> ClientBuilder<AnyRevisionClient> {
    let http = HttpClient::builder(url).build().unwrap();
    Client::builder(AnyRevisionClient::new(http, mode))
}

#[tokio::test]
async fn client_finds_out_the_revision_and_remembers_it() {
    let changes = ChangeNotifier::new();
    let url = serve(server(&changes)).await;
    let client = mrtr::connect(&url).unwrap().build();
    assert_eq!(client.protocol_version(), None);
    assert_eq!(client.call_tool("version", json!({})).await.unwrap().text(), "2026-07-28");
    assert_eq!(client.protocol_version(), Some("2026-07-28"));

    for status in [StatusCode::BAD_REQUEST, StatusCode::NOT_FOUND, StatusCode::OK] {
        let (url, requests) = serve_legacy(server(&changes), status).await;
        let client = mrtr::connect(&url).unwrap().build();
        assert_eq!(client.call_tool("version", json!({})).await.unwrap().text(), "2025-11-25");
        assert_eq!(client.protocol_version(), Some("2025-11-25"));
        let before = requests.load(Ordering::SeqCst);
        client.call_tool("version", json!({})).await.unwrap();
        assert_eq!(requests.load(Ordering::SeqCst), before + 1, "the server was probed again");
        let discovered = client.discover().await.unwrap();
        assert_eq!(discovered.supported_versions, ["2025-11-25"]);
    }
}

/// Lets the time pass after which a client asks again.
async fn pass_the_doubt() {
    tokio::time::pause();
    tokio::time::advance(Duration::from_secs(10)).await;
    tokio::time::resume();
}

/// Such an error may come from a layer in front of the server, for a moment.
#[tokio::test]
async fn server_that_fails_once_is_not_taken_for_a_legacy_one_for_ever() {
    let changes = ChangeNotifier::new();
    let endpoint = mrtr::endpoint(server(&changes)).unwrap();
    let (url, _) = serve_endpoint(Arc::new(Mutex::new(endpoint)), StatusCode::OK, Some(1)).await;
    let client = mrtr::connect(&url).unwrap().build();
    let call = async || client.call_tool("version", json!({})).await.unwrap().text();
    assert_eq!(tokio::join!(call(), call()), ("2025-11-25".into(), "2025-11-25".into()));
    pass_the_doubt().await;
    assert_eq!(call().await, "2026-07-28");
    // A server that always answers so is a legacy server.
    let endpoint = mrtr::endpoint(server(&changes)).unwrap();
    let shared = Arc::new(Mutex::new(endpoint));
    let (url, requests) = serve_endpoint(shared, StatusCode::OK, Some(usize::MAX)).await;
    let client = mrtr::connect(&url).unwrap().build();
    for _ in 0..2 {
        assert_eq!(client.call_tool("version", json!({})).await.unwrap().text(), "2025-11-25");
        pass_the_doubt().await;
    }
    let before = requests.load(Ordering::SeqCst);
    client.call_tool("version", json!({})).await.unwrap();
    assert_eq!(requests.load(Ordering::SeqCst), before + 1, "the server was probed again");
}

#[tokio::test]
async fn modes_of_one_era_do_not_fall_back() {
    let changes = ChangeNotifier::new();
    let url = serve(server(&changes)).await;
    let client = in_mode(&url, RevisionMode::Legacy).build();
    assert_eq!(client.call_tool("version", json!({})).await.unwrap().text(), "2025-11-25");
    let (url, requests) = serve_legacy(server(&changes), StatusCode::BAD_REQUEST).await;
    let client = in_mode(&url, RevisionMode::Current).build();
    let error = client.call_tool("version", json!({})).await.unwrap_err();
    assert_eq!(error.as_server_error().unwrap().code, -32000, "{error}");
    assert_eq!(requests.load(Ordering::SeqCst), 1);
}

#[tokio::test]
async fn server_that_rejects_the_caller_is_not_taken_for_a_legacy_one() {
    let changes = ChangeNotifier::new();
    for status in [StatusCode::UNAUTHORIZED, StatusCode::FORBIDDEN, StatusCode::SERVICE_UNAVAILABLE]
    {
        let (url, requests) = serve_legacy(server(&changes), status).await;
        let client = mrtr::connect(&url).unwrap().build();
        let result = client.call_tool("version", json!({})).await;
        if status == StatusCode::SERVICE_UNAVAILABLE {
            assert!(result.is_err());
            assert_eq!(requests.load(Ordering::SeqCst), 1, "{status}");
        }
    }
}

#[tokio::test]
async fn handlers_answer_the_requests_of_a_legacy_server() {
    let changes = ChangeNotifier::new();
    let (url, _) = serve_legacy(server(&changes), StatusCode::BAD_REQUEST).await;
    let client = with_handlers(mrtr::connect(&url).unwrap());
    let steps = Arc::<Mutex<Vec<f64>>>::default();
    let seen = Arc::clone(&steps);
    let client = client.with_progress(move |progress| seen.lock().unwrap().push(progress.progress));
    for _ in 0..2 {
        let result = client.call_tool("ask", json!({})).await.unwrap();
        assert_eq!(result.text(), "F S model");
    }
    assert_eq!(*steps.lock().unwrap(), [1.0, 2.0, 1.0, 2.0]);
    let declining = mrtr::connect(&url).unwrap();
    let declining = declining.on_form(async |_, _| Ok(ElicitResult::decline()));
    let client = declining.on_sample(async |_, _| Ok(CreateMessageResult::text("", "m"))).build();
    assert!(client.call_tool("ask", json!({})).await.unwrap().is_error);
    // A client without handlers declares none, and the server does not ask.
    let client = mrtr::connect(&url).unwrap().build();
    let error = client.call_tool("ask", json!({})).await.unwrap_err();
    assert_eq!(error.as_server_error().unwrap().code, -32021);
}

#[tokio::test]
async fn suspended_call_of_a_legacy_session_belongs_to_its_client() {
    let changes = ChangeNotifier::new();
    let (url, _) = serve_legacy(server(&changes), StatusCode::BAD_REQUEST).await;
    let client = with_handlers(mrtr::connect(&url).unwrap());
    let outcome = client.begin_tool("ask", json!({})).await.unwrap();
    let CallOutcome::InputRequired(pending) = outcome else { unreachable!("the tool asks") };
    assert_eq!(pending.input_requests().0.len(), 2);
    let elsewhere = with_handlers(mrtr::connect(&url).unwrap());
    let error = elsewhere.finish::<CallToolResult>(pending.clone()).await.unwrap_err();
    let error = error.as_server_error().unwrap();
    assert!(error.message.contains("only by the client that began it"), "{error}");
    assert_eq!(client.finish::<CallToolResult>(pending).await.unwrap().text(), "F S model");
}

#[tokio::test]
async fn dropped_call_is_cancelled_at_the_server() {
    let running = Arc::<AtomicUsize>::default();
    let counter = Arc::clone(&running);
    let wait = move |cx: Context| {
        let guard = Running::new(&counter);
        async move {
            let _guard = guard;
            cx.progress(1.0, None, None);
            std::future::pending::<Result<&str>>().await
        }
    };
    let server = Server::builder("test", "1").tool(Tool::new("wait", "", wait));
    let server = server.ephemeral_key().allow_anonymous().build().unwrap();
    let (url, _) = serve_legacy(server, StatusCode::BAD_REQUEST).await;
    let client = mrtr::connect(&url).unwrap().build();
    let (sender, mut started) = tokio::sync::mpsc::unbounded_channel();
    let call = client.with_progress(move |_| sender.send(()).unwrap_or(()));
    tokio::select! {
        result = call.call_tool("wait", json!({})) => unreachable!("{result:?}"),
        _ = started.recv() => assert_eq!(running.load(Ordering::SeqCst), 1),
    }
    until(&running, 0).await;
}

#[tokio::test]
async fn session_that_has_ended_is_opened_again() {
    let changes = ChangeNotifier::new();
    let endpoint = Arc::new(Mutex::new(mrtr::endpoint(server(&changes)).unwrap()));
    let (url, requests) =
        serve_endpoint(Arc::clone(&endpoint), StatusCode::BAD_REQUEST, None).await;
    let client = in_mode(&url, RevisionMode::Legacy).build();
    client.call_tool("version", json!({})).await.unwrap();
    // A server with another key does not know the session.
    *endpoint.lock().unwrap() = mrtr::endpoint(server(&changes)).unwrap();
    let before = requests.load(Ordering::SeqCst);
    assert_eq!(client.call_tool("version", json!({})).await.unwrap().text(), "2025-11-25");
    assert!(
        requests.load(Ordering::SeqCst) >= before + 3,
        "initialize precedes the second attempt"
    );
}

#[tokio::test]
async fn changes_of_a_legacy_server_reach_a_subscription() {
    let changes = ChangeNotifier::new();
    let (url, _) = serve_legacy(server(&changes), StatusCode::BAD_REQUEST).await;
    let client = mrtr::connect(&url).unwrap().build();
    let filter = mrtr::schema::subscription::SubscriptionFilter::new().with_tools().with_prompts();
    let mut subscription = client.listen(&filter).unwrap();
    let Some(Ok(SubscriptionEvent::Acknowledged(granted))) = subscription.next().await else {
        unreachable!("the subscription begins with what was granted")
    };
    assert!(granted.tools_list_changed);
    assert!(!granted.prompts_list_changed, "the server has no prompts");
    while changes.listeners() == 0 {
        tokio::task::yield_now().await;
    }
    changes.publish(Change::Tools);
    assert!(matches!(subscription.next().await, Some(Ok(SubscriptionEvent::ToolsListChanged))));
}

#[tokio::test]
async fn unreachable_server_is_not_sent_anything() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/mcp", listener.local_addr().unwrap());
    drop(listener);
    let client = mrtr::connect(&url).unwrap().build();
    let error = client.call_tool("version", json!({})).await.unwrap_err();
    assert!(error.as_transport_error().is_some_and(TransportError::is_not_sent), "{error}");
}
