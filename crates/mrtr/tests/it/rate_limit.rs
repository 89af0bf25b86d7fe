//! Rate limits over HTTP.

use mrtr::http::{RequestLimits, ServeOptions};
use mrtr::middleware::RateLimit;
use mrtr::{Server, Tool};
use serde_json::json;

use crate::http_wire::{Head, connect, exchange, params, request, serve_server};

#[tokio::test]
async fn request_beyond_the_limit_gets_429_with_the_time_to_wait() {
    let tool = Tool::new("t", "", async || "x").layer(RateLimit::per_minute(1));
    let server = Server::builder("test", "1").tool(tool).allow_anonymous().ephemeral_key();
    let port =
        serve_server(server.build().unwrap(), RequestLimits::default(), ServeOptions::default())
            .await;
    let body = request("tools/call", &params(json!({ "name": "t", "arguments": {} })));
    let mut stream = connect(port).await;
    let call = Head::new("tools/call", Some("t"));
    let (status, _, _) = exchange(&mut stream, "POST", &call, &body).await;
    assert_eq!(status, 200);
    let (status, head, message) = exchange(&mut stream, "POST", &call, &body).await;
    assert_eq!((status, &message["error"]["code"]), (429, &json!(429)));
    let data = &message["error"]["data"];
    assert_eq!(data["reason"], "too_many_requests");
    let ms = data["retryAfterMs"].as_u64().unwrap();
    assert!((1..=60_000).contains(&ms), "{ms}");
    let seconds = ms.div_ceil(1_000);
    assert!(head.contains(&format!("\r\nretry-after: {seconds}\r\n")), "{head}");
}

#[cfg(feature = "legacy")]
#[tokio::test]
async fn legacy_clients_get_the_same_status() {
    use mrtr::legacy::{LegacyOptions, LegacyServer};

    let tool = Tool::new("limited", "", async || "x").layer(RateLimit::per_minute(1));
    let server = Server::builder("test", "1").tool(tool).allow_anonymous().ephemeral_key();
    let server = server.build().unwrap();
    let legacy = LegacyServer::new(server.clone(), server.sealer(), LegacyOptions::default());
    let endpoint = mrtr::http::Endpoint::new(server).legacy(legacy.unwrap());
    let client = crate::legacy_client::LegacyClient::open(&endpoint, "2025-11-25").await;
    assert_eq!(client.call(1, "limited").await.status, 200);
    let refused = client.call(2, "limited").await;
    assert_eq!(refused.status, 429);
    assert_eq!(refused.headers["retry-after"], "60");
}

/// Requests that no tool answers count, too.
#[cfg(feature = "legacy")]
#[tokio::test]
async fn legacy_clients_get_the_same_status_without_a_session() {
    use mrtr::legacy::{LegacyOptions, LegacyServer};

    use crate::legacy_client::{LegacyClient, request};

    let server = Server::builder("test", "1").layer(RateLimit::per_minute(1)).allow_anonymous();
    let server = server.ephemeral_key().build().unwrap();
    let legacy = LegacyServer::new(server.clone(), server.sealer(), LegacyOptions::default());
    let endpoint = mrtr::http::Endpoint::new(server).legacy(legacy.unwrap());
    let client = LegacyClient::open(&endpoint, "2025-11-25").await;
    let info = json!({ "name": "raw", "version": "1" });
    let initialize = request(
        1,
        "initialize",
        json!({ "protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": info }),
    );
    let outside = LegacyClient::new(&endpoint);
    for refused in [client.get(None).await, outside.post(&initialize).await] {
        assert_eq!(refused.status, 429);
        assert_eq!(refused.headers["retry-after"], "60");
    }
}
