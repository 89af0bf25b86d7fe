//! What load balancers ask.

use std::sync::Arc;
use std::time::Duration;

use mrtr::http::{Endpoint, Readiness, RequestLimits, ServeOptions};
use mrtr::{Context, Server, Tool};
use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::sync::Notify;

use crate::http_wire::{
    Head, assert_alive, connect, exchange, params, read_response, request, serve_by,
};

/// The status of a request without a body, from whoever.
async fn status(port: u16, verb: &str, path: &str) -> (u16, String) {
    let mut stream = connect(port).await;
    let request = format!("{verb} {path} HTTP/1.1\r\nHost: 10.1.2.3\r\n\r\n");
    stream.write_all(request.as_bytes()).await.unwrap();
    let (status, head, _) = read_response(&mut stream).await;
    (status, head)
}

fn head_of_a_list() -> Head {
    Head::new("tools/list", None)
}

#[tokio::test]
async fn a_process_that_is_not_ready_says_so_and_serves() {
    let ready = Readiness::default();
    let options = ServeOptions { ready: ready.clone(), ..ServeOptions::default() };
    let port = serve_by(RequestLimits::default(), options).await;
    for now in [true, false, true] {
        ready.set(now);
        let (said, head) = status(port, "GET", "/ready").await;
        assert_eq!(said, if now { 200 } else { 503 });
        assert!(head.contains("cache-control: no-store"), "{head}");
        assert_eq!(status(port, "HEAD", "/ready").await.0, said);
        assert_eq!(status(port, "GET", "/health").await.0, 200);
        assert_alive(port).await;
        // Who is not ready lets go of connections that stay open.
        let (_, head, _) =
            exchange(&mut connect(port).await, "POST", &head_of_a_list(), b"{}").await;
        assert_eq!(head.contains("connection: close"), !now, "{head}");
    }
    let (said, head) = status(port, "POST", "/ready").await;
    assert_eq!(said, 405);
    assert!(head.contains("allow: get, head"), "{head}");
    assert_eq!(status(port, "GET", "/other").await.0, 404);
}

#[tokio::test]
async fn nobody_is_told_where_nothing_is_to_be_told() {
    let nowhere = String::new();
    let options = ServeOptions {
        health_path: nowhere.clone(),
        ready_path: nowhere,
        ..ServeOptions::default()
    };
    let port = serve_by(RequestLimits::default(), options).await;
    for path in ["/health", "/ready", "/"] {
        assert_eq!(status(port, "GET", path).await.0, 404, "{path}");
    }
}

/// Its notice is given once it is unready, and no later.
#[tokio::test(start_paused = true)]
async fn a_shutdown_gives_notice() {
    let notice = Duration::from_secs(5);
    let ready = Readiness::with_notice(notice);
    let leaving = tokio::spawn({
        let ready = ready.clone();
        async move {
            let begun = tokio::time::Instant::now();
            ready.leave().await;
            begun.elapsed()
        }
    });
    tokio::task::yield_now().await;
    ready.set(true);
    assert!(!ready.is_ready() && !leaving.is_finished(), "whoever leaves stays unready");
    assert_eq!(leaving.await.unwrap(), notice);
}

/// What has not ended in its time is cut off, handler and all, before `serve` returns.
#[tokio::test]
async fn nothing_outlives_the_shutdown() {
    let (begun, dropped) = (Arc::new(Notify::new()), Arc::new(()));
    let both = (Arc::clone(&begun), Arc::clone(&dropped));
    let endless = Tool::new("t", "", move |_: Context| {
        let (begun, kept) = both.clone();
        async move {
            begun.notify_one();
            std::future::pending::<()>().await;
            drop(kept);
            Ok::<_, mrtr::Error>("never")
        }
    });
    let server = Server::builder("test", "1")
        .ephemeral_key()
        .tool(endless)
        .allow_anonymous()
        .build()
        .unwrap();
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let shutdown_time = Duration::from_millis(10);
    let options = ServeOptions { shutdown_time, ..ServeOptions::default() };
    let wait = Arc::clone(&begun);
    let end = async move { wait.notified().await };
    let serving = mrtr::http::serve(listener, Endpoint::new(server), options, end);
    let serving = tokio::spawn(serving);
    let mut stream = connect(port).await;
    let call = request("tools/call", &params(json!({ "name": "t", "arguments": {} })));
    let head = Head::new("tools/call", Some("t")).text("POST");
    let head = format!("{head}Content-Length: {}\r\n\r\n", call.len());
    stream.write_all(&[head.into_bytes(), call].concat()).await.unwrap();
    serving.await.unwrap().unwrap();
    // It is aborted, which happens as soon as the runtime comes to it.
    let mut rest = Vec::new();
    let read = tokio::time::timeout(Duration::from_secs(10), stream.read_to_end(&mut rest)).await;
    assert!(read.is_ok(), "the connection is open still");
    assert_eq!((rest.len(), Arc::strong_count(&dropped)), (0, 1));
}
