//! Replicas with the tools of the proposals, and messages to them.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use http::{HeaderMap, HeaderName, Request, StatusCode};
use http_body_util::{BodyExt as _, Full};
use mrtr_dialects::{Dialect, DialectEndpoint};
use mrtr_schema::capabilities::ClientCapabilities;
use mrtr_schema::jsonrpc::ErrorObject;
use mrtr_schema::sampling::{CreateMessageParams, ModelHint, ModelPreferences};
use mrtr_server::middleware::{self, FromFnLayer, Next, from_fn};
use mrtr_server::tasks::{MemoryTaskStore, TaskPolicy};
use mrtr_server::{Context, KeyRing, Principal, Result, Secret, Server, Tool};
use mrtr_transport::http::RequestLimits;
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Value, json};
use tower_service::Service as _;

pub(crate) const WEATHER: &str =
    "Current weather in New York:\nTemperature: 72°F\nConditions: Partly cloudy";

#[derive(Deserialize, JsonSchema)]
struct Location {
    location: String,
}

#[derive(Deserialize, JsonSchema)]
struct Region {
    #[schemars(extend("x-mcp-header" = "Region"))]
    region: String,
}

#[derive(Deserialize, JsonSchema)]
struct Login {
    #[expect(dead_code, reason = "the weather does not depend on it")]
    name: String,
}

#[derive(Deserialize, JsonSchema)]
struct Input {
    input: String,
}

pub(crate) fn capital() -> CreateMessageParams {
    let preferences = ModelPreferences::default()
        .with_hints(vec![ModelHint::new("claude-3-sonnet")])
        .with_intelligence_priority(0.8)
        .with_speed_priority(0.5);
    CreateMessageParams::user("What is the capital of France?", 100)
        .with_model_preferences(preferences)
        .with_system_prompt("You are a helpful assistant.")
}

async fn get_weather(cx: Context, Location { location }: Location) -> Result<String> {
    let question = "Please provide your GitHub username";
    tokio::try_join!(
        cx.elicit::<Login>("github_login", question),
        cx.sample("capital_of_france", capital()),
    )?;
    Ok(format!("Current weather in {location}:\nTemperature: 72°F\nConditions: Partly cloudy"))
}

async fn echo(cx: Context) -> Result<String> {
    let question = "Please provide the input string to echo back";
    let Input { input } = cx.elicit("echo_input", question).await?;
    Ok(format!("Echo: {input}"))
}

/// The secret that all replicas share.
pub(crate) fn keys() -> KeyRing {
    let secret = Secret::from_bytes(&(0..32).collect::<Vec<_>>()).unwrap();
    KeyRing::builder("https://test.example/mcp").active(secret).build().unwrap()
}

type Handled = Pin<Box<dyn Future<Output = Result<middleware::Response, ErrorObject>> + Send>>;

/// What several replicas share.
#[derive(Clone)]
pub(crate) struct World {
    store: Arc<MemoryTaskStore>,
    /// How often the step of `book` has run.
    pub(crate) steps: Arc<AtomicUsize>,
    /// How often a task was read. A rate limit refuses every second time, if it is on.
    polls: Arc<AtomicUsize>,
    has_rate_limit: bool,
}

async fn rooted(cx: Context) -> Result<String> {
    Ok(format!("{:?}", cx.roots("roots").await?))
}

async fn noted(cx: Context, Input { input: note }: Input) -> Result<String> {
    let Input { input } = cx.elicit("a", "A?").await?;
    Ok(format!("{input} {}", note.len()))
}

impl World {
    pub(crate) fn new() -> Self {
        Self {
            store: Arc::new(MemoryTaskStore::new(100)),
            steps: Arc::default(),
            polls: Arc::default(),
            has_rate_limit: false,
        }
    }

    pub(crate) fn with_rate_limit() -> Self {
        Self { has_rate_limit: true, ..Self::new() }
    }

    fn rate_limit(
        &self,
    ) -> FromFnLayer<impl Fn(middleware::Request, Next) -> Handled + Clone + Send + Sync + 'static>
    {
        let (polls, has_rate_limit) = (Arc::clone(&self.polls), self.has_rate_limit);
        from_fn(move |request: middleware::Request, next: Next| -> Handled {
            let is_read = has_rate_limit && request.method() == "tasks/get";
            if is_read && polls.fetch_add(1, Ordering::SeqCst) % 2 == 0 {
                let refusal = mrtr_transport::too_many_requests(Duration::from_millis(10));
                return Box::pin(async { Err(refusal) });
            }
            Box::pin(next.run(request))
        })
    }

    pub(crate) fn steps(&self) -> usize {
        self.steps.load(Ordering::SeqCst)
    }

