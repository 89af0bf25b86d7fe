//! The adapter on a connection whose server is the test.

mod questions;
mod subscriptions;

use std::collections::HashSet;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use mrtr_schema::Object;
use mrtr_schema::capabilities::{ClientCapabilities, Implementation};
use mrtr_schema::jsonrpc::{ErrorObject, Notification, Params, Request, RequestId, Response};
use mrtr_schema::meta::RequestMeta;
use mrtr_schema::tasks::EXTENSION;
use mrtr_transport::unread;
use mrtr_transport::{OutgoingRequest, TransportError};
use serde_json::value::{RawValue, to_raw_value};
use serde_json::{Value, json};
use tokio::sync::mpsc::{self, UnboundedReceiver, UnboundedSender};
use tokio::sync::{Notify, oneshot};

use super::adapter::{Adapter, ClientFacts};
use super::connection::{Connection, ConnectionError, Incoming, StreamEnd};

/// The extension for tasks does not exist in legacy revisions; others are passed on.
#[test]
fn legacy_server_is_not_told_about_tasks() {
    let facts = |capabilities| ClientFacts::of(&RequestMeta::new("2026-07-28", capabilities));
    let tasks = ClientCapabilities::new().with_extension(EXTENSION, Object::new());
    assert_eq!(facts(tasks.clone()).capabilities, ClientCapabilities::new());
    let other =
        |declared: ClientCapabilities| declared.with_extension("com.example/x", Object::new());
    assert_eq!(facts(other(tasks)).capabilities, other(ClientCapabilities::new()));
}

/// Fails instead of waiting for ever. The clock is paused, so it does not take time.
async fn soon<F: Future>(awaited: F) -> F::Output {
    tokio::time::timeout(Duration::from_hours(1), awaited).await.unwrap()
}

/// The number of a session.
type Session = usize;

/// A call at the server: where it arrived, and where its messages go.
struct Call {
    session: Session,
    request: Request,
    messages: unread::Sender<Incoming>,
}

impl Call {
    async fn ask(&self, id: impl Into<Value>) {
        let id = serde_json::from_value(id.into()).unwrap();
        self.messages.send(Incoming::Request(question(id))).await.unwrap();
    }

    async fn ping(&self) {
        let ping = Request::new(RequestId::Number(7), "ping", None);
        let _ = self.messages.send(Incoming::Request(ping)).await;
    }

    async fn notify(&self) {
        let progress = Notification::from_raw("notifications/progress", None);
        let _ = self.messages.send(Incoming::Notification(progress)).await;
    }

    async fn answer(&self, result: Value) {
        self.end(Ok(to_raw_value(&result).unwrap())).await;
    }

    async fn end(&self, outcome: Result<Box<RawValue>, ErrorObject>) {
        let response = Response { id: Some(self.request.id.clone()), outcome };
        self.messages.send(Incoming::Response(Ok(response))).await.unwrap();
    }
}

struct Fake {
    opened: Arc<Mutex<Opened>>,
    calls: UnboundedSender<Call>,
    streams: UnboundedSender<(Session, unread::Sender<Incoming>)>,
    posts: UnboundedSender<(Session, Value)>,
}

#[derive(Default)]
struct Opened {
    /// How long a message to the server takes.
    post_time: Duration,
    count: usize,
    ended: HashSet<Session>,
    /// If there is a list, streams of sessions open when they leave it.
    opening: Option<Vec<oneshot::Sender<()>>>,
    /// How many of the next answers are not accepted.
    refusals: usize,
    /// The server cannot be reached for answers.
    is_down: bool,
    /// Sessions have no stream.
    has_no_stream: bool,
}

/// The server's side.
struct Server {
    opened: Arc<Mutex<Opened>>,
    calls: UnboundedReceiver<Call>,
    streams: UnboundedReceiver<(Session, unread::Sender<Incoming>)>,
    posts: UnboundedReceiver<(Session, Value)>,
}

