//! Messages that are wrong, foreign or stale.

use mrtr_dialects::Dialect;
use mrtr_schema::capabilities::{ClientCapabilities, RootsCapability};
use serde_json::{Value, json};

use crate::support::{World, accepted, call};

/// The one error for states that do not open, with this id.
fn invalid_state(id: &Value) -> Value {
    let error = json!({
        "code": -32602,
        "message": "Invalid or expired requestState",
        "data": { "reason": "invalid_request_state" },
    });
    if id.is_null() {
        json!({ "jsonrpc": "2.0", "error": error })
    } else {
        json!({ "jsonrpc": "2.0", "id": id, "error": error })
    }
}

/// The states of the same call, in each dialect that sends one; and on the standard endpoint.
async fn states(world: &World) -> Vec<(&'static str, String)> {
    let mut states = Vec::new();
    let post = async |dialect| world.endpoint(dialect).post(&call(1, "book")).await;
    let incomplete = post(Dialect::Incomplete).await.json();
    states.push(("incomplete", incomplete["request_state"].as_str().unwrap().to_owned()));
    let dependent = post(Dialect::Dependent).await.json();
    let mut keys = dependent["dependent_requests"].as_object().unwrap().keys();
    let state = keys.find_map(|key| key.strip_prefix("mrtr.state/")).unwrap();
    states.push(("dependent", state.to_owned()));
    let turn = post(Dialect::MultiTurnSse).await.events().pop().unwrap();
    states.push(("multi-turn-sse", turn.1));
    let tasks = post(Dialect::Tasks2322).await.json();
    states.push(("tasks-2322", tasks["result"]["requestState"].as_str().unwrap().to_owned()));
    states.push(("standard", standard_state(world).await));
    states.push(("none", "mrtr1.AAAA".to_owned()));
    states.push(("empty", String::new()));
    states
}

/// Returns the state of the engine itself, as the standard endpoint sends it.
async fn standard_state(world: &World) -> String {
    use mrtr_schema::jsonrpc::{Params, Request, RequestId};
    use mrtr_transport::{InProcess, OutgoingRequest, Transport as _};
    let meta = json!({
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientCapabilities": { "elicitation": { "form": {} } },
    });
    let params = json!({ "name": "book", "arguments": {}, "_meta": meta });
    let params = Params::new(&params).unwrap();
    let request = Request::new(RequestId::Number(1), "tools/call", Some(params));
    let transport = InProcess::new(world.server());
    let response = transport.send(OutgoingRequest::new(request)).await.unwrap();
    let result: Value = serde_json::from_str(response.outcome.unwrap().get()).unwrap();
    result["requestState"].as_str().unwrap().to_owned()
}

#[tokio::test]
async fn states_do_not_cross_dialects() {
    let world = World::new();
    let answer = json!({ "result": accepted("input", "a") });
    for (origin, state) in states(&world).await {
        for dialect in Dialect::ALL.iter().copied() {
            let replica = world.endpoint(dialect);
            let mut retry = call(2, "book");
            let refused = match dialect {
                Dialect::Incomplete => {
                    retry["input_responses"] = json!({ "first": answer });
                    retry["request_state"] = json!(state);
                    replica.post(&retry).await.json()
                }
                Dialect::Dependent => {
                    let key = format!("mrtr.state/{state}");
                    retry["dependent_responses"] =
                        json!({ "first": answer, key: { "result": {} } });
                    replica.post(&retry).await.json()
                }
                Dialect::MultiTurnSse => {
                    replica.post_with(&[("last-event-id", &state)], "[]").await.text.clone().into()
                }
                _ => {
                    retry["params"]["inputResponses"] = json!({ "first": accepted("input", "a") });
                    retry["params"]["requestState"] = json!(state);
                    replica.post(&retry).await.json()
                }
            };
            let id = if dialect == Dialect::MultiTurnSse { Value::Null } else { json!(2) };
            let refused = match refused {
                Value::String(text) => serde_json::from_str(&text).unwrap_or(Value::String(text)),
                refused => refused,
            };
            let is_own = origin == dialect.name();
            assert_eq!(refused == invalid_state(&id), !is_own, "{origin} at {dialect}: {refused}");
        }
    }
    assert_eq!(world.steps(), 3, "each own state continues its call; a turn had no answer");
}

