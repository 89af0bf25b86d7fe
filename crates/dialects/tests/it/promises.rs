//! What holds on every dialect: any replica continues a call, and its steps run once.

use mrtr_dialects::Dialect;
use serde_json::{Value, json};

use crate::support::{Replica, World, accepted, call};

fn text(result: &Value) -> &str {
    result["result"]["content"][0]["text"].as_str().unwrap_or_else(|| panic!("{result}"))
}

/// Answers the only question of an incomplete response.
fn retry(id: u32, tool: &str, before: &Value, key: &str, value: &str) -> Value {
    let mut retry = call(id, tool);
    let answer = json!({ key: { "result": accepted("input", value) } });
    if let Some(asked) = before.get("dependent_requests") {
        retry["dependent_responses"] = answer;
        let keys = asked.as_object().unwrap().keys().filter(|other| *other != key);
        for other in keys {
            retry["dependent_responses"][other] = json!({ "result": {} });
        }
    } else {
        assert!(before["input_requests"].get(key).is_some(), "{before}");
        retry["input_responses"] = answer;
        retry["request_state"] = before["request_state"].clone();
    }
    retry
}

/// No dialect has `Mcp-Param-*` headers.
#[tokio::test]
async fn arguments_that_the_current_revision_mirrors_need_no_headers() {
    let world = World::new();
    for dialect in Dialect::ALL.iter().copied() {
        let mut message = call(1, "mirrored");
        message["params"]["arguments"] = json!({ "region": "north" });
        let result = world.endpoint(dialect).post(&message).await.json();
        assert_eq!(result["result"]["content"][0]["text"], "north", "{dialect}: {result}");
    }
}

