//! Rate limits.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use mrtr_middleware::RateLimit;
use mrtr_middleware::rate_limit::{Decision, Quota, RateLimitError, RateLimitStore};
use mrtr_server::{CompletionRequest, Context, FeatureGroup, Prompt, Server, Tool};
use mrtr_transport::retry_after;
use serde_json::{Value, json};
use tokio::task::JoinSet;
use tokio::time::advance;

use crate::support::{Name, answer, ask, call, send, server};

fn echo(name: &str) -> Tool {
    Tool::new(name, "", async || "x")
}

/// Calls a tool as `caller`, and returns the time to wait, if the call is denied.
async fn wait(server: &Server, caller: &str, tool: &str) -> Option<Duration> {
    call(server, Some(caller), tool, json!({})).await.err().map(|e| retry_after(&e).unwrap())
}

#[tokio::test(start_paused = true)]
async fn each_caller_has_a_quota_that_refills() {
    let server = server(|server| server.tool(echo("t").layer(RateLimit::per_minute(2))));
    let half = Duration::from_secs(30);
    for _ in 0..2 {
        assert_eq!(wait(&server, "alice", "t").await, None);
    }
    assert_eq!(wait(&server, "alice", "t").await, Some(half));
    assert_eq!(wait(&server, "bob", "t").await, None, "bob has a quota of his own");
    advance(half).await;
    assert_eq!(wait(&server, "alice", "t").await, None);
    assert_eq!(wait(&server, "alice", "t").await, Some(half));
}

#[tokio::test(start_paused = true)]
async fn handlers_of_denied_calls_do_not_run() {
    let runs = Arc::new(AtomicU32::new(0));
    let counted = Arc::clone(&runs);
    let tool = Tool::new("t", "", move || {
        counted.fetch_add(1, Ordering::Relaxed);
        async { "x" }
    });
    let server = server(|server| server.tool(tool.layer(RateLimit::per_minute(7))));
    let mut calls = JoinSet::new();
    for _ in 0..20 {
        let server = server.clone();
        calls.spawn(async move { wait(&server, "alice", "t").await });
    }
    let waits = calls.join_all().await;
    assert_eq!(waits.iter().filter(|wait| wait.is_none()).count(), 7);
    assert_eq!(runs.load(Ordering::Relaxed), 7);
}

/// A client polls its task, and answers its questions.
#[tokio::test(start_paused = true)]
async fn requests_about_tasks_have_a_limit_of_their_own() {
    let limit = RateLimit::per_minute(1).rounds_per_call(3);
    let server = server(|server| server.tool(echo("t")).layer(limit));
    let about = async |method: &str| {
        let error = send(&server, method, json!({ "taskId": "x" })).await.unwrap_err();
        retry_after(&error).is_some()
    };
    for (method, is_denied) in [
        ("tasks/get", false),
        ("tasks/get", false),
        ("tasks/get", false),
        ("tasks/get", true),
        // Polls do not use up what answers and cancellations need.
        ("tasks/update", false),
        ("tasks/cancel", false),
        ("tasks/update", false),
        ("tasks/update", true),
    ] {
        assert_eq!(about(method).await, is_denied, "{method}");
    }
    call(&server, None, "t", json!({})).await.unwrap();
    call(&server, None, "t", json!({})).await.unwrap_err();
}

#[tokio::test(start_paused = true)]
async fn anonymous_callers_share_a_quota() {
    let server = server(|server| server.tool(echo("t").layer(RateLimit::per_minute(1))));
    assert!(call(&server, None, "t", json!({})).await.is_ok());
    assert!(call(&server, None, "t", json!({})).await.is_err());
    // A principal whose key would be empty, too, does not exist.
    assert_eq!(wait(&server, "", "t").await, None);
}

/// Begins a call, and sends its second round `times` times. Returns the results of those.
async fn rounds(server: &Server, times: usize) -> Vec<bool> {
    let first = call(server, Some("alice"), "ask", json!({})).await.unwrap();
    let mut results = Vec::new();
    for _ in 0..times {
        let round = call(server, Some("alice"), "ask", answer(&first)).await;
        results.push(round.is_ok_and(|result| result["resultType"] == "complete"));
    }
    results
}

#[tokio::test(start_paused = true)]
async fn calls_count_and_not_their_rounds() {
    let limit = RateLimit::per_minute(2);
    let server = server(|server| server.tool(ask().layer(limit)));
    for _ in 0..2 {
        assert_eq!(rounds(&server, 3).await, [true; 3]);
    }
    let error = call(&server, Some("alice"), "ask", json!({})).await.unwrap_err();
    assert_eq!(error.code, 429);
}

/// Users cause completions as they type, before they send the request.
#[tokio::test(start_paused = true)]
async fn completions_have_counters_of_their_own() {
    let prompt = Prompt::new("p", "", async |_: Context, Name { name }: Name| name);
    let prompt = prompt.complete("name", async |_: CompletionRequest| Ok(vec!["Ann".to_owned()]));
    let limit = RateLimit::per_minute(1).rounds_per_call(2);
    let server = server(|server| server.prompt(prompt.layer(limit)));
    let complete = json!({
        "ref": { "type": "ref/prompt", "name": "p" },
        "argument": { "name": "name", "value": "A" },
    });
    let complete = async || send(&server, "completion/complete", complete.clone()).await.is_ok();
    assert_eq!([complete().await, complete().await, complete().await], [true, true, false]);
    let get = json!({ "name": "p", "arguments": { "name": "Ann" } });
    let get = async || send(&server, "prompts/get", get.clone()).await.is_ok();
    assert_eq!([get().await, get().await], [true, false]);
}

