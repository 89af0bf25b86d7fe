//! Calls of an endpoint, without a network.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, UNIX_EPOCH};

use aws_lc_rs::signature::{ECDSA_P256_SHA256_FIXED, ParsedPublicKey};
use base64::Engine as _;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use bytes::Bytes;
use http::{HeaderMap, Method, Request};
use http_body_util::{BodyExt as _, Full};
use mrtr_auth::resource::{JwtIssuer, ProtectedResource};
use mrtr_server::{Context, Result, Server, Tool};
use mrtr_transport::http::Endpoint;
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::Value;
use tokio::runtime::Runtime;
use tower_service::Service as _;

use crate::{Operation, call, head, ring};

#[derive(Deserialize, JsonSchema)]
struct Text {
    text: String,
}

#[derive(Deserialize, JsonSchema)]
struct Item {
    item: String,
}

#[derive(Deserialize, JsonSchema)]
struct Order {
    #[schemars(range(min = 1, max = 10))]
    quantity: u32,
}

#[derive(Deserialize, JsonSchema)]
struct Consent {
    yes: bool,
}

async fn say(_: Context, Text { text }: Text) -> Result<String> {
    Ok(text)
}

async fn order(cx: Context, Item { item }: Item) -> Result<String> {
    let Order { quantity } = cx.elicit("quantity", format!("How many of {item}?")).await?;
    Ok(format!("{quantity} x {item}"))
}

async fn count(cx: Context) -> Result<String> {
    for n in 1..=3 {
        cx.progress(f64::from(n), Some(3.0), None);
    }
    Ok("counted".to_owned())
}

#[derive(Deserialize, JsonSchema)]
struct Steps {
    steps: u32,
}

async fn plan(cx: Context, Steps { steps }: Steps) -> Result<String> {
    let mut length = 0;
    for n in 0..steps {
        length += cx.step(format!("step-{n}"), async |_| Ok("x".repeat(98))).await?.len();
    }
    for question in ["first", "second"] {
        let Consent { yes } = cx.elicit(question, "Go on?").await?;
        length += usize::from(yes);
    }
    Ok(length.to_string())
}

async fn trip(cx: Context) -> Result<String> {
    let mut length = 0;
    for half in 0..2 {
        for n in 0..5 {
            let step = async |_| Ok("x".repeat(100));
            length += cx.step(format!("step-{half}-{n}"), step).await?.len();
        }
        let Consent { yes } = cx.elicit(format!("consent-{half}"), "Go on?").await?;
        length += usize::from(yes);
    }
    Ok(length.to_string())
}

struct Caller {
    endpoint: Endpoint<Server>,
    runtime: Runtime,
}

impl Caller {
    fn new(tools: usize) -> Self {
        let server = Server::builder("bench", "1").key_ring(ring()).allow_anonymous();
        let server = server
            .tool(Tool::new("echo", "Says it again", say))
            .tool(Tool::new("order", "Orders something", order))
            .tool(Tool::new("count", "Counts to three", count))
            .tool(Tool::new("plan", "Does so many steps", plan))
            .tool(Tool::new("trip", "Does ten steps in two halves", trip));
        let numbered = (1..=tools).map(|n| Tool::new(format!("tool-{n}"), "Does one thing", say));
        let server = numbered.fold(server, mrtr_server::ServerBuilder::tool).build().unwrap();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
        Self { endpoint: Endpoint::new(server), runtime }
    }

    fn call(&mut self, head: &HeaderMap, body: &Bytes) -> Bytes {
        let mut request = Request::new(Full::new(body.clone()));
        *request.method_mut() = Method::POST;
        *request.headers_mut() = head.clone();
        let endpoint = &mut self.endpoint;
        self.runtime.block_on(async {
            let response = endpoint.call(request).await.unwrap();
            response.into_body().collect().await.unwrap().to_bytes()
        })
    }

    /// Returns the state of a response with a question.
    fn state(&mut self, head: &HeaderMap, body: &Bytes) -> String {
        let answer: Value = serde_json::from_slice(&self.call(head, body)).unwrap();
        answer.pointer("/result/requestState").unwrap().as_str().unwrap().to_owned()
    }
}

fn with(key: &str, content: &str, state: &str) -> String {
    format!(
        r#""inputResponses":{{"{key}":{{"action":"accept","content":{content}}}}},"requestState":"{state}","#
    )
}