    /// Starts a replica. It needs a tokio runtime, on which it runs tasks.
    pub(crate) fn server(&self) -> Server {
        let steps = Arc::clone(&self.steps);
        let book = move |cx: Context| {
            let steps = Arc::clone(&steps);
            async move {
                let Input { input: first } = cx.elicit("first", "First?").await?;
                let held = cx
                    .step("hold", async |_| {
                        steps.fetch_add(1, Ordering::SeqCst);
                        Ok("held".to_owned())
                    })
                    .await?;
                let Input { input: second } = cx.elicit("second", "Second?").await?;
                Ok::<_, mrtr_server::Error>(format!("{first} {held} {second}"))
            }
        };
        let long = async |cx: Context| -> Result<String> {
            let text: String = cx.step("text", async |_| Ok("x".repeat(7_000))).await?;
            let Input { input } = cx.elicit("a", "A?").await?;
            Ok(format!("{input} {}", text.len()))
        };
        let later = async |cx: Context| -> Result<String> {
            let Input { input } = cx.elicit("first", "First?").await?;
            cx.detach().await?;
            let Input { input: second } = cx.elicit("second", "Second?").await?;
            Ok(format!("{input} {second}"))
        };
        let now = || TaskPolicy::immediately().poll_interval(Duration::from_millis(100));
        let server = Server::builder("test", "1")
            .layer(self.rate_limit())
            .key_ring(keys())
            .allow_anonymous()
            .task_store(Arc::clone(&self.store))
            .tool(Tool::new("get_weather", "", get_weather))
            .tool(Tool::new("echo", "", echo).task(now()))
            .tool(Tool::new("book", "", book.clone()))
            .tool(Tool::new("book_task", "", book).task(now()))
            .tool(Tool::new("count", "", async |cx: Context| -> Result<&str> {
                cx.progress(1.0, None, None);
                tokio::task::yield_now().await;
                cx.progress(2.0, None, None);
                Ok("counted")
            }))
            .tool(
                Tool::new("sleepy", "", async |_: Context| -> Result<&str> {
                    tokio::time::sleep(Duration::from_millis(200)).await;
                    Ok("awake")
                })
                .task(now()),
            )
            .tool(
                Tool::new("slow", "", async |_: Context| -> Result<&str> {
                    tokio::time::sleep(Duration::from_secs(45)).await;
                    Ok("awake")
                })
                .task(now()),
            )
            .tool(Tool::new("curious", "", async |cx: Context| -> Result<&str> {
                let keys: Vec<String> = (0..257).map(|number| format!("q{number}")).collect();
                let mut all: Vec<_> =
                    keys.iter().map(|key| Box::pin(cx.elicit::<Input>(key, "?"))).collect();
                std::future::poll_fn(|context| {
                    for question in &mut all {
                        let _ = question.as_mut().poll(context);
                    }
                    std::task::Poll::<()>::Pending
                })
                .await;
                Ok("asked")
            }))
            .tool(Tool::new("pausing", "", async |cx: Context| -> Result<String> {
                let one = cx.step("one", async |_| Ok(1_u32)).await?;
                cx.checkpoint("here").await?;
                Ok(one.to_string())
            }))
            .tool(Tool::new("mirrored", "", async |_: Context, Region { region }: Region| {
                Ok::<_, mrtr_server::Error>(region)
            }))
            .tool(Tool::new("hidden", "", async |_: Context| "found").visible_to(|caller| {
                caller.principal().is_some_and(|principal| principal.subject() == "alice")
            }))
            .tool(Tool::new("rooted", "", rooted))
            .tool(Tool::new("limited", "", async |_: Context| -> Result<String> {
                let again = mrtr_transport::too_many_requests(Duration::from_secs(7));
                Err(mrtr_server::Error::response(again))
            }))
            .tool(Tool::new("long", "", long))
            .tool(Tool::new("long_task", "", long).task(now()))
            .tool(Tool::new("noted", "", noted).task(now()))
            .tool(Tool::new("later", "", later).task(TaskPolicy::on_detach()))
            .tool(
                Tool::new("failing", "", async |_: Context| -> Result<String> {
                    Err(mrtr_server::Error::new("It fails."))
                })
                .task(now()),
            )
            .build()
            .unwrap();
        let runner = server.clone();
        tokio::spawn(async move { runner.run_tasks().await });
        server
    }

    /// Starts a replica that is shutting down.
    pub(crate) fn draining_endpoint(&self, dialect: Dialect) -> Replica {
        let server = self.server();
        let sealer = server.sealer();
        server.begin_shutdown();
        Replica(DialectEndpoint::new(dialect, server, sealer), None)
    }

    /// Starts a replica whose clients can answer nothing.
    pub(crate) fn endpoint_for_mute_clients(&self, dialect: Dialect) -> Replica {
        self.endpoint_for_clients(dialect, ClientCapabilities::default())
    }

