//! What the server asks in the middle of calls, and the answers.

use std::error::Error as _;
use std::time::Duration;

use mrtr_schema::jsonrpc::{Request, RequestId};
use serde_json::json;
use tokio::time::Instant;

use super::*;

#[tokio::test(start_paused = true)]
async fn question_reaches_the_client_while_notifications_arrive() {
    let (adapter, mut server) = connect();
    let sent = call(&adapter, "t");
    let at_server = server.call("tools/call").await;
    let begun = Instant::now();
    at_server.ask(1).await;
    let notifying = tokio::spawn(async move {
        loop {
            tokio::time::sleep(Duration::from_millis(4)).await;
            at_server.notify().await;
        }
    });
    let suspended = result(sent).await;
    assert_eq!(suspended["inputRequests"].as_object().unwrap().len(), 1);
    assert!(begun.elapsed() < Duration::from_millis(10), "{:?}", begun.elapsed());
    notifying.abort();
}

/// Each ping is answered before the next message is read.
#[tokio::test(start_paused = true)]
async fn pings_without_end_hold_up_neither_a_question_nor_a_timeout() {
    for asks in [true, false] {
        let (adapter, mut server) = connect();
        let sent = call(&adapter, "t");
        let at_server = server.call("tools/call").await;
        server.opened.lock().unwrap().post_time = Duration::from_secs(1);
        let begun = Instant::now();
        if asks {
            at_server.ask(1).await;
        }
        let pinging = tokio::spawn(async move {
            loop {
                at_server.ping().await;
            }
        });
        if asks {
            assert!(result(sent).await["inputRequests"].is_object());
            assert!(begun.elapsed() < Duration::from_secs(2), "{:?}", begun.elapsed());
        } else {
            let error = sent.await.unwrap().unwrap_err().to_string();
            assert!(error.contains("did not answer the request within"), "{error}");
        }
        pinging.abort();
    }
}

#[tokio::test(start_paused = true)]
async fn questions_without_end_are_asked_in_rounds() {
    let (adapter, mut server) = connect();
    let sent = call(&adapter, "t");
    let at_server = server.call("tools/call").await;
    for id in 0..200 {
        at_server.ask(id).await;
    }
    let suspended = result(sent).await;
    assert_eq!(suspended["inputRequests"].as_object().unwrap().len(), 65);
    let suspended = result(resume(&adapter, "t", &suspended)).await;
    assert_eq!(suspended["inputRequests"].as_object().unwrap().len(), 65);
}

#[tokio::test(start_paused = true)]
async fn request_state_resumes_only_its_own_call() {
    let (adapter, mut server) = connect();
    let sent = call(&adapter, "a");
    let at_server = server.call("tools/call").await;
    at_server.ask(1).await;
    let suspended = result(sent).await;
    let mixed_up = resume(&adapter, "b", &suspended).await.unwrap().unwrap();
    let error = mixed_up.outcome.unwrap_err();
    assert!(error.message.contains("another call"), "{error}");
    let sent = resume(&adapter, "a", &suspended);
    assert_eq!(server.response().await.1["id"], 1);
    at_server.answer(json!({ "content": [] })).await;
    assert_eq!(result(sent).await, json!({ "content": [] }));

    // The first call of another client has another state.
    let (other, mut server) = connect();
    let sent = call(&other, "a");
    server.call("tools/call").await.ask(1).await;
    assert_ne!(result(sent).await["requestState"], suspended["requestState"]);
}

#[tokio::test(start_paused = true)]
async fn answer_goes_only_to_the_session_of_its_question() {
    let (adapter, mut server) = connect();
    let first = call(&adapter, "a");
    let at_server = server.call("tools/call").await;
    at_server.ask(1).await;
    let suspended = result(first).await;
    server.end_session(1);
    let second = call(&adapter, "b");
    let in_second = server.call("tools/call").await;
    assert_eq!(in_second.session, 2);
    in_second.ask(1).await;
    result(second).await;
    let resumed = resume(&adapter, "a", &suspended).await.unwrap().unwrap_err();
    // A retry would only fail with an unknown state.
    assert!(resumed.is_interrupted() && !resumed.is_transient(), "{resumed}");
    let why = resumed.source().unwrap().to_string();
    assert!(why.contains("ended the session"), "{why}");
    assert_eq!(server.response().await.0, 1, "the answer went to another session");
    assert!(server.posts.try_recv().is_ok_and(|(session, _)| session == 1), "the cancellation");
}

