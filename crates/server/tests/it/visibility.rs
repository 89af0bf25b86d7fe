//! Features that some callers cannot see.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use mrtr_schema::jsonrpc::Notification;
use mrtr_server::tasks::TaskPolicy;
use mrtr_server::{
    CacheControl, Change, ChangeNotifier, CompletionRequest, Context, Error, Principal, Prompt,
    RequestParts, Resource, ResourceOutput, ResourceTemplate, Server, ServerBuilder, Tool,
};
use mrtr_testkit::TestClock;
use mrtr_transport::{GrantedScopes, InProcess, OutgoingRequest, Transport as _};
use serde_json::{Value, json};

use crate::support::tasks::{TaskFleet, accept, id_of, text};
use crate::support::{LogLines, Text, alice, replica, request, with_meta};

mod uris;

#[derive(serde::Deserialize, schemars::JsonSchema)]
struct Page {
    id: String,
}

fn is_admin(caller: &RequestParts) -> bool {
    caller.has_scope("admin")
}

fn says(name: &str) -> Tool {
    Tool::new(name, "", async |_: Context| "said")
}

async fn ids(_: CompletionRequest) -> Result<Vec<String>, Error> {
    Ok(vec!["7".to_owned()])
}

async fn page(_: Context, page: Page) -> String {
    page.id
}

/// A public feature of each kind, and one for administrators.
fn builder() -> ServerBuilder {
    replica(&TestClock::default())
        .changes(ChangeNotifier::default())
        .tool(says("open"))
        .tool(says("secret").visible_to(is_admin))
        .prompt(Prompt::new("open", "", page).complete("id", ids))
        .prompt(Prompt::new("secret", "", page).complete("id", ids).visible_to(is_admin))
        .resource(Resource::new("doc://open", "open", async || "x"))
        .resource(Resource::new("doc://all/secret", "secret", async || "x").visible_to(is_admin))
        .resource_template(
            ResourceTemplate::new("doc://secret/{id}", "secret", page)
                .complete("id", ids)
                .visible_to(is_admin),
        )
        // Matches the hidden URIs, too.
        .resource_template(ResourceTemplate::new("doc://{+id}", "open", page).complete("id", ids))
}

fn transport(server: &Server, scopes: &[&str]) -> InProcess<Server> {
    InProcess::new(server.clone())
        .with_extension(alice())
        .with_extension(GrantedScopes::new(scopes.iter().copied()))
}

async fn send(server: &Server, scopes: &[&str], method: &str, params: Value) -> Value {
    let outgoing = OutgoingRequest::new(request(method, &with_meta(params)));
    match transport(server, scopes).send(outgoing).await.unwrap().outcome {
        Ok(result) => serde_json::from_str(result.get()).unwrap(),
        Err(error) => json!({ "error": error }),
    }
}

/// Every use of a feature by its name, or its URI.
fn uses(name: &str) -> Vec<(&'static str, Value)> {
    let argument = json!({ "name": "id", "value": "" });
    let prompt = json!({ "type": "ref/prompt", "name": name });
    let template = |uri: &str| json!({ "type": "ref/resource", "uri": uri });
    let mut uses = vec![
        ("tools/call", json!({ "name": name, "arguments": {} })),
        ("tools/call", json!({ "name": name, "arguments": {}, "requestState": "x" })),
        ("prompts/get", json!({ "name": name, "arguments": { "id": "1" } })),
        ("prompts/get", json!({ "name": name })),
        ("completion/complete", json!({ "ref": prompt, "argument": argument })),
    ];
    for uri in [format!("doc://{name}/4"), format!("doc://all/{name}")] {
        uses.push(("resources/read", json!({ "uri": uri })));
    }
    for uri in [format!("doc://{name}/{{id}}"), format!("doc://{name}/4")] {
        uses.push(("completion/complete", json!({ "ref": template(&uri), "argument": argument })));
    }
    uses
}

const LISTS: [(&str, &str); 4] = [
    ("tools/list", "tools"),
    ("prompts/list", "prompts"),
    ("resources/list", "resources"),
    ("resources/templates/list", "resourceTemplates"),
];

