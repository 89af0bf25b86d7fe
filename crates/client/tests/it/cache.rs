//! What is reused, and what must not be.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use futures_util::StreamExt;
use mrtr_client::Client;
use mrtr_schema::elicitation::ElicitResult;
use mrtr_schema::jsonrpc::{ErrorObject, Notification, code};
use mrtr_schema::subscription::SubscriptionFilter;
use serde_json::{Value, json};
use tokio::time::advance;

use crate::{Answer, Asked, Scripted};

/// Every list has one page and every resource one text; all stay fresh for a minute.
fn plain(asked: &Asked) -> Value {
    let mut result = match asked.method.as_str() {
        "server/discover" => json!({ "supportedVersions": ["2026-07-28"], "capabilities": {} }),
        "tools/call" => json!({ "content": [] }),
        "resources/read" => {
            json!({ "contents": [{ "uri": asked.params.get("uri"), "text": "x" }] })
        }
        "tools/list" => json!({ "tools": [] }),
        "prompts/list" => json!({ "prompts": [] }),
        "resources/list" => json!({ "resources": [] }),
        "resources/templates/list" => json!({ "resourceTemplates": [] }),
        other => panic!("{other} was not expected"),
    };
    let hints = json!({ "resultType": "complete", "ttlMs": 60_000, "cacheScope": "private" });
    result.as_object_mut().unwrap().extend(hints.as_object().unwrap().clone());
    result
}

fn server() -> Scripted {
    Scripted::new(|asked| Answer::Result(plain(asked)))
}

