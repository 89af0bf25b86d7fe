//! Clients of any revision, with a server that runs as a child process.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use mrtr::client::TransportError;
use mrtr::legacy::{AnyRevisionChild, RevisionMode};
use mrtr::stdio::{ChildConnection, ChildServer};
use mrtr::{Client, ClientBuilder, ElicitResult};
use serde_json::json;

fn server() -> ChildServer {
    ChildServer::new(env!("CARGO_BIN_EXE_interop-server"), ["--stdio"])
}

fn in_mode(mode: RevisionMode) -> ClientBuilder<AnyRevisionChild> {
    Client::builder(AnyRevisionChild::new(server(), mode))
}

#[tokio::test]
async fn child_of_the_current_revision_is_recognized() {
    let client = Client::builder(ChildConnection::new(server())).build();
    assert_eq!(client.protocol_version(), None);
    let sum = client.call_tool("add", json!({ "a": 2, "b": 3 })).await.unwrap();
    assert_eq!((sum.text().as_str(), client.protocol_version()), ("5", Some("2026-07-28")));
    client.transport().shutdown(Duration::from_secs(5)).await;
}

/// The server is one of all revisions: the client chooses a legacy one.
#[tokio::test]
async fn calls_over_a_legacy_session_ask_and_report_progress() {
    let questions = Arc::<Mutex<Vec<String>>>::default();
    let asked = Arc::clone(&questions);
    let client = in_mode(RevisionMode::Legacy)
        .on_form(move |_, form| {
            asked.lock().unwrap().push(form.message.clone());
            let answer = match form.requested_schema.fields.first() {
                Some(field) => json!({ field.name.as_str(): "Ada" }),
                None => json!({}),
            };
            std::future::ready(ElicitResult::accept(answer).map_err(Into::into))
        })
        .build();
    let named = client.call_tool("form", json!({})).await.unwrap();
    assert_eq!(
        (named.text().as_str(), client.protocol_version()),
        ("Hello, Ada!", Some("2025-11-25"))
    );
    let joined = client.call_tool("joined", json!({})).await.unwrap();
    assert_eq!(joined.text(), "Ada Ada");
    assert_eq!(*questions.lock().unwrap(), ["What is your name?", "First name?", "Last name?"]);
    let steps = Arc::<Mutex<Vec<f64>>>::default();
    let seen = Arc::clone(&steps);
    let counting = client.with_progress(move |step| seen.lock().unwrap().push(step.progress));
    assert_eq!(counting.call_tool("count", json!({})).await.unwrap().text(), "counted");
    assert_eq!(*steps.lock().unwrap(), [1.0, 2.0, 3.0]);
    client.transport().shutdown(Duration::from_secs(5)).await;
}

#[tokio::test]
async fn process_that_has_exited_is_started_and_opened_again() {
    let client = in_mode(RevisionMode::Legacy).build();
    for _ in 0..2 {
        let sum = client.call_tool("add", json!({ "a": 2, "b": 3 })).await.unwrap();
        assert_eq!(sum.text(), "5");
        client.transport().shutdown(Duration::from_secs(5)).await;
    }
}

/// A program that answers nothing, and one that cannot be started.
#[tokio::test]
async fn program_that_is_not_a_server_is_an_error() {
    let missing = ChildServer::new("/nonexistent/program", [""; 0]);
    let client = Client::builder(ChildConnection::new(missing)).build();
    let error = client.call_tool("add", json!({})).await.unwrap_err();
    assert!(error.as_transport_error().is_some_and(TransportError::is_not_sent), "{error}");
}
