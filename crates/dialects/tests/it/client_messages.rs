//! Our client: against scripted servers that send the messages of the proposals, and against our
//! own servers.

use std::convert::Infallible;
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};

use http::{Request, Response};
use http_body_util::BodyExt as _;
use hyper::body::Incoming;
use mrtr_client::{CallOutcome, Client, ClientBuilder, RoundLimits};
use mrtr_dialects::{Dialect, DialectClient, DialectEndpoint};
use mrtr_schema::elicitation::ElicitResult;
use mrtr_schema::jsonrpc::{self, Params, RequestId};
use mrtr_schema::sampling::CreateMessageResult;
use mrtr_schema::tool::CallToolResult;
use mrtr_transport::http::{HttpClient, ResponseBody, ServeOptions, serve};
use mrtr_transport::{OutgoingRequest, Transport as _};
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tower_service::Service;

use crate::support::{
    WEATHER, World, accepted, capital_of_france, echo_input, github_login, paris,
};

/// What a scripted server answers: status, content type, body.
pub(crate) type Reply = (u16, &'static str, String);

/// A body, and `Last-Event-ID` if it was there.
type Received = (Value, Option<String>);

/// Answers request number `n` with reply number `n`, and keeps the requests.
#[derive(Clone, Default)]
pub(crate) struct Script {
    replies: Arc<Mutex<Vec<Reply>>>,
    received: Arc<Mutex<Vec<Received>>>,
}

impl Script {
    pub(crate) fn new(replies: impl IntoIterator<Item = Reply>) -> Self {
        let mut replies: Vec<Reply> = replies.into_iter().collect();
        replies.reverse();
        Self { replies: Arc::new(Mutex::new(replies)), ..Self::default() }
    }

    fn json(replies: impl IntoIterator<Item = Value>) -> Self {
        Self::new(replies.into_iter().map(|message| json_reply(&message)))
    }

    pub(crate) fn bodies(&self) -> Vec<Value> {
        self.received.lock().unwrap().iter().map(|(body, _)| body.clone()).collect()
    }
}

pub(crate) fn json_reply(message: &Value) -> Reply {
    (200, "application/json", message.to_string())
}

impl Service<Request<Incoming>> for Script {
    type Response = Response<ResponseBody>;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, Infallible>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Incoming>) -> Self::Future {
        let this = self.clone();
        Box::pin(async move {
            let event = request.headers().get("last-event-id");
            let event = event.map(|event| event.to_str().unwrap().to_owned());
            let body = request.into_body().collect().await.unwrap().to_bytes();
            let body: Value = serde_json::from_slice(&body).unwrap();
            let (status, kind, text) =
                this.replies.lock().unwrap().pop().unwrap_or((500, "text/plain", String::new()));
            // Ids are those of the requests, as in every proposal.
            let text = match body.get("id") {
                Some(id) => text.replace("\"$id\"", &id.to_string()),
                None => text,
            };
            this.received.lock().unwrap().push((body, event));
            let mut response = Response::new(ResponseBody::from(text));
            *response.status_mut() = status.try_into().unwrap();
            if !kind.is_empty() {
                response.headers_mut().insert("content-type", kind.parse().unwrap());
            }
            Ok(response)
        })
    }
}

pub(crate) async fn start<S>(service: S) -> String
where
    S: Service<Request<Incoming>, Response = Response<ResponseBody>, Error = Infallible>
        + Clone
        + Send
        + 'static,
    S::Future: Send + 'static,
{
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/mcp", listener.local_addr().unwrap());
    tokio::spawn(serve(listener, service, ServeOptions::default(), std::future::pending()));
    url
}

/// A client that answers with the words of the proposals.
pub(crate) fn client(dialect: Dialect, url: &str) -> ClientBuilder<DialectClient> {
    let http = HttpClient::builder(url).build().unwrap();
    Client::builder(DialectClient::new(dialect, http))
        .on_form(async |question, form| {
            let field = form.requested_schema.fields[0].name.clone();
            let value = match field.as_str() {
                "name" => "octocat",
                "input" if question.key.contains("echo") => "Hello World!",
                _ => question.key.as_str(),
            };
            Ok(ElicitResult::accept(json!({ field: value }))?)
        })
        .on_sample(async |_, _| Ok(serde_json::from_value::<CreateMessageResult>(paris())?))
}

pub(crate) fn new_york() -> Value {
    json!({ "location": "New York" })
}

fn weather_result() -> Value {
    let content = json!([{ "type": "text", "text": WEATHER }]);
    json!({ "jsonrpc": "2.0", "id": "$id", "result": { "content": content, "isError": false } })
}