#[tokio::test]
async fn rules_about_who_can_see_a_tool_hold_on_every_dialect() {
    let world = World::new();
    for dialect in Dialect::ALL.iter().copied() {
        let endpoint = world.endpoint(dialect);
        let found = endpoint.by("alice").post(&call(1, "hidden")).await.json();
        assert_eq!(found["result"]["content"][0]["text"], "found", "{dialect}: {found}");
        let refused = endpoint.by("bob").post(&call(1, "hidden")).await.json();
        assert_eq!(refused["error"]["message"], r#"Unknown tool: "hidden""#, "{dialect}");
    }
}

#[tokio::test]
async fn another_replica_finishes_a_call_with_an_envelope() {
    for dialect in [Dialect::Incomplete, Dialect::Dependent] {
        let world = World::new();
        // Each replica is dropped after its round.
        let first = world.endpoint(dialect).post(&call(1, "book")).await.json();
        let second = retry(2, "book", &first, "first", "a");
        let second = world.endpoint(dialect).post(&second).await.json();
        let third = retry(3, "book", &second, "second", "b");
        let result = world.endpoint(dialect).post(&third).await.json();
        assert_eq!(text(&result), "a held b", "{dialect}");
        assert_eq!(world.steps(), 1, "{dialect}");
    }
}

/// Answers the only question of a turn.
async fn answer_turn(
    replica: &Replica,
    turn: &crate::support::Answer,
    value: &str,
) -> crate::support::Answer {
    let events = turn.events();
    let (_, event_id, _) = events.last().unwrap();
    let id = &events[1].2["id"];
    let answers = json!([{ "jsonrpc": "2.0", "id": id, "result": accepted("input", value) }]);
    replica.post_with(&[("last-event-id", event_id)], &answers.to_string()).await
}

#[tokio::test]
async fn another_replica_finishes_a_call_in_turns() {
    // With a task, the event id names it, and the journal is in the store.
    for tool in ["book", "book_task"] {
        let world = World::new();
        let dialect = Dialect::MultiTurnSse;
        let first = world.endpoint(dialect).post(&call(1, tool)).await;
        let second = answer_turn(&world.endpoint(dialect), &first, "a").await;
        let result = answer_turn(&world.endpoint(dialect), &second, "b").await;
        assert_eq!(text(&result.json()), "a held b", "{tool}");
        assert_eq!(result.json()["id"], 1);
        assert_eq!(world.steps(), 1, "{tool}");
    }
}

#[tokio::test]
async fn a_journal_beyond_an_event_id_needs_the_task_store() {
    let world = World::new();
    let replica = world.endpoint(Dialect::MultiTurnSse);
    let error = replica.post(&call(1, "long")).await.json();
    let message = error["error"]["message"].as_str().unwrap();
    assert!(
        message.starts_with("The state of this call is too long for an event id: "),
        "{message}"
    );
    assert_eq!(error["id"], 1);
    let turn = replica.post(&call(1, "long_task")).await;
    let result = answer_turn(&world.endpoint(Dialect::MultiTurnSse), &turn, "a").await;
    assert_eq!(text(&result.json()), "a 7000");
}

#[tokio::test]
async fn another_replica_finishes_a_task() {
    for dialect in [Dialect::Incomplete, Dialect::Tasks2322] {
        let world = World::new();
        let mut begin = call(1, "book_task");
        begin["params"]["task"] = json!({});
        let created = world.endpoint(dialect).post(&begin).await.json();
        let task_id = created["result"]["task"]["taskId"].as_str().unwrap().to_owned();
        let related = json!({ "io.modelcontextprotocol/related-task": { "taskId": task_id } });
        let result = json!({ "jsonrpc": "2.0", "id": 2, "method": "tasks/result",
            "params": { "taskId": task_id } });
        for (key, value) in [("first", "a"), ("second", "b")] {
            let asked = world.endpoint(dialect).post(&result).await.json();
            let requests =
                asked.get("input_requests").unwrap_or_else(|| &asked["result"]["inputRequests"]);
            assert!(requests.get(key).is_some(), "{asked}");
            let answer = accepted("input", value);
            let answers = if dialect == Dialect::Incomplete {
                json!({ "jsonrpc": "2.0", "id": 3,
                    "input_responses": { key: { "result": answer } }, "_meta": related })
            } else {
                json!({ "jsonrpc": "2.0", "id": 3, "method": "tasks/input_response",
                    "params": { "inputResponses": { key: answer }, "_meta": related } })
            };
            let acknowledged = world.endpoint(dialect).post(&answers).await;
            assert!(acknowledged.status.is_success(), "{acknowledged:?}");
        }
        let result = world.endpoint(dialect).post(&result).await.json();
        assert_eq!(text(&result), "a held b", "{dialect}");
        assert_eq!(world.steps(), 1, "{dialect}");
    }
}

#[tokio::test]
async fn a_call_goes_from_rounds_to_a_task() {
    let world = World::new();
    let mut begin = call(1, "later");
    begin["params"]["task"] = json!({});
    let first = world.endpoint(Dialect::Tasks2322).post(&begin).await.json();
    assert_eq!(first["result"]["resultType"], "input_required", "{first}");
    let mut second = begin.clone();
    second["id"] = json!(2);
    second["params"]["inputResponses"] = json!({ "first": accepted("input", "a") });
    second["params"]["requestState"] = first["result"]["requestState"].clone();
    let created = world.endpoint(Dialect::Tasks2322).post(&second).await.json();
    assert!(created["result"]["task"]["taskId"].is_string(), "{created}");

    let mut begin = call(1, "later");
    begin["params"]["task"] = json!({});
    let first = world.endpoint(Dialect::Incomplete).post(&begin).await.json();
    let mut second = retry(2, "later", &first, "first", "a");
    second["params"]["task"] = json!({});
    let created = world.endpoint(Dialect::Incomplete).post(&second).await.json();
    assert_eq!(created["result"]["task"]["status"], "Working", "{created}");
}

#[tokio::test]
async fn ends_of_tasks_are_those_of_the_older_revision() {
    let replica = World::new().endpoint(Dialect::Tasks2322);
    let request = |method: &str, id: &Value| json!({ "jsonrpc": "2.0", "id": 2, "method": method, "params": { "taskId": id } });
    // A tool that fails makes its task fail; the result says how.
    let mut failing = call(1, "failing");
    failing["params"]["task"] = json!({});
    let failing = replica.post(&failing).await.json()["result"]["task"]["taskId"].clone();
    let result = replica.post(&request("tasks/result", &failing)).await.json();
    assert_eq!(result["result"]["isError"], true, "{result}");
    let task = replica.post(&request("tasks/get", &failing)).await.json();
    assert_eq!(task["result"]["status"], "failed", "{task}");
    let error = replica.post(&request("tasks/cancel", &failing)).await.json();
    let why = "Cannot cancel task: already in terminal status 'failed'";
    assert_eq!(
        (&error["error"]["code"], &error["error"]["message"]),
        (&json!(-32602), &json!(why))
    );

    let mut echo = call(1, "echo");
    echo["params"]["task"] = json!({});
    let echo = replica.post(&echo).await.json()["result"]["task"]["taskId"].clone();
    let cancelled = replica.post(&request("tasks/cancel", &echo)).await.json();
    assert_eq!(cancelled["result"]["status"], "cancelled");
    let error = replica.post(&request("tasks/result", &echo)).await.json();
    assert_eq!(error["error"]["message"], "The task was cancelled");
    let error = replica.post(&request("tasks/list", &echo)).await.json();
    assert_eq!(error["error"]["code"], -32601);
}

#[tokio::test]
async fn progress_comes_before_the_response() {
    for dialect in Dialect::ALL.iter().copied() {
        let replica = World::new().endpoint(dialect);
        let mut count = call(7, "count");
        count["params"]["_meta"] = json!({ "progressToken": "p" });
        let answer = replica.post(&count).await;
        let events = answer.events();
        let [(_, _, first), (_, _, second), (_, _, result)] = &events[..] else {
            panic!("{dialect}: {answer:?}")
        };
        let progress = [&first["params"]["progress"], &second["params"]["progress"]];
        assert_eq!(progress, [&json!(1.0), &json!(2.0)]);
        assert_eq!(first["params"]["progressToken"], "p");
        assert_eq!(text(result), "counted", "{dialect}");
        assert_eq!(text(&replica.post(&call(7, "count")).await.json()), "counted", "{dialect}");
    }
}

#[tokio::test]
async fn a_replica_that_shuts_down_does_not_wait_for_a_task() {
    let world = World::new();
    let draining = world.draining_endpoint(Dialect::MultiTurnSse);
    let turn = draining.post(&call(1, "sleepy")).await;
    let names: Vec<String> = turn.events().into_iter().map(|(name, _, _)| name).collect();
    assert_eq!(names, ["buffer_input", "input_required"], "{turn:?}");
    let event_id = turn.events().pop().unwrap().1;
    let other = world.endpoint(Dialect::MultiTurnSse);
    let result = other.post_with(&[("last-event-id", &event_id)], "[]").await;
    assert_eq!(text(&result.json()), "awake");

    let draining = world.draining_endpoint(Dialect::Tasks2322);
    let mut sleepy = call(1, "sleepy");
    sleepy["params"]["task"] = json!({});
    let id = draining.post(&sleepy).await.json()["result"]["task"]["taskId"].clone();
    let result = json!({ "jsonrpc": "2.0", "id": 2, "method": "tasks/result",
        "params": { "taskId": id } });
    let error = draining.post(&result).await.json();
    let why = "The server is shutting down; call tasks/result again";
    assert_eq!(error["error"]["message"], why);
    let result = world.endpoint(Dialect::Tasks2322).post(&result).await.json();
    assert_eq!(text(&result), "awake");
}

/// The call would be lost, and the task go on.
#[tokio::test(start_paused = true)]
async fn refused_poll_does_not_end_a_call() {
    let world = World::with_rate_limit();
    let replica = world.endpoint(Dialect::MultiTurnSse);
    for tool in ["sleepy", "failing"] {
        let result = replica.post(&call(1, tool)).await.json();
        assert!(result["result"]["content"].is_array(), "{tool}: {result}");
    }
}

#[tokio::test]
async fn arguments_of_a_task_are_not_in_its_event_ids() {
    let world = World::new();
    let mut long = call(1, "noted");
    long["params"]["arguments"] = json!({ "input": "x".repeat(20_000) });
    let turn = world.endpoint(Dialect::MultiTurnSse).post(&long).await;
    let result = answer_turn(&world.endpoint(Dialect::MultiTurnSse), &turn, "a").await;
    assert_eq!(text(&result.json()), "a 20000");
}

/// Begins a call as a task, and returns its id.
async fn begin_task(replica: &Replica, tool: &str) -> Value {
    let mut begin = call(1, tool);
    begin["params"]["task"] = json!({});
    replica.post(&begin).await.json()["result"]["task"]["taskId"].clone()
}

/// A request that waits for a task counts towards the endpoint's limits.
#[tokio::test(start_paused = true)]
async fn a_wait_for_a_task_ends() {
    let world = World::new();
    let replica = world.endpoint(Dialect::Tasks2322);
    let id = begin_task(&replica, "slow").await;
    let result = json!({ "jsonrpc": "2.0", "id": 2, "method": "tasks/result",
        "params": { "taskId": id } });
    let error = replica.post(&result).await.json();
    assert_eq!(error["error"]["message"], "The task is working; call tasks/result again");
    assert_eq!(text(&replica.post(&result).await.json()), "awake");

    let replica = world.endpoint(Dialect::MultiTurnSse);
    let turn = replica.post(&call(1, "slow")).await;
    let names: Vec<String> = turn.events().into_iter().map(|(name, _, _)| name).collect();
    assert_eq!(names, ["buffer_input", "input_required"], "{turn:?}");
    let event_id = turn.events().pop().unwrap().1;
    let result = replica.post_with(&[("last-event-id", &event_id)], "[]").await;
    assert_eq!(text(&result.json()), "awake");
}

/// A replica that runs a task learns of its cancellation later.
#[tokio::test(start_paused = true)]
async fn a_cancellation_answers_with_the_status_of_the_task() {
    for dialect in [Dialect::Incomplete, Dialect::Tasks2322] {
        let replica = World::new().endpoint(dialect);
        for tool in ["sleepy", "slow", "echo"] {
            let id = begin_task(&replica, tool).await;
            let request = |method| {
                json!({ "jsonrpc": "2.0", "id": 2, "method": method,
                "params": { "taskId": id } })
            };
            let cancelled = replica.post(&request("tasks/cancel")).await.json();
            let task = replica.post(&request("tasks/get")).await.json();
            let status = &cancelled["result"]["status"];
            assert_eq!(*status, task["result"]["status"], "{dialect}: {tool}");
        }
    }
}
