//! Event streams of legacy clients over HTTP: broken, resumed, cancelled and unread ones.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use http::StatusCode;
use mrtr::http::{Endpoint, RequestLimits};
use mrtr::legacy::{LegacyOptions, LegacyServer};
use mrtr::{ChangeNotifier, Context, Result, Secret, Server, Tool};
use serde_json::{Value, json};
use tokio::sync::Notify;

use crate::legacy_client::{LegacyClient, request};
use crate::legacy_server::{Runs, Text, builder, endpoint, replica, replicas, ring, text};

#[tokio::test]
async fn broken_stream_is_resumed_after_the_last_event() {
    let endpoint = endpoint();
    let client = LegacyClient::open(&endpoint, "2025-11-25").await;
    let mut stream = client.call(1, "book").await;
    let question = stream.event().await;
    drop(stream);
    // The client has read the question: it is not sent again.
    assert_eq!(client.accept(&question.data, "outside").await, StatusCode::ACCEPTED);
    let mut stream = client.get(question.id.as_deref()).await;
    let second = stream.event().await;
    assert_eq!(second.data["params"]["message"], "Table 0. What?");
    drop(stream);
    // The client has not read the second question.
    let mut stream = client.get(question.id.as_deref()).await;
    assert_eq!(stream.event().await.data, second.data);
    client.accept(&second.data, "fish").await;
    assert_eq!(text(&stream.response().await), "outside 0 fish");
}

#[tokio::test]
async fn another_replica_continues_a_call_from_its_event_id() {
    let ([first, other], runs) = replicas();
    let client = LegacyClient::open(&first, "2025-11-25").await;
    let mut stream = client.call(41, "book").await;
    let question = stream.event().await.data;
    client.accept(&question, "outside").await;
    let second = stream.event().await;
    drop((stream, first));

    let client = LegacyClient { endpoint: other, ..client };
    let status = client.accept(&second.data, "fish").await;
    assert_eq!(status, StatusCode::BAD_REQUEST, "the question was asked by a replica that is gone");
    let mut stream = client.get(second.id.as_deref()).await;
    let again = stream.event().await.data;
    assert_eq!(again["params"], second.data["params"], "the same question is asked again");
    assert_eq!(client.accept(&again, "fish").await, StatusCode::ACCEPTED);
    let response = stream.response().await;
    assert_eq!((&response["id"], text(&response)), (&json!(41), "outside 0 fish"));
    assert_eq!(runs.load(Ordering::SeqCst), 1, "the step ran again");
}

#[tokio::test]
async fn event_ids_of_others_resume_nothing() {
    let ([first, other], _) = replicas();
    let client = LegacyClient::open(&first, "2025-11-25").await;
    let mut stream = client.call(1, "book").await;
    let id = stream.event().await.id.unwrap();
    let thief = LegacyClient::open(&first, "2025-11-25").await;
    assert_eq!(thief.get(Some(&id)).await.status, StatusCode::BAD_REQUEST);
    let elsewhere = LegacyClient { endpoint: other, ..thief };
    assert_eq!(elsewhere.get(Some(&id)).await.status, StatusCode::BAD_REQUEST);
    for forged in ["", "1_1", "x~mrtr1.AAAA", &id[..id.len() - 2]] {
        let status = LegacyClient { endpoint: elsewhere.endpoint.clone(), ..client.clone() };
        assert_eq!(status.get(Some(forged)).await.status, StatusCode::BAD_REQUEST, "{forged}");
    }
}

#[tokio::test(start_paused = true)]
async fn cancelled_call_ends_without_a_response() {
    let endpoint = endpoint();
    let client = LegacyClient::open(&endpoint, "2025-11-25").await;
    let mut stream = client.call(5, "wait").await;
    assert!(stream.is_stream(), "a slow call becomes a stream");
    let params = json!({ "requestId": 5, "reason": "changed my mind" });
    let cancel = json!({ "jsonrpc": "2.0", "method": "notifications/cancelled", "params": params });
    assert_eq!(client.post(&cancel).await.status, StatusCode::ACCEPTED);
    assert!(stream.next().await.is_none());
    // The id can be used again.
    let mut stream = client.call(5, "wait").await;
    client.post(&cancel).await;
    assert!(stream.next().await.is_none());
}