#[tokio::test]
async fn hidden_features_are_in_no_list_and_their_lists_are_private() {
    let public = CacheControl::public(Duration::from_mins(1));
    let server = builder().cache_lists(public).build().unwrap();
    for (method, list) in LISTS {
        for (scopes, expected) in [(&[][..], &["open"][..]), (&["admin"], &["open", "secret"])] {
            let result = send(&server, scopes, method, json!({})).await;
            let names = result[list].as_array().unwrap().iter();
            let mut names: Vec<_> = names.map(|item| item["name"].as_str().unwrap()).collect();
            names.sort_unstable();
            assert_eq!(names, expected, "{method}");
            assert_eq!(result["cacheScope"], "private", "{method}");
            assert_eq!(result["ttlMs"], 60_000, "{method}");
        }
    }
    let without = replica(&TestClock::default()).cache_lists(public).tool(says("open"));
    let without = without.build().unwrap();
    let result = send(&without, &[], "tools/list", json!({})).await;
    assert_eq!(result["cacheScope"], "public");
}

/// The responses do not tell a hidden feature from one that does not exist.
#[tokio::test]
async fn use_of_a_hidden_feature_gets_the_response_to_an_unknown_name() {
    let server = builder().build().unwrap();
    // Without the template that matches everything, URIs may be unknown.
    let unknown = replica(&TestClock::default()).updatable::<Tool>().updatable::<Prompt>();
    let unknown = unknown
        .updatable::<Resource>()
        .prompt(Prompt::new("x", "", page).complete("id", ids))
        .build()
        .unwrap();
    for (method, params) in uses("secret") {
        let hidden = send(&server, &["other"], method, params.clone()).await;
        assert_eq!(hidden, send(&unknown, &[], method, params.clone()).await, "{method} {params}");
        assert_eq!(hidden["error"]["code"], -32602, "{method} {params}");
        let visible = send(&server, &["admin"], method, params.clone()).await;
        // The state is invalid, and the argument is missing.
        if params.get("requestState").is_none() && params != json!({ "name": "secret" }) {
            assert!(visible.get("error").is_none(), "{method} {params}: {visible}");
        } else {
            assert_ne!(visible, hidden);
        }
    }
}

#[tokio::test]
async fn cursors_count_what_is_visible_and_do_not_reveal_the_rest() {
    let names = ["a", "hidden1", "b", "hidden2", "c", "hidden3"];
    let builder =
        names.iter().fold(replica(&TestClock::default()).page_size(2), |builder, name| {
            let tool = says(name);
            builder.tool(if name.starts_with('h') { tool.visible_to(is_admin) } else { tool })
        });
    let server = builder.build().unwrap();
    let pages = async |scopes: &[&str]| {
        let (mut pages, mut cursor) = (Vec::new(), Value::Null);
        loop {
            let params = if cursor.is_null() { json!({}) } else { json!({ "cursor": cursor }) };
            let page = send(&server, scopes, "tools/list", params).await;
            let tools = page["tools"].as_array().unwrap().iter();
            pages.push(tools.map(|tool| tool["name"].as_str().unwrap().to_owned()).collect());
            cursor = page["nextCursor"].clone();
            if cursor.is_null() {
                return pages;
            }
        }
    };
    let own: Vec<Vec<String>> = pages(&[]).await;
    assert_eq!(own, [vec!["a", "b"], vec!["c"]]);
    assert_eq!(pages(&["admin"]).await.concat(), names);

    // The cursor after a hidden entry, and after one that does not exist.
    let admins = send(&server, &["admin"], "tools/list", json!({})).await;
    let params = json!({ "cursor": admins["nextCursor"] });
    let hidden = send(&server, &[], "tools/list", params).await;
    let unknown = send(&server, &[], "tools/list", json!({ "cursor": "YWZ0ZXIgeA" })).await;
    assert_eq!(hidden, unknown);
    assert_eq!(hidden["error"]["code"], -32602);
}

#[tokio::test]
async fn all_rules_must_allow_a_caller_and_a_panic_allows_nobody() {
    let (log, _guard) = LogLines::collect();
    let server = replica(&TestClock::default())
        .tool(
            says("both")
                .visible_to(is_admin)
                .visible_to(|caller| caller.principal().is_some_and(|who| who == &alice())),
        )
        .tool(says("forms").visible_to(|caller| caller.capabilities().elicitation.is_some()))
        .tool(says("header").visible_to(|caller| caller.headers().contains_key("x-beta")))
        .tool(says("panics").visible_to(|_| unreachable!()));
    let server = server.build().unwrap();
    let names = async |transport: InProcess<Server>| {
        let outgoing = OutgoingRequest::new(request("tools/list", &with_meta(json!({}))));
        let result = transport.send(outgoing).await.unwrap().outcome.unwrap();
        let result: Value = serde_json::from_str(result.get()).unwrap();
        let tools = result["tools"].as_array().unwrap().iter();
        tools.map(|tool| tool["name"].as_str().unwrap().to_owned()).collect::<Vec<_>>()
    };
    let bob = Principal::new("https://login.example", "bob");
    let admin = || GrantedScopes::new(["admin"]);
    let server = || InProcess::new(server.clone());
    assert_eq!(
        names(server().with_extension(alice()).with_extension(admin())).await,
        ["both", "forms"]
    );
    assert_eq!(names(server().with_extension(bob).with_extension(admin())).await, ["forms"]);
    assert_eq!(names(server().with_extension(alice())).await, ["both", "forms"], "over stdio");
    assert!(log.text().contains("a visibility rule panicked"), "{}", log.text());
}