/// A call of one round.
pub fn echo() -> Operation {
    let mut caller = Caller::new(0);
    let head = head("tools/call", "echo");
    let body = call("echo", r#"{"text":"The quick brown fox jumps over the lazy dog"}"#, "");
    Box::new(move || assert!(caller.call(&head, &body).ends_with(b"}")))
}

/// The public key of a test, and a token that it has verified.
const KEYS: &str = r#"{"keys":[{"kty":"EC","crv":"P-256","kid":"test","x":"L20ZBAzRz0G0HhvqnzF59imEDd3HC94XgXsGRi1VQXc","y":"8lLWidKTet511y6WsdtXQHatsXqcO3Dn30qYwOf44dw"}]}"#;
const TOKEN: &str = "eyJhbGciOiJFUzI1NiIsImtpZCI6InRlc3QiLCJ0eXAiOiJhdCtqd3QifQ.eyJpc3MiOiJodHRwczovL2xvZ2luLmV4YW1wbGUiLCJhdWQiOiJodHRwczovL2Jvb2tpbmcuZXhhbXBsZS9tY3AiLCJzdWIiOiJhbGljZSIsImNsaWVudF9pZCI6ImRlc2stYXBwIiwiaWF0IjoxNzYwMDAwMDAwLCJleHAiOjQxMDI0NDQ4MDAsInNjb3BlIjoiYm9va2luZzp3cml0ZSJ9.ii0KyrWnHBGkAqLrAuQZRVOJ-EDbWhrlWMkEB4gTiDIPlXl5PsQhd9T6i3J4lRrULqyFuoUUclmSLy7APHICiA";

/// A call of one round behind OAuth. `clock` advances from call to call.
fn protected_echo(clock: impl Fn() -> u64 + Send + Sync + 'static) -> Operation {
    let issuer = JwtIssuer::new("https://login.example").with_jwks(KEYS);
    let resource = ProtectedResource::builder("https://booking.example/mcp").issuer(issuer);
    let resource =
        resource.clock(move || UNIX_EPOCH + Duration::from_secs(clock())).build().unwrap();
    let Caller { endpoint, runtime } = Caller::new(0);
    let mut service = resource.protect(endpoint);
    let mut head = head("tools/call", "echo");
    head.insert("authorization", format!("Bearer {TOKEN}").parse().unwrap());
    let body = call("echo", r#"{"text":"The quick brown fox jumps over the lazy dog"}"#, "");
    Box::new(move || {
        let mut request = Request::new(Full::new(body.clone()));
        *request.method_mut() = Method::POST;
        *request.headers_mut() = head.clone();
        let response = runtime.block_on(async {
            let response = service.call(request).await.unwrap();
            response.into_body().collect().await.unwrap().to_bytes()
        });
        assert!(response.ends_with(b"}}"));
    })
}

/// A call of one round, whose token was verified before.
pub fn authorized_echo() -> Operation {
    protected_echo(|| 1_800_000_000)
}

/// A call of one round, whose token is verified.
pub fn verified_echo() -> Operation {
    let now = AtomicU64::new(1_800_000_000);
    protected_echo(move || now.fetch_add(100, Ordering::Relaxed))
}

/// The check of a token's signature alone, by the library, with a prepared key.
pub fn signature() -> Operation {
    let key: Value = serde_json::from_str(KEYS).unwrap();
    let decode = |text: &str| BASE64_URL_SAFE_NO_PAD.decode(text).unwrap();
    let [x, y] = ["x", "y"].map(|name| decode(key["keys"][0][name].as_str().unwrap()));
    let key = ParsedPublicKey::new(&ECDSA_P256_SHA256_FIXED, [vec![4], x, y].concat()).unwrap();
    let (message, signature) = TOKEN.rsplit_once('.').unwrap();
    let signature = decode(signature);
    Box::new(move || key.verify_sig(message.as_bytes(), &signature).unwrap())
}

/// A call of two rounds, with a form.
pub fn two_rounds() -> Operation {
    let mut caller = Caller::new(0);
    let (head, tea) = (head("tools/call", "order"), r#"{"item":"tea"}"#);
    let first = call("order", tea, "");
    let state = caller.state(&head, &first);
    let second = call("order", tea, &with("quantity", r#"{"quantity":3}"#, &state));
    Box::new(move || {
        assert!(caller.call(&head, &first).ends_with(b"}"));
        assert!(caller.call(&head, &second).ends_with(b"}"));
    })
}

/// Three progress notifications and a result, as events.
pub fn progress() -> Operation {
    let mut caller = Caller::new(0);
    let head = head("tools/call", "count");
    let body = call("count", "{}", "").to_vec();
    let body =
        String::from_utf8(body).unwrap().replace(r#""_meta":{"#, r#""_meta":{"progressToken":1,"#);
    let body = Bytes::from(body);
    Box::new(move || assert!(caller.call(&head, &body).ends_with(b"\n\n")))
}

/// A list of 200 tools.
pub fn list() -> Operation {
    let mut caller = Caller::new(195);
    let head = head("tools/list", "");
    let body = String::from_utf8(call("", "{}", "").to_vec()).unwrap();
    let body = body.replace("tools/call", "tools/list").replace(r#""name":"","arguments":{},"#, "");
    let body = Bytes::from(body);
    Box::new(move || assert!(caller.call(&head, &body).ends_with(b"}")))
}

/// A call of three rounds, each with a replay of the steps before it, that runs ten steps.
pub fn steps() -> Operation {
    let mut caller = Caller::new(0);
    let head = head("tools/call", "trip");
    let first = call("trip", "{}", "");
    let next = |key: &str, state: &str| call("trip", "{}", &with(key, r#"{"yes":true}"#, state));
    let second = next("consent-0", &caller.state(&head, &first));
    let third = next("consent-1", &caller.state(&head, &second));
    Box::new(move || {
        for body in [&first, &second, &third] {
            assert!(caller.call(&head, body).ends_with(b"}"));
        }
    })
}

/// Opens a state with `steps` results of 100 bytes, replays the handler, and seals the state with
/// one more answer.
pub fn round(steps: u32) -> Operation {
    let mut caller = Caller::new(0);
    let (head, arguments) = (head("tools/call", "plan"), format!(r#"{{"steps":{steps}}}"#));
    let state = caller.state(&head, &call("plan", &arguments, ""));
    let body = call("plan", &arguments, &with("first", r#"{"yes":true}"#, &state));
    Box::new(move || assert!(caller.call(&head, &body).ends_with(b"}")))
}