#[tokio::test(start_paused = true)]
async fn slow_call_begins_with_an_event_id_where_the_revision_has_it() {
    let endpoint = endpoint();
    for (version, has_id) in [("2025-11-25", true), ("2025-06-18", false)] {
        let client = LegacyClient::open(&endpoint, version).await;
        let response = client.call(1, "wait").await;
        let first = response.first_frame().await;
        assert_eq!(first.starts_with("id: "), has_id, "{version}: {first}");
        assert_eq!(first.contains("retry: "), has_id, "{version}: {first}");
    }
}

/// Counts when it is dropped.
struct Guard(Runs);

impl Drop for Guard {
    fn drop(&mut self) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}

#[tokio::test(start_paused = true)]
async fn call_without_its_client_ends_after_the_resume_timeout() {
    let runs = Runs::default();
    let dropped = Arc::clone(&runs);
    let wait = move |_: Context| {
        let guard = Guard(Arc::clone(&dropped));
        async move {
            let _guard = guard;
            std::future::pending::<Result<&str>>().await
        }
    };
    let server = Server::builder("test", "1").tool(Tool::new("wait", "", wait));
    let server = server.allow_anonymous().ephemeral_key().build().unwrap();
    let endpoint = replica(server, LegacyOptions::default());
    let client = LegacyClient::open(&endpoint, "2025-11-25").await;
    let stream = client.call(1, "wait").await;
    drop(stream);
    tokio::time::sleep(Duration::from_secs(29)).await;
    assert_eq!(runs.load(Ordering::SeqCst), 0, "a client may resume");
    tokio::time::sleep(Duration::from_secs(2)).await;
    assert_eq!(runs.load(Ordering::SeqCst), 1);
}

/// A client cannot fill the memory with streams that it does not read.
#[tokio::test(start_paused = true)]
async fn unread_streams_count_as_requests_in_flight_until_the_resume_timeout() {
    let endpoint = endpoint().limits(RequestLimits::default().with_max_in_flight(2));
    let client = LegacyClient::open(&endpoint, "2025-11-25").await;
    let params = json!({ "name": "notify", "_meta": { "progressToken": 1 } });
    let call = async |id| client.post(&request(id, "tools/call", params.clone())).await;
    for id in [1, 2] {
        assert!(call(id).await.is_stream());
    }
    assert_eq!(call(3).await.status, StatusCode::SERVICE_UNAVAILABLE);
    tokio::time::sleep(Duration::from_secs(31)).await;
    // A stream that is read to its end counts no longer.
    for id in 4..8 {
        let mut stream = call(id).await;
        while stream.next().await.is_some() {}
    }
}

#[tokio::test(start_paused = true)]
async fn question_that_is_not_answered_ends_the_call() {
    let endpoint = endpoint();
    let client = LegacyClient::open(&endpoint, "2025-11-25").await;
    let mut stream = client.call(1, "book").await;
    stream.event().await;
    // The stream sends comments meanwhile.
    let cancelled = loop {
        tokio::time::advance(Duration::from_secs(30)).await;
        if let Some(event) = stream.next_within(Duration::from_secs(1)).await {
            break event.data;
        }
    };
    assert_eq!(cancelled["method"], "notifications/cancelled");
    let response = stream.response().await;
    let message = response["error"]["message"].as_str().unwrap();
    assert!(message.contains("elicitation/create within 600s"), "{message}");
}

#[tokio::test]
async fn batches_belong_to_one_revision() {
    let endpoint = endpoint();
    let client = LegacyClient::open(&endpoint, "2025-03-26").await;
    let note = json!({ "jsonrpc": "2.0", "method": "notifications/initialized" });
    let batch = json!([request(1, "ping", json!({})), note, request(2, "tools/list", json!({}))]);
    let mut stream = client.post(&batch).await;
    let mut ids =
        vec![stream.event().await.data["id"].clone(), stream.event().await.data["id"].clone()];
    ids.sort_by_key(Value::to_string);
    assert_eq!(ids, [json!(1), json!(2)]);
    assert!(stream.next().await.is_none());
    assert_eq!(client.post(&json!([note])).await.status, StatusCode::ACCEPTED);
    for invalid in [json!([]), json!([1]), json!(vec![note; 65])] {
        assert_eq!(client.post(&invalid).await.status, StatusCode::BAD_REQUEST, "{invalid}");
    }
    let client = LegacyClient::open(&endpoint, "2025-06-18").await;
    assert_eq!(client.post(&batch).await.status, StatusCode::BAD_REQUEST);
}

