//! Subscriptions to what a legacy server announces.

use super::*;

#[tokio::test(start_paused = true)]
async fn subscription_ends_with_its_session() {
    let (adapter, mut server) = connect();
    let listen = || {
        let filter = json!({ "notifications": { "toolsListChanged": true } });
        send(&adapter, "subscriptions/listen", filter, Value::Null)
    };
    let subscribed = listen();
    let (_, _stream) = server.streams.recv().await.unwrap();
    server.end_session(1);
    let sent = call(&adapter, "t");
    server.call("tools/call").await.answer(json!({ "content": [] })).await;
    result(sent).await;
    soon(subscribed).await.unwrap().unwrap_err();

    // The stream of the second session breaks, and is opened again.
    let (session, stream) = server.streams.recv().await.unwrap();
    assert_eq!(session, 2);
    let subscribed = listen();
    tokio::task::yield_now().await;
    drop(stream);
    soon(subscribed).await.unwrap().unwrap_err();
    let subscribed = listen();
    server.call("ping").await.answer(json!({})).await;
    let (session, stream) = server.streams.recv().await.unwrap();
    assert_eq!(session, 2);
    drop(stream);
    soon(subscribed).await.unwrap().unwrap_err();

    // If the session has ended meanwhile, another is opened.
    server.end_session(2);
    let subscribed = listen();
    let (session, _stream) = soon(server.streams.recv()).await.unwrap();
    assert_eq!(session, 3);
    subscribed.abort();
}

#[tokio::test(start_paused = true)]
async fn the_last_subscription_to_a_resource_ends_it_at_the_server() {
    let (adapter, mut server) = connect();
    let listen = || {
        let filter = json!({ "notifications": { "resourceSubscriptions": ["file:///a"] } });
        send(&adapter, "subscriptions/listen", filter, Value::Null)
    };
    let first = listen();
    server.call("resources/subscribe").await.answer(json!({})).await;
    let second = listen();
    tokio::time::sleep(Duration::from_millis(1)).await;
    first.abort();
    tokio::time::sleep(Duration::from_millis(1)).await;
    assert!(server.calls.try_recv().is_err(), "one of the two is still open");
    second.abort();
    let ended = server.call("resources/unsubscribe").await;
    assert_eq!(ended.request.params.as_ref().unwrap().as_str(), r#"{"uri":"file:///a"}"#);
    // A new one waits until the server has been told, so that the order is certain.
    let third = listen();
    ended.answer(json!({})).await;
    server.call("resources/subscribe").await.answer(json!({})).await;
    third.abort();
}

#[tokio::test(start_paused = true)]
async fn subscription_that_is_refused_or_given_up_leaves_nothing_behind() {
    let (adapter, mut server) = connect();
    let facts = ClientFacts::of(&RequestMeta::new("2026-07-28", ClientCapabilities::new()));
    for is_refused in [true, false] {
        let filter = json!({ "notifications": { "resourceSubscriptions": ["file:///a"] } });
        let sent = send(&adapter, "subscriptions/listen", filter, Value::Null);
        let subscribe = server.call("resources/subscribe").await;
        let session = adapter.open(&facts).await.unwrap();
        assert_eq!(session.count_subscribed(), 1);
        if is_refused {
            // It concerns this resource only.
            subscribe.end(Err(ErrorObject::invalid_params("no such resource"))).await;
            tokio::time::sleep(Duration::from_millis(1)).await;
            assert!(!sent.is_finished() && server.calls.try_recv().is_err());
        } else {
            sent.abort();
            server.call("resources/unsubscribe").await.answer(json!({})).await;
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        assert_eq!(session.count_subscribed(), 0);
    }
}

/// Sends `subscriptions/listen`, and returns what is acknowledged.
async fn acknowledged(adapter: &Arc<Adapter<Fake>>, filter: &Value) -> (Sent, Value) {
    let (sender, mut acknowledged) = mpsc::unbounded_channel();
    let params = json!({ "notifications": filter, "_meta": {} });
    let params = Params::new(&params).unwrap();
    let request = Request::new(RequestId::Number(8), "subscriptions/listen", Some(params));
    let adapter = Arc::clone(adapter);
    let sent = tokio::spawn(async move {
        let notify = move |notification: Notification| {
            let params: Value = notification.decode_params().unwrap();
            let _ = sender.send(params["notifications"].clone());
        };
        adapter.send(OutgoingRequest::new(request).with_notification_handler(&notify)).await
    });
    let acknowledged = soon(acknowledged.recv()).await.unwrap();
    (sent, acknowledged)
}

/// A client that knows it can poll.
#[tokio::test(start_paused = true)]
async fn only_what_the_server_can_announce_is_acknowledged() {
    let (adapter, mut server) = connect();
    let filter = json!({
        "toolsListChanged": true, "promptsListChanged": true, "taskIds": ["t"],
        "resourceSubscriptions": ["file:///gone", "file:///a"],
    });
    let subscribed = tokio::spawn({
        let (adapter, filter) = (Arc::clone(&adapter), filter.clone());
        async move { acknowledged(&adapter, &filter).await.1 }
    });
    let gone = server.call("resources/subscribe").await;
    gone.end(Err(ErrorObject::invalid_params("no such resource"))).await;
    server.call("resources/subscribe").await.answer(json!({})).await;
    let expected = json!({ "toolsListChanged": true, "resourceSubscriptions": ["file:///a"] });
    assert_eq!(soon(subscribed).await.unwrap(), expected);

    // A session without a stream, until it ends.
    let (adapter, mut server) = connect();
    server.opened.lock().unwrap().has_no_stream = true;
    let sent = call(&adapter, "t");
    server.call("tools/call").await.answer(json!({ "content": [] })).await;
    result(sent).await;
    let acknowledging = tokio::spawn({
        let adapter = Arc::clone(&adapter);
        async move { acknowledged(&adapter, &filter).await }
    });
    server.call("ping").await.answer(json!({})).await;
    let (subscribed, granted) = soon(acknowledging).await.unwrap();
    assert_eq!(granted, json!({}));
    tokio::time::sleep(Duration::from_hours(1)).await;
    assert!(!subscribed.is_finished());
    server.end_session(1);
    let sent = call(&adapter, "t");
    server.call("tools/call").await.answer(json!({ "content": [] })).await;
    result(sent).await;
    soon(subscribed).await.unwrap().unwrap_err();
}
