//! The endpoint in a router of axum, behind a layer of axum.

use axum::Router;
use axum::extract::Request;
use axum::middleware::{Next, from_fn};
use mrtr::http::Endpoint;
use mrtr::{Context, Principal, Server, Tool};
use serde_json::json;

#[tokio::test]
async fn principal_of_an_axum_layer_reaches_the_handler() {
    let whoami = async |cx: Context| cx.principal().map_or("anonymous", |p| p.subject()).to_owned();
    let server = Server::builder("test", "1")
        .require_principal()
        .ephemeral_key()
        .tool(Tool::new("whoami", "Returns the caller", whoami))
        .build()
        .unwrap();
    let authenticate = from_fn(async |mut request: Request, next: Next| {
        if request.headers().contains_key("authorization") {
            request.extensions_mut().insert(Principal::new("https://login.example", "alice"));
        }
        next.run(request).await
    });
    let app = Router::new().route_service("/api/mcp", Endpoint::new(server)).layer(authenticate);
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/api/mcp", listener.local_addr().unwrap());
    tokio::spawn(async move { axum::serve(listener, app).await });

    let anonymous = mrtr::connect(&url).unwrap().build();
    let error = anonymous.call_tool("whoami", json!({})).await.unwrap_err();
    assert_eq!(error.as_server_error().unwrap().code, -32600);

    let header = http::HeaderValue::from_static("Bearer x");
    let http = mrtr::http::HttpClient::builder(&url)
        .header(http::header::AUTHORIZATION, header)
        .build()
        .unwrap();
    let result = mrtr::Client::builder(http).build().call_tool("whoami", json!({})).await.unwrap();
    assert_eq!(result.text(), "alice");
}
