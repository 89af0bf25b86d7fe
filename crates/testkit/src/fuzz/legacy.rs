//! Input from legacy clients: a session over HTTP.

#![expect(
    clippy::expect_used,
    clippy::indexing_slicing,
    reason = "a fuzz target reports a finding with a panic"
)]

use std::time::Duration;

use http::{HeaderMap, HeaderValue, Method, Request, header};
use http_body_util::{BodyExt as _, Full};
use mrtr_legacy::{LegacyOptions, LegacyServer};
use mrtr_server::Server;
use mrtr_transport::http::{Endpoint, ResponseBody};
use serde_json::{Value, json};
use tokio::time::timeout;
use tower_service::Service as _;

use super::protocol::{builder, default_head};

/// The most requests in one input.
const MAX_LINES: usize = 32;

/// Serves a session of a legacy client. The first line is the version of `initialize`. Each other
/// line is a request: `GET`, a space and an event id, or `DELETE`, or the body of a POST. `$id`
/// stands for the id of the last request of the server, and `$event` for the last event id.
///
/// # Panics
///
/// If a response is not one of the protocol, the server fails, or the session leaves state behind.
pub fn legacy(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    let mut runtime = tokio::runtime::Builder::new_current_thread();
    let runtime = runtime.enable_time().start_paused(true).build().expect("a runtime");
    runtime.block_on(run(text));
}

async fn run(text: &str) {
    let server = builder().build().expect("a server");
    let legacy = LegacyServer::new(server.clone(), server.sealer(), LegacyOptions::default());
    let legacy = legacy.expect("random numbers");
    let mut client = Client {
        endpoint: Endpoint::new(server).legacy(legacy.clone()),
        session: None,
        last_question: String::new(),
        last_event: String::new(),
        streams: Vec::new(),
    };
    let mut lines = text.lines();
    let info = json!({ "name": "fuzz", "version": "1" });
    let params = json!({
        "protocolVersion": lines.next().unwrap_or_default(), "clientInfo": info,
        "capabilities": { "elicitation": {}, "sampling": {}, "roots": {} },
    });
    let opening = json!({ "jsonrpc": "2.0", "id": 0, "method": "initialize", "params": params });
    client.send(Method::POST, None, opening.to_string()).await;
    for line in lines.take(MAX_LINES) {
        let line = line.replace("$id", &client.last_question).replace("$event", &client.last_event);
        match line.split_once(' ').unwrap_or((&line, "")) {
            ("GET", event_id) => {
                client.send(Method::GET, HeaderValue::from_str(event_id).ok(), String::new()).await;
            }
            ("DELETE", "") => client.send(Method::DELETE, None, String::new()).await,
            _ => client.send(Method::POST, None, line).await,
        }
        client.read_streams().await;
    }
    // A log level and subscriptions last until the session is ended.
    client.send(Method::DELETE, None, String::new()).await;
    drop(client);
    tokio::time::sleep(Duration::from_mins(1)).await;
    let left = format!("{legacy:?}");
    assert!(left.contains("active_sessions: 0"), "{left}");
}

struct Client {
    endpoint: Endpoint<Server>,
    session: Option<HeaderValue>,
    last_question: String,
    last_event: String,
    streams: Vec<ResponseBody>,
}

impl Client {
    async fn send(&mut self, method: Method, event_id: Option<HeaderValue>, body: String) {
        let mut request = Request::new(Full::from(body));
        *request.method_mut() = method;
        *request.headers_mut() = self.head(event_id);
        let Ok(response) = self.endpoint.call(request).await;
        let status = response.status();
        let known = [200, 202, 204, 400, 404, 405].contains(&status.as_u16());
        assert!(known, "{status} is not a status of the protocol");
        if let Some(session) = response.headers().get("mcp-session-id") {
            self.session = Some(session.clone());
        }
        let kind = response.headers().get(header::CONTENT_TYPE).cloned();
        let mut body = response.into_body();
        if kind.is_some_and(|kind| kind == "text/event-stream") {
            self.streams.push(body);
            return;
        }
        let mut bytes = Vec::new();
        while let Some(frame) = body.frame().await {
            bytes.extend_from_slice(&frame.expect("a frame").into_data().expect("data"));
        }
        if !bytes.is_empty() {
            check_message(&serde_json::from_slice(&bytes).expect("JSON"));
        }
    }

    fn head(&self, event_id: Option<HeaderValue>) -> HeaderMap {
        let mut head = default_head();
        if let Some(session) = &self.session {
            head.insert("mcp-session-id", session.clone());
        }
        if let Some(event_id) = event_id {
            head.insert("last-event-id", event_id);
        }
        head
    }

    /// Reads what has arrived on the streams.
    async fn read_streams(&mut self) {
        let streams = std::mem::take(&mut self.streams);
        for mut stream in streams {
            // Every frame is a whole event.
            loop {
                match timeout(Duration::from_millis(10), stream.frame()).await {
                    Ok(Some(frame)) => {
                        let data = frame.expect("a frame").into_data().expect("data");
                        self.read_event(std::str::from_utf8(&data).expect("UTF-8"));
                    }
                    Ok(None) => break,
                    Err(_) => {
                        self.streams.push(stream);
                        break;
                    }
                }
            }
        }
    }

    fn read_event(&mut self, event: &str) {
        for line in event.lines() {
            if let Some(id) = line.strip_prefix("id: ") {
                id.clone_into(&mut self.last_event);
            } else if let Some(data) = line.strip_prefix("data: ")
                && !data.is_empty()
            {
                let message: Value = serde_json::from_str(data).expect("JSON");
                check_message(&message);
                if let (Some(id), Some(_)) = (message["id"].as_str(), message.get("method")) {
                    id.clone_into(&mut self.last_question);
                }
            }
        }
    }
}

fn check_message(message: &Value) {
    assert_eq!(message["jsonrpc"], "2.0", "{message}");
    assert_ne!(message["error"]["message"], "Internal error", "{message}");
}
