//! Runs the examples that are servers, in memory.

#[path = "../apps/main.rs"]
#[expect(dead_code, reason = "its main function serves until it is stopped")]
mod apps;
#[path = "../authentication.rs"]
#[expect(dead_code, reason = "its main function serves until it is stopped")]
mod authentication;
#[path = "../axum.rs"]
#[expect(dead_code, reason = "its main function serves until it is stopped")]
mod axum_server;
#[path = "../elicit.rs"]
#[expect(dead_code, reason = "its main function serves until it is stopped")]
mod elicit;
#[path = "../hello.rs"]
#[expect(dead_code, reason = "its main function serves until it is stopped")]
mod hello;
#[path = "../stdio.rs"]
#[expect(dead_code, reason = "its main function serves until it is stopped")]
mod stdio;
#[path = "../steps.rs"]
#[expect(dead_code, reason = "its main function serves until it is stopped")]
mod steps;

use std::error::Error;

use mrtr::auth::resource::JwtIssuer;
use mrtr::testing::{Fault, Replicas, TestCall};
use reqwest::header::WWW_AUTHENTICATE;
use serde_json::json;

type Result<T = (), E = Box<dyn Error>> = std::result::Result<T, E>;

#[tokio::test]
async fn hello_greets() -> Result {
    let call = TestCall::tool("hello", json!({ "name": "Ada" }));
    let transcript = call.run(&Replicas::new([hello::server()?])).await?;
    assert_eq!(transcript.text(), "Hello, Ada!");
    Ok(())
}

#[tokio::test]
async fn apps_cancels_an_order_that_the_user_confirms() -> Result {
    let call = TestCall::tool("cancel_order", json!({ "number": 2 }));
    let replicas = Replicas::new([apps::server()?]);
    let transcript = call.answer("reason", json!({ "reason": "Too small" })).run(&replicas).await?;
    let order = &transcript.outcome?["structuredContent"]["orders"][1];
    assert_eq!(order, &json!({ "number": 2, "item": "Two chairs", "cancelled": "Too small" }));
    Ok(())
}

#[tokio::test]
async fn elicit_asks_in_three_rounds() -> Result {
    let call = TestCall::tool("travel", json!({ "city": "Ghent" }))
        .answer("journey", json!({ "by": "train" }))
        .answer("stay", json!({ "nights": 3 }))
        .decline("diet");
    let booked = call.clone().answer("book", json!({ "yes": true }));
    let transcript = booked.run(&Replicas::new([elicit::server()?])).await?;
    assert_eq!(transcript.text(), "Booked: 3 nights in Ghent, by train.");
    assert_eq!(transcript.rounds(), [vec!["journey", "stay"], vec!["diet"], vec!["book"]]);
    let postponed = call.cancel("book").run(&Replicas::new([elicit::server()?])).await?;
    assert_eq!(postponed.text(), "Postponed.");
    Ok(())
}

#[tokio::test]
async fn steps_pay_once_though_a_response_is_lost() -> Result {
    let backend = steps::Backend::default();
    let transcript = TestCall::tool("order", json!({ "euros": 5 }))
        .answer("consent", json!({ "yes": true }))
        .fault(2, Fault::ResponseLost)
        .run(&Replicas::new([steps::server(backend.clone())?]))
        .await?;
    assert!(transcript.text().starts_with("5 € paid: pay-"), "{}", transcript.text());
    assert_eq!((transcript.step_runs("reserve"), transcript.step_runs("pay")), (1, 2));
    assert_eq!((backend.count("pay"), backend.count("release")), (1, 0));

    let refused = TestCall::tool("order", json!({ "euros": 5 })).decline("consent");
    let transcript = refused.run(&Replicas::new([steps::server(backend.clone())?])).await?;
    assert!(transcript.is_error() && transcript.text().contains("released"));
    assert_eq!((backend.count("pay"), backend.count("release")), (1, 1));
    Ok(())
}

#[tokio::test]
async fn the_stdio_server_has_a_tool_a_prompt_and_resources() -> Result {
    let replicas = Replicas::new([stdio::server()?]);
    let count = TestCall::tool("count", json!({ "text": "two words" })).run(&replicas).await?;
    assert_eq!(count.outcome?["structuredContent"], json!({ "words": 2, "characters": 9 }));
    let rewrite = TestCall::prompt("rewrite", json!({ "text": "x" }));
    let rewrite = rewrite.answer("tone", json!({ "tone": "formal" })).run(&replicas).await?;
    assert!(rewrite.outcome?.to_string().contains("in a formal tone: x"));
    for (uri, text) in [("words://readme", "Counts words"), ("words://help/tones", "on tones")] {
        let read = TestCall::resource(uri).run(&replicas).await?;
        assert!(read.outcome?.to_string().contains(text), "{uri}");
    }
    Ok(())
}

#[tokio::test]
async fn the_axum_server_serves_those_with_a_key() -> Result {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await?;
    let origin = format!("http://{}", listener.local_addr()?);
    let app = axum_server::app()?;
    tokio::spawn(async move { axum::serve(listener, app).await });

    let http = reqwest::Client::new();
    for key in [None, Some("made-up")] {
        let mut request = http.post(format!("{origin}/mcp"));
        if let Some(key) = key {
            request = request.bearer_auth(key);
        }
        assert_eq!(request.send().await?.status().as_u16(), 401, "{key:?}");
    }
    assert_eq!(http.get(&origin).send().await?.text().await?, "Booking");
    let alice = mrtr::http::HttpClient::builder(format!("{origin}/mcp")).bearer("key-of-alice")?;
    let alice = mrtr::Client::builder(alice.build()?).build();
    assert_eq!(alice.call_tool("whoami", json!({})).await?.text(), "alice");
    Ok(())
}