/// Each call of a batch is a request in flight.
#[tokio::test]
async fn batch_with_more_calls_than_may_be_in_flight_is_rejected() {
    let endpoint = endpoint().limits(RequestLimits::default().with_max_in_flight(2));
    let client = LegacyClient::open(&endpoint, "2025-03-26").await;
    let batch =
        |calls: i64| (1..=calls).map(|id| request(id, "tools/list", json!({}))).collect::<Value>();
    assert_eq!(client.post(&batch(3)).await.status, StatusCode::SERVICE_UNAVAILABLE);
    for _ in 0..2 {
        let mut stream = client.post(&batch(2)).await;
        assert!(stream.is_stream());
        while stream.next().await.is_some() {}
    }
}

/// The call that waits for an answer takes all the room there is.
#[tokio::test]
async fn answer_is_accepted_when_no_request_is() {
    let endpoint = endpoint().limits(RequestLimits::default().with_max_in_flight(1));
    let client = LegacyClient::open(&endpoint, "2025-11-25").await;
    let mut stream = client.call(1, "book").await;
    let first = stream.event().await;
    let other = client.call(2, "version").await;
    assert_eq!(other.status, StatusCode::SERVICE_UNAVAILABLE);
    assert_eq!(other.json().await["id"], 2);
    assert_eq!(client.accept(&first.data, "outside").await, StatusCode::ACCEPTED);
    drop(stream);
    let mut stream = client.get(first.id.as_deref()).await;
    let second = stream.event().await.data;
    assert_eq!(client.accept(&second, "fish").await, StatusCode::ACCEPTED);
    assert_eq!(text(&stream.response().await), "outside 0 fish");
    assert_eq!(client.call(2, "version").await.status, StatusCode::OK);
}

#[tokio::test(start_paused = true)]
async fn cancelled_call_counts_as_in_flight_until_its_detached_work_ends() {
    let end = Arc::new(Notify::new());
    let ended = Arc::clone(&end);
    let detach = move |cx: Context| {
        let ended = Arc::clone(&ended);
        tokio::spawn(async move {
            ended.notified().await;
            drop(cx);
        });
        std::future::pending::<Result<&str>>()
    };
    let server = builder(&Runs::default()).tool(Tool::new("detach", "", detach));
    let server = server.allow_anonymous().ephemeral_key().build().unwrap();
    let limits = RequestLimits::default().with_max_in_flight(1);
    let endpoint = replica(server, LegacyOptions::default()).limits(limits);
    let client = LegacyClient::open(&endpoint, "2025-11-25").await;
    let mut stream = client.call(1, "detach").await;
    let params = json!({ "requestId": 1 });
    client
        .post(&json!({ "jsonrpc": "2.0", "method": "notifications/cancelled", "params": params }))
        .await;
    assert!(stream.next().await.is_none());
    drop(stream);
    assert_eq!(client.call(2, "version").await.status, StatusCode::SERVICE_UNAVAILABLE);
    end.notify_one();
    tokio::task::yield_now().await;
    assert_eq!(client.call(2, "version").await.status, StatusCode::OK);
}

#[tokio::test(start_paused = true)]
async fn every_disconnect_gives_the_client_the_full_time_to_resume() {
    let endpoint = endpoint();
    let client = LegacyClient::open(&endpoint, "2025-11-25").await;
    let mut stream = client.call(1, "book").await;
    let question = stream.event().await;
    drop(stream);
    tokio::time::sleep(Duration::from_secs(20)).await;
    drop(client.get(question.id.as_deref()).await);
    // The time after the first disconnect is over; the time after the second is not.
    tokio::time::sleep(Duration::from_secs(15)).await;
    assert_eq!(client.accept(&question.data, "outside").await, StatusCode::ACCEPTED);
    let mut stream = client.get(question.id.as_deref()).await;
    let second = stream.event().await.data;
    client.accept(&second, "fish").await;
    assert_eq!(text(&stream.response().await), "outside 0 fish");
}

