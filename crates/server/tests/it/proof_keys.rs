//! Request states of callers that prove a key.

use mrtr_schema::elicitation::ElicitResult;
use mrtr_server::{Context, Prompt, Server, Tool};
use mrtr_testkit::TestClock;
use mrtr_transport::{InProcess, OutgoingRequest, ProofKey, Transport as _};
use serde_json::{Value, json};

use crate::support::requests::request;
use crate::support::{LogLines, Text, alice, invalid_state, replica, with_meta};

fn server() -> Server {
    let ask = async |cx: Context| -> mrtr_server::Result<String> {
        let first = cx.elicit::<Text>("first", "?").await?.text;
        let second = cx.elicit::<Text>("second", "?").await?.text;
        Ok(format!("{first} {second}"))
    };
    let server = replica(&TestClock::default());
    server.tool(Tool::new("t", "", ask)).prompt(Prompt::new("t", "", ask)).build().unwrap()
}

/// Sends one request of alice, with a key.
async fn send(server: &Server, method: &str, key: Option<&str>, more: &Value) -> Value {
    let mut params = with_meta(json!({ "name": "t" }));
    params.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    let mut server = InProcess::new(server.clone()).with_extension(alice());
    if let Some(key) = key {
        server = server.with_extension(ProofKey::new(key));
    }
    match server.send(OutgoingRequest::new(request(method, &params))).await.unwrap().outcome {
        Ok(result) => serde_json::from_str(result.get()).unwrap(),
        Err(error) => json!({ "error": error }),
    }
}

/// The parameters of the next request: the state of `result`, and an answer to its question.
fn next(result: &Value) -> Value {
    let (key, _) = result["inputRequests"].as_object().unwrap().iter().next().unwrap();
    let answer = ElicitResult::accept(json!({ "text": key })).unwrap();
    json!({ "requestState": result["requestState"], "inputResponses": { key: answer } })
}

#[tokio::test]
async fn state_of_one_key_is_refused_for_another_key_and_without() {
    let (lines, _guard) = LogLines::collect();
    let (one, other) = (server(), server());
    for method in ["tools/call", "prompts/get"] {
        let stolen = next(&send(&one, method, Some("k1"), &json!({})).await);
        for key in [Some("k2"), Some(""), None] {
            assert_eq!(send(&one, method, key, &stolen).await, invalid_state(), "{key:?}");
        }
        // Another replica accepts the key, and binds the next state to it, too.
        let stolen = next(&send(&other, method, Some("k1"), &stolen).await);
        assert_eq!(send(&one, method, Some("k2"), &stolen).await, invalid_state());
        let done = send(&one, method, Some("k1"), &stolen).await;
        assert!(done.to_string().contains("first second"), "{done}");
    }
    assert_eq!(lines.text().matches("reason=\"wrong_key\"").count(), 8);
}

#[tokio::test]
async fn call_that_began_without_a_key_may_continue_with_one_but_not_back() {
    let server = server();
    let send = async |key, more: &Value| send(&server, "tools/call", key, more).await;
    let begun = next(&send(None, &json!({})).await);
    let with_key = next(&send(Some("k1"), &begun).await);
    assert_eq!(send(None, &with_key).await, invalid_state());
    assert_eq!(send(Some("k2"), &with_key).await, invalid_state());
    assert_eq!(send(Some("k1"), &with_key).await["content"][0]["text"], "first second");
    // Without keys, nothing changes.
    let without = next(&send(None, &begun).await);
    assert_eq!(send(None, &without).await["content"][0]["text"], "first second");
}