#[tokio::test(start_paused = true)]
async fn answer_that_another_replica_refused_reaches_the_one_that_asked() {
    let (adapter, mut server) = connect();
    let sent = call(&adapter, "t");
    let at_server = server.call("tools/call").await;
    at_server.ask(1).await;
    at_server.ask(2).await;
    let suspended = result(sent).await;
    server.opened.lock().unwrap().refusals = 3;
    let sent = resume(&adapter, "t", &suspended);
    // The first answer is refused twice, the second once.
    let ids = [1, 2, 1, 2, 1];
    for id in ids {
        assert_eq!(server.response().await.1["id"], id);
    }
    at_server.answer(json!({ "content": [] })).await;
    assert_eq!(result(sent).await, json!({ "content": [] }));
}

/// Each attempt may take the timeout of a request.
#[tokio::test(start_paused = true)]
async fn one_answer_shows_that_the_server_cannot_be_reached() {
    let (adapter, mut server) = connect();
    let sent = call(&adapter, "t");
    let at_server = server.call("tools/call").await;
    for id in ["a", "b", "c"] {
        at_server.ask(id).await;
    }
    let suspended = result(sent).await;
    assert_eq!(suspended["inputRequests"].as_object().unwrap().len(), 3);
    server.opened.lock().unwrap().is_down = true;
    let resumed = resume(&adapter, "t", &suspended);
    // The first is tried thrice, and the others once.
    for id in ["a", "a", "a", "b", "c"] {
        assert_eq!(server.response().await.1["id"], id);
    }
    server.opened.lock().unwrap().is_down = false;
    for id in ["a", "b", "c"] {
        assert_eq!(server.response().await.1["id"], id);
    }
    at_server.answer(json!({ "content": [] })).await;
    soon(resumed).await.unwrap().unwrap();
}

#[tokio::test(start_paused = true)]
async fn answer_is_not_sent_again_once_the_question_is_asked_again() {
    let (adapter, mut server) = connect();
    let sent = call(&adapter, "t");
    let at_server = server.call("tools/call").await;
    at_server.ask(1).await;
    let suspended = result(sent).await;
    server.opened.lock().unwrap().refusals = usize::MAX;
    let sent = resume(&adapter, "t", &suspended);
    server.response().await;
    at_server.ask(2).await;
    let suspended = result(sent).await;
    assert_eq!(suspended["inputRequests"].as_object().unwrap().len(), 1);
    let resumed = resume(&adapter, "t", &suspended);
    assert_eq!(server.response().await.1["id"], 2);
    at_server.answer(json!({ "content": [] })).await;
    result(resumed).await;
}

#[tokio::test(start_paused = true)]
async fn call_is_not_repeated_after_an_answer_was_refused() {
    let (adapter, mut server) = connect();
    let sent = call(&adapter, "t");
    let at_server = server.call("tools/call").await;
    server.end_session(1);
    let ping = Request::new(RequestId::Number(1), "ping", None);
    at_server.messages.send(Incoming::Request(ping)).await.unwrap();
    server.response().await;
    at_server.answer(json!({ "content": [] })).await;
    assert_eq!(result(sent).await, json!({ "content": [] }));
    assert_eq!(server.sessions(), 1);
}

#[tokio::test(start_paused = true)]
async fn first_call_waits_until_the_stream_of_its_session_is_open() {
    let (adapter, mut server) = connect();
    server.opened.lock().unwrap().opening = Some(Vec::new());
    let sent = call(&adapter, "t");
    let _stream = soon(server.streams.recv()).await.unwrap();
    // Each turn lets the other tasks continue as far as they can.
    for _ in 0..100 {
        tokio::task::yield_now().await;
    }
    assert!(server.calls.try_recv().is_err());
    server.opened.lock().unwrap().opening = None;
    server.call("tools/call").await.answer(json!({ "content": [] })).await;
    result(sent).await;
}

#[tokio::test(start_paused = true)]
async fn stream_that_does_not_open_delays_the_first_call_for_a_short_time_only() {
    let (adapter, mut server) = connect();
    server.opened.lock().unwrap().opening = Some(Vec::new());
    let begun = Instant::now();
    let sent = call(&adapter, "t");
    server.call("tools/call").await.answer(json!({ "content": [] })).await;
    result(sent).await;
    assert!(begun.elapsed() < Duration::from_secs(3));
}

