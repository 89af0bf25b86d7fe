//! The cache of results.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;

use futures_util::StreamExt;
use mrtr_client::{CallEvent, Client, OutgoingRequest, Transport, TransportError};
use mrtr_schema::Object;
use mrtr_schema::capabilities::ClientCapabilities;
use mrtr_schema::elicitation::ElicitResult;
use mrtr_schema::jsonrpc::{ErrorObject, Notification, Response, code};
use mrtr_schema::subscription::SubscriptionFilter;
use serde_json::{Value, json};
use tokio::time::advance;

use crate::{ReceivedRequest, Reply, ScriptedServer};

/// Returns lists of one page and resources of one text, all fresh for a minute.
fn fresh_result(received: &ReceivedRequest) -> Value {
    let mut result = match received.method.as_str() {
        "server/discover" => json!({ "supportedVersions": ["2026-07-28"], "capabilities": {} }),
        "tools/call" => json!({ "content": [] }),
        "resources/read" => {
            json!({ "contents": [{ "uri": received.params.get("uri"), "text": "x" }] })
        }
        "tools/list" => json!({ "tools": [] }),
        "prompts/list" => json!({ "prompts": [] }),
        "resources/list" => json!({ "resources": [] }),
        "resources/templates/list" => json!({ "resourceTemplates": [] }),
        other => panic!("unexpected method {other}"),
    };
    let hints = json!({ "resultType": "complete", "ttlMs": 60_000, "cacheScope": "private" });
    result.as_object_mut().unwrap().extend(hints.as_object().unwrap().clone());
    result
}

fn server() -> ScriptedServer {
    ScriptedServer::new(|received| Reply::Result(fresh_result(received)))
}

