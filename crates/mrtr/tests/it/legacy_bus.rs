//! Replicas without session affinity: with a bus, and without questions.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use http::StatusCode;
use mrtr::http::Endpoint;
use mrtr::legacy::{BusError, LegacyOptions, LegacyServer, PostgresBus, RedisBus, ReplicaBus};
use mrtr::{ClientFeature, Context, Secret, Server, Tool};
use mrtr_testkit::BusChannel;
use mrtr_testkit::servers::{Postgres, Redis, RedisFailover};
use serde_json::{Value, json};

use crate::legacy_client::{Incoming, LegacyClient, request};
use crate::legacy_server::{Runs, builder, replica, ring, text};

/// Replicas with the same keys, each with its own bus, and the counter of their steps.
fn replicas<const N: usize>(buses: [impl ReplicaBus; N]) -> ([Endpoint<Server>; N], Runs) {
    let (secret, runs) = (Secret::generate().unwrap(), Runs::default());
    let endpoints = buses.map(|bus| {
        let server = builder(&runs).allow_anonymous().key_ring(ring(&secret)).build().unwrap();
        replica(server, LegacyOptions::default().with_bus(bus))
    });
    (endpoints, runs)
}

/// Opens a session, and returns a client of it at each replica.
async fn clients<const N: usize>(endpoints: &[Endpoint<Server>; N]) -> [LegacyClient; N] {
    let client = LegacyClient::open(&endpoints[0], "2025-11-25").await;
    endpoints
        .each_ref()
        .map(|endpoint| LegacyClient { endpoint: endpoint.clone(), ..client.clone() })
}

