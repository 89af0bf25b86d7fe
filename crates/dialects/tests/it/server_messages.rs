//! Every message of the proposals' texts, in their order, with our server as the server.
//!
//! The differences are those that `docs/dialects.md` lists.

use mrtr_dialects::Dialect;
use serde_json::{Value, json};

use crate::support::{
    WEATHER, World, accepted, capital_of_france, echo_input, github_login, paris,
};

fn get_weather(id: u32) -> Value {
    json!({
        "jsonrpc": "2.0",
        "id": id,
        "method": "tools/call",
        "params": { "name": "get_weather", "arguments": { "location": "New York" } },
    })
}

fn weather_result(id: u32) -> Value {
    let content = json!([{ "type": "text", "text": WEATHER }]);
    json!({ "jsonrpc": "2.0", "id": id, "result": { "content": content, "isError": false } })
}

#[tokio::test]
async fn incomplete_follows_the_draft_of_february_2026() {
    let replica = World::new().endpoint(Dialect::Incomplete);
    let mut incomplete = replica.post(&get_weather(2)).await.json();
    let state = incomplete.as_object_mut().unwrap().remove("request_state").unwrap();
    assert_eq!(
        incomplete,
        json!({
            "jsonrpc": "2.0",
            "id": 2,
            "input_requests": {
                "github_login": github_login(),
                "capital_of_france": capital_of_france(),
            },
        })
    );
    let mut retry = get_weather(3);
    retry["input_responses"] = json!({
        "github_login": { "result": accepted("name", "octocat") },
        "capital_of_france": { "result": paris() },
    });
    retry["request_state"] = state;
    assert_eq!(replica.post(&retry).await.json(), weather_result(3));
}

#[tokio::test]
async fn dependent_follows_the_sketch_of_december_2025() {
    let replica = World::new().endpoint(Dialect::Dependent);
    let mut incomplete = replica.post(&get_weather(2)).await.json();
    let requests = incomplete["dependent_requests"].as_object_mut().unwrap();
    let keys: Vec<String> = requests.keys().cloned().collect();
    assert_eq!(keys.len(), 3);
    let state = &keys[2];
    assert!(state.starts_with("mrtr.state/mrtr1."), "{state}");
    assert_eq!(requests.remove(state), Some(json!({ "method": "ping" })));
    let asked = json!({
        "github_login": github_login(),
        "capital_of_france": capital_of_france(),
    });
    assert_eq!(incomplete, json!({ "jsonrpc": "2.0", "id": 2, "dependent_requests": asked }));
    // An unmodified client answers each request under its key, also the ping.
    let mut retry = get_weather(3);
    retry["dependent_responses"] = json!({
        "github_login": { "result": accepted("name", "octocat") },
        "capital_of_france": { "result": paris() },
        state: { "result": {} },
    });
    // The sketch answers with id 2, by mistake.
    assert_eq!(replica.post(&retry).await.json(), weather_result(3));
}

#[tokio::test]
async fn multi_turn_sse_follows_sep_1858() {
    let replica = World::new().endpoint(Dialect::MultiTurnSse);
    let initialize = json!({
        "jsonrpc": "2.0",
        "id": 0,
        "method": "initialize",
        "params": {
            "protocolVersion": "DRAFT-SEP-1858",
            "capabilities": { "elicitation": {}, "sampling": {} },
            "clientInfo": { "name": "c", "version": "1" },
        },
    });
    let initialized = replica.post(&initialize).await;
    assert_eq!(initialized.json()["result"]["protocolVersion"], "DRAFT-SEP-1858");
    let session = initialized.headers["mcp-session-id"].to_str().unwrap();
    let common = [("mcp-session-id", session), ("mcp-protocol-version", "DRAFT-SEP-1858")];
    let notification = r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#;
    let accepted_notification = replica.post_with(&common, notification).await;
    assert_eq!((accepted_notification.status.as_u16(), &*accepted_notification.text), (202, ""));

    let turn = replica.post_with(&common, &get_weather(1).to_string()).await;
    assert_eq!(turn.headers["content-type"], "text/event-stream");
    let events = turn.events();
    let names: Vec<&str> = events.iter().map(|(name, _, _)| &**name).collect();
    assert_eq!(names, ["buffer_input", "", "", "input_required"]);
    assert!(events.iter().all(|(_, id, _)| !id.is_empty()));
    assert!(turn.text.starts_with("event: buffer_input\nid: "));
    let mut answers = Vec::new();
    let questions = [github_login(), capital_of_france()];
    let results = [accepted("name", "octocat"), paris()];
    for ((_, _, question), (expected, result)) in
        events[1..].iter().zip(questions.iter().zip(results))
    {
        let mut expected = expected.clone();
        expected["jsonrpc"] = json!("2.0");
        expected["id"] = question["id"].clone();
        assert_eq!(*question, expected);
        answers.push(json!({ "jsonrpc": "2.0", "id": question["id"], "result": result }));
    }
    let last_event_id = &events[3].1;
    let headers = [&common[..], &[("last-event-id", last_event_id)]].concat();
    let result = replica.post_with(&headers, &Value::Array(answers).to_string()).await;
    assert_eq!(result.json(), weather_result(1));
}

