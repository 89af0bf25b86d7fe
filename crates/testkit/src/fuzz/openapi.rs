//! OpenAPI documents, and the arguments of their tools.

#![expect(clippy::expect_used, reason = "a fuzz target reports a finding with a panic")]

use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;
use futures_util::FutureExt as _;
use http::{Request, Response};
use mrtr_client::Client;
use mrtr_openapi::{ApiClient, OpenApi, SendError};
use mrtr_schema::Object;
use mrtr_schema::jsonrpc::code;
use mrtr_server::{Server, Tool};
use mrtr_transport::InProcess;

const BASE: &str = "https://api.example/v1/";

/// An API that records where requests go. The server would catch a panic here.
#[derive(Clone, Default)]
struct Recorded(Arc<Mutex<Vec<String>>>);

impl ApiClient for Recorded {
    async fn send(&self, request: Request<Bytes>, _: usize) -> Result<Response<Bytes>, SendError> {
        let mut uris = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        uris.push(request.uri().to_string());
        Ok(Response::default())
    }
}

/// Reads a document, and calls its first tools. The first line of the input is the arguments.
///
/// # Panics
///
/// If a request leaves the base URL.
pub fn openapi(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    let (arguments, document) = text.split_once('\n').unwrap_or(("{}", text));
    let requests = Recorded::default();
    let Ok(api) = OpenApi::new(document, BASE, requests.clone()) else { return };
    let arguments: Object = serde_json::from_str(arguments).unwrap_or_default();
    for tool in api.confirm_when(|_| false).build().tools.into_iter().take(4) {
        call(tool, &arguments);
    }
    for uri in &*requests.0.lock().unwrap_or_else(PoisonError::into_inner) {
        let url = url::Url::parse(uri).expect("the URL of a request");
        // A client parses the URL, and removes `..` then.
        assert!(url.as_str().starts_with(BASE), "{uri}");
    }
}

fn call(tool: Tool, arguments: &Object) {
    let server = Server::builder("api", "1.0.0").allow_anonymous().ephemeral_key().tool(tool);
    // The document may have schemas that the server refuses.
    let Ok(server) = server.build() else { return };
    let client = Client::builder(InProcess::new(server)).build();
    let called = async {
        for tool in client.list_tools().await.expect("a list of tools") {
            // The arguments may be refused. The server answers a panic of a handler with -32603.
            if let Err(error) = client.call_tool(&tool.name, arguments).await {
                let code = error.as_server_error().map(|error| error.code);
                assert_ne!(code, Some(code::INTERNAL_ERROR), "{error}");
            }
        }
    };
    assert!(called.now_or_never().is_some(), "a call waits for something");
}
