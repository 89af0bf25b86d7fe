//! Requests of calls and the results they accept.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use futures_util::StreamExt;
use mrtr_client::SubscriptionEvent;
use mrtr_schema::completion::{CompleteArgument, CompleteContext, Reference};
use mrtr_schema::jsonrpc::{ErrorObject, Notification, RequestId, code};
use mrtr_schema::subscription::SubscriptionFilter;
use serde_json::{Value, json};

use crate::{LogBuffer, Reply, ScriptedServer};

fn result(result: Value) -> ScriptedServer {
    ScriptedServer::new(move |_| Reply::Result(result.clone()))
}

#[tokio::test]
async fn discover_sends_no_parameters_and_ignores_unknown_members() {
    let server = result(json!({
        "supportedVersions": ["2026-07-28", "2030-01-01"],
        "capabilities": { "tools": { "new": 1 }, "unknown": { "member": [] } },
        "later": true,
    }));
    let discovered = server.client().build().discover().await.unwrap();
    assert!(discovered.capabilities.tools.is_some());
    assert_eq!(server.received()[0].params, json!({}));
}

#[tokio::test]
async fn server_info_does_not_change_the_requests() {
    let requests = |info: Value| async move {
        let server = ScriptedServer::new(move |received| {
            let meta = json!({ "io.modelcontextprotocol/serverInfo": info });
            Reply::Result(match received.method.as_str() {
                "server/discover" => {
                    json!({ "supportedVersions": ["2026-07-28"], "capabilities": {}, "_meta": meta })
                }
                "tools/list" => json!({ "tools": [], "_meta": meta }),
                _ => json!({ "content": [], "_meta": meta }),
            })
        });
        let client = server.client().build();
        client.discover().await.unwrap();
        client.list_tools().await.unwrap();
        client.call_tool("t", json!({})).await.unwrap();
        server.received()
    };
    let first = requests(json!({ "name": "a", "version": "1" })).await;
    assert_eq!(
        first,
        requests(json!({ "name": "mrtr", "version": "99", "title": "Trusted" })).await
    );
}

#[tokio::test]
async fn server_error_is_returned_unchanged_without_a_retry() {
    let supported = json!({ "supported": ["2025-11-25"] });
    for (number, data) in [
        (-32_000, json!(null)),
        (-32_001, supported.clone()),
        (-32_004, json!([1, "a"])),
        (-32_019, json!("text")),
        (code::UNSUPPORTED_PROTOCOL_VERSION, supported),
        (code::METHOD_NOT_FOUND, json!(5)),
        (code::INVALID_PARAMS, json!(true)),
        (1, json!({})),
    ] {
        let error = ErrorObject::new(number, "no").with_data(data.clone());
        let server = ScriptedServer::new(move |_| Reply::Error(error.clone()));
        let called = server.client().build().call_tool("t", json!({})).await;
        let error = called.unwrap_err();
        let error = error.as_server_error().unwrap();
        assert_eq!((error.code, error.data.as_ref()), (number, Some(&data)));
        assert_eq!(server.methods(), ["tools/call"]);
    }
}

#[tokio::test]
async fn result_without_is_error_succeeds_and_unknown_result_types_are_rejected() {
    let called = result(json!({ "content": [] })).client().build().call_tool("t", json!({})).await;
    assert!(!called.unwrap().is_error);
    for kind in ["task", "", "Complete"] {
        let server = result(json!({ "resultType": kind, "content": [] }));
        let error = server.client().build().call_tool("t", json!({})).await.unwrap_err();
        assert!(error.is_protocol(), "{kind:?}: {error}");
    }
}

