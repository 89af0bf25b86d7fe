//! What calls send, and what they make of the answers.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use futures_util::StreamExt;
use mrtr_client::SubscriptionEvent;
use mrtr_schema::completion::{CompleteArgument, CompleteContext, Reference};
use mrtr_schema::jsonrpc::{ErrorObject, Notification, RequestId, code};
use mrtr_schema::subscription::SubscriptionFilter;
use serde_json::{Value, json};

use crate::{Answer, Lines, Scripted};

fn result(result: Value) -> Scripted {
    Scripted::new(move |_| Answer::Result(result.clone()))
}

#[tokio::test]
async fn discovery_has_no_parameters_and_survives_the_unknown() {
    let server = result(json!({
        "supportedVersions": ["2026-07-28", "2030-01-01"],
        "capabilities": { "tools": { "new": 1 }, "unheard": { "of": [] } },
        "later": true,
    }));
    let discovered = server.client().build().discover().await.unwrap();
    assert!(discovered.capabilities.tools.is_some());
    assert_eq!(server.asked()[0].params, json!({}));
}

#[tokio::test]
async fn what_a_server_says_it_is_changes_nothing() {
    let legs = |info: Value| async move {
        let server = Scripted::new(move |asked| {
            let meta = json!({ "io.modelcontextprotocol/serverInfo": info });
            Answer::Result(match asked.method.as_str() {
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
        server.asked()
    };
    let one = legs(json!({ "name": "a", "version": "1" })).await;
    assert_eq!(one, legs(json!({ "name": "mrtr", "version": "99", "title": "Trusted" })).await);
}

#[tokio::test]
async fn an_error_is_passed_on_as_it_is_and_nothing_is_tried_again() {
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
        let server = Scripted::new(move |_| Answer::Error(error.clone()));
        let refused = server.client().build().call_tool("t", json!({})).await.unwrap_err();
        let error = refused.as_server_error().unwrap();
        assert_eq!((error.code, error.data.as_ref()), (number, Some(&data)));
        assert_eq!(server.methods(), ["tools/call"]);
    }
}

#[tokio::test]
async fn a_result_without_is_error_is_a_success_and_one_of_an_unknown_type_is_none() {
    let called = result(json!({ "content": [] })).client().build().call_tool("t", json!({})).await;
    assert!(!called.unwrap().is_error);
    for kind in ["task", "", "Complete"] {
        let server = result(json!({ "resultType": kind, "content": [] }));
        let refused = server.client().build().call_tool("t", json!({})).await.unwrap_err();
        assert!(refused.is_protocol(), "{kind:?}: {refused}");
    }
}

/// A list of three pages, whose second cursor is empty, and whose third is the same again.
#[tokio::test]
async fn every_list_is_read_to_its_end_and_cursors_are_not_understood() {
    let server = Scripted::new(|asked| {
        let (field, item) = match asked.method.as_str() {
            "tools/list" => ("tools", json!({ "name": "t", "inputSchema": { "type": "object" } })),
            "prompts/list" => ("prompts", json!({ "name": "p" })),
            "resources/list" => ("resources", json!({ "uri": "a:1", "name": "r" })),
            _ => ("resourceTemplates", json!({ "uriTemplate": "a:{x}", "name": "r" })),
        };
        let mut page = json!({ field: [item] });
        if page_number(&asked.id) < 3 {
            page["nextCursor"] = json!("");
        }
        Answer::Result(page)
    });
    let client = server.client().build();
    assert_eq!(client.list_tools().await.unwrap().len(), 3);
    assert_eq!(client.list_prompts().await.unwrap().len(), 3);
    assert_eq!(client.list_resources().await.unwrap().len(), 3);
    assert_eq!(client.list_resource_templates().await.unwrap().len(), 3);
    let cursors: Vec<_> = server.asked().into_iter().map(|asked| asked.params).collect();
    let (none, empty) = (json!({}), json!({ "cursor": "" }));
    let three = [none, empty.clone(), empty];
    assert_eq!(cursors, [three.clone(), three.clone(), three.clone(), three].concat());
}

/// Requests are numbered from 1, and each list has three.
fn page_number(id: &RequestId) -> i64 {
    let RequestId::Number(n) = id else { unreachable!() };
    (n - 1) % 3 + 1
}

#[tokio::test]
async fn suggestions_may_say_little() {
    let suggest = |result: Value| async move {
        let server = self::result(result);
        let of = Reference::Prompt { name: "p".to_owned() };
        let argument = CompleteArgument { name: "a".to_owned(), value: String::new() };
        server.client().build().complete(&of, &argument, &CompleteContext::default()).await
    };
    let little = suggest(json!({ "completion": { "values": [] } })).await.unwrap();
    assert_eq!((little.values.len(), little.total, little.has_more), (0, None, None));
    assert!(suggest(json!({})).await.unwrap_err().is_protocol());
}

#[tokio::test(start_paused = true)]
async fn a_deadline_ends_a_call_whatever_progress_it_makes() {
    let server = Scripted::new(|asked| {
        let own = json!({ "progressToken": asked.id, "progress": 1 });
        let progress =
            |params: &Value| Notification::new("notifications/progress", params).unwrap();
        // Progress of another request is none of this one's.
        let other = progress(&json!({ "progressToken": "other", "progress": 9 }));
        Answer::Notifications(vec![progress(&own), other, progress(&own), progress(&own)])
    });
    let told = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&told);
    let client = server.client().on_progress(move |_| {
        count.fetch_add(1, Ordering::SeqCst);
    });
    let client = client.deadline(Duration::from_mins(1)).build();
    let begun = tokio::time::Instant::now();
    let late = client.call_tool("t", json!({})).await.unwrap_err();
    assert!(late.is_deadline() && late.to_string().contains("60s"), "{late}");
    assert_eq!((begun.elapsed(), told.load(Ordering::SeqCst)), (Duration::from_mins(1), 3));
    let client = client.with_call_timeout(Duration::from_secs(1));
    client.call_tool("t", json!({})).await.unwrap_err();
    assert_eq!(begun.elapsed(), Duration::from_secs(61));
}

#[tokio::test(start_paused = true)]
async fn a_subscription_that_broke_is_made_anew_under_another_id() {
    let server = Scripted::new(|_| Answer::Broken);
    let mut listening = server.client().build().listen(&SubscriptionFilter::default()).unwrap();
    let listen = async { while let Some(Ok(_)) = listening.next().await {} };
    tokio::time::timeout(Duration::from_millis(7_800), listen).await.unwrap_err();
    let mut ids: Vec<_> = server.asked().into_iter().map(|asked| asked.id).collect();
    let all = ids.len();
    ids.dedup();
    // After 0.25, 0.75, 1.75, 3.75 and 7.75 s at the latest; one more not before 7.875 s, half of 15.75.
    assert_eq!((all, ids.len()), (6, 6));
}

#[tokio::test]
async fn a_subscription_ends_with_a_result_that_is_one() {
    for (result, fits) in [
        (json!({ "resultType": "complete" }), true),
        (json!({}), true),
        (json!({ "resultType": "task" }), false),
        (json!({ "resultType": "input_required", "requestState": "s" }), false),
        (json!([]), false),
    ] {
        let server = self::result(result.clone());
        let mut listening = server.client().build().listen(&SubscriptionFilter::default()).unwrap();
        let ended = listening.next().await;
        assert_eq!(ended.is_none(), fits, "{result}: {ended:?}");
        assert!(listening.next().await.is_none());
        assert_eq!(server.methods().len(), 1);
    }
}

#[tokio::test]
async fn notifications_that_make_no_sense_are_passed_over() {
    let server = Scripted::new(|_| {
        let notify = |method: &str, params: Value| Notification::new(method, &params).unwrap();
        Answer::Notifications(vec![
            notify("notifications/message", json!({ "level": "loud", "data": 1 })),
            notify("notifications/progress", json!({ "progress": "far" })),
            notify("notifications/unheard-of", json!({})),
            notify(
                "notifications/subscriptions/acknowledged",
                json!({ "notifications": { "toolsListChanged": true } }),
            ),
        ])
    });
    let mut listening = server.client().build().listen(&SubscriptionFilter::default()).unwrap();
    let acknowledged =
        SubscriptionFilter { tools_list_changed: true, ..SubscriptionFilter::default() };
    assert_eq!(
        listening.next().await.unwrap().unwrap(),
        SubscriptionEvent::Acknowledged(acknowledged)
    );
}

#[tokio::test]
async fn icons_that_are_not_safe_to_show_are_thrown_away() {
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
    let server = Scripted::new(move |asked| {
        let item = json!({ "name": "x", "uri": "a:1", "uriTemplate": "a:{x}", "icons": icons,
            "inputSchema": { "type": "object" } });
        Answer::Result(match asked.method.as_str() {
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

/// A link to a resource, as a block of content.
fn link(item: &Value) -> Value {
    let mut link = item.as_object().unwrap().clone();
    link.insert("type".to_owned(), json!("resource_link"));
    Value::Object(link)
}

#[tokio::test]
async fn log_messages_that_make_no_sense_are_passed_over() {
    let server = Scripted::new(|_| {
        let log = |params: Value| Notification::new("notifications/message", &params).unwrap();
        Answer::Notifications(vec![
            log(json!({ "level": "loud", "data": 1 })),
            log(json!({ "level": "info" })),
            log(json!({ "level": "info", "data": { "a": 1 } })),
        ])
    });
    let heard = Arc::new(std::sync::Mutex::new(Vec::new()));
    let hear = Arc::clone(&heard);
    let level = mrtr_schema::notification::LogLevel::Debug;
    let client = server.client().on_log(level, move |m| hear.lock().unwrap().push(m.data)).build();
    let call = std::pin::pin!(client.call_tool("t", json!({})));
    assert!(futures_util::poll!(call).is_pending());
    assert_eq!(*heard.lock().unwrap(), [json!({ "a": 1 })]);
}

#[tokio::test]
async fn a_tool_that_is_left_out_and_the_use_of_one_are_in_the_log() {
    let lines = Lines::default();
    let writer = lines.clone();
    let subscriber = tracing_subscriber::fmt()
        .with_writer(move || writer.clone())
        .with_ansi(false)
        .with_max_level(tracing::Level::DEBUG)
        .finish();
    let server = Scripted::new(|asked| {
        Answer::Result(match asked.method.as_str() {
            "tools/list" => json!({ "tools": [
                { "name": "fine", "inputSchema": { "type": "object" } },
                { "name": "odd", "inputSchema": { "type": "object", "x-mcp-header": "X" } },
            ] }),
            _ => json!({ "content": [] }),
        })
    });
    let client = server.client().cache(0).build();
    // As long as there is one subscriber only, `tracing` asks that of whichever thread logs first whether to
    // log here: another test's thread, which has none. With a second one it asks all.
    let _second = tracing::Dispatch::new(tracing_subscriber::registry());
    let _guard = tracing::subscriber::set_default(subscriber);
    assert_eq!(client.list_tools().await.unwrap().len(), 1);
    client.call_tool("fine", json!({})).await.unwrap();
    let log = String::from_utf8(lines.0.lock().unwrap().clone()).unwrap();
    let line =
        |words: [&str; 3]| log.lines().any(|line| words.iter().all(|word| line.contains(word)));
    assert!(line(["WARN", "odd", "through `properties` alone"]), "{log}");
    assert!(line(["DEBUG", "tools/call", "fine"]), "{log}");
}

#[tokio::test]
async fn an_extension_is_declared_and_its_methods_and_result_types_are_taken() {
    let server = Scripted::new(|asked| {
        assert_eq!(asked.params, json!({ "id": 7 }));
        Answer::Result(json!({ "resultType": "task", "state": "working" }))
    });
    let settings = json!({ "list": true }).as_object().unwrap().clone();
    let with = || server.client().extension("com.example/tasks", settings.clone());
    let params = json!({ "id": 7 });
    let refused = with().build().request::<Value>("tasks/get", &params).await.unwrap_err();
    assert!(refused.is_protocol(), "{refused}");
    let client = with().result_type("task").build();
    let task: Value = client.request("tasks/get", &params).await.unwrap();
    assert_eq!(task["state"], "working");
    let capabilities = "io.modelcontextprotocol/clientCapabilities";
    let declared = json!({ "extensions": { "com.example/tasks": { "list": true } } });
    assert_eq!(server.asked()[1].meta[capabilities], declared);
    let own = json!({ "id": 7, "_meta": { "com.example/tenant": 1 } });
    let _: Value = client.request("tasks/get", &own).await.unwrap();
    let asked = &server.asked()[0];
    assert_eq!((&asked.params, &asked.meta["com.example/tenant"]), (&params, &json!(1)));
    assert_eq!(asked.meta[capabilities], declared);
    for meta in [json!({ "progressToken": 1 }), json!([])] {
        let params = json!({ "id": 7, "_meta": meta });
        let refused = client.request::<Value>("tasks/get", &params).await.unwrap_err();
        assert!(refused.to_string().contains("`_meta`"), "{refused}");
    }
    let refused = client.request::<Value>("tasks/get", 5).await.unwrap_err();
    assert!(refused.to_string().contains("no object"), "{refused}");
}
