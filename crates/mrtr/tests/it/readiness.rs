//! The probes of load balancers.

use std::sync::Arc;
use std::time::Duration;

use mrtr::http::{Endpoint, Readiness, RequestLimits, ServeOptions};
use mrtr::{Context, Server, Tool};
use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::sync::Notify;

use crate::http_wire::{
    Head, assert_alive, connect, exchange, params, read_response, request, serve_with,
};

/// Returns status and head of a request without a body, from another host.
async fn status(port: u16, verb: &str, path: &str) -> (u16, String) {
    let mut stream = connect(port).await;
    let request = format!("{verb} {path} HTTP/1.1\r\nHost: 10.1.2.3\r\n\r\n");
    stream.write_all(request.as_bytes()).await.unwrap();
    let (status, head, _) = read_response(&mut stream).await;
    (status, head)
}

fn list_head() -> Head {
    Head::new("tools/list", None)
}

#[tokio::test]
async fn process_that_is_not_ready_reports_503_and_still_serves() {
    let ready = Readiness::default();
    let options = ServeOptions::default().with_readiness(ready.clone());
    let port = serve_with(RequestLimits::default(), options).await;
    for now in [true, false, true] {
        ready.set_ready(now);
        let (ready_status, head) = status(port, "GET", "/ready").await;
        assert_eq!(ready_status, if now { 200 } else { 503 });
        assert!(head.contains("cache-control: no-store"), "{head}");
        assert_eq!(status(port, "HEAD", "/ready").await.0, ready_status);
        assert_eq!(status(port, "GET", "/health").await.0, 200);
        assert_alive(port).await;
        // A process that is not ready closes persistent connections.
        let (_, head, _) = exchange(&mut connect(port).await, "POST", &list_head(), b"{}").await;
        assert_eq!(head.contains("connection: close"), !now, "{head}");
    }
    let (ready_status, head) = status(port, "POST", "/ready").await;
    assert_eq!(ready_status, 405);
    assert!(head.contains("allow: get, head"), "{head}");
    assert_eq!(status(port, "GET", "/other").await.0, 404);
}

#[tokio::test]
async fn empty_probe_paths_disable_the_probes() {
    let options = ServeOptions::default().with_health_path("").with_ready_path("");
    let port = serve_with(RequestLimits::default(), options).await;
    for path in ["/health", "/ready", "/"] {
        assert_eq!(status(port, "GET", path).await.0, 404, "{path}");
    }
}

/// The flag is off during the whole delay, and cannot be turned on again.
#[tokio::test(start_paused = true)]
async fn drain_keeps_the_process_unready_for_its_delay() {
    let delay = Duration::from_secs(5);
    let ready = Readiness::with_drain_delay(delay);
    let draining = tokio::spawn({
        let ready = ready.clone();
        async move {
            let start = tokio::time::Instant::now();
            ready.drain().await;
            start.elapsed()
        }
    });
    tokio::task::yield_now().await;
    ready.set_ready(true);
    assert!(!ready.is_ready() && !draining.is_finished(), "draining overrides the flag");
    assert_eq!(draining.await.unwrap(), delay);
}

/// Handlers that run longer than the shutdown timeout are dropped before `serve` returns.
#[tokio::test]
async fn shutdown_timeout_drops_running_handlers() {
    let (started, token) = (Arc::new(Notify::new()), Arc::new(()));
    let both = (Arc::clone(&started), Arc::clone(&token));
    let endless = Tool::new("t", "", move |_: Context| {
        let (started, token) = both.clone();
        async move {
            started.notify_one();
            std::future::pending::<()>().await;
            drop(token);
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
    let shutdown_timeout = Duration::from_millis(10);
    let options = ServeOptions::default().with_shutdown_timeout(shutdown_timeout);
    let wait = Arc::clone(&started);
    let end = async move { wait.notified().await };
    let serving = mrtr::http::serve(listener, Endpoint::new(server), options, end);
    let serving = tokio::spawn(serving);
    let mut stream = connect(port).await;
    let call = request("tools/call", &params(json!({ "name": "t", "arguments": {} })));
    let head = Head::new("tools/call", Some("t")).text("POST");
    let head = format!("{head}Content-Length: {}\r\n\r\n", call.len());
    stream.write_all(&[head.into_bytes(), call].concat()).await.unwrap();
    serving.await.unwrap().unwrap();
    // The connection's task is aborted, and the runtime drops it soon after.
    let mut rest = Vec::new();
    let read = tokio::time::timeout(Duration::from_secs(10), stream.read_to_end(&mut rest)).await;
    assert!(read.is_ok(), "the connection is still open");
    assert_eq!((rest.len(), Arc::strong_count(&token)), (0, 1));
}