/// Replaces the times, the id and the lifetime of a task by those of the text, and adds the message
/// that `docs/dialects.md` lists as missing.
fn normalized(mut task: Value, text: &Value) -> Value {
    // The handlers of the texts report nothing.
    assert_eq!(task.get("statusMessage"), None);
    task["statusMessage"] = text["statusMessage"].clone();
    for name in ["taskId", "createdAt", "lastUpdatedAt", "ttl"] {
        assert_eq!(task.get(name).is_some(), text.get(name).is_some(), "{name}");
        if let Some(value) = text.get(name) {
            task[name] = value.clone();
        }
    }
    task
}

const TEXT_ID: &str = "echo_dc792e24-01b5-4c0a-abcb-0559848ca3c5";

async fn until_status(replica: &crate::support::Replica, task_id: &str, status: &str) -> Value {
    for id in 100.. {
        let get = json!({ "jsonrpc": "2.0", "id": id, "method": "tasks/get",
            "params": { "taskId": task_id } });
        let task = replica.post(&get).await.json();
        if task["result"]["status"] == status {
            return task["result"].clone();
        }
        assert!(id < 2_000, "{task}");
        tokio::time::sleep(std::time::Duration::from_millis(5)).await;
    }
    unreachable!()
}

fn call_echo() -> Value {
    let params = json!({ "name": "echo", "task": { "ttl": 60000 } });
    json!({ "jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params })
}

fn tasks_result(id: u32, task_id: &str) -> Value {
    let params = json!({ "taskId": task_id });
    json!({ "jsonrpc": "2.0", "id": id, "method": "tasks/result", "params": params })
}

fn related(task_id: &str) -> Value {
    json!({ "io.modelcontextprotocol/related-task": { "taskId": task_id } })
}

#[tokio::test]
async fn tasks_of_incomplete_follow_the_draft() {
    let replica = World::new().endpoint(Dialect::Incomplete);
    let created = replica.post(&call_echo()).await.json();
    let task_id = created["result"]["task"]["taskId"].as_str().unwrap().to_owned();
    let text = json!({
        "taskId": TEXT_ID,
        "status": "Working",
        "statusMessage": "Task has been created for echo tool invocation.",
        "createdAt": "2026-01-27T03:32:48.3148180Z",
        "ttl": 60000,
        "pollInterval": 100,
    });
    let task = normalized(created["result"]["task"].clone(), &text);
    assert_eq!(task, text);
    let mut text = text;
    let task = until_status(&replica, &task_id, "input_required").await;
    text["status"] = json!("input_required");
    assert_eq!(normalized(task, &text), text);

    let questions = replica.post(&tasks_result(3, &task_id)).await.json();
    assert_eq!(
        questions,
        json!({
            "jsonrpc": "2.0",
            "id": 3,
            "input_requests": { "echo_input": echo_input() },
            "_meta": related(&task_id),
        })
    );
    let answers = json!({
        "jsonrpc": "2.0",
        "id": 4,
        "input_responses": { "echo_input": { "result": accepted("input", "Hello World!") } },
        "_meta": related(&task_id),
    });
    let nothing = replica.post(&answers).await;
    assert_eq!((nothing.status.as_u16(), &*nothing.text), (202, ""));
    let task = until_status(&replica, &task_id, "Completed").await;
    text["status"] = json!("Completed");
    assert_eq!(normalized(task, &text), text);
    assert_eq!(
        replica.post(&tasks_result(6, &task_id)).await.json(),
        json!({
            "jsonrpc": "2.0",
            "id": 6,
            "result": {
                "isError": false,
                "content": [{ "type": "text", "text": "Echo: Hello World!" }],
                "_meta": related(&task_id),
            },
        })
    );
}

#[tokio::test]
async fn tasks_2322_follows_the_first_version_of_sep_2322() {
    let replica = World::new().endpoint(Dialect::Tasks2322);
    let created = replica.post(&call_echo()).await.json();
    let task_id = created["result"]["task"]["taskId"].as_str().unwrap().to_owned();
    let mut text = json!({
        "taskId": TEXT_ID,
        "status": "working",
        "statusMessage": "Task has been created for echo tool invocation.",
        "createdAt": "2026-01-27T03:32:48.3148180Z",
        "lastUpdatedAt": "2026-01-27T03:32:48.3148180Z",
        "ttl": 60000,
        "pollInterval": 100,
    });
    assert_eq!(normalized(created["result"]["task"].clone(), &text), text);
    let task = until_status(&replica, &task_id, "input_required").await;
    text["status"] = json!("input_required");
    assert_eq!(normalized(task, &text), text);

    let questions = json!({
        "jsonrpc": "2.0",
        "id": 3,
        "result": {
            "resultType": "input_required",
            "inputRequests": { "echo_input": echo_input() },
        },
        "_meta": related(&task_id),
    });
    assert_eq!(replica.post(&tasks_result(3, &task_id)).await.json(), questions);
    let input_response = |id: u32, content: Value| {
        json!({
            "jsonrpc": "2.0",
            "id": id,
            "method": "tasks/input_response",
            "params": {
                "inputResponses": { "echo_input": { "action": "accept", "content": content } },
                "_meta": related(&task_id),
            },
        })
    };
    // Information that the server did not request: acknowledged, and asked again.
    let unexpected =
        json!({ "not_requested_parameter": "Information the server did not request." });
    let acknowledged =
        |id: u32| json!({ "jsonrpc": "2.0", "id": id, "result": { "_meta": related(&task_id) } });
    assert_eq!(replica.post(&input_response(4, unexpected)).await.json(), acknowledged(4));
    let get = json!({ "jsonrpc": "2.0", "id": 9, "method": "tasks/get",
        "params": { "taskId": task_id } });
    assert_eq!(replica.post(&get).await.json()["result"]["status"], "input_required");
    assert_eq!(replica.post(&tasks_result(3, &task_id)).await.json(), questions);

    let input = json!({ "input": "Hello World!" });
    assert_eq!(replica.post(&input_response(4, input)).await.json(), acknowledged(4));
    let task = until_status(&replica, &task_id, "completed").await;
    text["status"] = json!("completed");
    assert_eq!(normalized(task, &text), text);
    let mut result = replica.post(&tasks_result(6, &task_id)).await.json();
    let meta = result["result"]["_meta"].as_object_mut().unwrap();
    meta.remove("io.modelcontextprotocol/serverInfo");
    assert_eq!(
        result,
        json!({
            "jsonrpc": "2.0",
            "id": 6,
            "result": {
                "resultType": "complete",
                "isError": false,
                "content": [{ "type": "text", "text": "Echo: Hello World!" }],
                "_meta": related(&task_id),
            },
        })
    );
}

/// The drafts describe a server that sheds load: a state, and nothing to answer.
#[tokio::test]
async fn a_state_may_come_without_questions() {
    let world = World::new();
    let call = crate::support::call(1, "pausing");
    let incomplete = world.endpoint(Dialect::Incomplete).post(&call).await.json();
    let members: Vec<&String> = incomplete.as_object().unwrap().keys().collect();
    assert_eq!(members, ["jsonrpc", "id", "request_state"]);
    let mut retry = crate::support::call(2, "pausing");
    retry["request_state"] = incomplete["request_state"].clone();
    let result = world.endpoint(Dialect::Incomplete).post(&retry).await.json();
    assert_eq!(result["result"]["content"][0]["text"], "1");

    let dependent = world.endpoint(Dialect::Dependent).post(&call).await.json();
    let requests: Vec<&Value> =
        dependent["dependent_requests"].as_object().unwrap().values().collect();
    assert_eq!(requests, [&json!({ "method": "ping" })]);
    let turn = world.endpoint(Dialect::MultiTurnSse).post(&call).await.events();
    let names: Vec<&str> = turn.iter().map(|(name, _, _)| &**name).collect();
    assert_eq!(names, ["buffer_input", "input_required"]);
}