/// Each list has three pages. The cursors of the second and the third are empty and alike.
#[tokio::test]
async fn lists_are_read_to_the_end_with_opaque_cursors() {
    let server = ScriptedServer::new(|received| {
        let (field, item) = match received.method.as_str() {
            "tools/list" => ("tools", json!({ "name": "t", "inputSchema": { "type": "object" } })),
            "prompts/list" => ("prompts", json!({ "name": "p" })),
            "resources/list" => ("resources", json!({ "uri": "a:1", "name": "r" })),
            _ => ("resourceTemplates", json!({ "uriTemplate": "a:{x}", "name": "r" })),
        };
        let mut page = json!({ field: [item] });
        if page_number(&received.id) < 3 {
            page["nextCursor"] = json!("");
        }
        Reply::Result(page)
    });
    let client = server.client().build();
    assert_eq!(client.list_tools().await.unwrap().len(), 3);
    assert_eq!(client.list_prompts().await.unwrap().len(), 3);
    assert_eq!(client.list_resources().await.unwrap().len(), 3);
    assert_eq!(client.list_resource_templates().await.unwrap().len(), 3);
    let cursors: Vec<_> = server.received().into_iter().map(|received| received.params).collect();
    let (none, empty) = (json!({}), json!({ "cursor": "" }));
    let three = [none, empty.clone(), empty];
    assert_eq!(cursors, [three.clone(), three.clone(), three.clone(), three].concat());
}

/// Request ids count from 1, and each list takes three requests.
fn page_number(id: &RequestId) -> i64 {
    let RequestId::Number(n) = id else { unreachable!() };
    (n - 1) % 3 + 1
}

#[tokio::test]
async fn completion_may_omit_optional_members() {
    let complete = |result: Value| async move {
        let server = self::result(result);
        let of = Reference::Prompt { name: "p".to_owned() };
        let argument = CompleteArgument::new("a", "");
        server.client().build().complete(&of, &argument, &CompleteContext::default()).await
    };
    let minimal = complete(json!({ "completion": { "values": [] } })).await.unwrap();
    assert_eq!((minimal.values.len(), minimal.total, minimal.has_more), (0, None, None));
    assert!(complete(json!({})).await.unwrap_err().is_protocol());
}

#[tokio::test(start_paused = true)]
async fn call_timeout_ends_a_call_despite_its_progress() {
    let server = ScriptedServer::new(|received| {
        let own = json!({ "progressToken": received.id, "progress": 1 });
        let progress =
            |params: &Value| Notification::new("notifications/progress", params).unwrap();
        // Progress of another request is ignored.
        let other = progress(&json!({ "progressToken": "other", "progress": 9 }));
        Reply::Notifications(vec![progress(&own), other, progress(&own), progress(&own)])
    });
    let count = Arc::new(AtomicUsize::new(0));
    let counter = Arc::clone(&count);
    let client = server.client().on_progress(move |_| {
        counter.fetch_add(1, Ordering::SeqCst);
    });
    let client = client.call_timeout(Duration::from_mins(1)).build();
    let start = tokio::time::Instant::now();
    let error = client.call_tool("t", json!({})).await.unwrap_err();
    assert_eq!(error.to_string(), "tools/call t timed out after 60s");
    assert!(error.is_timeout());
    assert_eq!((start.elapsed(), count.load(Ordering::SeqCst)), (Duration::from_mins(1), 3));
    let client = client.with_call_timeout(Duration::from_secs(1));
    client.call_tool("t", json!({})).await.unwrap_err();
    assert_eq!(start.elapsed(), Duration::from_secs(61));
}

#[tokio::test(start_paused = true)]
async fn subscription_reconnects_under_a_new_id() {
    let server = ScriptedServer::new(|_| Reply::Interrupted);
    let mut subscription = server.client().build().listen(&SubscriptionFilter::default()).unwrap();
    let listen = async { while let Some(Ok(_)) = subscription.next().await {} };
    tokio::time::timeout(Duration::from_millis(7_800), listen).await.unwrap_err();
    let mut ids: Vec<_> = server.received().into_iter().map(|received| received.id).collect();
    let all = ids.len();
    ids.dedup();
    // Five reconnections, after at most 0.25, 0.75, 1.75, 3.75 and 7.75 s. The next one comes
    // after at least half of 15.75 s.
    assert_eq!((all, ids.len()), (6, 6));
}

