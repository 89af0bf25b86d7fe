//! The endpoint in somebody else's router, under somebody else's layers.

use axum::Router;
use axum::extract::Request;
use axum::middleware::{Next, from_fn};
use mrtr::http::Endpoint;
use mrtr::{Context, Principal, Server, Tool};
use serde_json::json;

#[tokio::test]
async fn an_authentication_layer_of_axum_says_who_calls() {
    let who = async |cx: Context| cx.principal().map_or("nobody", |p| p.subject()).to_owned();
    let server = Server::builder("test", "1")
        .require_principal()
        .ephemeral_key()
        .tool(Tool::new("who", "Who calls", who))
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

    let stranger = mrtr::connect(&url).unwrap().build();
    let refused = stranger.call_tool("who", json!({})).await.unwrap_err();
    assert_eq!(refused.as_server_error().unwrap().code, -32600);

    let header = http::HeaderValue::from_static("Bearer x");
    let known = mrtr::http::HttpClient::builder(&url)
        .header(http::header::AUTHORIZATION, header)
        .build()
        .unwrap();
    let result = mrtr::Client::builder(known).build().call_tool("who", json!({})).await.unwrap();
    assert_eq!(result.text(), "alice");
}