#[tokio::test]
async fn states_belong_to_their_caller_and_call() {
    let world = World::new();
    let replica = world.endpoint(Dialect::Incomplete);
    let first = replica.by("alice").post(&call(1, "book")).await.json();
    let mut retry = call(2, "book");
    retry["input_responses"] = json!({ "first": { "result": accepted("input", "a") } });
    retry["request_state"] = first["request_state"].clone();
    for other in [replica.by("bob"), replica.clone()] {
        assert_eq!(other.post(&retry).await.json(), invalid_state(&json!(2)));
    }
    let mut other_call = retry.clone();
    other_call["params"]["name"] = json!("get_weather");
    other_call["params"]["arguments"] = json!({ "location": "x" });
    assert_eq!(replica.by("alice").post(&other_call).await.json(), invalid_state(&json!(2)));
    assert_eq!(world.steps(), 0);
    let second = replica.by("alice").post(&retry).await.json();
    assert!(second["input_requests"]["second"].is_object(), "{second}");

    // A turn is bound to its caller, too.
    let replica = world.endpoint(Dialect::MultiTurnSse);
    let turn = replica.by("alice").post(&call(1, "book")).await.events().pop().unwrap().1;
    let stolen = replica.by("bob").post_with(&[("last-event-id", &turn)], "[]").await;
    assert_eq!(stolen.json(), invalid_state(&Value::Null));
}

#[tokio::test]
async fn missing_and_unusable_answers_are_asked_again() {
    let world = World::new();
    let replica = world.endpoint(Dialect::Incomplete);
    let mut begin = call(1, "get_weather");
    begin["params"]["arguments"] = json!({ "location": "x" });
    let asked = replica.post(&begin).await.json();
    for (responses, open) in [
        (json!({}), &["github_login", "capital_of_france"][..]),
        (json!({ "github_login": { "result": accepted("name", "o") } }), &["capital_of_france"]),
        (
            json!({ "github_login": { "result": accepted("name", "o") }, "other": { "result": {} },
                "capital_of_france": { "error": { "code": -1, "message": "no" } } }),
            &["capital_of_france"],
        ),
        (
            json!({ "github_login": accepted("name", "o"), "capital_of_france": 5 }),
            &["github_login", "capital_of_france"],
        ),
        (
            json!({ "github_login": { "result": { "action": "accept", "content": { "name": 5 } } } }),
            &["github_login", "capital_of_france"],
        ),
    ] {
        let mut retry = begin.clone();
        retry["input_responses"] = responses.clone();
        retry["request_state"] = asked["request_state"].clone();
        let again = replica.post(&retry).await.json();
        let keys: Vec<&String> = again["input_requests"].as_object().unwrap().keys().collect();
        assert_eq!(keys, open, "{responses}: {again}");
    }
}

