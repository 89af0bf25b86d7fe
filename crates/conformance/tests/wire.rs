//! The dialects of the fixture server, by raw HTTP with the two headers that are enough.

#![expect(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test fails by panicking"
)]

use std::process::{Child, Command, Stdio};
use std::time::Duration;

use serde_json::{Value, json};

const WEATHER: &str = "Current weather in New York:\nTemperature: 72°F\nConditions: Partly cloudy";

struct Server {
    child: Child,
    port: u16,
    http: reqwest::Client,
}

impl Drop for Server {
    fn drop(&mut self) {
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

impl Server {
    async fn start() -> Self {
        let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let port = free.local_addr().unwrap().port();
        drop(free);
        let child = Command::new(env!("CARGO_BIN_EXE_conformance-server"))
            .env("PORT", port.to_string())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let server = Self { child, port, http: reqwest::Client::new() };
        while tokio::net::TcpStream::connect(("127.0.0.1", port)).await.is_err() {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        server
    }

    async fn post(&self, dialect: &str, message: &Value) -> Value {
        let (_, text) = self.exchange(dialect, None, &message.to_string()).await;
        serde_json::from_str(&text).unwrap_or_else(|_| panic!("not JSON: {text:?}"))
    }

    async fn exchange(&self, dialect: &str, event: Option<&str>, body: &str) -> (u16, String) {
        let url = format!("http://127.0.0.1:{}/wire/{dialect}", self.port);
        let mut request = self
            .http
            .post(url)
            .header("content-type", "application/json")
            .header("accept", "application/json, text/event-stream")
            .body(body.to_owned());
        if let Some(event) = event {
            request = request.header("last-event-id", event);
        }
        let response = request.send().await.unwrap();
        (response.status().as_u16(), response.text().await.unwrap())
    }
}

fn get_weather(id: u32) -> Value {
    json!({
        "jsonrpc": "2.0",
        "id": id,
        "method": "tools/call",
        "params": { "name": "get_weather", "arguments": { "location": "New York" } },
    })
}

fn answers() -> Value {
    json!({
        "github_login": { "result": { "action": "accept", "content": { "name": "octocat" } } },
        "capital_of_france": {
            "result": {
                "role": "assistant",
                "content": { "type": "text", "text": "The capital of France is Paris." },
                "model": "claude-3-sonnet-20240307",
                "stopReason": "endTurn",
            },
        },
    })
}

fn text(message: &Value) -> &str {
    message["result"]["content"][0]["text"].as_str().unwrap_or_else(|| panic!("{message}"))
}

#[tokio::test]
async fn messages_of_the_proposals_complete_on_the_fixture_server() {
    let server = Server::start().await;

    let asked = server.post("incomplete", &get_weather(2)).await;
    let keys: Vec<&String> = asked["input_requests"].as_object().unwrap().keys().collect();
    assert_eq!(keys, ["github_login", "capital_of_france"]);
    let mut retry = get_weather(3);
    retry["input_responses"] = answers();
    retry["request_state"] = asked["request_state"].clone();
    assert_eq!(text(&server.post("incomplete", &retry).await), WEATHER);

    // The literal messages of the sketch, which has no state: and a client that answers the ping.
    let asked = server.post("dependent", &get_weather(2)).await;
    let mut retry = get_weather(3);
    retry["dependent_responses"] = answers();
    assert_eq!(text(&server.post("dependent", &retry).await), WEATHER);
    for key in asked["dependent_requests"].as_object().unwrap().keys().skip(2) {
        retry["dependent_responses"][key] = json!({ "result": {} });
    }
    assert_eq!(text(&server.post("dependent", &retry).await), WEATHER);

    let (status, events) =
        server.exchange("multi-turn-sse", None, &get_weather(1).to_string()).await;
    assert_eq!(status, 200);
    let data: Vec<Value> = events
        .lines()
        .filter_map(|line| line.strip_prefix("data: "))
        .map(|data| serde_json::from_str(data).unwrap())
        .collect();
    let event = events.lines().rfind(|line| line.starts_with("id: ")).unwrap();
    let all = answers();
    let results = [&all["github_login"]["result"], &all["capital_of_france"]["result"]];
    let array: Vec<Value> = data
        .iter()
        .zip(results)
        .map(|(question, result)| json!({ "jsonrpc": "2.0", "id": question["id"], "result": result }))
        .collect();
    let event = event.strip_prefix("id: ");
    let (_, result) = server.exchange("multi-turn-sse", event, &json!(array).to_string()).await;
    assert_eq!(text(&serde_json::from_str(&result).unwrap()), WEATHER);
}

#[tokio::test]
async fn the_real_world_example_takes_three_rounds() {
    let server = Server::start().await;
    let resolution = json!({ "action": "accept", "content": { "resolution": "Duplicate" } });
    let original = json!({ "action": "accept", "content": { "duplicateOfId": 4301 } });
    let call = |id: u32| {
        json!({ "jsonrpc": "2.0", "id": id, "method": "tools/call", "params": {
            "name": "update_work_item",
            "arguments": { "workItemId": 4522, "fields": { "System.State": "Resolved" } },
        } })
    };
    // As the text has it: the second request has no state.
    let first = server.post("tasks-2322", &call(1)).await;
    assert_eq!(
        first["result"]["inputRequests"]["resolution"]["params"],
        json!({
            "mode": "form",
            "message": "Resolving Bug #4522 requires a resolution. How was this bug resolved?",
            "requestedSchema": {
                "type": "object",
                "properties": {
                    "resolution": {
                        "type": "string",
                        "description": "Resolution type for this bug",
                        "enum": ["Fixed", "Won't Fix", "Duplicate", "By Design"],
                    },
                },
                "required": ["resolution"],
            },
        })
    );
    for state in [None, first["result"].get("requestState")] {
        let mut second = call(2);
        second["params"]["inputResponses"] = json!({ "resolution": resolution });
        if let Some(state) = state {
            second["params"]["requestState"] = state.clone();
        }
        let second = server.post("tasks-2322", &second).await;
        let asked = &second["result"]["inputRequests"]["duplicate_of"]["params"];
        assert_eq!(
            asked["requestedSchema"]["properties"]["duplicateOfId"]["type"], "number",
            "{second}"
        );
        let mut third = call(3);
        third["params"]["inputResponses"] = json!({ "duplicate_of": original });
        third["params"]["requestState"] = second["result"]["requestState"].clone();
        let result = server.post("tasks-2322", &third).await;
        let done = "Bug #4522 resolved as Duplicate of Bug #4301. State set to Resolved and \
                    duplicate link created.";
        assert_eq!(text(&result), done);
        assert_eq!(result["result"]["isError"], false);
    }
}

#[tokio::test]
async fn the_real_world_example_works_beside_the_parameters_too() {
    let server = Server::start().await;
    let arguments = json!({ "workItemId": 4522, "fields": { "System.State": "Resolved" } });
    let params = json!({ "name": "update_work_item", "arguments": arguments });
    for (dialect, requests, responses) in [
        ("incomplete", "input_requests", "input_responses"),
        ("dependent", "dependent_requests", "dependent_responses"),
    ] {
        let mut message =
            json!({ "jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params });
        for (key, content) in [
            ("resolution", json!({ "resolution": "Duplicate" })),
            ("duplicate_of", json!({ "duplicateOfId": 4301 })),
        ] {
            let asked = server.post(dialect, &message).await;
            let keys: Vec<&String> = asked[requests].as_object().unwrap().keys().collect();
            assert_eq!(keys[0], key, "{asked}");
            let answer = json!({ "action": "accept", "content": content });
            message[responses] = json!({ key: { "result": answer } });
            match keys.get(1) {
                Some(ping) => message[responses][ping] = json!({ "result": {} }),
                None => message["request_state"] = asked["request_state"].clone(),
            }
        }
        let result = server.post(dialect, &message).await;
        assert!(text(&result).starts_with("Bug #4522 resolved as Duplicate of Bug #4301."));
    }
}

#[tokio::test]
async fn an_echo_is_a_task_in_both_dialects_with_tasks() {
    let server = Server::start().await;
    for (dialect, done) in [("incomplete", "Completed"), ("tasks-2322", "completed")] {
        let params = json!({ "name": "echo", "task": { "ttl": 60000 } });
        let call = json!({ "jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params });
        let created = server.post(dialect, &call).await;
        let id = created["result"]["task"]["taskId"].clone();
        let of = |method: &str, n: u32| json!({ "jsonrpc": "2.0", "id": n, "method": method, "params": { "taskId": id } });
        let asked = server.post(dialect, &of("tasks/result", 3)).await;
        let related = json!({ "io.modelcontextprotocol/related-task": { "taskId": id } });
        assert_eq!(asked["_meta"], related);
        let task = server.post(dialect, &of("tasks/get", 2)).await;
        assert_eq!(task["result"]["status"], "input_required");
        let answer = json!({ "action": "accept", "content": { "input": "Hello World!" } });
        let answers = if dialect == "incomplete" {
            json!({ "jsonrpc": "2.0", "id": 4,
                "input_responses": { "echo_input": { "result": answer } }, "_meta": related })
        } else {
            json!({ "jsonrpc": "2.0", "id": 4, "method": "tasks/input_response",
                "params": { "inputResponses": { "echo_input": answer }, "_meta": related } })
        };
        let (status, _) = server.exchange(dialect, None, &answers.to_string()).await;
        assert!((200..300).contains(&status));
        let result = server.post(dialect, &of("tasks/result", 6)).await;
        assert_eq!(text(&result), "Echo: Hello World!");
        assert_eq!(result["result"]["_meta"]["io.modelcontextprotocol/related-task"]["taskId"], id);
        assert_eq!(server.post(dialect, &of("tasks/get", 7)).await["result"]["status"], done);
    }
}