impl Server {
    async fn call(&mut self, method: &str) -> Call {
        let call = soon(self.calls.recv()).await.unwrap();
        assert_eq!(call.request.method, method);
        call
    }

    /// Returns the next message that is no notification.
    async fn response(&mut self) -> (Session, Value) {
        loop {
            let (session, message) = soon(self.posts.recv()).await.unwrap();
            if message.get("method").is_none() {
                return (session, message);
            }
        }
    }

    fn end_session(&self, session: Session) {
        self.opened.lock().unwrap().ended.insert(session);
    }

    fn sessions(&self) -> usize {
        self.opened.lock().unwrap().count
    }
}

impl Connection for Fake {
    const CANCELS_ON_DROP: bool = false;

    type Session = Session;

    async fn initialize(&self, request: Request) -> Result<(Response, Session), ConnectionError> {
        let mut opened = self.opened.lock().unwrap();
        opened.count += 1;
        let result = json!({
            "protocolVersion": "2025-11-25",
            "capabilities": { "logging": {}, "tools": { "listChanged": true }, "resources": { "subscribe": true } },
            "serverInfo": Implementation::new("fake", "1"),
        });
        let outcome = Ok(to_raw_value(&result).unwrap());
        Ok((Response { id: Some(request.id), outcome }, opened.count))
    }

    async fn run(
        self: Arc<Self>,
        session: Session,
        request: Request,
        messages: unread::Sender<Incoming>,
        _: Arc<Notify>,
    ) {
        if self.opened.lock().unwrap().ended.contains(&session) {
            let ended = Err(ConnectionError::SessionEnded);
            messages.send(Incoming::Response(ended)).await.unwrap();
        } else {
            self.calls.send(Call { session, request, messages }).unwrap_or(());
        }
    }

    async fn listen(
        self: Arc<Self>,
        session: Session,
        messages: unread::Sender<Incoming>,
        opening: oneshot::Sender<()>,
        _: impl Fn() + Send + Sync + 'static,
    ) -> (StreamEnd, Option<oneshot::Sender<()>>) {
        if self.opened.lock().unwrap().has_no_stream {
            return (StreamEnd::Final, Some(opening));
        }
        if let Some(list) = &mut self.opened.lock().unwrap().opening {
            list.push(opening);
        }
        self.streams.send((session, messages)).unwrap_or(());
        (StreamEnd::Closed, None)
    }

    fn timeout(&self) -> Duration {
        Duration::from_mins(2)
    }

    async fn post(&self, session: &Session, message: String) -> Result<(), ConnectionError> {
        self.posts.send((*session, serde_json::from_str(&message).unwrap())).unwrap_or(());
        let time = self.opened.lock().unwrap().post_time;
        tokio::time::sleep(time).await;
        let is_response = message.contains("\"result\"");
        let mut opened = self.opened.lock().unwrap();
        if opened.ended.contains(session) {
            return Err(ConnectionError::SessionEnded);
        }
        if is_response && opened.is_down {
            return Err(TransportError::interrupted("no response within 30 s").into());
        }
        if is_response && opened.refusals > 0 {
            opened.refusals -= 1;
            return Err(TransportError::protocol("400 Bad Request").into());
        }
        Ok(())
    }
}

fn connect() -> (Arc<Adapter<Fake>>, Server) {
    let opened = Arc::<Mutex<Opened>>::default();
    let (calls, calls_in) = mpsc::unbounded_channel();
    let (streams, streams_in) = mpsc::unbounded_channel();
    let (posts, posts_in) = mpsc::unbounded_channel();
    let fake = Fake { opened: Arc::clone(&opened), calls, streams, posts };
    let server = Server { opened, calls: calls_in, streams: streams_in, posts: posts_in };
    (Arc::new(Adapter::new(fake)), server)
}

