//! The results of all methods on the wire.

#![expect(clippy::panic, reason = "handlers panic on purpose")]

use std::time::Duration;

use mrtr_schema::content::{ContentBlock, ResourceContents, Role};
use mrtr_schema::icon::Icon;
use mrtr_server::tasks::MemoryTaskStore;
use mrtr_server::{
    CacheControl, ChangeNotifier, CompletionRequest, Context, Error, ExtensionRequest, Prompt,
    PromptOutput, Resource, ResourceOutput, ResourceTemplate, Result, Tool, ToolOutput,
};
use mrtr_testkit::{Replicas, TestClock};
use serde_json::{Value, json};

use crate::support::{Text, alice, replica, send_request, with_meta};

#[derive(serde::Deserialize, schemars::JsonSchema)]
struct Doc {
    id: String,
    lang: Option<String>,
}

fn icon() -> Icon {
    Icon::new("https://a.example/i.png")
        .with_mime_type("image/png")
        .with_sizes(vec!["48x48".to_owned()])
        .with_theme("dark")
}

fn everything() -> Replicas {
    let clock = TestClock::default();
    let ask = async |cx: Context| -> Result<_> { Ok(cx.elicit::<Text>("q", "?").await?.text) };
    let panics = |_: Context| -> std::future::Ready<Result<PromptOutput>> { panic!("secret") };
    let read_panics =
        |_: Context| -> std::future::Ready<Result<ResourceOutput>> { panic!("secret") };
    let ids = async |typed: CompletionRequest| match typed.value.as_str() {
        "fail" => Err(Error::internal("secret")),
        "wrong" => Err(Error::invalid("no such id")),
        "panic" => panic!("secret"),
        "who" => Ok(vec![
            typed.principal().map_or("anonymous", mrtr_server::Principal::subject).to_owned(),
        ]),
        "known" => Ok(typed.arguments.into_keys().collect()),
        _ => Ok(vec!["1".to_owned()]),
    };
    let server = replica(&clock)
        .cache_lists(CacheControl::public(Duration::from_mins(1)))
        .changes(ChangeNotifier::new())
        .tool(Tool::new("a", "", ask))
        .tool(Tool::new("A", "", async |_: Context| "large"))
        .tool(Tool::new("typed", "", async |_: Context, doc: Doc| doc.id).icons([icon()]))
        .tool(Tool::new("fails", "", async |_: Context| -> Result<_> {
            Err::<ToolOutput, _>(Error::internal("secret"))
        }))
        .prompt(
            Prompt::new("p", "", async |_: Context, doc: Doc| doc.lang.unwrap_or(doc.id))
                .complete("id", ids),
        )
        .prompt(Prompt::new("fails", "", async |_: Context| -> Result<_> {
            Err::<PromptOutput, _>(Error::internal("secret"))
        }))
        .prompt(Prompt::new("panics", "", panics))
        .prompt(Prompt::new("wrong", "", async |_: Context| -> Result<_> {
            Err::<PromptOutput, _>(Error::invalid("not on Sundays"))
        }))
        .resource(
            Resource::new("a:1", "one", async |_: Context| "x")
                .cache(CacheControl::public(Duration::from_secs(1))),
        )
        .resource(Resource::new("a:fails", "fails", async |_: Context| -> Result<_> {
            Err::<ResourceOutput, _>(Error::internal("secret"))
        }))
        .resource(Resource::new("a:panics", "panics", read_panics))
        .resource_template(
            ResourceTemplate::new(
                "doc://{id}{?lang}",
                "docs",
                async |_: Context, doc: Doc| -> Result<_> {
                    if doc.id == "0" {
                        Err(Error::invalid("Resource not found"))
                    } else {
                        Ok(doc.id)
                    }
                },
            )
            .complete("id", ids),
        )
        .resource_template(ResourceTemplate::new(
            "file:///{+path}",
            "files",
            async |_: Context, args: Path| args.path,
        ))
        .build()
        .unwrap();
    Replicas::new([server]).as_principal(alice())
}

#[derive(serde::Deserialize, schemars::JsonSchema)]
struct Path {
    path: String,
}

async fn send(method: &str, params: Value) -> Value {
    send_request(&everything(), method, with_meta(params)).await
}