#[tokio::test(start_paused = true)]
async fn cancelled_call_of_a_batch_leaves_the_others() {
    let endpoint = endpoint();
    let client = LegacyClient::open(&endpoint, "2025-03-26").await;
    let wait = |id| request(id, "tools/call", json!({ "name": "wait" }));
    let cancel = async |id| {
        let params = json!({ "requestId": id });
        let cancelled =
            json!({ "jsonrpc": "2.0", "method": "notifications/cancelled", "params": params });
        client.post(&cancelled).await;
    };
    let mut stream = client.post(&json!([wait(1), wait(2)])).await;
    cancel(1).await;
    let next = tokio::time::timeout(Duration::from_secs(10), stream.next());
    assert!(next.await.is_err(), "the second call is in flight");
    cancel(2).await;
    assert!(stream.next().await.is_none());
}

/// A client that disconnects from the stream of changes leaves nothing behind.
#[tokio::test]
async fn stream_of_changes_ends_with_its_connection() {
    let changes = ChangeNotifier::new();
    let server = builder(&Runs::default()).changes(changes.clone()).allow_anonymous();
    let server = server.ephemeral_key().build().unwrap();
    let legacy = LegacyServer::new(server.clone(), server.sealer(), LegacyOptions::default());
    let legacy = legacy.unwrap();
    let endpoint = Endpoint::new(server).legacy(legacy.clone());
    for _ in 0..3 {
        let client = LegacyClient::open(&endpoint, "2025-11-25").await;
        let stream = client.get(None).await;
        while changes.listeners() != 1 {
            tokio::task::yield_now().await;
        }
        drop(stream);
        while changes.listeners() != 0 {
            tokio::task::yield_now().await;
        }
    }
    while !format!("{legacy:?}").contains("active_sessions: 0") {
        tokio::task::yield_now().await;
    }
}

/// A client that went to another replica and came back continues from where it stands.
#[tokio::test]
async fn call_that_is_resumed_here_replaces_the_one_that_its_client_has_left() {
    let ([first, second], runs) = replicas();
    let client = LegacyClient::open(&first, "2025-11-25").await;
    let mut left = client.call(1, "book").await;
    let question = left.event().await;
    let other = LegacyClient { endpoint: second, ..client.clone() };
    let mut stream = other.get(question.id.as_deref()).await;
    let again = stream.event().await;
    let mut stream = client.get(again.id.as_deref()).await;
    assert!(left.next().await.is_none());
    for answer in ["outside", "fish"] {
        let question = stream.event().await.data;
        assert_eq!(client.accept(&question, answer).await, StatusCode::ACCEPTED);
    }
    assert_eq!(text(&stream.response().await), "outside 0 fish");
    assert_eq!(runs.load(Ordering::SeqCst), 1);
}

#[tokio::test]
async fn call_is_resumed_from_its_question_after_notifications() {
    let secret = Secret::generate().unwrap();
    let [first, second] = [(); 2].map(|()| {
        let tool = Tool::new("busy", "", async |cx: Context| -> Result<String> {
            let Text { text } = cx.elicit("place", "Where?").await?;
            cx.progress(1.0, None, None);
            std::future::pending::<()>().await;
            Ok(text)
        });
        let server = builder(&Runs::default()).tool(tool).allow_anonymous();
        let server = server.key_ring(ring(&secret)).build().unwrap();
        replica(server, LegacyOptions::default())
    });
    for version in ["2025-11-25", "2025-06-18"] {
        let client = LegacyClient::open(&first, version).await;
        let params = json!({ "name": "busy", "arguments": {}, "_meta": { "progressToken": 1 } });
        let mut stream = client.post(&request(1, "tools/call", params)).await;
        let question = stream.event().await;
        client.accept(&question.data, "outside").await;
        let progress = stream.event().await;
        assert_eq!(progress.data["method"], "notifications/progress");
        assert_eq!(stream.last_id, question.id, "the client would lose the sealed call");
        // Another replica, and one after that.
        let mut last = stream.last_id;
        for endpoint in [&second, &first] {
            let client = LegacyClient { endpoint: endpoint.clone(), ..client.clone() };
            let mut stream = client.get(last.as_deref()).await;
            assert_eq!(stream.event().await.data["params"], question.data["params"], "{version}");
            last = stream.last_id;
        }
    }
}