fn question(id: RequestId) -> Request {
    let schema = json!({ "type": "object", "properties": { "a": { "type": "string" } } });
    let params = json!({ "message": "Name?", "requestedSchema": schema });
    Request::new(id, "elicitation/create", Some(Params::new(&params).unwrap()))
}

/// A request being sent by the adapter, in a task.
type Sent = tokio::task::JoinHandle<Result<Response, TransportError>>;

fn send(adapter: &Arc<Adapter<Fake>>, method: &str, params: Value, level: Value) -> Sent {
    send_as(adapter, method, params, level, None)
}

fn send_as(
    adapter: &Arc<Adapter<Fake>>,
    method: &str,
    mut params: Value,
    level: Value,
    caller: Option<&'static str>,
) -> Sent {
    let form: ClientCapabilities =
        serde_json::from_value(json!({ "elicitation": { "form": {}, "url": {} } })).unwrap();
    let mut meta = json!({ "io.modelcontextprotocol/clientCapabilities": form });
    if !level.is_null() {
        meta["io.modelcontextprotocol/logLevel"] = level;
    }
    params["_meta"] = meta;
    let params = Params::new(&params).unwrap();
    let request = Request::new(RequestId::Number(7), method, Some(params));
    let adapter = Arc::clone(adapter);
    let outgoing = OutgoingRequest::new(request).with_caller(caller);
    tokio::spawn(async move { adapter.send(outgoing).await })
}

fn call(adapter: &Arc<Adapter<Fake>>, tool: &str) -> Sent {
    send(adapter, "tools/call", json!({ "name": tool }), Value::Null)
}

fn resume(adapter: &Arc<Adapter<Fake>>, tool: &str, suspended: &Value) -> Sent {
    answer_all(adapter, tool, suspended, "decline")
}

fn answer_all(adapter: &Arc<Adapter<Fake>>, tool: &str, suspended: &Value, action: &str) -> Sent {
    let responses = suspended["inputRequests"].as_object().unwrap().keys();
    let responses: serde_json::Map<_, _> =
        responses.map(|key| (key.clone(), json!({ "action": action }))).collect();
    let state = &suspended["requestState"];
    let params = json!({ "name": tool, "requestState": state, "inputResponses": responses });
    send(adapter, "tools/call", params, Value::Null)
}

async fn result(sent: Sent) -> Value {
    let response = sent.await.unwrap().unwrap();
    serde_json::from_str(response.outcome.unwrap().get()).unwrap()
}

/// Only the answer went to another replica. The stream is resumed at the one that asked.
#[tokio::test(start_paused = true)]
async fn request_of_our_own_times_out() {
    let (adapter, mut server) = connect();
    let sent = send(&adapter, "tools/call", json!({ "name": "t" }), json!("info"));
    let _silent = server.call("logging/setLevel").await;
    let error = soon(sent).await.unwrap().unwrap_err();
    assert!(error.is_transient() && error.to_string().contains("did not answer"), "{error}");
}

/// Each message begins the timeout anew, but a server cannot keep a call open without end.
#[tokio::test(start_paused = true)]
async fn call_ends_although_the_server_keeps_sending() {
    let (adapter, mut server) = connect();
    let mut sent = call(&adapter, "t");
    let running = server.call("tools/call").await;
    let began = tokio::time::Instant::now();
    let outcome = loop {
        tokio::select! {
            outcome = &mut sent => break outcome,
            () = tokio::time::sleep(Duration::from_mins(1)) => running.notify().await,
        }
        assert!(began.elapsed() < Duration::from_hours(2), "the call never ends");
    };
    let error = outcome.unwrap().unwrap_err();
    assert!(error.to_string().contains("did not answer the request within 3600s"), "{error}");
}