/// The call of the proposals, without its id.
fn get_weather() -> Value {
    json!({
        "jsonrpc": "2.0",
        "method": "tools/call",
        "params": { "name": "get_weather", "arguments": new_york() },
    })
}

fn without_id(mut message: Value) -> Value {
    assert!(message.as_object_mut().unwrap().remove("id").is_some());
    message
}

#[tokio::test]
async fn incomplete_messages_are_answered_as_in_the_draft() {
    let script = Script::json([
        json!({ "jsonrpc": "2.0", "id": "$id",
            "input_requests": { "github_login": github_login() }, "request_state": "foo" }),
        weather_result(),
    ]);
    let url = start(script.clone()).await;
    let client = client(Dialect::Incomplete, &url).build();
    let result = client.call_tool("get_weather", new_york()).await.unwrap();
    assert_eq!(result.text(), WEATHER);
    let [first, second] = script.bodies().try_into().unwrap();
    assert_ne!(first["id"], second["id"]);
    assert_eq!(without_id(first), get_weather());
    let mut retry = get_weather();
    retry["input_responses"] = json!({ "github_login": { "result": accepted("name", "octocat") } });
    retry["request_state"] = json!("foo");
    assert_eq!(without_id(second), retry);
}

#[tokio::test]
async fn dependent_messages_are_answered_as_in_the_sketch() {
    let asked = json!({
        "github_login": github_login(),
        "capital_of_france": capital_of_france(),
    });
    let script = Script::json([
        json!({ "jsonrpc": "2.0", "id": "$id", "dependent_requests": asked }),
        weather_result(),
    ]);
    let url = start(script.clone()).await;
    let client = client(Dialect::Dependent, &url).build();
    let result = client.call_tool("get_weather", new_york()).await.unwrap();
    assert_eq!(result.text(), WEATHER);
    let [first, second] = script.bodies().try_into().unwrap();
    assert_eq!(without_id(first), get_weather());
    let mut retry = get_weather();
    retry["dependent_responses"] = json!({
        "github_login": { "result": accepted("name", "octocat") },
        "capital_of_france": { "result": paris() },
    });
    assert_eq!(without_id(second), retry);
}

#[tokio::test]
async fn turns_are_answered_as_in_sep_1858() {
    let initialized = json!({ "jsonrpc": "2.0", "id": "$id", "result": {
        "protocolVersion": "DRAFT-SEP-1858", "capabilities": {},
        "serverInfo": { "name": "s", "version": "1" } } });
    let mut question = github_login();
    question["jsonrpc"] = json!("2.0");
    question["id"] = json!("s-1");
    let turn = format!(
        "id: 1\ndata:\n\nevent: buffer_input\nid: 2\n\nid: 3\ndata: {question}\n\n\
         event: input_required\nid: 4\n\n"
    );
    let script = Script::new([
        json_reply(&initialized),
        (202, "text/plain", String::new()),
        (200, "text/event-stream", turn),
        (200, "text/event-stream", "data: RESULT\n\n".to_owned()),
    ]);
    // The result is that of the first request.
    let result = weather_result().to_string();
    let url = start(script.clone()).await;
    let client = client(Dialect::MultiTurnSse, &url).build();
    let call = client.begin_tool("get_weather", new_york()).await.unwrap();
    let CallOutcome::InputRequired(call) = call else { panic!("{call:?}") };
    let id = script.bodies()[2]["id"].to_string();
    let data = result.replace("\"$id\"", &id);
    script.replies.lock().unwrap()[0].2 = format!("data: {data}\n\n");
    let result: CallToolResult = client.finish(call).await.unwrap();
    assert_eq!(result.text(), WEATHER);
    let received = script.received.lock().unwrap().clone();
    assert_eq!(received.len(), 4);
    assert_eq!(received[0].0["params"]["protocolVersion"], "DRAFT-SEP-1858");
    assert_eq!(received[0].0["params"]["capabilities"]["sampling"], json!({}));
    assert_eq!(received[1].0["method"], "notifications/initialized");
    assert_eq!(without_id(received[2].0.clone()), get_weather());
    let array = json!([{ "jsonrpc": "2.0", "id": "s-1", "result": accepted("name", "octocat") }]);
    assert_eq!(received[3], (array, Some("4".to_owned())));
}