/// A client can repeat a round while its state is valid.
#[tokio::test(start_paused = true)]
async fn later_rounds_are_limited_too() {
    let limit = RateLimit::per_minute(1).rounds_per_call(2);
    let server = server(|server| server.tool(ask().layer(limit)));
    assert_eq!(rounds(&server, 4).await, [true, true, false, false]);
    // A state that is invalid counts as a later round, so it evades no limit.
    let forged = call(&server, Some("alice"), "ask", json!({ "requestState": "x" })).await;
    assert_eq!(forged.unwrap_err().code, 429);
}

#[tokio::test(start_paused = true)]
async fn burst_is_what_may_come_at_once() {
    let limit = RateLimit::per_minute(60).burst(2);
    let server = server(|server| server.tool(echo("t").layer(limit)));
    let second = Duration::from_secs(1);
    for _ in 0..2 {
        assert_eq!(wait(&server, "alice", "t").await, None);
    }
    assert_eq!(wait(&server, "alice", "t").await, Some(second));
    advance(second).await;
    assert_eq!(wait(&server, "alice", "t").await, None);
}

#[tokio::test(start_paused = true)]
async fn limit_around_a_group_or_server_is_shared_and_one_around_a_tool_is_not() {
    let group = FeatureGroup::new().tool(echo("a")).tool(echo("b")).layer(RateLimit::per_minute(1));
    let own = || RateLimit::per_minute(1);
    let grouped = server(|server| {
        server.merge(group).tool(echo("c").layer(own())).tool(echo("d").layer(own()))
    });
    assert_eq!(wait(&grouped, "alice", "a").await, None);
    assert!(wait(&grouped, "alice", "b").await.is_some());
    assert_eq!(wait(&grouped, "alice", "c").await, None);
    assert_eq!(wait(&grouped, "alice", "d").await, None);
    let whole = server(|server| server.tool(echo("a")).tool(echo("b")).layer(own()));
    assert_eq!(wait(&whole, "alice", "a").await, None);
    assert!(wait(&whole, "alice", "b").await.is_some());
}

#[tokio::test(start_paused = true)]
async fn key_says_what_is_limited() {
    let by_tool = RateLimit::per_minute(1).key(|request| request.name().unwrap_or_default().into());
    let server = server(|server| server.tool(echo("a")).tool(echo("b")).layer(by_tool));
    assert_eq!(wait(&server, "alice", "a").await, None);
    assert!(wait(&server, "bob", "a").await.is_some());
    assert_eq!(wait(&server, "bob", "b").await, None);
}

/// Otherwise a key would come with two quotas.
#[tokio::test(start_paused = true)]
async fn a_clone_with_other_settings_is_another_limit() {
    let base = RateLimit::per_minute(1);
    let (same, other) = (base.clone(), base.clone().burst(1));
    let server = server(|server| {
        let [a, b, c] = [("a", base), ("b", same), ("c", other)];
        [a, b, c]
            .into_iter()
            .fold(server, |server, (name, limit)| server.tool(echo(name).layer(limit)))
    });
    assert_eq!(wait(&server, "alice", "a").await, None);
    assert!(wait(&server, "alice", "b").await.is_some());
    assert_eq!(wait(&server, "alice", "c").await, None);
}

/// Requests without rounds cannot be counted as later rounds, of which there are more.
#[tokio::test(start_paused = true)]
async fn a_state_in_a_request_without_rounds_evades_no_limit() {
    let server = server(|server| server.tool(echo("t")).layer(RateLimit::per_minute(2)));
    let mut allowed = 0;
    for _ in 0..10 {
        let listed = send(&server, "tools/list", json!({ "requestState": "x" })).await;
        allowed += usize::from(listed.is_ok());
    }
    assert_eq!(allowed, 2);
}

/// A store that cannot be reached.
struct Broken;

impl RateLimitStore for Broken {
    async fn count(&self, _: &str, _: Quota) -> Result<Decision, RateLimitError> {
        Err(RateLimitError::new("no route"))
    }
}

#[tokio::test]
async fn without_its_store_a_limit_allows_or_denies_as_configured() {
    let limit = || RateLimit::per_minute(1).store("orders", Arc::new(Broken));
    let server = server(|server| {
        server
            .tool(echo("open").layer(limit()))
            .tool(echo("closed").layer(limit().deny_on_failure()))
    });
    assert!(call(&server, Some("alice"), "open", json!({})).await.is_ok());
    let error = call(&server, Some("alice"), "closed", json!({})).await.unwrap_err();
    assert_eq!((error.code, &*error.message), (-32603, "Internal error"));
}

/// Records its keys.
#[derive(Default)]
struct Keys(std::sync::Mutex<Vec<(String, u32)>>);

impl RateLimitStore for Keys {
    async fn count(&self, key: &str, quota: Quota) -> Result<Decision, RateLimitError> {
        self.0.lock().unwrap().push((key.to_owned(), quota.burst()));
        Ok(Decision::Allowed)
    }
}

#[tokio::test]
async fn keys_tell_limits_callers_and_rounds_apart() {
    let store = Arc::new(Keys::default());
    let limit = RateLimit::per_minute(3).store("orders", Arc::clone(&store));
    let server = server(|server| server.tool(ask().layer(limit)));
    let first = call(&server, Some("alice"), "ask", json!({})).await.unwrap();
    call(&server, Some("alice"), "ask", answer(&first)).await.unwrap();
    let null: Value = json!({ "requestState": null });
    call(&server, None, "ask", null).await.unwrap();
    let keys = store.0.lock().unwrap().clone();
    assert_eq!(
        keys,
        [
            ("orders:call:21:https://login.examplealice".to_owned(), 3),
            ("orders:round:21:https://login.examplealice".to_owned(), 30),
            ("orders:call:".to_owned(), 3),
        ]
    );
}
