//! OpenAPI documents, and the arguments of their tools.

#![expect(clippy::expect_used, reason = "a fuzz target reports a finding with a panic")]

use bytes::Bytes;
use futures_util::FutureExt as _;
use http::{Request, Response};
use mrtr_client::Client;
use mrtr_openapi::{ApiClient, OpenApi, SendError};
use mrtr_schema::Object;
use mrtr_server::{Server, Tool};
use mrtr_transport::InProcess;

const BASE: &str = "https://api.example/v1/";

/// An API that checks where requests go.
struct Checked;

impl ApiClient for Checked {
    async fn send(&self, request: Request<Bytes>, _: usize) -> Result<Response<Bytes>, SendError> {
        let uri = request.uri().to_string();
        let url = url::Url::parse(&uri).expect("the URL of a request");
        // A client parses the URL, and removes `..` then.
        assert!(url.as_str().starts_with(BASE), "{uri}");
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
    let Ok(api) = OpenApi::new(document, BASE, Checked) else { return };
    let arguments: Object = serde_json::from_str(arguments).unwrap_or_default();
    for tool in api.confirm_when(|_| false).build().tools.into_iter().take(4) {
        call(tool, &arguments);
    }
}

fn call(tool: Tool, arguments: &Object) {
    let server = Server::builder("api", "1.0.0").allow_anonymous().ephemeral_key().tool(tool);
    // The document may have schemas that the server refuses.
    let Ok(server) = server.build() else { return };
    let client = Client::builder(InProcess::new(server)).build();
    let called = async {
        for tool in client.list_tools().await.expect("a list of tools") {
            // The arguments may be refused.
            let _ = client.call_tool(&tool.name, arguments).await;
        }
    };
    assert!(called.now_or_never().is_some(), "a call waits for something");
}