#[tokio::test]
async fn tasks_are_polled_and_answered_as_in_sep_2322() {
    let task = |status: &str| {
        json!({ "taskId": "echo_1", "status": status,
            "createdAt": "2026-01-27T03:32:48.3148180Z",
            "lastUpdatedAt": "2026-01-27T03:32:48.3148180Z", "ttl": 60000, "pollInterval": 1 })
    };
    let related = json!({ "io.modelcontextprotocol/related-task": { "taskId": "echo_1" } });
    let message = |result: Value| json!({ "jsonrpc": "2.0", "id": "$id", "result": result });
    let mut questions = message(json!({ "resultType": "input_required",
        "inputRequests": { "echo_input": echo_input() } }));
    questions["_meta"] = related.clone();
    let content = json!([{ "type": "text", "text": "Echo: Hello World!" }]);
    let script = Script::json([
        message(json!({ "task": task("working") })),
        message(task("input_required")),
        questions,
        message(json!({ "_meta": related })),
        message(task("completed")),
        message(json!({ "resultType": "complete", "isError": false, "content": content,
            "_meta": related })),
    ]);
    let url = start(script.clone()).await;
    let client = client(Dialect::Tasks2322, &url).with_tasks().build();
    let result = client.call_tool("echo", json!({})).await.unwrap();
    assert_eq!(result.text(), "Echo: Hello World!");
    let bodies = script.bodies();
    let methods: Vec<&Value> = bodies.iter().map(|body| &body["method"]).collect();
    assert_eq!(
        methods,
        [
            "tools/call",
            "tasks/get",
            "tasks/result",
            "tasks/input_response",
            "tasks/get",
            "tasks/result"
        ]
    );
    assert_eq!(bodies[0]["params"]["task"], json!({}));
    assert_eq!(bodies[1]["params"], json!({ "taskId": "echo_1" }));
    assert_eq!(
        bodies[3]["params"],
        json!({ "inputResponses": { "echo_input": accepted("input", "Hello World!") },
            "_meta": related })
    );
}

#[tokio::test]
async fn tasks_of_incomplete_are_answered_without_a_method() {
    let task = |status: &str| {
        json!({ "taskId": "echo_1", "status": status,
            "createdAt": "2026-01-27T03:32:48.3148180Z", "ttl": 60000, "pollInterval": 1 })
    };
    let related = json!({ "io.modelcontextprotocol/related-task": { "taskId": "echo_1" } });
    let message = |result: Value| json!({ "jsonrpc": "2.0", "id": "$id", "result": result });
    let questions = json!({ "jsonrpc": "2.0", "id": "$id",
        "input_requests": { "echo_input": echo_input() }, "_meta": related });
    let content = json!([{ "type": "text", "text": "Echo: Hello World!" }]);
    let script = Script::new([
        json_reply(&message(json!({ "task": task("Working") }))),
        json_reply(&message(task("input_required"))),
        json_reply(&questions),
        (202, "text/plain", String::new()),
        json_reply(&message(task("Completed"))),
        json_reply(&message(json!({ "isError": false, "content": content, "_meta": related }))),
    ]);
    let url = start(script.clone()).await;
    let client = client(Dialect::Incomplete, &url).with_tasks().build();
    let result = client.call_tool("echo", json!({})).await.unwrap();
    assert_eq!(result.text(), "Echo: Hello World!");
    let answers = without_id(script.bodies()[3].clone());
    let wrapped = json!({ "echo_input": { "result": accepted("input", "Hello World!") } });
    assert_eq!(answers, json!({ "jsonrpc": "2.0", "input_responses": wrapped, "_meta": related }));
}

/// The texts do not say what a server answers to the answers of a task.
#[tokio::test]
async fn answers_to_a_task_may_be_acknowledged_with_any_success() {
    for (status, kind) in
        [(202, "text/plain"), (204, ""), (200, "application/json"), (200, ""), (201, "")]
    {
        for dialect in [Dialect::Incomplete, Dialect::Tasks2322] {
            let script = Script::new([(status, kind, String::new())]);
            let http = HttpClient::builder(start(script).await).build().unwrap();
            let params = json!({ "taskId": "t", "inputResponses": { "a": accepted("a", "b") } });
            let params = Params::new(&params).unwrap();
            let request = jsonrpc::Request::new(RequestId::Number(1), "tasks/update", Some(params));
            let transport = DialectClient::new(dialect, http);
            let response = transport.send(OutgoingRequest::new(request)).await;
            assert!(response.is_ok_and(|it| it.outcome.is_ok()), "{dialect}: {status} {kind}");
        }
    }
}