#[tokio::test]
async fn subscription_validates_the_result_that_ends_it() {
    for (result, is_valid) in [
        (json!({ "resultType": "complete" }), true),
        (json!({}), true),
        (json!({ "resultType": "task" }), false),
        (json!({ "resultType": "input_required", "requestState": "s" }), false),
        (json!([]), false),
    ] {
        let server = self::result(result.clone());
        let mut subscription =
            server.client().build().listen(&SubscriptionFilter::default()).unwrap();
        let ended = subscription.next().await;
        assert_eq!(ended.is_none(), is_valid, "{result}: {ended:?}");
        assert!(subscription.next().await.is_none());
        assert_eq!(server.methods().len(), 1);
    }
}

#[tokio::test]
async fn subscription_ignores_malformed_and_unknown_notifications() {
    let server = ScriptedServer::new(|_| {
        let notify = |method: &str, params: Value| Notification::new(method, &params).unwrap();
        Reply::Notifications(vec![
            notify("notifications/message", json!({ "level": "loud", "data": 1 })),
            notify("notifications/progress", json!({ "progress": "far" })),
            notify("notifications/unknown", json!({})),
            notify(
                "notifications/subscriptions/acknowledged",
                json!({ "notifications": { "toolsListChanged": true } }),
            ),
        ])
    });
    let mut subscription = server.client().build().listen(&SubscriptionFilter::default()).unwrap();
    let mut acknowledged = SubscriptionFilter::default();
    acknowledged.tools_list_changed = true;
    assert_eq!(
        subscription.next().await.unwrap().unwrap(),
        SubscriptionEvent::Acknowledged(acknowledged)
    );
}

/// The error does not repeat a long text of the server.
#[tokio::test]
async fn malformed_event_is_an_error_of_the_subscription() {
    let server = ScriptedServer::new(|_| {
        let params = json!({ "notifications": "x".repeat(100_000) });
        let method = "notifications/subscriptions/acknowledged";
        Reply::Notifications(vec![Notification::new(method, &params).unwrap()])
    });
    let mut subscription = server.client().build().listen(&SubscriptionFilter::default()).unwrap();
    let error = subscription.next().await.unwrap().unwrap_err().to_string();
    assert!(error.contains("malformed notifications/subscriptions/acknowledged"), "{error}");
    assert!(error.len() < 1_000, "{} bytes", error.len());
}

#[tokio::test]
async fn unsafe_icons_are_removed() {
    let icons = [
        "https://a.example/i.png",
        "DATA:image/png;base64,AA==",
        "javascript:alert(1)",
        "file:///i.png",
        "ftp://a.example/i.png",
        "ws://a.example",
        "http://a.example/i.png",
        "app://i",
        "i.png",
    ]
    .map(|src| json!({ "src": src }));
    let server = ScriptedServer::new(move |received| {
        let item = json!({ "name": "x", "uri": "a:1", "uriTemplate": "a:{x}", "icons": icons,
            "inputSchema": { "type": "object" } });
        Reply::Result(match received.method.as_str() {
            "tools/list" => json!({ "tools": [item] }),
            "tools/call" => json!({ "content": [link(&item)] }),
            "prompts/get" => json!({ "messages": [{ "role": "user", "content": link(&item) }] }),
            "prompts/list" => json!({ "prompts": [item] }),
            "resources/list" => json!({ "resources": [item] }),
            _ => json!({ "resourceTemplates": [item] }),
        })
    });
    let client = server.client().build();
    assert_eq!(client.list_tools().await.unwrap()[0].icons.len(), 2);
    assert_eq!(client.list_prompts().await.unwrap()[0].icons.len(), 2);
    assert_eq!(client.list_resources().await.unwrap()[0].icons.len(), 2);
    assert_eq!(client.list_resource_templates().await.unwrap()[0].icons.len(), 2);
    let called = client.call_tool("x", json!({})).await.unwrap();
    let got = client.get_prompt("x", json!({})).await.unwrap();
    for block in [&called.content[0], &got.messages[0].content] {
        let mrtr_schema::content::ContentBlock::ResourceLink(link) = block else { unreachable!() };
        assert_eq!(link.icons.len(), 2);
    }
}

/// Returns a content block that links to a resource.
fn link(item: &Value) -> Value {
    let mut link = item.as_object().unwrap().clone();
    link.insert("type".to_owned(), json!("resource_link"));
    Value::Object(link)
}

