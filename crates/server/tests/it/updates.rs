//! Changes of what a running server offers.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use mrtr_schema::jsonrpc::Notification;
use mrtr_server::tasks::TaskPolicy;
use mrtr_server::{
    BuildError, CompletionRequest, Context, Error, Prompt, Resource, ResourceTemplate, Server,
    ServerBuilder, ServerUpdate, State, Tool,
};
use mrtr_testkit::TestClock;
use mrtr_transport::{InProcess, OutgoingRequest, Transport as _};
use serde_json::{Value, json};
use tokio::sync::Semaphore;

use crate::support::tasks::{TaskFleet, accept, id_of, text};
use crate::support::{Text, alice, replica, request, with_meta};

/// A tool that returns a text.
fn says(name: &str, text: &'static str) -> Tool {
    Tool::new(name, "", move |_: Context| async move { text })
}

fn updatable() -> ServerBuilder {
    let builder = replica(&TestClock::default()).updatable::<Tool>().updatable::<Prompt>();
    builder.updatable::<Resource>()
}

async fn send(server: &Server, method: &str, params: Value) -> Value {
    let transport = InProcess::new(server.clone()).with_extension(alice());
    let outgoing = OutgoingRequest::new(request(method, &with_meta(params)));
    match transport.send(outgoing).await.unwrap().outcome {
        Ok(result) => serde_json::from_str(result.get()).unwrap(),
        Err(error) => json!({ "error": error }),
    }
}

/// Calls a tool without arguments. Returns the text of its result, or the message of the error.
async fn call(server: &Server, name: &str) -> String {
    let result = send(server, "tools/call", json!({ "name": name, "arguments": {} })).await;
    let text = result.pointer("/content/0/text").or_else(|| result.pointer("/error/message"));
    text.and_then(Value::as_str).unwrap().to_owned()
}

/// Returns the names in a list.
async fn names(server: &Server, method: &str, list: &str) -> Vec<String> {
    let result = send(server, method, json!({})).await;
    let entries = result[list].as_array().unwrap().iter();
    entries.map(|entry| entry["name"].as_str().unwrap().to_owned()).collect()
}

async fn tools(server: &Server) -> Vec<String> {
    names(server, "tools/list", "tools").await
}

