//! A raw client of a legacy revision, which calls an endpoint without a socket.

use std::collections::VecDeque;
use std::time::Duration;

use http::{HeaderMap, Request, Response, StatusCode};
use http_body_util::{BodyExt as _, Full};
use mrtr::http::{Endpoint, ResponseBody};
use mrtr::{Principal, Server};
use serde_json::{Value, json};
use tower_service::Service as _;

/// A session of a legacy client.
#[derive(Clone)]
pub(crate) struct LegacyClient {
    pub(crate) endpoint: Endpoint<Server>,
    pub(crate) session: Option<String>,
    pub(crate) principal: Option<Principal>,
    /// What a layer in front of the endpoint attaches to its requests.
    pub(crate) extensions: http::Extensions,
    pub(crate) version: &'static str,
}

impl LegacyClient {
    /// Creates a client without a session.
    pub(crate) fn new(endpoint: &Endpoint<Server>) -> Self {
        let endpoint = endpoint.clone();
        let extensions = http::Extensions::new();
        Self { endpoint, session: None, principal: None, extensions, version: "2025-11-25" }
    }

    /// Opens a session with all capabilities of the version.
    pub(crate) async fn open(endpoint: &Endpoint<Server>, version: &'static str) -> Self {
        let capabilities = json!({
            "elicitation": { "form": {}, "url": {} }, "sampling": {}, "roots": { "listChanged": true },
        });
        let mut client = Self { version, ..Self::new(endpoint) };
        let result = client.initialize(version, capabilities).await;
        assert_eq!(result["result"]["protocolVersion"], version, "{result}");
        client
    }

    /// Sends `initialize`, and keeps the session.
    pub(crate) async fn initialize(&mut self, version: &str, capabilities: Value) -> Value {
        let info = json!({ "name": "raw", "version": "1" });
        let params = json!({
            "protocolVersion": version, "capabilities": capabilities, "clientInfo": info,
        });
        let response = self.post(&request(0, "initialize", params)).await;
        let session = response.headers.get("mcp-session-id");
        self.session = session.map(|session| session.to_str().unwrap().to_owned());
        response.json().await
    }

    /// Sends a request with these headers and this body.
    pub(crate) async fn send(&self, request: http::request::Builder, body: String) -> Incoming {
        let mut request = request.uri("/mcp").header("host", "localhost");
        if let Some(session) = &self.session {
            request = request.header("mcp-session-id", session);
            request = request.header("mcp-protocol-version", self.version);
        }
        let mut request = request.body(Full::new(bytes::Bytes::from(body))).unwrap();
        if let Some(principal) = &self.principal {
            request.extensions_mut().insert(principal.clone());
        }
        request.extensions_mut().extend(self.extensions.clone());
        let response = self.endpoint.clone().call(request).await.unwrap();
        Incoming::new(response)
    }

    /// Posts a message.
    pub(crate) async fn post(&self, message: &Value) -> Incoming {
        let request = Request::post("/mcp")
            .header("content-type", "application/json")
            .header("accept", "application/json, text/event-stream");
        self.send(request, message.to_string()).await
    }

    /// Calls a tool without arguments.
    pub(crate) async fn call(&self, id: i64, tool: &str) -> Incoming {
        self.post(&request(id, "tools/call", json!({ "name": tool, "arguments": {} }))).await
    }

    /// Answers a request of the server, and returns the status.
    pub(crate) async fn answer(&self, question: &Value, result: Value) -> StatusCode {
        let answer = json!({ "jsonrpc": "2.0", "id": question["id"], "result": result });
        self.post(&answer).await.status
    }

    /// Accepts a form with one text.
    pub(crate) async fn accept(&self, question: &Value, text: &str) -> StatusCode {
        let content = json!({ "text": text });
        self.answer(question, json!({ "action": "accept", "content": content })).await
    }