    pub(crate) fn endpoint_for_clients(
        &self,
        dialect: Dialect,
        capabilities: ClientCapabilities,
    ) -> Replica {
        let Replica(endpoint, principal) = self.endpoint(dialect);
        Replica(endpoint.client_capabilities(capabilities), principal)
    }

    pub(crate) fn endpoint_with_limits(&self, dialect: Dialect, limits: RequestLimits) -> Replica {
        let Replica(endpoint, principal) = self.endpoint(dialect);
        Replica(endpoint.limits(limits), principal)
    }

    pub(crate) fn endpoint(&self, dialect: Dialect) -> Replica {
        let server = self.server();
        let sealer = server.sealer();
        Replica(DialectEndpoint::new(dialect, server, sealer), None)
    }
}

/// One replica, and who calls it.
#[derive(Clone)]
pub(crate) struct Replica(DialectEndpoint<Server>, Option<Principal>);

/// A response.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: StatusCode,
    pub(crate) headers: HeaderMap,
    pub(crate) text: String,
}

impl Answer {
    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.text).unwrap_or_else(|_| panic!("not JSON: {self:?}"))
    }

    /// Returns the events, each as name, id and data.
    pub(crate) fn events(&self) -> Vec<(String, String, Value)> {
        let mut events = Vec::new();
        let mut decoder = mrtr_dialects::wire::sse::Decoder::new(1 << 20);
        let all = decoder.push(self.text.as_bytes(), |event| {
            let data = serde_json::from_str(&event.data).unwrap_or(Value::Null);
            events.push((event.name, event.id.unwrap_or_default(), data));
        });
        all.unwrap();
        events
    }
}

impl Replica {
    /// The same replica, called by someone.
    pub(crate) fn by(&self, subject: &str) -> Self {
        let principal = Principal::new("https://login.example", subject);
        Self(self.0.clone(), Some(principal))
    }

    pub(crate) async fn post(&self, message: &Value) -> Answer {
        self.post_with(&[], &message.to_string()).await
    }

    pub(crate) async fn post_with(&self, headers: &[(&str, &str)], body: &str) -> Answer {
        let request = Request::post("/wire")
            .header("host", "localhost")
            .header("content-type", "application/json")
            .header("accept", "application/json, text/event-stream");
        let mut request = request.body(Full::<bytes::Bytes>::from(body.to_owned())).unwrap();
        for (name, value) in headers {
            let name: HeaderName = name.parse().unwrap();
            request.headers_mut().insert(name, value.parse().unwrap());
        }
        if let Some(principal) = &self.1 {
            request.extensions_mut().insert(principal.clone());
        }
        let response = self.0.clone().call(request).await.unwrap();
        let (head, body) = response.into_parts();
        let body = body.collect().await.unwrap().to_bytes();
        let text = String::from_utf8(body.to_vec()).unwrap();
        Answer { status: head.status, headers: head.headers, text }
    }
}

pub(crate) fn call(id: u32, tool: &str) -> Value {
    let params = json!({ "name": tool, "arguments": {} });
    json!({ "jsonrpc": "2.0", "id": id, "method": "tools/call", "params": params })
}

/// The result of an accepted form with one field.
pub(crate) fn accepted(field: &str, value: &str) -> Value {
    json!({ "action": "accept", "content": { field: value } })
}

pub(crate) fn github_login() -> Value {
    json!({
        "method": "elicitation/create",
        "params": {
            "mode": "form",
            "message": "Please provide your GitHub username",
            "requestedSchema": {
                "type": "object",
                "properties": { "name": { "type": "string" } },
                "required": ["name"],
            },
        },
    })
}

pub(crate) fn capital_of_france() -> Value {
    json!({
        "method": "sampling/createMessage",
        "params": {
            "messages": [{
                "role": "user",
                "content": { "type": "text", "text": "What is the capital of France?" },
            }],
            "modelPreferences": {
                "hints": [{ "name": "claude-3-sonnet" }],
                "intelligencePriority": 0.8,
                "speedPriority": 0.5,
            },
            "systemPrompt": "You are a helpful assistant.",
            "maxTokens": 100,
        },
    })
}

pub(crate) fn echo_input() -> Value {
    json!({
        "method": "elicitation/create",
        "params": {
            "mode": "form",
            "message": "Please provide the input string to echo back",
            "requestedSchema": {
                "type": "object",
                "properties": { "input": { "type": "string" } },
                "required": ["input"],
            },
        },
    })
}

pub(crate) fn paris() -> Value {
    json!({
        "role": "assistant",
        "content": { "type": "text", "text": "The capital of France is Paris." },
        "model": "claude-3-sonnet-20240307",
        "stopReason": "endTurn",
    })
}