#[tokio::test]
async fn answers_of_a_turn_may_be_missing_repeated_or_foreign() {
    let world = World::new();
    let replica = world.endpoint(Dialect::MultiTurnSse);
    let mut begin = call(1, "get_weather");
    begin["params"]["arguments"] = json!({ "location": "x" });
    let turn = replica.post(&begin).await.events();
    let event_id = turn[3].1.clone();
    let login = json!({ "jsonrpc": "2.0", "id": turn[1].2["id"],
        "result": accepted("name", "octocat") });
    let foreign = json!({ "jsonrpc": "2.0", "id": "other", "result": {} });
    let post = async |body: String| replica.post_with(&[("last-event-id", &event_id)], &body).await;
    let again = post(json!([login, login, foreign]).to_string()).await.events();
    let methods: Vec<&Value> = again.iter().map(|(_, _, data)| &data["method"]).collect();
    assert_eq!(methods[1..2], ["sampling/createMessage"]);
    assert_eq!(again.len(), 3);
    let refused = json!([{ "jsonrpc": "2.0", "id": turn[2].2["id"],
        "error": { "code": -1, "message": "User rejected sampling request" } }]);
    let error = post(refused.to_string()).await.json();
    let message = error["error"]["message"].as_str().unwrap();
    assert!(message.ends_with("with the error -1: User rejected sampling request"), "{message}");

    let too_many: Vec<Value> = (0..257).map(|_| foreign.clone()).collect();
    let unfinished = json!(too_many).to_string().replace(']', ",");
    for (body, code) in [
        (json!(too_many).to_string(), -32600),
        // It is not read further.
        (unfinished, -32600),
        (json!([[]]).to_string(), -32600),
        (json!([call(1, "book")]).to_string(), -32600),
        (r#"[{"jsonrpc":"2.0","id":1,"id":2,"result":{}}]"#.to_owned(), -32700),
        ("[".to_owned(), -32700),
        ("[1,]".to_owned(), -32700),
        ("[".repeat(100_000), -32700),
    ] {
        let error = post(body).await.json();
        assert_eq!(error["error"]["code"], code, "{error}");
    }
    let no_header = replica.post_with(&[], "[]").await;
    assert_eq!(no_header.status, 400);
    let object = post(login.to_string()).await;
    assert_eq!(object.json()["error"]["code"], -32600);
}

#[tokio::test]
async fn sessions_of_turns_are_checked_if_they_are_named() {
    let world = World::new();
    let replica = world.endpoint(Dialect::MultiTurnSse);
    let initialize = |capabilities: Value| {
        json!({ "jsonrpc": "2.0", "id": 0, "method": "initialize", "params": {
            "protocolVersion": "DRAFT-SEP-1858", "capabilities": capabilities,
            "clientInfo": { "name": "c", "version": "1" } } })
    };
    let unknown = replica.post_with(&[("mcp-session-id", "x")], &call(1, "book").to_string()).await;
    assert_eq!(unknown.status, 404);
    let version = [("mcp-protocol-version", "2025-11-25")];
    assert_eq!(replica.post_with(&version, &call(1, "book").to_string()).await.status, 400);
    // A client that has declared no sampling is not asked for it.
    let initialized = replica.post(&initialize(json!({ "elicitation": {} }))).await;
    let session = initialized.headers["mcp-session-id"].to_str().unwrap();
    let mut weather = call(1, "get_weather");
    weather["params"]["arguments"] = json!({ "location": "x" });
    let error = replica.post_with(&[("mcp-session-id", session)], &weather.to_string()).await;
    assert_eq!(error.json()["error"]["code"], -32021, "{error:?}");
    // Nothing declared: what is configured holds, roots included.
    let configured = ClientCapabilities::default().with_roots(RootsCapability::default());
    let replica = world.endpoint_for_clients(Dialect::MultiTurnSse, configured);
    let initialized = replica.post(&initialize(json!({}))).await;
    let session = [("mcp-session-id", initialized.headers["mcp-session-id"].to_str().unwrap())];
    let rooted = replica.post_with(&session, &call(1, "rooted").to_string()).await;
    assert_eq!(rooted.headers["content-type"], "text/event-stream", "{rooted:?}");
    // The endpoint has no subscriptions and no log levels, and does not say so.
    assert_eq!(initialized.json()["result"]["capabilities"], json!({ "tools": {} }));
    let other = replica.by("bob").post_with(&session, "[]").await;
    assert_eq!(other.status, 404);
}

#[tokio::test]
async fn a_caller_with_too_many_requests_is_told_when_to_repeat_them() {
    for dialect in Dialect::ALL.iter().copied() {
        let answer = World::new().endpoint(dialect).post(&call(1, "limited")).await;
        assert_eq!(answer.status, 429, "{dialect}");
        assert_eq!(answer.headers["retry-after"], "7", "{dialect}");
    }
}

#[tokio::test]
async fn the_limit_of_the_depth_holds() {
    for dialect in Dialect::ALL.iter().copied() {
        let limits = mrtr_transport::http::RequestLimits::default().with_max_depth(3);
        let replica = World::new().endpoint_with_limits(dialect, limits);
        let mut message = call(1, "count");
        assert_eq!(replica.post(&message).await.status, 200, "{dialect}");
        message["params"]["arguments"] = json!({ "a": [1] });
        let error = replica.post(&message).await;
        let message = "Parse error: recursion limit of 3 exceeded";
        assert_eq!(error.json()["error"]["message"], message, "{dialect}");
        assert_eq!(error.status, 400);
    }
}

/// Their answers could not be sent in one array.
#[tokio::test]
async fn a_turn_asks_no_more_than_can_be_answered() {
    let replica = World::new().endpoint(Dialect::MultiTurnSse);
    let error = replica.post(&call(1, "curious")).await;
    let message = "This call asks 257 questions in one round; the limit is 256";
    assert_eq!(error.json()["error"]["message"], message);
}

#[tokio::test]
async fn an_unknown_method_does_not_end_a_session() {
    let replica = World::new().endpoint(Dialect::MultiTurnSse);
    let initialize = json!({ "jsonrpc": "2.0", "id": 0, "method": "initialize", "params": {
        "protocolVersion": "DRAFT-SEP-1858", "capabilities": {},
        "clientInfo": { "name": "c", "version": "1" } } });
    let initialized = replica.post(&initialize).await;
    let session = initialized.headers["mcp-session-id"].to_str().unwrap();
    let unknown = json!({ "jsonrpc": "2.0", "id": 1, "method": "x/y" }).to_string();
    let answer = replica.post_with(&[("mcp-session-id", session)], &unknown).await;
    assert_eq!((answer.status.as_u16(), &answer.json()["error"]["code"]), (200, &json!(-32601)));
    // A session without elicitation and sampling has declared nothing.
    let mut weather = call(1, "get_weather");
    weather["params"]["arguments"] = json!({ "location": "x" });
    let turn = replica.post_with(&[("mcp-session-id", session)], &weather.to_string()).await;
    assert_eq!(turn.events().len(), 4, "{turn:?}");
    let mute = World::new().endpoint_for_mute_clients(Dialect::MultiTurnSse);
    let error = mute.post_with(&[("mcp-session-id", session)], &weather.to_string()).await;
    assert_eq!(error.json()["error"]["code"], -32021, "{error:?}");
}

#[tokio::test]
async fn malformed_messages_have_the_errors_of_the_current_revision() {
    let world = World::new();
    let answers = json!({ "jsonrpc": "2.0", "id": 4, "input_responses": {} });
    for dialect in Dialect::ALL.iter().copied() {
        let replica = world.endpoint(dialect);
        for (body, code) in [
            ("{".to_owned(), -32700),
            (r#"{"jsonrpc":"2.0","id":1,"id":1,"method":"tools/list"}"#.to_owned(), -32700),
            (r#"{"jsonrpc":"2.0","id":1}"#.to_owned(), -32600),
            (r#"{"jsonrpc":"2.0","id":1,"result":{}}"#.to_owned(), -32600),
            (r#"{"jsonrpc":"2.0","id":1,"method":"x/y"}"#.to_owned(), -32601),
            (r#"{"jsonrpc":"2.0","id":1,"method":"subscriptions/listen"}"#.to_owned(), -32601),
            (call(1, "unknown").to_string(), -32602),
            (answers.to_string(), if dialect == Dialect::Incomplete { -32602 } else { -32600 }),
        ] {
            let answer = replica.post_with(&[], &body).await;
            assert_eq!(answer.json()["error"]["code"], code, "{dialect}: {body}: {answer:?}");
        }
        assert_eq!(replica.post_with(&[("content-type", "text/plain")], "x").await.status, 415);
        let ping = json!({ "jsonrpc": "2.0", "id": 1, "method": "ping" });
        assert_eq!(replica.post(&ping).await.json()["result"], json!({}));
    }
    // Two states in one message.
    let mut two = call(1, "book");
    two["dependent_responses"] =
        json!({ "mrtr.state/a": { "result": {} }, "mrtr.state/b": { "result": {} } });
    let error = world.endpoint(Dialect::Dependent).post(&two).await.json();
    assert_eq!(error["error"]["code"], -32602);
}

#[tokio::test]
async fn hosts_versions_and_capabilities_are_those_of_the_endpoint() {
    for dialect in Dialect::ALL.iter().copied() {
        let world = World::new();
        let replica = world.endpoint(dialect);
        let body = call(1, "book").to_string();
        let post = async |name, value| replica.post_with(&[(name, value)], &body).await.status;
        assert_eq!(post("host", "evil.example").await, 403, "{dialect}");
        assert_eq!(post("origin", "https://evil.example").await, 403, "{dialect}");
        assert_eq!(post("accept", "application/json").await, 406, "{dialect}");
        // The standard endpoint's header does not lead to the standard endpoint.
        let current = post("mcp-protocol-version", "2026-07-28").await;
        let is_refused = dialect == Dialect::MultiTurnSse;
        assert_eq!(current, if is_refused { 400 } else { 200 }, "{dialect}");
        let mute = world.endpoint_for_mute_clients(dialect);
        assert_eq!(mute.post(&call(1, "book")).await.json()["error"]["code"], -32021, "{dialect}");
    }
}