#[tokio::test]
async fn every_result_has_type_server_info_and_cache_hints() {
    let id = json!({ "name": "id", "value": "" });
    for (method, params, ttl, scope) in [
        ("server/discover", json!({}), 60_000, "public"),
        ("tools/list", json!({}), 60_000, "public"),
        ("prompts/list", json!({}), 60_000, "public"),
        ("resources/list", json!({}), 60_000, "public"),
        ("resources/templates/list", json!({}), 60_000, "public"),
        ("resources/read", json!({ "uri": "a:1" }), 1_000, "public"),
        ("resources/read", json!({ "uri": "doc://1" }), 0, "private"),
        ("tools/call", json!({ "name": "A" }), -1, ""),
        ("tools/call", json!({ "name": "fails" }), -1, ""),
        ("prompts/get", json!({ "name": "p", "arguments": { "id": "1" } }), -1, ""),
        (
            "completion/complete",
            json!({ "ref": { "type": "ref/prompt", "name": "p" }, "argument": id }),
            -1,
            "",
        ),
    ] {
        let result = send(method, params).await;
        assert_eq!(result["resultType"], "complete", "{method}: {result}");
        let info = &result["_meta"]["io.modelcontextprotocol/serverInfo"];
        assert_eq!(info, &json!({ "name": "test", "version": "1" }), "{method}");
        if ttl < 0 {
            assert_eq!((result.get("ttlMs"), result.get("cacheScope")), (None, None), "{method}");
        } else {
            assert_eq!(
                (&result["ttlMs"], &result["cacheScope"]),
                (&json!(ttl), &json!(scope)),
                "{method}"
            );
        }
    }
    let asks = send("tools/call", json!({ "name": "a" })).await;
    assert_eq!(asks["resultType"], "input_required");
    assert_eq!(asks["_meta"]["io.modelcontextprotocol/serverInfo"]["name"], "test");
    assert_eq!((asks.get("ttlMs"), asks.get("cacheScope")), (None, None));
}

#[tokio::test]
async fn list_changed_is_declared_only_with_a_change_notifier() {
    let capabilities = send("server/discover", json!({})).await["capabilities"].clone();
    for kind in ["tools", "prompts", "resources"] {
        assert_eq!(capabilities[kind]["listChanged"], true, "{kind}");
    }
    assert_eq!(capabilities["resources"]["subscribe"], true);
    assert!(capabilities["completions"].is_object(), "{capabilities}");
    let bare = replica(&TestClock::default()).tool(Tool::new("t", "", async |_: Context| "x"));
    let bare = Replicas::new([bare.build().unwrap()]).as_principal(alice());
    let capabilities =
        send_request(&bare, "server/discover", with_meta(json!({}))).await["capabilities"].clone();
    assert_eq!(capabilities["tools"].get("listChanged"), None);
    assert_eq!((capabilities.get("prompts"), capabilities.get("completions")), (None, None));
    for method in ["completion/complete", "prompts/list", "resources/list"] {
        let refused = send_request(&bare, method, with_meta(json!({}))).await;
        assert_eq!(refused["error"]["code"], -32601, "{method}");
    }
}

#[tokio::test]
async fn lists_use_the_wire_format_of_the_specification() {
    let tools = send("tools/list", json!({})).await;
    let tool = |name: &str| {
        let all = tools["tools"].as_array().unwrap();
        all.iter().find(|tool| tool["name"] == name).unwrap().clone()
    };
    assert_eq!(
        tool("A")["inputSchema"],
        json!({ "type": "object", "additionalProperties": false })
    );
    let typed = tool("typed");
    assert_eq!(
        typed["inputSchema"],
        json!({
            "type": "object",
            "properties": { "id": { "type": "string" }, "lang": { "type": ["string", "null"] } },
            "required": ["id"],
        })
    );
    assert_eq!(
        typed["icons"],
        json!([{ "src": "https://a.example/i.png", "mimeType": "image/png", "sizes": ["48x48"], "theme": "dark" }])
    );
    let templates = send("resources/templates/list", json!({})).await;
    assert_eq!(
        templates["resourceTemplates"][0],
        json!({ "uriTemplate": "doc://{id}{?lang}", "name": "docs" })
    );
}