async fn read_all(client: &Client<ScriptedServer>) {
    client.discover().await.unwrap();
    client.list_tools().await.unwrap();
    client.list_prompts().await.unwrap();
    client.list_resources().await.unwrap();
    client.list_resource_templates().await.unwrap();
    client.read_resource("a:1").await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn cache_reuses_a_result_until_its_ttl_ends() {
    let server = server();
    let client = server.client().build();
    read_all(&client).await;
    assert_eq!(server.methods().len(), 6);
    advance(Duration::from_millis(59_999)).await;
    read_all(&client.clone()).await;
    assert_eq!(server.methods(), [""; 0]);
    advance(Duration::from_hours(1)).await;
    assert_eq!(server.methods(), [""; 0], "nothing is fetched before it is needed");
    read_all(&client).await;
    assert_eq!(server.methods().len(), 6, "all results are stale");
}

#[tokio::test(start_paused = true)]
async fn cache_keeps_results_of_different_calls_apart() {
    let server = server();
    let client = server.client().build();
    for uri in ["a:1", "a:2", "a:1"] {
        let read = client.read_resource(uri).await.unwrap();
        assert_eq!(read.contents[0].uri, uri);
    }
    assert_eq!(server.methods(), ["resources/read"; 2]);
    for _ in 0..2 {
        client.call_tool("t", json!({})).await.unwrap();
    }
    assert_eq!(server.methods(), ["tools/call"; 2], "tool calls are not cached");
    // The server may answer by the capabilities.
    let forms = client.with_capabilities(
        ClientCapabilities::new().with_extension("com.example/x", Object::new()),
    );
    for _ in 0..2 {
        forms.read_resource("a:1").await.unwrap();
    }
    assert_eq!(server.methods(), ["resources/read"]);
    // Another client may have other credentials.
    let other = server.client().build();
    other.read_resource("a:1").await.unwrap();
    assert_eq!(server.methods(), ["resources/read"]);
}

/// As `Client::request` sends them.
#[tokio::test(start_paused = true)]
async fn cache_knows_requests_again_and_ignores_what_cannot_be_read() {
    let server = ScriptedServer::new(|received| {
        let mut result = fresh_result(received);
        if received.params.get("malformed").is_some() {
            result["tools"] = json!("none");
        }
        Reply::Result(result)
    });
    let client = server.client().build();
    let params = json!({ "uri": "a:1", "a": 1, "b": 2, "c": 3, "d": 4 });
    for _ in 0..20 {
        client.request::<Value>("resources/read", &params).await.unwrap();
    }
    assert_eq!(server.methods(), ["resources/read"]);

    // It is accepted as any JSON, and not as tools.
    let params = json!({ "malformed": true });
    client.request::<Value>("tools/list", &params).await.unwrap();
    client.request::<Value>("tools/list", &params).await.unwrap();
    assert_eq!(server.methods(), ["tools/list"]);
    client.request::<mrtr_schema::tool::ListToolsResult>("tools/list", &params).await.unwrap_err();
    assert_eq!(server.methods(), ["tools/list"], "it is requested again");
}

#[tokio::test(start_paused = true)]
async fn cache_ignores_results_without_a_ttl() {
    for ttl in [Value::Null, json!(0), json!(-60_000)] {
        let server = ScriptedServer::new(move |received| {
            let mut result = fresh_result(received);
            let result_object = result.as_object_mut().unwrap();
            match &ttl {
                Value::Null => result_object.remove("ttlMs"),
                ttl => result_object.insert("ttlMs".to_owned(), ttl.clone()),
            };
            Reply::Result(result)
        });
        let client = server.client().build();
        client.list_tools().await.unwrap();
        client.list_tools().await.unwrap();
        assert_eq!(server.methods(), ["tools/list"; 2]);
    }
}

#[tokio::test(start_paused = true)]
async fn cache_ignores_results_that_took_rounds() {
    let server = ScriptedServer::new(|received| {
        Reply::Result(match received.params.get("requestState") {
            Some(_) => fresh_result(received),
            None => json!({
                "resultType": "input_required", "requestState": "s", "ttlMs": 60_000,
                "inputRequests": { "q": { "method": "elicitation/create", "params": {
                    "mode": "form", "message": "?", "requestedSchema": { "type": "object", "properties": {} }
                } } },
            }),
        })
    });
    let client = server.client().on_form(async |_, _| Ok(ElicitResult::decline())).build();
    client.read_resource("a:1").await.unwrap();
    client.read_resource("a:1").await.unwrap();
    assert_eq!(server.methods(), ["resources/read"; 4]);
}

#[tokio::test(start_paused = true)]
async fn cache_removes_results_that_a_subscription_reports_as_changed() {
    let notification = |method: &str, params: Value| {
        let method = format!("notifications/{method}");
        Notification::new(method, &params).unwrap()
    };
    let acknowledged = notification("subscriptions/acknowledged", json!({ "notifications": {} }));
    for (announced, refetched) in [
        (notification("tools/list_changed", json!({})), &["tools/list"][..]),
        (notification("prompts/list_changed", json!({})), &["prompts/list"]),
        (
            notification("resources/list_changed", json!({})),
            &["resources/list", "resources/templates/list"],
        ),
        (notification("resources/updated", json!({ "uri": "a:1" })), &["resources/read"]),
        (
            acknowledged.clone(),
            &[
                "server/discover",
                "tools/list",
                "prompts/list",
                "resources/list",
                "resources/templates/list",
                "resources/read",
            ],
        ),
    ] {
        let server = ScriptedServer::new(move |received| match received.method.as_str() {
            "subscriptions/listen" => Reply::Notifications(vec![announced.clone()]),
            _ => Reply::Result(fresh_result(received)),
        });
        let client = server.client().build();
        read_all(&client).await;
        let mut subscription = client.listen(&SubscriptionFilter::default()).unwrap();
        subscription.next().await.unwrap().unwrap();
        server.methods();
        read_all(&client).await;
        assert_eq!(server.methods(), refetched);
    }
}

#[tokio::test(start_paused = true)]
async fn cache_ignores_a_result_requested_before_an_invalidation() {
    let client: Arc<OnceLock<Client<ScriptedServer>>> = Arc::default();
    let invalidated = client.clone();
    let server = ScriptedServer::new(move |received| {
        // The list changes while its request is in flight.
        invalidated.get().unwrap().clear_cache();
        Reply::Result(fresh_result(received))
    });
    let client = client.get_or_init(|| server.client().build());
    client.list_tools().await.unwrap();
    client.list_tools().await.unwrap();
    assert_eq!(server.methods(), ["tools/list"; 2]);
}

#[tokio::test(start_paused = true)]
async fn cache_keeps_a_ttl_for_each_page() {
    let server = ScriptedServer::new(|received| {
        let mut result = fresh_result(received);
        let result_object = result.as_object_mut().unwrap();
        if received.params.get("cursor").is_none() {
            result_object.insert("nextCursor".to_owned(), json!("2"));
        } else {
            result_object.insert("ttlMs".to_owned(), json!(1000));
        }
        Reply::Result(result)
    });
    let client = server.client().build();
    client.list_tools().await.unwrap();
    advance(Duration::from_secs(1)).await;
    server.received();
    client.list_tools().await.unwrap();
    let received: Vec<_> = server.received().into_iter().map(|received| received.params).collect();
    assert_eq!(received, [json!({ "cursor": "2" })]);
}

#[tokio::test(start_paused = true)]
async fn cache_ignores_malformed_results() {
    let is_broken = Arc::new(AtomicBool::new(true));
    let broken = Arc::clone(&is_broken);
    let server = ScriptedServer::new(move |received| {
        let mut result = fresh_result(received);
        if broken.load(Ordering::Relaxed) {
            result["tools"] = json!([{ "name": 5 }]);
        }
        Reply::Result(result)
    });
    let client = server.client().build();
    assert!(client.list_tools().await.unwrap_err().is_protocol());
    is_broken.store(false, Ordering::Relaxed);
    client.list_tools().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn list_restarts_when_a_cached_cursor_is_rejected() {
    let stale = Arc::new(AtomicBool::new(false));
    let is_stale = stale.clone();
    let server = ScriptedServer::new(move |received| {
        let mut result = fresh_result(received);
        let result_object = result.as_object_mut().unwrap();
        let (current, stale) =
            if is_stale.load(Ordering::Relaxed) { ("b", "a") } else { ("a", "b") };
        match received.params.get("cursor").and_then(Value::as_str) {
            None => {
                result_object.insert("nextCursor".to_owned(), json!(current));
            }
            Some(cursor) if cursor == stale => {
                return Reply::Error(ErrorObject::new(code::INVALID_PARAMS, "no such cursor"));
            }
            Some(_) => {
                result_object.insert("ttlMs".to_owned(), json!(0));
            }
        }
        Reply::Result(result)
    });
    let client = server.client().build();
    client.list_tools().await.unwrap();
    stale.store(true, Ordering::Relaxed);
    server.received();
    client.list_tools().await.unwrap();
    let received: Vec<_> = server.received().into_iter().map(|received| received.params).collect();
    assert_eq!(received, [json!({ "cursor": "a" }), json!({}), json!({ "cursor": "b" })]);
}

#[tokio::test(start_paused = true)]
async fn header_mismatch_lists_the_tools_again_even_if_cached() {
    let changed = Arc::new(AtomicBool::new(false));
    let has_changed = changed.clone();
    let server = ScriptedServer::new(move |received| {
        let changed = has_changed.load(Ordering::Relaxed);
        let mut result = fresh_result(received);
        if received.method == "tools/call" && changed && received.headers.is_empty() {
            let error = ErrorObject::new(code::HEADER_MISMATCH, "Mcp-Param-R is missing");
            return Reply::Error(error);
        }
        if received.method == "tools/list" {
            let mut property = json!({ "type": "string" });
            if changed {
                property["x-mcp-header"] = json!("R");
            }
            let schema = json!({ "type": "object", "properties": { "r": property } });
            result["tools"] = json!([{ "name": "t", "inputSchema": schema }]);
        }
        Reply::Result(result)
    });
    let finished = Arc::<Mutex<Vec<_>>>::default();
    let events = Arc::clone(&finished);
    let client = server.client().on_event(move |event| {
        if let CallEvent::RequestFinished { request, outcome, .. } = event {
            events.lock().unwrap().push((request.id.clone(), outcome.is_ok()));
        }
    });
    let client = client.build();
    client.list_tools().await.unwrap();
    client.call_tool("t", json!({ "r": "eu" })).await.unwrap();
    changed.store(true, Ordering::Relaxed);
    client.call_tool("t", json!({ "r": "eu" })).await.unwrap();
    let received = server.received();
    let methods: Vec<_> = received.iter().map(|received| received.method.as_str()).collect();
    assert_eq!(methods, ["tools/list", "tools/call", "tools/call", "tools/list", "tools/call"]);
    // Observers see each request, also the one that runs the tool.
    let sent: Vec<_> = received.into_iter().map(|received| received.id).collect();
    let outcomes = [true, true, false, true, true];
    assert_eq!(*finished.lock().unwrap(), sent.into_iter().zip(outcomes).collect::<Vec<_>>());
}

#[tokio::test(start_paused = true)]
async fn cache_stays_within_its_size() {
    let long = "x".repeat(1000);
    let server = ScriptedServer::new(move |received| {
        let mut result = fresh_result(received);
        result["contents"][0]["text"] = json!(long);
        Reply::Result(result)
    });
    let client = server.client().cache(4_000).build();
    for n in 0..100 {
        client.read_resource(&format!("a:{n}")).await.unwrap();
        advance(Duration::from_millis(1)).await;
    }
    server.methods();
    for n in (0..100).rev() {
        client.read_resource(&format!("a:{n}")).await.unwrap();
    }
    let received = server.methods().len();
    assert!((96..100).contains(&received), "{received} of 100 were fetched again");
    let uncached = server.client().cache(0).build();
    uncached.read_resource("a:1").await.unwrap();
    uncached.read_resource("a:1").await.unwrap();
    assert_eq!(server.methods().len(), 2);
}

/// Passes requests on to a server, with an authorization that changes.
struct Authorized(ScriptedServer, Arc<AtomicU64>);

impl Transport for Authorized {
    async fn send(&self, outgoing: OutgoingRequest<'_>) -> Result<Response, TransportError> {
        self.0.send(outgoing).await
    }

    fn authorization_epoch(&self) -> u64 {
        self.1.load(Ordering::Relaxed)
    }
}

/// Another access token may be that of another user.
#[tokio::test(start_paused = true)]
async fn results_of_another_authorization_are_not_reused() {
    let (server, epoch) = (server(), Arc::new(AtomicU64::new(1)));
    let client = Client::builder(Authorized(server.clone(), Arc::clone(&epoch))).build();
    for (authorization, sent) in [(1, 1), (1, 0), (2, 1), (2, 0), (1, 1)] {
        epoch.store(authorization, Ordering::Relaxed);
        client.list_tools().await.unwrap();
        assert_eq!(server.methods().len(), sent, "{authorization}");
    }
}

/// A call that is continued with a request state is not a call of its own.
#[tokio::test(start_paused = true)]
async fn results_of_retried_requests_are_not_reused() {
    let server = server();
    let client = server.client().build();
    for _ in 0..2 {
        let params = json!({ "uri": "a:1", "requestState": "s" });
        client.request::<Value>("resources/read", params).await.unwrap();
        assert_eq!(server.methods().len(), 1);
    }
}
