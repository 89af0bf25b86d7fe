//! Groups of features that a server is composed of.

use mrtr_server::middleware::{Next, Request, from_fn};
use mrtr_server::tasks::TaskPolicy;
use mrtr_server::{
    BuildError, CompletionRequest, Context, FeatureGroup, Prompt, Resource, ResourceTemplate,
    Result, ServerBuilder, State, Tool,
};
use mrtr_testkit::{Replicas, TestClock};
use serde_json::{Value, json};

use crate::support::single_use::text;
use crate::support::tasks::{TaskFleet, accept, id_of};
use crate::support::{Counter, Text, alice, call_tool, replica, send_request, with_meta};

#[derive(serde::Deserialize, schemars::JsonSchema)]
struct Page {
    id: String,
}

#[derive(Clone)]
struct Name(&'static str);

#[derive(Clone)]
struct Year(u16);

async fn who(State(name): State<Name>, State(year): State<Year>) -> String {
    format!("{} {}", name.0, year.0)
}

async fn page(_: Context, page: Page) -> String {
    page.id
}

fn fleet(edit: impl FnOnce(ServerBuilder) -> ServerBuilder) -> Replicas {
    let server = edit(replica(&TestClock::default())).build().unwrap();
    Replicas::new([server]).as_principal(alice())
}

async fn names(fleet: &Replicas, method: &str, list: &str) -> Vec<String> {
    let result = send_request(fleet, method, with_meta(json!({}))).await;
    let all = result[list].as_array().unwrap().iter();
    all.map(|item| item["name"].as_str().unwrap().to_owned()).collect()
}

async fn call(fleet: &Replicas, tool: &str) -> Value {
    call_tool(fleet, tool, json!({}), json!({})).await
}

#[tokio::test]
async fn a_mounted_group_has_its_prefix_and_a_merged_one_does_not() {
    let group = || {
        FeatureGroup::new()
            .tool(Tool::new("t", "", async || "x"))
            .prompt(Prompt::new("p", "", page))
            .resource(Resource::new("doc://one", "one", async || "x"))
    };
    let inner = FeatureGroup::new().tool(Tool::new("u", "", async || "inner"));
    let fleet = fleet(|server| {
        let mounted = FeatureGroup::new().mount("deep", inner).prompt(Prompt::new("q", "", page));
        server.merge(group()).mount("other", mounted)
    });
    assert_eq!(names(&fleet, "tools/list", "tools").await, ["t", "other__deep__u"]);
    assert_eq!(names(&fleet, "prompts/list", "prompts").await, ["p", "other__q"]);
    assert_eq!(names(&fleet, "resources/list", "resources").await, ["one"]);
    assert_eq!(text(&call(&fleet, "other__deep__u").await), "inner");
    assert_eq!(call(&fleet, "u").await["error"]["code"], -32602);
}

#[tokio::test]
async fn each_group_has_its_own_state_and_that_of_what_contains_it() {
    let tool = || Tool::new("who", "", who);
    let fleet = fleet(|server| {
        let inner = FeatureGroup::new().tool(tool()).state(Name("inner"));
        let outer = FeatureGroup::new().tool(tool()).state(Name("outer")).mount("inner", inner);
        let outer = outer.state(Year(2001));
        server.tool(tool()).state(Name("server")).state(Year(2000)).mount("outer", outer)
    });
    for (tool, expected) in
        [("who", "server 2000"), ("outer__who", "outer 2001"), ("outer__inner__who", "inner 2001")]
    {
        assert_eq!(text(&call(&fleet, tool).await), expected, "{tool}");
    }
}

#[tokio::test]
async fn completions_and_prompts_have_the_state_of_their_group() {
    async fn names(request: CompletionRequest) -> Result<Vec<String>> {
        Ok(request.parts().state::<Name>().map(|name| name.0.to_owned()).into_iter().collect())
    }
    async fn greet(State(name): State<Name>, _: Context, _: Page) -> String {
        name.0.to_owned()
    }
    let group = FeatureGroup::new()
        .prompt(Prompt::new("p", "", greet).complete("id", names))
        .resource_template(ResourceTemplate::new("doc://{id}", "d", greet).complete("id", names))
        .state(Name("group"));
    let fleet = fleet(|server| server.mount("g", group).state(Name("server")));
    for reference in [
        json!({ "type": "ref/prompt", "name": "g__p" }),
        json!({ "type": "ref/resource", "uri": "doc://{id}" }),
    ] {
        let params = json!({ "ref": reference, "argument": { "name": "id", "value": "" } });
        let result = send_request(&fleet, "completion/complete", with_meta(params)).await;
        assert_eq!(result["completion"]["values"], json!(["group"]));
    }
    let params = json!({ "name": "g__p", "arguments": { "id": "1" } });
    let prompt = send_request(&fleet, "prompts/get", with_meta(params)).await;
    assert_eq!(prompt["messages"][0]["content"]["text"], "group");
    let read = send_request(&fleet, "resources/read", with_meta(json!({ "uri": "doc://1" }))).await;
    assert_eq!(read["contents"][0]["text"], "group");
}

#[tokio::test]
async fn rules_of_a_group_hold_for_all_its_features_with_their_own() {
    let group = FeatureGroup::new()
        .tool(Tool::new("both", "", async || "x").requires_scope("own"))
        .requires_scope("group")
        // What is added later is in the group, too.
        .tool(Tool::new("one", "", async || "x"));
    let hidden = FeatureGroup::new()
        .tool(Tool::new("hidden", "", async || "x"))
        .visible_to(|caller| caller.has_scope("admin"));
    let fleet = fleet(|server| server.merge(group).merge(hidden));
    fleet.grant_scopes(["own"]);
    for (tool, scopes) in [("one", json!(["group"])), ("both", json!(["own", "group"]))] {
        assert_eq!(call(&fleet, tool).await["error"]["data"]["scopes"], scopes, "{tool}");
    }
    assert_eq!(names(&fleet, "tools/list", "tools").await, ["both", "one"]);
    assert_eq!(call(&fleet, "hidden").await["error"]["code"], -32602);
    fleet.grant_scopes(["own", "group", "admin"]);
    for tool in ["one", "both", "hidden"] {
        assert_eq!(text(&call(&fleet, tool).await), "x", "{tool}");
    }
}

#[tokio::test]
async fn layers_of_a_group_run_for_its_features_alone() {
    let runs = Counter::default();
    let layer = {
        let runs = runs.clone();
        from_fn(move |request: Request, next: Next| {
            runs.increment();
            next.run(request)
        })
    };
    let inner = FeatureGroup::new().tool(Tool::new("inner", "", async || "x"));
    let group =
        FeatureGroup::new().layer(layer).merge(inner).tool(Tool::new("t", "", async || "x"));
    let fleet = fleet(|server| server.merge(group).tool(Tool::new("other", "", async || "x")));
    for (tool, expected) in [("other", 0), ("t", 1), ("inner", 2)] {
        call(&fleet, tool).await;
        assert_eq!(runs.get(), expected, "{tool}");
    }
}

async fn more(State(name): State<Name>, cx: Context) -> Result<String> {
    let answer: Text = cx.elicit("more", "More?").await?;
    Ok(format!("{} {}", name.0, answer.text))
}

/// The task is run by the replica that claims it: without the request, and without its layers.
#[tokio::test(start_paused = true)]
async fn a_task_has_the_state_of_its_group_in_each_replica() {
    let requests = Counter::default();
    let replicas = TaskFleet::start_with(2, |_, server| {
        let requests = requests.clone();
        let group = FeatureGroup::new()
            .tool(Tool::new("t", "", more).task(TaskPolicy::immediately()))
            .layer(from_fn(move |request: Request, next: Next| {
                requests.increment();
                next.run(request)
            }))
            .state(Name("group"));
        server.merge(group).state(Name("server"))
    });
    let created = replicas.call(0, json!({})).await;
    let id = id_of(&created);
    replicas.wait_for(1, &id, "input_required").await;
    replicas.connections[0].cut();
    replicas.answer(1, &id, json!({ "more": accept("yes") })).await;
    let task = replicas.wait_for(1, &id, "completed").await;
    assert_eq!(task["result"]["content"][0]["text"], "group yes");
    assert_eq!(requests.get(), 1);
}

#[tokio::test]
async fn a_group_can_be_added_to_a_running_server() {
    let server = replica(&TestClock::default()).updatable::<Tool>().build().unwrap();
    let fleet = Replicas::new([server.clone()]).as_principal(alice());
    let group = || {
        FeatureGroup::new()
            .tool(Tool::new("who", "", who))
            .state(Name("group"))
            .requires_scope("admin")
    };
    let missing = server.update(|update| update.mount("g", group()));
    assert!(matches!(missing, Err(BuildError::MissingState { .. })), "{missing:?}");
    let twice = server.update(|update| update.merge(group().state(Year(1)).state(Year(2))));
    assert!(matches!(twice, Err(BuildError::DuplicateState(_))), "{twice:?}");
    let prompt = Prompt::new("p", "", page);
    let refused = server.update(|update| update.merge(FeatureGroup::new().prompt(prompt)));
    assert_eq!(refused, Err(BuildError::NotUpdatable("prompts")));
    server.update(|update| update.mount("g", group().state(Year(3)))).unwrap();
    assert_eq!(text(&call(&fleet, "g__who").await), "group 3");
    fleet.grant_scopes(["other"]);
    assert_eq!(call(&fleet, "g__who").await["error"]["data"]["scopes"], json!(["admin"]));
}

#[test]
fn clashes_and_missing_state_are_build_errors() {
    let build = |edit: &dyn Fn(ServerBuilder) -> ServerBuilder| {
        edit(replica(&TestClock::default())).build().map(drop)
    };
    let one = || FeatureGroup::new().tool(Tool::new("t", "", async || "x"));
    let duplicate = |name: &str| BuildError::Duplicate { kind: "tool", name: name.to_owned() };
    assert_eq!(build(&|server| server.merge(one()).merge(one())), Err(duplicate("t")));
    assert_eq!(
        build(&|server| server.mount("a", one()).tool(Tool::new("a__t", "", async || "x"))),
        Err(duplicate("a__t"))
    );
    assert_eq!(build(&|server| server.mount("a", one()).mount("b", one())), Ok(()));
    assert_eq!(
        build(&|server| server.mount("a/b", one())),
        Err(BuildError::ToolName("a/b__t".to_owned()))
    );
    let who = || FeatureGroup::new().tool(Tool::new("who", "", who)).state(Name("group"));
    let missing = build(&|server| server.merge(who())).unwrap_err();
    assert_eq!(
        missing,
        BuildError::MissingState {
            of: "the tool \"who\"".to_owned(),
            missing: std::any::type_name::<Year>()
        }
    );
    assert_eq!(build(&|server| server.merge(who().state(Year(1)))), Ok(()));
    assert_eq!(
        build(&|server| server.merge(who().state(Year(1)).state(Year(2)))),
        Err(BuildError::DuplicateState(std::any::type_name::<Year>()))
    );
    // The state of one group is not that of another.
    let others = || FeatureGroup::new().state(Year(1));
    assert!(build(&|server| server.merge(who()).merge(others())).is_err());
    let task = || Tool::new("task", "", async || "x").task(TaskPolicy::immediately());
    let no_store = build(&|server| server.mount("a", FeatureGroup::new().tool(task())));
    assert_eq!(no_store, Err(BuildError::NoTaskStore("a__task".to_owned())));
}