#[tokio::test]
async fn question_that_is_too_long_to_be_sealed_is_not_repeated_at_its_replica() {
    let endpoint = endpoint();
    let client = LegacyClient::open(&endpoint, "2025-11-25").await;
    let mut stream = client.call(1, "book").await;
    let question = stream.event().await.data;
    client.accept(&question, &"x".repeat(7_000)).await;
    let question = stream.event().await;
    assert!(question.id.as_ref().is_some_and(|id| !id.contains('~')), "{question:?}");
    let last = stream.last_id.take();
    drop(stream);
    client.accept(&question.data, "fish").await;
    assert!(text(&client.get(last.as_deref()).await.response().await).ends_with("0 fish"));
}

#[tokio::test]
async fn resumed_stream_begins_with_its_own_name() {
    let ([first, second], _) = replicas();
    let client = LegacyClient::open(&first, "2025-11-25").await;
    let question = client.call(1, "book").await.event().await;
    let client = LegacyClient { endpoint: second, ..client };
    let frame = client.get(question.id.as_deref()).await.first_frame().await;
    let id = frame.lines().find_map(|line| line.strip_prefix("id: ")).unwrap();
    assert!(frame.contains("data: \n\n") && id.contains('~'), "{frame}");
    assert_ne!(Some(id), question.id.as_deref());
}

/// Two servers with the same keys, and the counter of their steps.
fn servers() -> ([Server; 2], Runs) {
    let (secret, runs) = (Secret::generate().unwrap(), Runs::default());
    let server = || builder(&runs).allow_anonymous().key_ring(ring(&secret)).build().unwrap();
    ([server(), server()], runs)
}

#[tokio::test]
async fn server_that_shuts_down_gives_up_its_questions_to_another_replica() {
    for version in ["2025-11-25", "2025-06-18"] {
        let ([server, other], runs) = servers();
        let [first, second] =
            [&server, &other].map(|server| replica(server.clone(), LegacyOptions::default()));
        let client = LegacyClient::open(&first, version).await;
        let mut stream = client.call(1, "book").await;
        let question = stream.event().await;
        client.accept(&question.data, "outside").await;
        let question = stream.event().await;
        server.begin_shutdown();
        assert!(stream.next().await.is_none(), "the stream ends without a response");
        // The load balancer knows only later.
        let client = LegacyClient { endpoint: first, ..client };
        let mut stream = client.get(question.id.as_deref()).await;
        while stream.next().await.is_some() {}
        let last = stream.last_id.or(question.id);
        let client = LegacyClient { endpoint: second, ..client };
        let mut stream = client.get(last.as_deref()).await;
        let again = stream.event().await.data;
        assert_eq!(again["params"], question.data["params"]);
        client.accept(&again, "fish").await;
        assert_eq!(text(&stream.response().await), "outside 0 fish", "{version}");
        assert_eq!(runs.load(Ordering::SeqCst), 1, "the step ran again");
    }
}

#[tokio::test]
async fn server_that_shuts_down_asks_only_clients_that_need_a_message() {
    for (version, questions) in [("2025-11-25", 0), ("2025-06-18", 1)] {
        let ([server, other], _) = servers();
        let [first, second] =
            [&server, &other].map(|server| replica(server.clone(), LegacyOptions::default()));
        let client = LegacyClient::open(&first, version).await;
        server.begin_shutdown();
        assert_eq!(text(&client.call(1, "version").await.response().await), version);
        let mut stream = client.call(2, "book").await;
        let mut asked = 0;
        while let Some(event) = stream.next().await {
            assert!(event.data["result"].is_null(), "{event:?}");
            asked += 1;
        }
        assert_eq!(asked, questions, "{version}");
        let client = LegacyClient { endpoint: second, ..client };
        let mut stream = client.get(stream.last_id.as_deref()).await;
        for answer in ["outside", "fish"] {
            let question = stream.event().await.data;
            client.accept(&question, answer).await;
        }
        assert_eq!(text(&stream.response().await), "outside 0 fish");
    }
}