/// A key, and tokens that it has signed: with all scopes, with another scope, for another resource.
const KEYS: &str = r#"{"keys":[{"kty":"EC","crv":"P-256","kid":"test","x":"L20ZBAzRz0G0HhvqnzF59imEDd3HC94XgXsGRi1VQXc","y":"8lLWidKTet511y6WsdtXQHatsXqcO3Dn30qYwOf44dw"}]}"#;
const TOKENS: [&str; 3] = [
    "eyJhbGciOiJFUzI1NiIsImtpZCI6InRlc3QiLCJ0eXAiOiJhdCtqd3QifQ.eyJpc3MiOiJodHRwczovL2xvZ2luLmV4YW1wbGUiLCJhdWQiOiJodHRwczovL2Jvb2tpbmcuZXhhbXBsZS9tY3AiLCJzdWIiOiJhbGljZSIsImNsaWVudF9pZCI6ImRlc2stYXBwIiwiaWF0IjoxNzYwMDAwMDAwLCJleHAiOjQxMDI0NDQ4MDAsInNjb3BlIjoiYm9va2luZzp3cml0ZSJ9.ii0KyrWnHBGkAqLrAuQZRVOJ-EDbWhrlWMkEB4gTiDIPlXl5PsQhd9T6i3J4lRrULqyFuoUUclmSLy7APHICiA",
    "eyJhbGciOiJFUzI1NiIsImtpZCI6InRlc3QiLCJ0eXAiOiJhdCtqd3QifQ.eyJpc3MiOiJodHRwczovL2xvZ2luLmV4YW1wbGUiLCJhdWQiOiJodHRwczovL2Jvb2tpbmcuZXhhbXBsZS9tY3AiLCJzdWIiOiJhbGljZSIsImNsaWVudF9pZCI6ImRlc2stYXBwIiwiaWF0IjoxNzYwMDAwMDAwLCJleHAiOjQxMDI0NDQ4MDAsInNjb3BlIjoib3RoZXIifQ.6pKMbKrWrSEkf93UWTPbrkqR0a0L8xRm34FqKz7Pd4Bm6hUYn9LjlN2iPWuE-4TqZ1hCg70xPg1otkzfec97Fw",
    "eyJhbGciOiJFUzI1NiIsImtpZCI6InRlc3QiLCJ0eXAiOiJhdCtqd3QifQ.eyJpc3MiOiJodHRwczovL2xvZ2luLmV4YW1wbGUiLCJhdWQiOiJodHRwczovL290aGVyLmV4YW1wbGUvbWNwIiwic3ViIjoiYWxpY2UiLCJjbGllbnRfaWQiOiJkZXNrLWFwcCIsImlhdCI6MTc2MDAwMDAwMCwiZXhwIjo0MTAyNDQ0ODAwLCJzY29wZSI6ImJvb2tpbmc6d3JpdGUifQ.WlOM5rt8pUGTjRf_UPmdFlY_G6qAGkfeollrf5VqWutWlJ0P_PW9OBKaVwKbJzlsecs56uqfoJTtTEpC2HLzfg",
];

#[tokio::test]
async fn the_authentication_server_serves_those_with_a_token_for_it() -> Result {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await?;
    let origin = format!("http://{}", listener.local_addr()?);
    let issuer = JwtIssuer::new("https://login.example").with_jwks(KEYS);
    tokio::spawn(async move {
        let served = authentication::serve(listener, "https://booking.example/mcp", issuer).await;
        served.map_err(|error| error.to_string())
    });

    let http = reqwest::Client::new();
    for (token, status, error) in [
        (None, 401, r#"Bearer scope="booking:read""#),
        (Some("made-up"), 401, "invalid_token"),
        (Some(TOKENS[1]), 403, "insufficient_scope"),
        (Some(TOKENS[2]), 401, "invalid_token"),
    ] {
        let mut request = http.post(format!("{origin}/mcp"));
        if let Some(token) = token {
            request = request.bearer_auth(token);
        }
        let response = request.send().await?;
        assert_eq!(response.status().as_u16(), status, "{token:?}");
        let challenge = response.headers().get(WWW_AUTHENTICATE).ok_or("no challenge")?.to_str()?;
        assert!(challenge.contains(error) && challenge.contains("resource_metadata="));
    }
    for (host, status) in
        [("booking.example", 400), ("booking.example:8443", 400), ("other.example", 403)]
    {
        let request =
            http.post(format!("{origin}/mcp")).bearer_auth(TOKENS[0]).header("host", host);
        let request = request.header("content-type", "application/json").body("{");
        assert_eq!(request.send().await?.status().as_u16(), status, "{host}");
    }
    let place = format!("{origin}/.well-known/oauth-protected-resource/mcp");
    assert!(http.get(place).send().await?.text().await?.contains("https://login.example"));

    let alice = mrtr::http::HttpClient::builder(format!("{origin}/mcp")).bearer(TOKENS[0])?;
    let alice = mrtr::Client::builder(alice.build()?).build();
    let result = alice.call_tool("whoami", json!({})).await?;
    assert_eq!(result.text(), "alice may booking:write booking:read");
    let alice = mrtr::http::HttpClient::builder(format!("{origin}/mcp")).bearer(TOKENS[0])?;
    let alice = mrtr::Client::builder(alice.build()?)
        .on_form(async |_, _| Ok(mrtr::ElicitResult::accept(json!({ "deposit": true }))?))
        .build();
    let error = alice.call_tool("book", json!({})).await.expect_err("a deposit needs a scope");
    let error = error.as_server_error().ok_or("not an error of the server")?;
    assert!(error.message.contains("booking:write booking:pay"), "{error}");
    Ok(())
}