#[tokio::test(start_paused = true)]
async fn question_on_the_stream_of_the_session_is_not_for_a_request_of_our_own() {
    let (adapter, mut server) = connect();
    let sent = call(&adapter, "t");
    let _at_server = server.call("tools/call").await;
    let (_, stream) = server.streams.recv().await.unwrap();
    let other = send(&adapter, "tools/call", json!({ "name": "t" }), json!("info"));
    let setting = server.call("logging/setLevel").await;
    stream.send(Incoming::Request(question(RequestId::Number(5)))).await.unwrap();
    let suspended = result(sent).await;
    assert_eq!(suspended["inputRequests"].as_object().unwrap().len(), 1);
    // What the server asks about a request of our own is answered.
    setting.ask(6).await;
    assert_eq!(server.response().await.1["error"]["code"], -32601);
    other.abort();
}

/// It could be meant for the call of another caller, even if that call has ended here.
#[tokio::test(start_paused = true)]
async fn question_that_names_no_call_is_refused_on_a_shared_connection() {
    let (adapter, mut server) = connect();
    let call_as =
        |caller| send_as(&adapter, "tools/call", json!({ "name": "t" }), Value::Null, Some(caller));
    let of_alice = call_as("alice");
    server.call("tools/call").await.answer(json!({ "content": [] })).await;
    result(of_alice).await;
    let (_, stream) = server.streams.recv().await.unwrap();
    let of_bob = call_as("bob");
    let at_server = server.call("tools/call").await;
    stream.send(Incoming::Request(question(RequestId::Number(5)))).await.unwrap();
    let (_, refused) = server.response().await;
    assert_eq!((&refused["id"], &refused["error"]["code"]), (&json!(5), &json!(-32601)));
    // One that comes with the call is known to be for it.
    at_server.ask(6).await;
    assert_eq!(result(of_bob).await["inputRequests"].as_object().unwrap().len(), 1);
}

/// Otherwise one caller of a gateway could cancel the calls of all others.
#[tokio::test(start_paused = true)]
async fn caller_with_too_many_suspended_calls_loses_only_calls_of_its_own() {
    let (adapter, mut server) = connect();
    let call_as = |caller, mut params: Value| {
        params["name"] = json!("t");
        send_as(&adapter, "tools/call", params, Value::Null, Some(caller))
    };
    let mut states = Vec::new();
    let mut calls = Vec::new();
    for caller in ["alice"].into_iter().chain(["bob"; 257]) {
        let sent = call_as(caller, json!({}));
        let at_server = server.call("tools/call").await;
        at_server.ask(1).await;
        calls.push(at_server);
        states.push(result(sent).await["requestState"].clone());
    }
    // Those of Alice and of Bob's last call are there, that of Bob's first call is not.
    for (at, caller) in [(0, "alice"), (257, "bob")] {
        let sent = call_as(caller, json!({ "requestState": states[at] }));
        while server.response().await.1["id"] != 1 {}
        calls[at].answer(json!({ "content": [] })).await;
        assert_eq!(result(sent).await, json!({ "content": [] }), "{caller}");
    }
    let sent = call_as("bob", json!({ "requestState": states[1] }));
    assert_eq!(sent.await.unwrap().unwrap().outcome.unwrap_err().code, -32602);
    // A state is only for its caller.
    let sent = call_as("alice", json!({ "requestState": states[3] }));
    let error = sent.await.unwrap().unwrap().outcome.unwrap_err();
    assert!(error.message.contains("another call"), "{error}");
}

/// The server may ask there.
#[tokio::test(start_paused = true)]
async fn stream_of_the_session_is_opened_again_for_a_call() {
    let (adapter, mut server) = connect();
    let sent = call(&adapter, "t");
    server.call("tools/call").await.answer(json!({ "content": [] })).await;
    result(sent).await;
    drop(server.streams.recv().await.unwrap());
    tokio::time::sleep(Duration::from_millis(1)).await;
    let sent = call(&adapter, "t");
    let _at_server = server.call("tools/call").await;
    let (session, stream) = soon(server.streams.recv()).await.unwrap();
    assert_eq!(session, 1);
    stream.send(Incoming::Request(question(RequestId::Number(5)))).await.unwrap();
    assert_eq!(result(sent).await["inputRequests"].as_object().unwrap().len(), 1);
}