/// A list depends neither on the connection nor on earlier requests.
#[tokio::test]
async fn lists_do_not_depend_on_earlier_requests() {
    let (one, two) = (everything(), everything());
    let list = async |fleet: &Replicas| {
        let mut all = Vec::new();
        for method in ["tools/list", "prompts/list", "resources/list", "resources/templates/list"] {
            all.push(send_request(fleet, method, with_meta(json!({}))).await);
        }
        all
    };
    let before = list(&one).await;
    for (method, params) in [
        ("tools/call", json!({ "name": "A" })),
        ("tools/call", json!({ "name": "a" })),
        ("prompts/get", json!({ "name": "p", "arguments": { "id": "1" } })),
        ("resources/read", json!({ "uri": "a:1" })),
    ] {
        send_request(&one, method, with_meta(params)).await;
    }
    assert_eq!(before, list(&one).await);
    assert_eq!(before, list(&two).await);
}

#[tokio::test]
async fn tool_names_are_case_sensitive() {
    assert_eq!(send("tools/call", json!({ "name": "A" })).await["content"][0]["text"], "large");
    assert_eq!(send("tools/call", json!({ "name": "a" })).await["resultType"], "input_required");
}

#[tokio::test]
async fn client_info_does_not_bind_a_call() {
    let fleet = everything();
    let with_info = |info: Value| {
        let mut params = with_meta(json!({ "name": "a" }));
        params["_meta"]["io.modelcontextprotocol/clientInfo"] = info;
        params
    };
    let one = json!({ "name": "one", "version": "1" });
    let first = send_request(&fleet, "tools/call", with_info(one)).await;
    let mut retry = with_info(json!({ "name": "other", "version": "9" }));
    retry["requestState"] = first["requestState"].clone();
    retry["inputResponses"] =
        json!({ "q": { "action": "accept", "content": { "text": "continued" } } });
    let result = send_request(&fleet, "tools/call", retry).await;
    assert_eq!(result["content"][0]["text"], "continued");
}

#[tokio::test]
async fn errors_of_prompts_resources_and_completion_have_their_codes() {
    let complete = |value: &str| json!({ "ref": { "type": "ref/prompt", "name": "p" }, "argument": { "name": "id", "value": value } });
    for (method, params, number, part) in [
        ("prompts/get", json!({ "name": "nope" }), -32602, "nope"),
        ("prompts/get", json!({ "name": "p" }), -32602, "\"id\""),
        ("prompts/get", json!({ "name": "p", "arguments": { "id": 5 } }), -32602, "arguments"),
        ("prompts/get", json!({ "name": "fails" }), -32603, ""),
        ("prompts/get", json!({ "name": "panics" }), -32603, ""),
        ("prompts/get", json!({ "name": "wrong" }), -32602, "not on Sundays"),
        ("resources/read", json!({ "uri": "a:2" }), -32602, "not found"),
        ("resources/read", json!({ "uri": "doc://0" }), -32602, "not found"),
        ("resources/read", json!({ "uri": "a:fails" }), -32603, ""),
        ("resources/read", json!({ "uri": "a:panics" }), -32603, ""),
        (
            "subscriptions/listen",
            json!({ "notifications": { "resourceSubscriptions": ["no uri"] } }),
            -32602,
            "no uri",
        ),
        ("completion/complete", json!({}), -32602, "ref"),
        (
            "completion/complete",
            json!({ "ref": { "type": "ref/prompt", "name": "p" } }),
            -32602,
            "argument",
        ),
        (
            "completion/complete",
            json!({ "ref": { "type": "ref/prompt", "name": "p" }, "argument": { "name": "x", "value": "" } }),
            -32602,
            "\"x\"",
        ),
        (
            "completion/complete",
            json!({ "ref": { "type": "ref/prompt", "name": "q" }, "argument": { "name": "id", "value": "" } }),
            -32602,
            "\"q\"",
        ),
        (
            "completion/complete",
            json!({ "ref": { "type": "ref/resource", "uri": "b://1" }, "argument": { "name": "id", "value": "" } }),
            -32602,
            "b://1",
        ),
        ("completion/complete", complete("fail"), -32603, ""),
        ("completion/complete", complete("panic"), -32603, ""),
        ("completion/complete", complete("wrong"), -32602, "no such id"),
    ] {
        let result = send(method, params.clone()).await;
        let message = result["error"]["message"].as_str().unwrap_or_default().to_owned();
        assert_eq!(result["error"]["code"], number, "{method} {params}: {result}");
        assert!(message.contains(part) && !message.contains("secret"), "{params}: {message}");
        if method == "resources/read" && number == -32602 {
            assert_eq!(result["error"]["data"]["uri"], params["uri"]);
        }
    }
    let fine = json!({ "name": "p", "arguments": { "id": "1" } });
    assert_eq!(send("prompts/get", fine).await["messages"][0]["content"]["text"], "1");
}