#[tokio::test(start_paused = true)]
async fn log_level_is_sent_until_the_server_accepts_it() {
    let (adapter, mut server) = connect();
    let with_level = || send(&adapter, "tools/call", json!({ "name": "t" }), json!("info"));
    let refused = with_level();
    let first = server.call("logging/setLevel").await;
    drop(first.messages);
    refused.await.unwrap().unwrap_err();
    let sent = with_level();
    let second = server.call("logging/setLevel").await;
    assert_ne!(first.request.id, second.request.id);
    second.answer(json!({})).await;
    server.call("tools/call").await.answer(json!({ "content": [] })).await;
    result(sent).await;
    let sent = with_level();
    server.call("tools/call").await.answer(json!({ "content": [] })).await;
    result(sent).await;

    // A new session knows no level.
    server.end_session(1);
    let sent = with_level();
    let in_second = server.call("logging/setLevel").await;
    assert_eq!(in_second.session, 2);
    in_second.answer(json!({})).await;
    server.call("tools/call").await.answer(json!({ "content": [] })).await;
    result(sent).await;
}

#[tokio::test(start_paused = true)]
async fn question_of_a_call_that_ends_is_rejected() {
    let (adapter, mut server) = connect();
    let sent = call(&adapter, "t");
    let at_server = server.call("tools/call").await;
    at_server.ask("q").await;
    at_server.answer(json!({ "content": [] })).await;
    assert_eq!(result(sent).await, json!({ "content": [] }));
    let (_, rejected) = server.response().await;
    assert_eq!((&rejected["id"], &rejected["error"]["code"]), (&json!("q"), &json!(-32603)));

    // A question that arrives too late to be read is rejected, too.
    let sent = call(&adapter, "t");
    let at_server = server.call("tools/call").await;
    at_server.answer(json!({ "content": [] })).await;
    at_server.ask("late").await;
    result(sent).await;
    assert_eq!(server.response().await.1["id"], "late");
}

#[tokio::test(start_paused = true)]
async fn request_with_a_huge_id_gets_no_answer() {
    let (adapter, mut server) = connect();
    let sent = call(&adapter, "t");
    let at_server = server.call("tools/call").await;
    at_server.ask("x".repeat(257)).await;
    at_server.ask(8).await;
    let suspended = result(sent).await;
    assert_eq!(suspended["inputRequests"].as_object().unwrap().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn error_that_names_pages_asks_the_client_to_visit_them_and_the_call_begins_anew() {
    let (adapter, mut server) = connect();
    let data = json!({ "elicitations": [{
        "mode": "url", "elicitationId": "1", "url": "https://login.example/", "message": "Sign in",
    }] });
    let error = ErrorObject::new(-32042, "sign in first").with_data(data);
    let sent = call(&adapter, "t");
    server.call("tools/call").await.end(Err(error.clone())).await;
    let required = result(sent).await;
    let page = &required["inputRequests"]["page-1"];
    assert_eq!(
        (&page["method"], &page["params"]["mode"]),
        (&json!("elicitation/create"), &json!("url"))
    );
    assert_eq!(page["params"]["url"], "https://login.example/");

    let declined = answer_all(&adapter, "t", &required, "decline").await.unwrap().unwrap();
    assert_eq!(declined.outcome.unwrap_err().code, -32042);
    let sent = answer_all(&adapter, "t", &required, "accept");
    let call = server.call("tools/call").await;
    let params = call.request.params.as_ref().unwrap();
    assert!(params.member("requestState").is_none() && params.member("inputResponses").is_none());
    call.answer(json!({ "content": [] })).await;
    assert_eq!(result(sent).await["content"], json!([]));

    // Errors that name no page stay errors.
    for data in [Value::Null, json!({ "elicitations": [] }), json!({ "elicitations": [{}] })] {
        let sent = self::call(&adapter, "t");
        let error = ErrorObject::new(-32042, "sign in first").with_data(data);
        server.call("tools/call").await.end(Err(error)).await;
        assert_eq!(sent.await.unwrap().unwrap().outcome.unwrap_err().code, -32042);
    }
}