/// Repeats a check until it succeeds.
async fn eventually(what: &str, mut check: impl AsyncFnMut() -> bool) {
    let checked = async {
        while !check().await {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    let checked = tokio::time::timeout(Duration::from_secs(30), checked).await;
    assert!(checked.is_ok(), "this did not happen: {what}");
}

/// Whatever reaches the wrong replica has its effect.
async fn any_replica_does(endpoints: &[Endpoint<Server>; 2], runs: &Runs) {
    let [first, second] = clients(endpoints).await;
    // Answers, short and long.
    let mut call = first.call(1, "book").await;
    let question = call.event().await.data;
    let long = "Lucca ".repeat(1_200);
    assert_eq!(second.accept(&question, &long).await, StatusCode::ACCEPTED);
    let question = call.event().await.data;
    assert_eq!(second.accept(&question, "none").await, StatusCode::ACCEPTED, "{question}");
    assert_eq!(text(&call.response().await), format!("{long} 0 none"));
    assert_eq!(runs.load(Ordering::SeqCst), 1);

    // Cancellations: the stream ends without a response.
    let mut call = first.call(2, "page").await;
    call.event().await;
    let cancelled = json!({
        "jsonrpc": "2.0", "method": "notifications/cancelled", "params": { "requestId": 2 },
    });
    assert_eq!(second.post(&cancelled).await.status, StatusCode::ACCEPTED);
    assert!(call.next().await.is_none());

    // Log levels.
    let level = request(3, "logging/setLevel", json!({ "level": "debug" }));
    assert_eq!(second.post(&level).await.json().await["result"], json!({}));
    eventually("the first replica logs details", async || {
        let (mut call, mut has_details) = (first.call(4, "notify").await, false);
        while let Some(event) = call.next().await {
            has_details |= event.data["params"]["data"] == "details";
        }
        has_details
    })
    .await;

    // The end of the session.
    assert_eq!(second.delete().await, StatusCode::NO_CONTENT);
    eventually("the session has ended at the first replica", async || {
        first.call(5, "version").await.status == StatusCode::NOT_FOUND
    })
    .await;
}

#[tokio::test]
async fn bus_carries_what_reaches_the_wrong_replica() {
    let channel = BusChannel::default();
    let (endpoints, runs) = replicas([channel.connect(), channel.connect()]);
    any_replica_does(&endpoints, &runs).await;
    let published = channel.published();
    assert!(!published.is_empty());
    let is_sealed = |message: &String| message.is_ascii() && !message.contains("Lucca");
    assert!(published.iter().all(is_sealed));
}

#[tokio::test]
async fn redis_bus_carries_what_reaches_the_wrong_replica() {
    let redis = Redis::start();
    let bus = async || RedisBus::connect(&redis.url(), "test").await.unwrap();
    let (endpoints, runs) = replicas([bus().await, bus().await]);
    any_replica_does(&endpoints, &runs).await;
}

#[tokio::test]
async fn redis_bus_reconnects() {
    let mut redis = Redis::start();
    let bus = RedisBus::connect(&redis.url(), "test").await.unwrap();
    redis.stop();
    assert!(bus.publish("lost".to_owned()).await.is_err());
    redis.restart();
    receives_again(&bus).await;
}

/// After a failover, the old server keeps its connections, and publishes only to its own
/// subscribers.
#[tokio::test]
async fn redis_bus_publishes_at_the_new_primary() {
    let servers = RedisFailover::start();
    let bus = RedisBus::connect(&servers.url(), "test").await.unwrap();
    let other = RedisBus::connect(&servers.new.url(), "test").await.unwrap();
    servers.demote_old();
    let error = bus.publish("lost".to_owned()).await.unwrap_err();
    assert!(error.to_string().contains("Redis is a replica"), "{error}");
    servers.lead_to_new();
    // It connects at most once per second.
    eventually("it is published", async || bus.publish("kept".to_owned()).await.is_ok()).await;
    assert_eq!(other.receive().await, "kept");
    // It listens at the new server, too.
    receives_again(&bus).await;
}

/// Such as while a new server does not know the user yet.
#[tokio::test]
async fn redis_bus_logs_in_again_after_a_refusal() {
    let redis = Redis::start();
    assert_eq!(redis.command("ACL SETUSER app on >secret ~* &* +@all"), "+OK");
    let url = format!("{}?user=app&pass=secret", redis.url());
    let bus = RedisBus::connect(&url, "test").await.unwrap();
    assert_eq!(redis.command("ACL SETUSER app off"), "+OK");
    redis.command("CLIENT KILL USER app");
    for _ in 0..5 {
        bus.publish("refused".to_owned()).await.unwrap_err();
    }
    assert_eq!(redis.command("ACL SETUSER app on"), "+OK");
    receives_again(&bus).await;
}

/// A message of others costs none of our own.
#[tokio::test]
async fn redis_bus_skips_what_is_not_text() {
    let redis = Redis::start();
    let bus = RedisBus::connect(&redis.url(), "test").await.unwrap();
    assert_eq!(redis.command(r#"PUBLISH test "\xff""#), ":1");
    bus.publish("kept".to_owned()).await.unwrap();
    let received = tokio::time::timeout(Duration::from_secs(10), bus.receive()).await;
    assert_eq!(received.unwrap(), "kept");
}

#[tokio::test]
async fn postgres_bus_carries_what_reaches_the_wrong_replica() {
    let postgres = Postgres::start();
    let bus = async || connect(&postgres).await;
    let (endpoints, runs) = replicas([bus().await, bus().await]);
    any_replica_does(&endpoints, &runs).await;
}

#[tokio::test]
async fn postgres_bus_reconnects() {
    let postgres = Postgres::start();
    let bus = connect(&postgres).await;
    let config: tokio_postgres::Config = postgres.config().parse().unwrap();
    let (client, connection) = config.connect(tokio_postgres::NoTls).await.unwrap();
    tokio::spawn(connection);
    let others = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity \
                  WHERE pid <> pg_backend_pid() AND backend_type = 'client backend'";
    client.execute(others, &[]).await.unwrap();
    receives_again(&bus).await;
}

async fn connect(postgres: &Postgres) -> PostgresBus {
    let connect = async |channel: &str| {
        let config = postgres.config().parse().unwrap();
        PostgresBus::connect(config, tokio_postgres::NoTls, channel).await
    };
    assert!(connect("").await.is_err() && connect(&"x".repeat(64)).await.is_err());
    connect("test \"channel\"").await.unwrap()
}

/// Publishes until a message arrives.
async fn receives_again(bus: &impl ReplicaBus) {
    let publish = eventually("a message arrives", async || {
        let _ = bus.publish("again".to_owned()).await;
        false
    });
    // Others may still arrive, from where it was connected before.
    let receive = async { while bus.receive().await != "again" {} };
    tokio::select! {
        () = publish => {}
        () = receive => {}
    }
}

#[tokio::test]
async fn bus_tells_the_former_replica_that_a_call_is_resumed() {
    let channel = BusChannel::default();
    let (endpoints, runs) = replicas([channel.connect(), channel.connect()]);
    let [first, second] = clients(&endpoints).await;
    let mut call = first.call(1, "book").await;
    let question = call.event().await;
    assert_eq!(first.accept(&question.data, "Lucca").await, StatusCode::ACCEPTED);
    let old = call.event().await;
    let mut resumed = second.get(old.id.as_deref()).await;
    let new = resumed.event().await;
    assert_eq!(new.data["params"], old.data["params"]);
    assert!(call.next().await.is_none(), "the call continues at one replica only");
    assert_eq!(first.accept(&new.data, "none").await, StatusCode::ACCEPTED);
    assert_eq!(text(&resumed.response().await), "Lucca 0 none");
    assert_eq!(runs.load(Ordering::SeqCst), 1);
}

/// What the second replica sent did not reach the client.
#[tokio::test]
async fn call_that_is_resumed_twice_from_one_event_continues_at_one_replica() {
    let channel = BusChannel::default();
    let (endpoints, runs) = replicas([(); 3].map(|()| channel.connect()));
    let [first, second, third] = clients(&endpoints).await;
    let mut call = first.call(1, "book").await;
    let question = call.event().await;
    let mut resumed = second.get(question.id.as_deref()).await;
    resumed.event().await;
    let mut again = third.get(question.id.as_deref()).await;
    let mut question = again.event().await;
    assert!(call.next().await.is_none() && resumed.next().await.is_none());
    for answer in ["Lucca", "none"] {
        assert_eq!(third.accept(&question.data, answer).await, StatusCode::ACCEPTED);
        if answer == "Lucca" {
            question = again.event().await;
        }
    }
    assert_eq!(text(&again.response().await), "Lucca 0 none");
    assert_eq!(runs.load(Ordering::SeqCst), 1);
}

/// As if a proxy repeats the request.
#[tokio::test]
async fn call_that_is_resumed_twice_at_the_same_time_continues_at_one_replica() {
    async fn until_end(stream: &mut Incoming, seen: &mut Vec<Value>) {
        while let Some(event) = stream.next().await {
            seen.push(event.data);
        }
    }

    let channel = BusChannel::default();
    let (endpoints, _) = replicas([(); 3].map(|()| channel.connect()));
    let [first, second, third] = clients(&endpoints).await;
    for id in 1..20 {
        let question = first.call(id, "book").await.event().await;
        let id = question.id.as_deref();
        let (mut one, mut other) = tokio::join!(second.get(id), third.get(id));
        let (mut of_one, mut of_other) = (Vec::new(), Vec::new());
        let (client, mut stream, mut seen) = tokio::select! {
            () = until_end(&mut one, &mut of_one) => (&third, other, of_other),
            () = until_end(&mut other, &mut of_other) => (&second, one, of_one),
        };
        for answer in ["Lucca", "none"] {
            let question = match seen.pop() {
                Some(question) => question,
                None => stream.event().await.data,
            };
            assert_eq!(client.accept(&question, answer).await, StatusCode::ACCEPTED);
        }
        assert!(text(&stream.response().await).starts_with("Lucca "));
    }
}

/// Each round requires its scopes anew, wherever the answers arrive.
#[cfg(feature = "auth-server")]
#[tokio::test]
async fn round_has_the_scopes_that_all_its_answers_came_with() {
    let channel = BusChannel::default();
    let (endpoints, _) = replicas([channel.connect(), channel.connect()]);
    let clients = clients(&endpoints).await;
    let with = |client: &LegacyClient, scopes: &str| {
        let mut extensions = http::Extensions::new();
        extensions.insert(mrtr::auth::GrantedScopes::new(scopes.split(' ')));
        LegacyClient { extensions, ..client.clone() }
    };
    let (few, all) = ("read", "read pay");
    let cases = [(few, [all, all]), (all, [all, few]), (few, [few, all]), (all, [few, few])];
    for (id, (began, answers)) in (0_i64..).zip(cases) {
        for reversed in [false, true] {
            for (nth, other) in clients.iter().enumerate() {
                let case = format!("{began}, {answers:?}, {reversed}, replica {nth}");
                let mut call = with(&clients[0], began).call(id, "pay").await;
                let mut questions = [call.event().await.data, call.event().await.data];
                if reversed {
                    questions.reverse();
                }
                for (question, scopes) in questions.iter().zip(answers) {
                    let status = with(other, scopes).accept(question, "x").await;
                    assert_eq!(status, StatusCode::ACCEPTED, "{case}");
                }
                let response = call.response().await;
                if answers == [all, all] {
                    assert_eq!(text(&response), "xx", "{case}: {response}");
                } else {
                    let why = response["error"]["message"].as_str().unwrap_or_default();
                    assert!(why.contains("pay"), "{case}: {response}");
                }
            }
        }
    }
}

#[tokio::test]
async fn messages_that_are_not_sealed_are_ignored() {
    let channel = BusChannel::default();
    let (endpoints, runs) = replicas([channel.connect(), channel.connect()]);
    // Another service on the same channel.
    let (strangers, _) = replicas([channel.connect(), channel.connect()]);
    let [stranger, _] = clients(&strangers).await;
    stranger.delete().await;
    for message in ["", "{}", "mrtr1.AAAA", &"x".repeat(100_000)] {
        channel.inject(message);
    }
    any_replica_does(&endpoints, &runs).await;
}

/// A bus that accepts nothing and delivers nothing.
struct BrokenBus;

impl ReplicaBus for BrokenBus {
    async fn publish(&self, _: String) -> Result<(), BusError> {
        Err(BusError::new("broken"))
    }

    async fn receive(&self) -> String {
        std::future::pending().await
    }
}

#[tokio::test]
async fn client_learns_that_its_message_was_not_passed_on() {
    let (endpoints, _) = replicas([BrokenBus, BrokenBus]);
    let [first, second] = clients(&endpoints).await;
    let mut call = first.call(1, "book").await;
    let question = call.event().await.data;
    let unavailable = StatusCode::SERVICE_UNAVAILABLE;
    assert_eq!(second.accept(&question, "Lucca").await, unavailable);
    let level = request(3, "logging/setLevel", json!({ "level": "debug" }));
    assert_eq!(second.post(&level).await.json().await["error"]["code"], -32603);
    // The replica that has asked needs no bus. An answer to nothing is not passed on.
    assert_eq!(first.accept(&question, "Lucca").await, StatusCode::ACCEPTED);
    let unknown = json!({ "id": "1" });
    assert_eq!(second.accept(&unknown, "Lucca").await, StatusCode::BAD_REQUEST);
    // The other replicas still accept the session, so the client can try again.
    assert_eq!(second.delete().await, unavailable);
    assert_eq!(second.delete().await, unavailable);
}

#[tokio::test]
async fn call_is_resumed_elsewhere_without_the_bus() {
    let (endpoints, _) = replicas([BrokenBus, BrokenBus]);
    let [first, second] = clients(&endpoints).await;
    let question = first.call(1, "book").await.event().await;
    let mut stream = second.get(question.id.as_deref()).await;
    for answer in ["outside", "fish"] {
        let question = stream.event().await.data;
        assert_eq!(second.accept(&question, answer).await, StatusCode::ACCEPTED);
    }
    assert_eq!(text(&stream.response().await), "outside 0 fish");
}

#[tokio::test]
async fn answer_that_is_too_long_for_the_bus_is_refused_with_that_reason() {
    let channel = BusChannel::default();
    let (endpoints, _) = replicas([channel.connect(), channel.connect()]);
    let [first, second] = clients(&endpoints).await;
    let question = first.call(1, "book").await.event().await.data;
    let content = json!({ "action": "accept", "content": { "text": "x".repeat(128 << 10) } });
    let answer = json!({ "jsonrpc": "2.0", "id": question["id"], "result": content });
    let refused = second.post(&answer).await;
    assert_eq!(refused.status, StatusCode::PAYLOAD_TOO_LARGE);
    let message = refused.json().await["error"]["message"].to_string();
    assert!(message.contains("too long to be passed on"), "{message}");
}

#[tokio::test]
async fn bus_serves_one_server() {
    let server = builder(&Runs::default()).allow_anonymous().ephemeral_key().build().unwrap();
    let options = LegacyOptions::default().with_bus(BusChannel::default().connect());
    let new = || LegacyServer::new(server.clone(), server.sealer(), options.clone());
    let _first = new().unwrap();
    assert!(new().unwrap_err().to_string().contains("another server uses this bus"));
}

#[tokio::test]
async fn server_without_questions_refuses_them_and_names_pages_to_visit() {
    let runs = Runs::default();
    let ran = Arc::clone(&runs);
    let asks = move |_: Context| {
        ran.fetch_add(1, Ordering::SeqCst);
        async { Ok::<_, mrtr::Error>(String::new()) }
    };
    let tool = Tool::new("asks", "", asks).requires([ClientFeature::Form]);
    let server = builder(&runs).tool(tool).allow_anonymous().ephemeral_key().build().unwrap();
    let endpoint = replica(server, LegacyOptions::default().without_questions());
    let client = LegacyClient::open(&endpoint, "2025-11-25").await;
    let call = async |client: &LegacyClient, name| client.call(1, name).await.json().await;
    assert_eq!(text(&call(&client, "version").await), "2025-11-25");
    for name in ["asks", "book", "both", "manual"] {
        let error = call(&client, name).await["error"].clone();
        assert_eq!(error["code"], -32603, "{name}: {error}");
        let message = error["message"].as_str().unwrap();
        assert!(message.contains("asks clients of legacy revisions no questions"), "{message}");
    }
    assert_eq!(runs.load(Ordering::SeqCst), 0, "no step and no handler that requires input ran");

    let error = call(&client, "page").await["error"].clone();
    assert_eq!(error["code"], -32042, "{error}");
    let pages: Vec<Value> = serde_json::from_value(error["data"]["elicitations"].clone()).unwrap();
    let [page] = &pages[..] else { panic!("{error}") };
    assert_eq!((&page["mode"], &page["message"]), (&json!("url"), &json!("Sign in")));
    assert_eq!(page["url"], "https://login.example/");
    assert!(page["elicitationId"].as_str().is_some_and(|id| !id.is_empty()));
    let older = LegacyClient::open(&endpoint, "2025-06-18").await;
    assert_eq!(call(&older, "page").await["error"]["code"], -32603);
}