    /// Opens an event stream: from the last event id, or for changes.
    pub(crate) async fn get(&self, last_event_id: Option<&str>) -> Incoming {
        let mut request = Request::get("/mcp").header("accept", "text/event-stream");
        if let Some(id) = last_event_id {
            request = request.header("last-event-id", id);
        }
        self.send(request, String::new()).await
    }

    pub(crate) async fn delete(&self) -> StatusCode {
        self.send(Request::delete("/mcp"), String::new()).await.status
    }
}

#[expect(clippy::needless_pass_by_value, reason = "tests pass `json!` literals")]
pub(crate) fn request(id: i64, method: &str, params: Value) -> Value {
    json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params })
}

/// An event of a stream.
#[derive(Debug, Clone)]
pub(crate) struct Event {
    pub(crate) id: Option<String>,
    pub(crate) data: Value,
}

/// A response: JSON, or events.
pub(crate) struct Incoming {
    pub(crate) status: StatusCode,
    pub(crate) headers: HeaderMap,
    body: ResponseBody,
    text: String,
    events: VecDeque<Event>,
    /// The id of the last event, with or without data.
    pub(crate) last_id: Option<String>,
}

impl Incoming {
    fn new(response: Response<ResponseBody>) -> Self {
        let (head, body) = response.into_parts();
        Self {
            status: head.status,
            headers: head.headers,
            body,
            text: String::new(),
            events: VecDeque::new(),
            last_id: None,
        }
    }

    pub(crate) fn is_stream(&self) -> bool {
        self.headers.get("content-type").is_some_and(|kind| kind == "text/event-stream")
    }

    /// Reads a JSON body.
    pub(crate) async fn json(self) -> Value {
        assert!(!self.is_stream(), "an event stream");
        let bytes = self.body.collect().await.unwrap().to_bytes();
        if bytes.is_empty() { Value::Null } else { serde_json::from_slice(&bytes).unwrap() }
    }

    /// Reads the next event that has data; `None` at the end of the stream.
    pub(crate) async fn next(&mut self) -> Option<Event> {
        loop {
            if let Some(event) = self.events.pop_front() {
                if event.data.is_null() {
                    continue;
                }
                return Some(event);
            }
            // A test that would wait for ever fails.
            let frame = tokio::time::timeout(Duration::from_mins(1), self.body.frame()).await;
            let data = frame.unwrap()?.unwrap().into_data().unwrap();
            self.text.push_str(std::str::from_utf8(&data).unwrap());
            while let Some(end) = self.text.find("\n\n") {
                let event: String = self.text.drain(..end + 2).collect();
                let field = |name: &str| {
                    event.lines().find_map(|line| line.strip_prefix(name)).map(str::to_owned)
                };
                let data = field("data: ").unwrap_or_default();
                let data = serde_json::from_str(&data).unwrap_or_default();
                let id = field("id: ");
                self.last_id = id.clone().or(self.last_id.take());
                self.events.push_back(Event { id, data });
            }
        }
    }

    /// Returns the text of the first frame.
    pub(crate) async fn first_frame(mut self) -> String {
        let data = self.body.frame().await.unwrap().unwrap().into_data().unwrap();
        String::from_utf8(data.to_vec()).unwrap()
    }

    /// Reads the next event with data, if there is one by then.
    pub(crate) async fn next_within(&mut self, time: Duration) -> Option<Event> {
        tokio::time::timeout(time, self.next()).await.ok().flatten()
    }

    /// Reads the next event with data, which must exist.
    pub(crate) async fn event(&mut self) -> Event {
        self.next().await.unwrap()
    }

    /// Reads the response of a call: the only JSON, or the last event.
    pub(crate) async fn response(mut self) -> Value {
        if !self.is_stream() {
            return self.json().await;
        }
        let response = self.event().await.data;
        assert!(response.get("method").is_none(), "{response}");
        assert!(self.next().await.is_none(), "the stream continues after {response}");
        response
    }
}