#[tokio::test]
async fn malformed_log_messages_are_ignored() {
    let server = ScriptedServer::new(|_| {
        let log = |params: Value| Notification::new("notifications/message", &params).unwrap();
        Reply::Notifications(vec![
            log(json!({ "level": "loud", "data": 1 })),
            log(json!({ "level": "info" })),
            log(json!({ "level": "info", "data": { "a": 1 } })),
        ])
    });
    let messages = Arc::new(std::sync::Mutex::new(Vec::new()));
    let recorder = Arc::clone(&messages);
    let level = mrtr_schema::notification::LogLevel::Debug;
    let client =
        server.client().on_log(level, move |m| recorder.lock().unwrap().push(m.data)).build();
    let call = std::pin::pin!(client.call_tool("t", json!({})));
    assert!(futures_util::poll!(call).is_pending());
    assert_eq!(*messages.lock().unwrap(), [json!({ "a": 1 })]);
}

#[tokio::test]
async fn log_reports_ignored_tools_and_tool_calls() {
    let buffer = LogBuffer::default();
    let writer = buffer.clone();
    let subscriber = tracing_subscriber::fmt()
        .with_writer(move || writer.clone())
        .with_ansi(false)
        .with_max_level(tracing::Level::DEBUG)
        .finish();
    let server = ScriptedServer::new(|received| {
        Reply::Result(match received.method.as_str() {
            "tools/list" => json!({ "tools": [
                { "name": "fine", "inputSchema": { "type": "object" } },
                { "name": "odd", "inputSchema": { "type": "object", "x-mcp-header": "X" } },
            ] }),
            _ => json!({ "content": [] }),
        })
    });
    let client = server.client().cache(0).build();
    // With a single dispatcher, `tracing` caches the interest of the first thread that logs here,
    // which may be another test's thread without a subscriber. With a second one it asks each.
    let _second = tracing::Dispatch::new(tracing_subscriber::registry());
    let _guard = tracing::subscriber::set_default(subscriber);
    assert_eq!(client.list_tools().await.unwrap().len(), 1);
    client.call_tool("fine", json!({})).await.unwrap();
    let log = String::from_utf8(buffer.0.lock().unwrap().clone()).unwrap();
    let line =
        |words: [&str; 3]| log.lines().any(|line| words.iter().all(|word| line.contains(word)));
    assert!(line(["WARN", "odd", "through `properties` alone"]), "{log}");
    assert!(line(["DEBUG", "tools/call", "fine"]), "{log}");
}

#[tokio::test]
async fn extension_is_declared_and_its_methods_and_result_types_are_accepted() {
    let server = ScriptedServer::new(|received| {
        assert_eq!(received.params, json!({ "id": 7 }));
        Reply::Result(json!({ "resultType": "task", "state": "working" }))
    });
    let settings = json!({ "list": true }).as_object().unwrap().clone();
    let with = || server.client().extension("com.example/tasks", settings.clone());
    let params = json!({ "id": 7 });
    let error = with().build().request::<Value>("tasks/get", &params).await.unwrap_err();
    assert!(error.is_protocol(), "{error}");
    let client = with().accept_result_type("task").build();
    let task: Value = client.request("tasks/get", &params).await.unwrap();
    assert_eq!(task["state"], "working");
    let capabilities = "io.modelcontextprotocol/clientCapabilities";
    let declared = json!({ "extensions": { "com.example/tasks": { "list": true } } });
    assert_eq!(server.received()[1].meta[capabilities], declared);
    let own = json!({ "id": 7, "_meta": { "com.example/tenant": 1 } });
    let _: Value = client.request("tasks/get", &own).await.unwrap();
    let received = &server.received()[0];
    assert_eq!((&received.params, &received.meta["com.example/tenant"]), (&params, &json!(1)));
    assert_eq!(received.meta[capabilities], declared);
    for meta in [json!({ "progressToken": 1 }), json!([])] {
        let params = json!({ "id": 7, "_meta": meta });
        let error = client.request::<Value>("tasks/get", &params).await.unwrap_err();
        assert!(error.to_string().contains("`_meta`"), "{error}");
    }
    let error = client.request::<Value>("tasks/get", 5).await.unwrap_err();
    assert!(error.to_string().contains("not an object"), "{error}");
}
