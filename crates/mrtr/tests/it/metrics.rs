//! The metrics of requests that are rejected before they reach the server.

use std::io::Write;
use std::sync::{Arc, Mutex};

use mrtr::http::RequestLimits;
use serde_json::json;
use tracing_subscriber::filter::LevelFilter;

use crate::http_wire::{Head, connect, exchange, params, request, serve};

#[derive(Clone, Default)]
struct Lines(Arc<Mutex<Vec<u8>>>);

impl Write for Lines {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

#[tokio::test]
async fn rejected_requests_are_counted_by_reason() {
    let lines = Lines::default();
    let writer = lines.clone();
    let subscriber = tracing_subscriber::fmt()
        .with_max_level(LevelFilter::TRACE)
        .with_writer(move || writer.clone())
        .with_ansi(false)
        .finish();
    // With a single subscriber, the first thread would decide for all threads which events are
    // enabled.
    let _second = tracing::Dispatch::new(tracing_subscriber::registry());
    let _guard = tracing::subscriber::set_default(subscriber);
    let port = serve(RequestLimits::default().with_max_body_bytes(512)).await;
    let head = Head::new("tools/list", None);
    let body = request("tools/list", &params(json!({})));
    let cases = [
        ("POST", head.clone(), b"{".to_vec(), 400, "parse_error"),
        ("POST", head.clone(), b"{}".to_vec(), 400, "invalid_request"),
        ("POST", head.clone(), vec![b' '; 1024], 413, "body_too_long"),
        ("POST", Head::new("tools/call", None), body.clone(), 400, "header_mismatch"),
        ("POST", head.clone().with("Host", "evil.example"), body.clone(), 403, "access"),
        ("POST", head.clone().with("Accept", "text/html"), body.clone(), 406, "not_acceptable"),
        ("POST", head.clone().with("Content-Type", "text/html"), body.clone(), 415, "media_type"),
        ("GET", head.clone(), Vec::new(), 405, "method_not_allowed"),
    ];
    let guide = include_str!("../../src/guide/deploying.md");
    let row = guide.lines().find(|line| line.starts_with("| `mrtr.rejections`")).unwrap();
    for (verb, head, body, status, reason) in cases {
        assert!(row.contains(&format!("`{reason}`")), "{reason} is not in the guide");
        let before = lines.0.lock().unwrap().len();
        let (got, ..) = exchange(&mut connect(port).await, verb, &head, &body).await;
        let log = String::from_utf8(lines.0.lock().unwrap()[before..].to_vec()).unwrap();
        let counted: Vec<_> = log
            .lines()
            .filter(|line| line.contains("monotonic_counter.mrtr.rejections=1"))
            .collect();
        assert_eq!((got, counted.len()), (status, 1), "{reason}: {log}");
        assert!(counted[0].ends_with(&format!("reason={reason:?}")), "{reason}: {counted:?}");
    }
}
