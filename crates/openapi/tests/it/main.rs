//! Tools of documents, which a client in memory calls, with an API that records its requests.

#![expect(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test fails by panicking")]

mod documents;
mod forms;
#[cfg(feature = "reqwest")]
mod http_client;
mod multipart;
mod requests;
mod responses;
mod schemas;
#[cfg(feature = "yaml")]
mod yaml;

use std::sync::{Arc, Mutex};

use bytes::Bytes;
use http::{Request, Response};
use mrtr_client::Client;
use mrtr_openapi::{ApiClient, OpenApi, OpenApiTools, SendError};
use mrtr_schema::elicitation::ElicitResult;
use mrtr_server::{Server, ServerBuilder, Tool};
use mrtr_transport::InProcess;
use serde_json::{Value, json};

/// An API that answers `{"ok": true}`, or what the test sets.
#[derive(Clone, Default)]
struct Api {
    requests: Arc<Mutex<Vec<Request<Bytes>>>>,
    answer: Arc<Mutex<Option<Response<Bytes>>>>,
}

impl ApiClient for Api {
    async fn send(&self, request: Request<Bytes>, _: usize) -> Result<Response<Bytes>, SendError> {
        self.requests.lock().unwrap().push(request);
        let answer = self.answer.lock().unwrap().take().unwrap_or_else(|| {
            let json = Response::builder().header("content-type", "application/json");
            json.body(Bytes::from_static(br#"{"ok":true}"#)).unwrap()
        });
        Ok(answer)
    }
}

impl Api {
    /// Returns the requests as lines `METHOD URI`.
    fn lines(&self) -> Vec<String> {
        let requests = self.requests.lock().unwrap();
        requests.iter().map(|request| format!("{} {}", request.method(), request.uri())).collect()
    }
}

/// A document with these paths.
fn document(paths: &Value) -> String {
    json!({ "openapi": "3.1.0", "info": {}, "paths": paths }).to_string()
}

fn openapi(document: &str, api: &Api) -> OpenApi<Api> {
    OpenApi::new(document, "https://api.example/v1", api.clone()).unwrap()
}

/// A document with one operation, which must become a tool.
fn tool_of(method: &str, path: &str, operation: Value, api: &Api) -> Vec<Tool> {
    let mut item = json!({});
    item[method] = operation;
    let mut paths = json!({});
    paths[path] = item;
    let OpenApiTools { tools, skipped, .. } = openapi(&document(&paths), api).build();
    assert!(skipped.is_empty(), "{skipped:?}");
    tools
}

fn serve(tools: Vec<Tool>) -> Server {
    let server = Server::builder("api", "1.0.0").allow_anonymous().ephemeral_key();
    tools.into_iter().fold(server, ServerBuilder::tool).build().unwrap()
}

/// A client whose user answers all forms with `answer`, and what the user was asked.
fn client(
    tools: Vec<Tool>,
    answer: ElicitResult,
) -> (Client<InProcess<Server>>, Arc<Mutex<Vec<String>>>) {
    let asked = Arc::<Mutex<Vec<String>>>::default();
    let seen = Arc::clone(&asked);
    let client = Client::builder(InProcess::new(serve(tools))).on_form(move |_, form| {
        seen.lock().unwrap().push(form.message.clone());
        let answer = answer.clone();
        async move { Ok(answer) }
    });
    (client.build(), asked)
}

fn agreed() -> ElicitResult {
    ElicitResult::accept(json!({ "send": true })).unwrap()
}