#[tokio::test]
async fn completion_sees_the_principal_and_declared_arguments_only() {
    let suggest = async |of: Value, value: &str, known: Value| {
        let argument = json!({ "name": "id", "value": value });
        let params = json!({ "ref": of, "argument": argument, "context": { "arguments": known } });
        send("completion/complete", params).await["completion"]["values"].clone()
    };
    let prompt = json!({ "type": "ref/prompt", "name": "p" });
    assert_eq!(suggest(prompt.clone(), "who", json!({})).await, json!(["alice"]));
    assert_eq!(
        suggest(prompt, "known", json!({ "lang": "de", "drop": "table" })).await,
        json!(["lang"])
    );
    for uri in ["doc://{id}{?lang}", "doc://7"] {
        let of = json!({ "type": "ref/resource", "uri": uri });
        assert_eq!(suggest(of, "", json!({})).await, json!(["1"]), "{uri}");
    }
}

#[tokio::test]
async fn template_variables_reject_path_traversal() {
    for (uri, fits) in [
        ("file:///a/b.txt", true),
        ("file:///a/b..c", true),
        ("file:////etc/passwd", false),
        ("doc://%2Fetc%2Fpasswd", false),
        ("file:///../etc/passwd", false),
        ("file:///a/../../etc/passwd", false),
        ("file:///a/%2e%2e/%2E%2e/etc", false),
        ("file:///a%2f..%2fb", false),
        ("file:///a%5c..%5cb", false),
        ("file:///a%00b", false),
        ("doc://..", false),
        ("doc://..%2fx", false),
    ] {
        let read = send("resources/read", json!({ "uri": uri })).await;
        assert_eq!(read.get("contents").is_some(), fits, "{uri}: {read}");
        if !fits {
            assert_eq!(read["error"]["code"], -32602, "{uri}: {read}");
        }
    }
}

#[tokio::test]
async fn invalid_arguments_are_named_without_positions() {
    for (name, arguments, part) in [
        ("A", json!({ "x": 1 }), "x"),
        ("typed", json!({ "id": 5 }), "id"),
        ("typed", json!({}), "id"),
    ] {
        let result = send("tools/call", json!({ "name": name, "arguments": arguments })).await;
        let text = result["content"][0]["text"].as_str().unwrap();
        assert_eq!(result["isError"], true, "{result}");
        assert!(text.contains(part) && !text.contains("column"), "{text}");
    }
}

/// The log has the reason; the client gets an internal error.
#[tokio::test]
async fn malformed_content_is_not_sent() {
    let image = || {
        let block = json!({ "type": "image", "data": "no base64", "mimeType": "image/png" });
        serde_json::from_value::<ContentBlock>(block).unwrap()
    };
    let server = replica(&TestClock::default())
        .tool(Tool::new("t", "", move |_: Context| {
            std::future::ready(Ok::<_, Error>(ToolOutput::content([image()])))
        }))
        .prompt(Prompt::new("p", "", move |_: Context| {
            std::future::ready(Ok::<_, Error>(PromptOutput::messages([(Role::User, image())])))
        }))
        .resource(Resource::new("a:1", "one", async |_: Context| -> Result<_> {
            let contents = json!({ "uri": "a:1", "blob": "no base64" });
            Ok(ResourceOutput::many([serde_json::from_value::<ResourceContents>(contents)?]))
        }))
        .build()
        .unwrap();
    let fleet = Replicas::new([server]).as_principal(alice());
    for (method, params) in [
        ("tools/call", json!({ "name": "t" })),
        ("prompts/get", json!({ "name": "p" })),
        ("resources/read", json!({ "uri": "a:1" })),
    ] {
        let refused = send_request(&fleet, method, with_meta(params)).await;
        assert_eq!(refused["error"]["code"], -32603, "{method}: {refused}");
    }
}