async fn ask(cx: Context) -> Result<String, Error> {
    Ok(cx.elicit::<Text>("q", "What?").await?.text)
}

#[tokio::test]
async fn later_round_is_refused_when_its_tool_is_hidden() {
    let tool = || Tool::new("t", "", ask).visible_to(is_admin);
    let server = replica(&TestClock::default()).tool(tool()).build().unwrap();
    let begun =
        send(&server, &["admin"], "tools/call", json!({ "name": "t", "arguments": {} })).await;
    let answered = json!({
        "name": "t", "arguments": {}, "requestState": begun["requestState"],
        "inputResponses": { "q": accept("x") },
    });
    let refused = send(&server, &[], "tools/call", answered.clone()).await;
    assert_eq!(refused["error"]["message"], r#"Unknown tool: "t""#);
    let done = send(&server, &["admin"], "tools/call", answered).await;
    assert_eq!(done["content"][0]["text"], "x", "{done}");
}

#[tokio::test(start_paused = true)]
async fn task_of_a_hidden_tool_does_not_exist_for_its_caller() {
    let tool = || Tool::new("t", "", ask).visible_to(is_admin).task(TaskPolicy::immediately());
    let mut fleet = TaskFleet::start(1, tool);
    fleet.scopes = Some(GrantedScopes::new(["admin"]));
    let id = id_of(&fleet.call(0, json!({})).await);
    fleet.wait_for(0, &id, "input_required").await;
    fleet.scopes = Some(GrantedScopes::new(["other"]));
    let unknown = fleet.get(0, "none").await;
    assert_eq!(unknown["error"]["code"], -32602);
    assert_eq!(fleet.get(0, &id).await, unknown);
    assert_eq!(fleet.cancel(0, &id).await, unknown);
    assert_eq!(fleet.answer(0, &id, json!({ "q": accept("x") })).await, unknown);
    fleet.scopes = Some(GrantedScopes::new(["admin"]));
    fleet.answer(0, &id, json!({ "q": accept("y") })).await;
    assert_eq!(text(&fleet.wait_for(0, &id, "completed").await), "y");
}

#[tokio::test]
async fn contents_with_a_rule_are_private_whatever_the_handler_says() {
    use mrtr_schema::content::ResourceContents;
    use mrtr_schema::resource::ReadResourceResult;
    use mrtr_schema::result::CacheScope;

    let read = async || {
        let mut result = ReadResourceResult::new(vec![ResourceContents::text("doc://r", "x")]);
        (result.ttl_ms, result.cache_scope) = (1_000, CacheScope::Public);
        ResourceOutput::from(result)
    };
    let require = async |cx: Context| -> mrtr_server::Result<_> {
        cx.require_scope("admin").await?;
        Ok("x")
    };
    // The constructor says that it may not be cached.
    let never = async || {
        let contents = vec![ResourceContents::text("doc://w", "x")];
        ResourceOutput::from(ReadResourceResult::new(contents))
    };
    let public = CacheControl::public(Duration::from_secs(2));
    let server = replica(&TestClock::default())
        .resource(Resource::new("doc://w", "w", never).cache(public))
        .resource(Resource::new("doc://r", "r", read).visible_to(is_admin))
        .resource(Resource::new("doc://s", "s", async || "x").cache(public).visible_to(is_admin))
        .resource(Resource::new("doc://t", "t", async || "x").cache(public))
        .resource(Resource::new("doc://u", "u", async || "x").cache(public).requires_scope("admin"))
        .resource(Resource::new("doc://v", "v", require).cache(public));
    let server = server.build().unwrap();
    for (uri, ttl, scope) in [
        ("doc://r", 1_000, "private"),
        ("doc://s", 2_000, "private"),
        ("doc://t", 2_000, "public"),
        ("doc://u", 2_000, "private"),
        ("doc://v", 2_000, "private"),
        ("doc://w", 0, "private"),
    ] {
        let result = send(&server, &["admin"], "resources/read", json!({ "uri": uri })).await;
        assert_eq!((&result["ttlMs"], &result["cacheScope"]), (&json!(ttl), &json!(scope)));
    }
}

#[tokio::test(start_paused = true)]
async fn subscriptions_follow_the_rules_of_each_moment() {
    let notifier = ChangeNotifier::default();
    let allowed = Arc::new(AtomicBool::new(true));
    let rule = {
        let allowed = Arc::clone(&allowed);
        move |_: &RequestParts| allowed.load(Ordering::Relaxed)
    };
    let resource = |uri: &str| Resource::new(uri, "r", async || "x");
    let server = replica(&TestClock::default())
        .changes(notifier.clone())
        .updatable::<Resource>()
        .resource(resource("doc://never").visible_to(|_| false))
        .resource(resource("doc://now").visible_to(rule))
        .resource(resource("doc://replaced"))
        .build()
        .unwrap();
    let received = Mutex::new(Vec::new());
    let uris = ["doc://never", "doc://now", "doc://replaced"];
    let params = json!({ "notifications": {
        "resourceSubscriptions": uris, "resourcesListChanged": true,
    } });
    let collect = |notification: Notification| received.lock().unwrap().push(notification);
    let listen = OutgoingRequest::new(request("subscriptions/listen", &with_meta(params)));
    let told = || {
        let all = std::mem::take(&mut *received.lock().unwrap()).into_iter();
        let uri = |told: Notification| {
            let params: Value = serde_json::from_str(told.params.unwrap().get()).unwrap();
            params["uri"].as_str().map_or(told.method, str::to_owned)
        };
        all.map(uri).collect::<Vec<_>>()
    };
    let publish = async || {
        for uri in uris {
            notifier.publish(Change::Resource(uri.to_owned()));
        }
        tokio::time::sleep(Duration::from_secs(1)).await;
        told()
    };
    let story = async {
        tokio::time::sleep(Duration::from_secs(1)).await;
        let acknowledged = received.lock().unwrap()[0].params.clone().unwrap();
        assert!(!acknowledged.get().contains("doc://never"), "{}", acknowledged.get());
        told();
        assert_eq!(publish().await, ["doc://now", "doc://replaced"]);
        allowed.store(false, Ordering::Relaxed);
        assert_eq!(publish().await, ["doc://replaced"]);
        // A replaced rule counts as a change of the list: it may differ for each caller.
        let hide = resource("doc://replaced").visible_to(|_| false);
        server.update(|update| update.replace(hide)).unwrap();
        assert_eq!(publish().await, ["notifications/resources/list_changed"]);
    };
    let transport = transport(&server, &[]);
    tokio::select! {
        ended = transport.send(listen.with_notification_handler(&collect)) => {
            unreachable!("{ended:?}")
        }
        () = story => {}
    }
}

#[tokio::test(start_paused = true)]
async fn subscription_leaves_out_resources_without_their_scopes() {
    let notifier = ChangeNotifier::default();
    let server = replica(&TestClock::default())
        .changes(notifier.clone())
        .resource(Resource::new("doc://read", "r", async || "x").requires_scope("read"))
        .resource(Resource::new("doc://pay", "p", async || "x").requires_scope("pay"))
        .build()
        .unwrap();
    let uris = ["doc://read", "doc://pay"];
    let params = json!({ "notifications": { "resourceSubscriptions": uris } });
    let received = Mutex::new(Vec::new());
    let collect = |told: Notification| {
        received.lock().unwrap().push(told.params.unwrap().get().to_owned());
    };
    let listen = OutgoingRequest::new(request("subscriptions/listen", &with_meta(params)));
    let transport = transport(&server, &["read"]);
    let listening = transport.send(listen.with_notification_handler(&collect));
    let publishing = async {
        tokio::time::sleep(Duration::from_secs(1)).await;
        for uri in uris {
            notifier.publish(Change::Resource(uri.to_owned()));
        }
        tokio::time::sleep(Duration::from_secs(1)).await;
    };
    tokio::select! {
        ended = listening => unreachable!("{ended:?}"),
        () = publishing => {}
    }
    let received = received.into_inner().unwrap();
    assert_eq!(received.len(), 2, "{received:?}");
    assert!(received.iter().all(|told| told.contains("doc://read") && !told.contains("doc://pay")));
}