#[tokio::test]
async fn update_decides_what_is_listed_and_what_may_be_called() {
    let server = updatable().tool(says("a", "1")).tool(says("b", "1")).build().unwrap();
    let update = |update: &mut ServerUpdate| {
        update.add(says("c", "1"))?;
        update.replace(says("a", "2"))?;
        assert!(update.disable::<Tool>("b") && !update.disable::<Tool>("x"));
        assert!(!update.remove::<Prompt>("a"));
        Ok(())
    };
    server.update(update).unwrap();
    assert_eq!(tools(&server).await, ["a", "c"]);
    assert_eq!((&*call(&server, "a").await, &*call(&server, "c").await), ("2", "1"));
    assert_eq!(call(&server, "b").await, r#"Unknown tool: "b""#);

    // A disabled tool can be replaced, stays disabled, and returns to its place.
    let replaced = server.update(|update| update.replace(says("b", "2")));
    replaced.unwrap();
    assert_eq!(tools(&server).await, ["a", "c"]);
    let enable = |update: &mut ServerUpdate| {
        assert!(update.enable::<Tool>("b") && update.remove::<Tool>("c"));
        Ok(())
    };
    server.update(enable).unwrap();
    assert_eq!(tools(&server).await, ["a", "b"]);
    assert_eq!(
        (&*call(&server, "b").await, &*call(&server, "c").await),
        ("2", r#"Unknown tool: "c""#)
    );
}

#[tokio::test]
async fn prompts_resources_and_templates_change_with_their_completions() {
    let server = updatable().build().unwrap();
    let discovered = send(&server, "server/discover", json!({})).await;
    for list in ["tools", "prompts", "resources"] {
        assert_eq!(discovered["capabilities"][list]["listChanged"], true, "{discovered}");
    }
    assert!(discovered["capabilities"]["resources"].get("subscribe").is_none(), "{discovered}");
    let ids = async |typed: CompletionRequest| Ok(vec![format!("{}7", typed.value)]);
    let page = async |_: Context, page: Page| page.id;
    server
        .update(|update| {
            update.add(Prompt::new("p", "", page).complete("id", ids))?;
            update.add(Resource::new("doc://s", "s", async |_: Context| "static"))?;
            update.add(ResourceTemplate::new("doc://p/{id}", "t", page).complete("id", ids))
        })
        .unwrap();
    assert_eq!(names(&server, "prompts/list", "prompts").await, ["p"]);
    assert_eq!(names(&server, "resources/list", "resources").await, ["s"]);
    let read = send(&server, "resources/read", json!({ "uri": "doc://p/4" })).await;
    assert_eq!(read["contents"][0]["text"], "4");
    let argument = json!({ "name": "id", "value": "1" });
    for reference in [
        json!({ "type": "ref/prompt", "name": "p" }),
        json!({ "type": "ref/resource", "uri": "doc://p/{id}" }),
    ] {
        let params = json!({ "ref": reference, "argument": argument });
        let completed = send(&server, "completion/complete", params).await;
        assert_eq!(completed["completion"]["values"][0], "17", "{completed}");
    }
    server
        .update(|update| {
            assert!(update.disable::<ResourceTemplate>("doc://p/{id}"));
            assert!(update.disable::<Prompt>("p") && update.disable::<Resource>("doc://s"));
            Ok(())
        })
        .unwrap();
    for (method, params) in [
        ("resources/read", json!({ "uri": "doc://p/4" })),
        ("resources/read", json!({ "uri": "doc://s" })),
        ("prompts/get", json!({ "name": "p", "arguments": { "id": "1" } })),
        (
            "completion/complete",
            json!({ "ref": { "type": "ref/prompt", "name": "p" }, "argument": argument }),
        ),
    ] {
        let refused = send(&server, method, params).await;
        assert_eq!(refused["error"]["code"], -32602, "{method}: {refused}");
    }
}

#[derive(serde::Deserialize, schemars::JsonSchema)]
struct Page {
    id: String,
}

#[tokio::test]
async fn update_that_fails_changes_nothing() {
    let server = updatable().tool(says("a", "1")).build().unwrap();
    let needs_state = Tool::new("s", "", async |_: Context, State(n): State<u32>| n.to_string());
    let single = says("u", "1").single_use();
    let task = says("t", "1").task(TaskPolicy::immediately());
    for (tool, expected) in [
        (says("a", "2"), "duplicate tool \"a\""),
        (says("not a name", "2"), "invalid tool name"),
        (needs_state, "State<u32>"),
        (single, "single use"),
        (task, "task policy"),
    ] {
        let edit = |update: &mut ServerUpdate| {
            update.remove::<Resource>("x");
            update.add(says("new", "1"))?;
            update.add(tool)
        };
        let error = server.update(edit).unwrap_err();
        assert!(error.to_string().contains(expected), "{error}");
        assert_eq!(tools(&server).await, ["a"]);
    }
    let refused = server.update(|update| {
        update.add(says("new", "1"))?;
        Err(BuildError::NoKeyRing)
    });
    assert_eq!(refused, Err(BuildError::NoKeyRing));
    assert_eq!(tools(&server).await, ["a"]);

    let fixed = replica(&TestClock::default()).updatable::<Prompt>().tool(says("a", "1"));
    let fixed = fixed.build().unwrap();
    let refused = fixed.update(|update| {
        update.remove::<Tool>("a");
        Ok(())
    });
    assert_eq!(refused, Err(BuildError::NotUpdatable("tools")));
    assert_eq!(tools(&fixed).await, ["a"]);
}

#[tokio::test(start_paused = true)]
async fn subscribers_are_told_which_lists_have_changed() {
    let server = updatable().tool(says("a", "1")).build().unwrap();
    let received = Mutex::new(Vec::new());
    let transport = InProcess::new(server.clone()).with_extension(alice());
    let lists = json!({ "notifications": {
        "toolsListChanged": true, "promptsListChanged": true, "resourcesListChanged": true,
    } });
    let collect = |notification: Notification| received.lock().unwrap().push(notification);
    let listen = OutgoingRequest::new(request("subscriptions/listen", &with_meta(lists)));
    let told = || {
        let mut received = received.lock().unwrap();
        let all = std::mem::take(&mut *received).into_iter();
        all.map(|told| told.method.trim_start_matches("notifications/").to_owned())
            .collect::<Vec<_>>()
    };
    let turn = async || tokio::time::sleep(Duration::from_secs(1)).await;
    let story = async {
        turn().await;
        assert_eq!(told(), ["subscriptions/acknowledged"]);
        server.update(|update| update.add(says("b", "1"))).unwrap();
        turn().await;
        assert_eq!(told(), ["tools/list_changed"]);
        // Clients see no difference.
        server.update(|update| update.replace(says("b", "2"))).unwrap();
        turn().await;
        assert_eq!(told(), [""; 0]);
        server
            .update(|update| {
                update.disable::<Tool>("b");
                update.add(ResourceTemplate::new(
                    "doc://p/{id}",
                    "t",
                    async |_: Context, page: Page| page.id,
                ))
            })
            .unwrap();
        turn().await;
        assert_eq!(told(), ["tools/list_changed", "resources/list_changed"]);
    };
    tokio::select! {
        ended = transport.send(listen.with_notification_handler(&collect)) => unreachable!("{ended:?}"),
        () = story => {}
    }
}

/// A subscription can outlive many updates.
#[tokio::test(start_paused = true)]
async fn subscription_keeps_no_removed_features_in_memory() {
    let plain = updatable();
    let layered = updatable().layer(tower_layer::Identity::new());
    for builder in [plain, layered] {
        let captured = Arc::new("1");
        let kept = Arc::downgrade(&captured);
        let tool = Tool::new("a", "", move |_: Context| {
            let captured = Arc::clone(&captured);
            async move { *captured }
        });
        let server = builder.tool(tool).build().unwrap();
        let transport = InProcess::new(server.clone()).with_extension(alice());
        let params = with_meta(json!({ "notifications": { "toolsListChanged": true } }));
        let received = Mutex::new(Vec::new());
        let collect = |told: Notification| received.lock().unwrap().push(told.method);
        let listen = OutgoingRequest::new(request("subscriptions/listen", &params));
        let story = async {
            tokio::time::sleep(Duration::from_secs(1)).await;
            assert!(kept.upgrade().is_some());
            server
                .update(|update| {
                    update.remove::<Tool>("a").then_some(()).ok_or(BuildError::NoKeyRing)
                })
                .unwrap();
            tokio::time::sleep(Duration::from_secs(1)).await;
            assert_eq!(received.lock().unwrap().len(), 2);
            assert!(kept.upgrade().is_none());
        };
        tokio::select! {
            ended = transport.send(listen.with_notification_handler(&collect)) => unreachable!("{ended:?}"),
            () = story => {}
        }
    }
}

#[tokio::test]
async fn call_in_flight_ends_on_what_it_began_with() {
    let go = Arc::new(Semaphore::new(0));
    let waits = {
        let go = Arc::clone(&go);
        Tool::new("a", "", move |_: Context| {
            let go = Arc::clone(&go);
            async move {
                go.acquire().await.unwrap().forget();
                "1"
            }
        })
    };
    let server = updatable().tool(waits).build().unwrap();
    let in_flight = call(&server, "a");
    let change = async {
        server.update(|update| update.replace(says("a", "2"))).unwrap();
        assert_eq!(call(&server, "a").await, "2");
        go.add_permits(1);
    };
    assert_eq!(tokio::join!(in_flight, change).0, "1");
}

/// A tool of a version, which asks.
fn asks(version: u32) -> Tool {
    let ask = move |cx: Context| async move {
        let text = cx.elicit::<Text>("q", "What?").await?.text;
        Ok::<_, Error>(format!("{version}: {text}"))
    };
    Tool::new("t", "", ask).version(version)
}

#[tokio::test]
async fn call_continues_with_the_tool_that_has_its_name_then() {
    let server = updatable().tool(asks(1)).build().unwrap();
    let begun = send(&server, "tools/call", json!({ "name": "t", "arguments": {} })).await;
    let answered = json!({
        "name": "t", "arguments": {}, "requestState": begun["requestState"],
        "inputResponses": { "q": accept("x") },
    });
    server
        .update(|update| {
            update.remove::<Tool>("t");
            Ok(())
        })
        .unwrap();
    let refused = send(&server, "tools/call", answered.clone()).await;
    assert_eq!(refused["error"]["message"], r#"Unknown tool: "t""#);
    server.update(|update| update.add(asks(2))).unwrap();
    let done = send(&server, "tools/call", answered).await;
    assert_eq!(done["content"][0]["text"], "2: x", "{done}");
}

#[tokio::test]
async fn list_goes_on_behind_the_last_entry_that_was_listed() {
    let builder = "abcdef"
        .chars()
        .fold(updatable().page_size(2), |builder, name| builder.tool(says(&name.to_string(), "1")));
    let server = builder.build().unwrap();
    let page = async |cursor: &Value| {
        let params = if cursor.is_null() { json!({}) } else { json!({ "cursor": cursor }) };
        let result = send(&server, "tools/list", params).await;
        let names = result["tools"].as_array().map(|tools| {
            tools.iter().map(|tool| tool["name"].as_str().unwrap().to_owned()).collect::<String>()
        });
        (names, result["nextCursor"].clone())
    };
    let (first, cursor) = page(&Value::Null).await;
    assert_eq!(first.as_deref(), Some("ab"));
    let edit = |update: &mut ServerUpdate| {
        update.remove::<Tool>("a");
        update.disable::<Tool>("d");
        Ok(())
    };
    server.update(edit).unwrap();
    let (second, end) = page(&cursor).await;
    assert_eq!(second.as_deref(), Some("ce"));
    let (third, none) = page(&end).await;
    assert_eq!((third.as_deref(), none), (Some("f"), Value::Null));
    // The entry is gone: the client lists again.
    server
        .update(|update| {
            update.disable::<Tool>("b");
            Ok(())
        })
        .unwrap();
    assert_eq!(page(&cursor).await.0, None);
}

#[tokio::test(start_paused = true)]
async fn task_waits_until_its_tool_is_there_again() {
    let tool = |version| asks(version).task(TaskPolicy::immediately());
    let fleet = TaskFleet::start_with(1, |_, builder| builder.updatable::<Tool>().tool(tool(1)));
    let id = id_of(&fleet.call(0, json!({})).await);
    fleet.wait_for(0, &id, "input_required").await;
    let server = &fleet.servers[0];
    server
        .update(|update| {
            update.disable::<Tool>("t");
            Ok(())
        })
        .unwrap();
    fleet.answer(0, &id, json!({ "q": accept("x") })).await;
    tokio::time::sleep(Duration::from_mins(1)).await;
    assert_eq!(fleet.get(0, &id).await["status"], "working");
    server.update(|update| update.replace(tool(2))).unwrap();
    server
        .update(|update| {
            update.enable::<Tool>("t");
            Ok(())
        })
        .unwrap();
    assert_eq!(text(&fleet.wait_for(0, &id, "completed").await), "2: x");
}