#[tokio::test]
async fn every_list_has_pages() {
    let text = |name: &str| Resource::new(format!("a:{name}"), name, async |_: Context| "x");
    let template = |name: &str| {
        ResourceTemplate::new(
            format!("{name}://{{path}}"),
            name,
            async |_: Context, at: Path| -> Result<_> { Ok(at.path) },
        )
    };
    let builder = replica(&TestClock::default()).page_size(1);
    let server = ["x", "y"].into_iter().fold(builder, |builder, name| {
        builder
            .tool(Tool::new(name, "", async |_: Context| "x"))
            .prompt(Prompt::new(name, "", async |_: Context| "x"))
            .resource(text(name))
            .resource_template(template(name))
    });
    let fleet = Replicas::new([server.build().unwrap()]).as_principal(alice());
    for (method, member) in [
        ("tools/list", "tools"),
        ("prompts/list", "prompts"),
        ("resources/list", "resources"),
        ("resources/templates/list", "resourceTemplates"),
    ] {
        let first = send_request(&fleet, method, with_meta(json!({}))).await;
        let cursor = json!({ "cursor": first["nextCursor"] });
        let second = send_request(&fleet, method, with_meta(cursor)).await;
        let name = |page: &Value| page[member][0]["name"].clone();
        assert_eq!([name(&first), name(&second)], [json!("x"), json!("y")], "{method}");
        assert_eq!((first[member].as_array().unwrap().len(), second.get("nextCursor")), (1, None));
    }
}

/// An extension such as tasks adds its methods in this way.
#[tokio::test]
async fn extension_declares_settings_and_adds_methods() {
    #[derive(serde::Deserialize)]
    struct Get {
        id: u32,
    }
    let object = |value: Value| value.as_object().unwrap().clone();
    let server = replica(&TestClock::default())
        .extension("com.example/tasks", object(json!({ "list": true })))
        .method("tasks/get", async |call: ExtensionRequest| {
            let who = call.principal().map(|who| who.subject().to_owned());
            let Get { id } = call.read()?;
            let result = json!({ "id": id, "who": who, "resultType": if id == 0 { "task" } else { "complete" } });
            Ok(result.as_object().cloned().unwrap_or_default())
        })
        .method("tasks/plain", async |_: ExtensionRequest| Ok(mrtr_schema::Object::new()))
        .method("tasks/panics", |_: ExtensionRequest| -> std::future::Ready<_> { panic!("secret") })
        .build()
        .unwrap();
    let fleet = Replicas::new([server]).as_principal(alice());
    let send =
        async |method: &str, params: Value| send_request(&fleet, method, with_meta(params)).await;
    let discovered = send("server/discover", json!({})).await;
    assert_eq!(
        discovered["capabilities"]["extensions"],
        json!({ "com.example/tasks": { "list": true } })
    );
    let task = send("tasks/get", json!({ "id": 0 })).await;
    assert_eq!((&task["resultType"], &task["who"]), (&json!("task"), &json!("alice")));
    let plain = send("tasks/plain", json!({})).await;
    assert_eq!(plain["resultType"], "complete");
    assert_eq!(plain["_meta"]["io.modelcontextprotocol/serverInfo"]["name"], "test");
    for (method, params, code) in [
        ("tasks/get", json!({ "id": "x" }), -32602),
        ("tasks/panics", json!({}), -32603),
        ("tasks/none", json!({}), -32601),
    ] {
        assert_eq!(send(method, params).await["error"]["code"], code, "{method}");
    }
    for wrong in [
        "tasks",
        "com.example/",
        "/tasks",
        "1com.example/tasks",
        "com..example/t",
        "com.example/a b",
    ] {
        let builder = replica(&TestClock::default()).extension(wrong, mrtr_schema::Object::new());
        assert!(
            builder.build().unwrap_err().to_string().contains("invalid extension identifier"),
            "{wrong}"
        );
    }
    // Protocol methods are reserved even if this server has no prompts.
    let builder = replica(&TestClock::default())
        .method("prompts/get", async |_: ExtensionRequest| Ok(mrtr_schema::Object::new()));
    assert!(builder.build().unwrap_err().to_string().contains("is a method of the protocol"));
    // Those of tasks are served by the task store, if there is one.
    let builder = || {
        let answer = async |_: ExtensionRequest| Ok(mrtr_schema::Object::new());
        replica(&TestClock::default()).method("tasks/get", answer)
    };
    assert!(builder().build().is_ok());
    let error = builder().task_store(MemoryTaskStore::new(1)).build().unwrap_err().to_string();
    assert!(
        error.contains("\"tasks/get\" is a method of the protocol or of the extension for tasks")
    );
}