/// Sends `tasks/get` to a server whose task has a status and whose `tasks/result` gets an error.
async fn get_task_after_error(status: &str) -> jsonrpc::Response {
    let task = json!({ "taskId": "t", "status": status, "createdAt": "2026-01-27T03:32:48Z" });
    let error = json!({ "code": -32603, "message": "The task store is unavailable; try again" });
    let script = Script::json([
        json!({ "jsonrpc": "2.0", "id": "$id", "result": task }),
        json!({ "jsonrpc": "2.0", "id": "$id", "error": error }),
    ]);
    let http = HttpClient::builder(start(script).await).build().unwrap();
    let params = Params::new(&json!({ "taskId": "t" })).unwrap();
    let request = jsonrpc::Request::new(RequestId::Number(1), "tasks/get", Some(params));
    let transport = DialectClient::new(Dialect::Tasks2322, http);
    transport.send(OutgoingRequest::new(request)).await.unwrap()
}

#[tokio::test]
async fn an_error_of_tasks_result_does_not_end_a_live_task() {
    for status in ["input_required", "completed"] {
        let error = get_task_after_error(status).await.outcome.unwrap_err();
        assert_eq!(error.code, -32603, "{status}");
    }
    let failed = get_task_after_error("failed").await.outcome.unwrap();
    let failed: Value = serde_json::from_str(failed.get()).unwrap();
    assert_eq!((&failed["status"], &failed["error"]["code"]), (&json!("failed"), &json!(-32603)));
}

#[tokio::test]
async fn a_tool_without_tasks_is_called_without_one() {
    let refused = json!({ "jsonrpc": "2.0", "id": "$id",
        "error": { "code": -32601, "message": "no tasks" } });
    let script = Script::json([refused, weather_result()]);
    let url = start(script.clone()).await;
    let client = client(Dialect::Tasks2322, &url).with_tasks().build();
    assert_eq!(client.call_tool("get_weather", new_york()).await.unwrap().text(), WEATHER);
    assert_eq!(script.bodies()[1]["params"].get("task"), None);
}

/// Serves each request by another replica.
#[derive(Clone)]
pub(crate) struct Fleet {
    pub(crate) world: World,
    pub(crate) dialect: Dialect,
}

impl Service<Request<Incoming>> for Fleet {
    type Response = Response<ResponseBody>;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, Infallible>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Incoming>) -> Self::Future {
        let server = self.world.server();
        let sealer = server.sealer();
        DialectEndpoint::new(self.dialect, server, sealer).call(request)
    }
}

#[tokio::test]
async fn handlers_limits_and_paused_calls_hold_on_every_dialect() {
    for dialect in Dialect::ALL.iter().copied() {
        let world = World::new();
        let url = start(Fleet { world: world.clone(), dialect }).await;
        let client = client(dialect, &url).with_tasks().build();
        let weather = client.call_tool("get_weather", new_york()).await.unwrap();
        assert_eq!(weather.text(), WEATHER, "{dialect}");
        let echo = client.call_tool("echo", json!({})).await.unwrap();
        assert!(echo.text().starts_with("Echo: "), "{dialect}: {}", echo.text());

        // A round that ends with a state and no question.
        let paused = client.call_tool("pausing", json!({})).await.unwrap();
        assert_eq!(paused.text(), "1", "{dialect}");

        // Another process resumes the call from its data, at another replica.
        let call = client.begin_tool("book", json!({})).await.unwrap();
        let CallOutcome::InputRequired(call) = call else { panic!("{call:?}") };
        let stored = serde_json::to_string(&call).unwrap();
        let other = self::client(dialect, &url).build();
        let result: CallToolResult =
            other.finish(serde_json::from_str(&stored).unwrap()).await.unwrap();
        assert!(result.text().contains(" held "), "{dialect}: {}", result.text());
        assert_eq!(world.steps(), 1, "{dialect}");

        let limited = self::client(dialect, &url)
            .round_limits(RoundLimits::default().with_input_rounds(1))
            .build();
        let error = limited.call_tool("book", json!({})).await.unwrap_err();
        assert!(error.is_too_many_rounds(), "{dialect}: {error}");
    }
}

#[tokio::test]
async fn a_call_becomes_a_task_after_its_first_question() {
    for dialect in [Dialect::Incomplete, Dialect::Tasks2322] {
        let url = start(Fleet { world: World::new(), dialect }).await;
        let client = client(dialect, &url).with_tasks().build();
        let result = client.call_tool("later", json!({})).await.unwrap();
        assert_eq!(result.text(), "first second", "{dialect}");
    }
}
