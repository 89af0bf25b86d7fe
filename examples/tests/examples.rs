//! Runs the examples that are servers, in memory.

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
async fn the_axum_server_serves_those_with_a_token_for_it() -> Result {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await?;
    let origin = format!("http://{}", listener.local_addr()?);
    let app = axum_server::app()?;
    tokio::spawn(async move { axum::serve(listener, app).await });

    let http = reqwest::Client::new();
    for (token, status, error) in [
        (None, 401, "Bearer scope="),
        (Some("made-up"), 401, "invalid_token"),
        (Some("token-for-another-server"), 401, "invalid_token"),
        (Some("token-of-bob"), 403, "insufficient_scope"),
    ] {
        let mut request = http.post(format!("{origin}/mcp"));
        if let Some(token) = token {
            request = request.bearer_auth(token);
        }
        let response = request.send().await?;
        let challenge = response.headers().get(WWW_AUTHENTICATE).ok_or("no challenge")?.to_str()?;
        assert!(challenge.contains(error) && challenge.contains("resource_metadata="));
        assert_eq!(response.status().as_u16(), status, "{token:?}");
    }
    let place = format!("{origin}/.well-known/oauth-protected-resource/mcp");
    assert!(http.get(place).send().await?.text().await?.contains("https://login.example"));

    let alice =
        mrtr::http::HttpClient::builder(format!("{origin}/mcp")).bearer("token-of-alice")?;
    let alice = mrtr::Client::builder(alice.build()?).build();
    let result = alice.call_tool("whoami", json!({})).await?;
    assert_eq!(result.text(), "alice may booking:read booking:write");
    Ok(())
}