async fn everything(client: &Client<Scripted>) {
    client.discover().await.unwrap();
    client.list_tools().await.unwrap();
    client.list_prompts().await.unwrap();
    client.list_resources().await.unwrap();
    client.list_resource_templates().await.unwrap();
    client.read_resource("a:1").await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_result_is_reused_until_its_time_is_over() {
    let server = server();
    let client = server.client().build();
    everything(&client).await;
    assert_eq!(server.methods().len(), 6);
    advance(Duration::from_millis(59_999)).await;
    everything(&client.clone()).await;
    assert_eq!(server.methods(), [""; 0]);
    advance(Duration::from_hours(1)).await;
    assert_eq!(server.methods(), [""; 0], "nothing is asked for before somebody needs it");
    everything(&client).await;
    assert_eq!(server.methods().len(), 6, "all of it is stale");
}

#[tokio::test(start_paused = true)]
async fn a_call_is_never_answered_with_the_result_of_another() {
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
    assert_eq!(server.methods(), ["tools/call"; 2], "a call is made whenever it is asked for");
    // Another client may have other credentials.
    let other = server.client().build();
    other.read_resource("a:1").await.unwrap();
    assert_eq!(server.methods(), ["resources/read"]);
}

#[tokio::test(start_paused = true)]
async fn a_result_without_a_time_to_live_is_not_kept() {
    for ttl in [Value::Null, json!(0), json!(-60_000)] {
        let server = Scripted::new(move |asked| {
            let mut result = plain(asked);
            let result_object = result.as_object_mut().unwrap();
            match &ttl {
                Value::Null => result_object.remove("ttlMs"),
                ttl => result_object.insert("ttlMs".to_owned(), ttl.clone()),
            };
            Answer::Result(result)
        });
        let client = server.client().build();
        client.list_tools().await.unwrap();
        client.list_tools().await.unwrap();
        assert_eq!(server.methods(), ["tools/list"; 2]);
    }
}

#[tokio::test(start_paused = true)]
async fn a_result_that_took_rounds_is_not_kept() {
    let server = Scripted::new(|asked| {
        Answer::Result(match asked.params.get("requestState") {
            Some(_) => plain(asked),
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
async fn what_has_changed_is_thrown_away() {
    let changed = |method: &str, params: Value| {
        let method = format!("notifications/{method}");
        Notification::new(method, &params).unwrap()
    };
    let acknowledged = changed("subscriptions/acknowledged", json!({ "notifications": {} }));
    for (announced, again) in [
        (changed("tools/list_changed", json!({})), &["tools/list"][..]),
        (changed("prompts/list_changed", json!({})), &["prompts/list"]),
        (
            changed("resources/list_changed", json!({})),
            &["resources/list", "resources/templates/list"],
        ),
        (changed("resources/updated", json!({ "uri": "a:1" })), &["resources/read"]),
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
        let server = Scripted::new(move |asked| match asked.method.as_str() {
            "subscriptions/listen" => Answer::Notifications(vec![announced.clone()]),
            _ => Answer::Result(plain(asked)),
        });
        let client = server.client().build();
        everything(&client).await;
        let mut subscription = client.listen(&SubscriptionFilter::default()).unwrap();
        subscription.next().await.unwrap().unwrap();
        server.methods();
        everything(&client).await;
        assert_eq!(server.methods(), again);
    }
}

#[tokio::test(start_paused = true)]
async fn a_result_from_before_a_change_is_not_kept_after_it() {
    let client: Arc<OnceLock<Client<Scripted>>> = Arc::default();
    let own = client.clone();
    let server = Scripted::new(move |asked| {
        // While the list is on its way, it changes.
        own.get().unwrap().clear_cache();
        Answer::Result(plain(asked))
    });
    let client = client.get_or_init(|| server.client().build());
    client.list_tools().await.unwrap();
    client.list_tools().await.unwrap();
    assert_eq!(server.methods(), ["tools/list"; 2]);
}

#[tokio::test(start_paused = true)]
async fn each_page_has_its_own_time() {
    let server = Scripted::new(|asked| {
        let mut result = plain(asked);
        let result_object = result.as_object_mut().unwrap();
        if asked.params.get("cursor").is_none() {
            result_object.insert("nextCursor".to_owned(), json!("2"));
        } else {
            result_object.insert("ttlMs".to_owned(), json!(1000));
        }
        Answer::Result(result)
    });
    let client = server.client().build();
    client.list_tools().await.unwrap();
    advance(Duration::from_secs(1)).await;
    server.asked();
    client.list_tools().await.unwrap();
    let asked: Vec<_> = server.asked().into_iter().map(|asked| asked.params).collect();
    assert_eq!(asked, [json!({ "cursor": "2" })]);
}

#[tokio::test(start_paused = true)]
async fn a_cursor_that_has_gone_stale_starts_the_list_anew() {
    let stale = Arc::new(AtomicBool::new(false));
    let is_stale = stale.clone();
    let server = Scripted::new(move |asked| {
        let mut result = plain(asked);
        let result_object = result.as_object_mut().unwrap();
        let (now, old) = if is_stale.load(Ordering::Relaxed) { ("b", "a") } else { ("a", "b") };
        match asked.params.get("cursor").and_then(Value::as_str) {
            None => drop(result_object.insert("nextCursor".to_owned(), json!(now))),
            Some(cursor) if cursor == old => {
                return Answer::Error(ErrorObject::new(code::INVALID_PARAMS, "no such cursor"));
            }
            Some(_) => drop(result_object.insert("ttlMs".to_owned(), json!(0))),
        }
        Answer::Result(result)
    });
    let client = server.client().build();
    client.list_tools().await.unwrap();
    stale.store(true, Ordering::Relaxed);
    server.asked();
    client.list_tools().await.unwrap();
    let asked: Vec<_> = server.asked().into_iter().map(|asked| asked.params).collect();
    assert_eq!(asked, [json!({ "cursor": "a" }), json!({}), json!({ "cursor": "b" })]);
}

#[tokio::test(start_paused = true)]
async fn a_refusal_for_its_headers_lists_the_tools_anew_be_they_fresh_or_not() {
    let changed = Arc::new(AtomicBool::new(false));
    let has_changed = changed.clone();
    let server = Scripted::new(move |asked| {
        let changed = has_changed.load(Ordering::Relaxed);
        let mut result = plain(asked);
        if asked.method == "tools/call" && changed && asked.headers.is_empty() {
            let refused = ErrorObject::new(code::HEADER_MISMATCH, "Mcp-Param-R is missing");
            return Answer::Error(refused);
        }
        if asked.method == "tools/list" {
            let mut property = json!({ "type": "string" });
            if changed {
                property["x-mcp-header"] = json!("R");
            }
            let schema = json!({ "type": "object", "properties": { "r": property } });
            result["tools"] = json!([{ "name": "t", "inputSchema": schema }]);
        }
        Answer::Result(result)
    });
    let client = server.client().build();
    client.list_tools().await.unwrap();
    client.call_tool("t", json!({ "r": "eu" })).await.unwrap();
    changed.store(true, Ordering::Relaxed);
    client.call_tool("t", json!({ "r": "eu" })).await.unwrap();
    assert_eq!(
        server.methods(),
        ["tools/list", "tools/call", "tools/call", "tools/list", "tools/call"]
    );
}

#[tokio::test(start_paused = true)]
async fn what_is_kept_stays_within_its_bytes() {
    let long = "x".repeat(1000);
    let server = Scripted::new(move |asked| {
        let mut result = plain(asked);
        result["contents"][0]["text"] = json!(long);
        Answer::Result(result)
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
    let asked = server.methods().len();
    assert!((96..100).contains(&asked), "{asked} of 100 were asked for again");
    let none = server.client().cache(0).build();
    none.read_resource("a:1").await.unwrap();
    none.read_resource("a:1").await.unwrap();
    assert_eq!(server.methods().len(), 2);
}
