//! Notifications before the response. Over HTTP, they are an event stream that ends with the
//! response.

use std::sync::{Arc, Mutex};

use mrtr::http::{Endpoint, ServeOptions};
use mrtr::{Context, ElicitResult, LogLevel, Server, Tool};
use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;

use crate::http_wire::{Head, connect, params, request};

#[derive(serde::Deserialize, schemars::JsonSchema)]
struct Go {
    on: bool,
}

async fn serve() -> u16 {
    let tool = Tool::new("work", "Works", async |cx: Context| -> mrtr::Result<_> {
        cx.progress(0.0, Some(100.0), Some("starting"));
        cx.log(LogLevel::Debug, "below the requested level");
        cx.log(LogLevel::Warning, json!({ "disk": "full" }));
        cx.progress(0.0, Some(100.0), None);
        let go: Go = cx.elicit("go", "Continue?").await?;
        cx.progress(100.0, Some(100.0), None);
        Ok(if go.on { "done" } else { "stopped" })
    });
    let server =
        Server::builder("test", "1").ephemeral_key().tool(tool).allow_anonymous().build().unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let forever = std::future::pending();
    tokio::spawn(mrtr::http::serve(
        listener,
        Endpoint::new(server),
        ServeOptions::default(),
        forever,
    ));
    port
}

#[tokio::test]
async fn client_receives_each_notification_once_across_rounds() {
    let port = serve().await;
    let received: Arc<Mutex<Vec<String>>> = Arc::default();
    let (progress, log) = (Arc::clone(&received), Arc::clone(&received));
    let client = mrtr::connect(format!("http://127.0.0.1:{port}/mcp"))
        .unwrap()
        .on_form(async |_, _| Ok(ElicitResult::accept(json!({ "on": true }))?))
        .on_progress(move |p| {
            progress.lock().unwrap().push(format!("{} {:?}", p.progress, p.message));
        })
        .on_log(LogLevel::Info, move |m| log.lock().unwrap().push(m.data.to_string()))
        .build();
    assert_eq!(client.call_tool("work", json!({})).await.unwrap().text(), "done");
    let received = received.lock().unwrap().clone();
    assert_eq!(received, ["0 Some(\"starting\")", "{\"disk\":\"full\"}", "100 None"]);
}

/// Runs two concurrent calls of the same tool, each with its own progress handler.
#[tokio::test]
async fn progress_reaches_only_its_call() {
    #[derive(serde::Deserialize, schemars::JsonSchema)]
    struct To {
        to: u32,
    }
    let count = Tool::new("count", "", async |cx: Context, To { to }: To| -> mrtr::Result<_> {
        for n in 1..=to {
            cx.progress(f64::from(n), Some(f64::from(to)), None);
            tokio::task::yield_now().await;
        }
        Ok("done")
    });
    let server =
        Server::builder("test", "1").ephemeral_key().tool(count).allow_anonymous().build().unwrap();
    let client = mrtr::Client::builder(mrtr::InProcess::new(server)).build();
    let call = async |to: u32| {
        let totals = Arc::<Mutex<Vec<_>>>::default();
        let recorded = Arc::clone(&totals);
        let client = client.with_progress(move |p| recorded.lock().unwrap().push(p.total));
        client.call_tool("count", json!({ "to": to })).await.unwrap();
        drop(client);
        Arc::into_inner(totals).unwrap().into_inner().unwrap()
    };
    let (three, five) = tokio::join!(call(3), call(5));
    assert_eq!((three, five), (vec![Some(3.0); 3], vec![Some(5.0); 5]));
}

/// A handler that never yields fills the buffer of notifications, and further ones are dropped.
#[tokio::test]
async fn excess_notifications_are_dropped() {
    let flood = Tool::new("flood", "", async |cx: Context| -> mrtr::Result<_> {
        for n in 1..=1_000_u32 {
            cx.progress(f64::from(n), None, None);
            // Progress that decreases is not sent.
            cx.progress(f64::from(n) - 0.5, None, None);
            cx.log(LogLevel::Info, n);
        }
        Ok("done")
    });
    let server =
        Server::builder("test", "1").ephemeral_key().tool(flood).allow_anonymous().build().unwrap();
    let received = Arc::new(Mutex::new((0, Vec::new())));
    let (progress, log) = (Arc::clone(&received), Arc::clone(&received));
    let client = mrtr::Client::builder(mrtr::InProcess::new(server))
        .on_progress(move |p| progress.lock().unwrap().1.push(p.progress))
        .on_log(LogLevel::Info, move |_| log.lock().unwrap().0 += 1)
        .build();
    client.call_tool("flood", json!({})).await.unwrap();
    let (logged, progress) = received.lock().unwrap().clone();
    assert_eq!(logged + progress.len(), 64);
    assert!(progress.is_sorted_by(|a, b| a < b), "{progress:?}");
}

#[tokio::test]
async fn stream_has_one_message_per_event_and_ends_with_the_response() {
    let port = serve().await;
    let mut body = params(json!({ "name": "work" }));
    body["_meta"]["progressToken"] = json!("p");
    body["_meta"]["io.modelcontextprotocol/clientCapabilities"] = json!({ "elicitation": {} });
    let body = request("tools/call", &body);
    let head = Head::new("tools/call", Some("work")).with("Connection", "close").text("POST");
    let mut stream = connect(port).await;
    let text = format!("{head}Content-Length: {}\r\n\r\n", body.len());
    stream.write_all(text.as_bytes()).await.unwrap();
    stream.write_all(&body).await.unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.unwrap();
    let head = answer.split("\r\n\r\n").next().unwrap().to_lowercase();
    assert!(head.contains("content-type: text/event-stream"), "{head}");
    assert!(
        head.contains("x-accel-buffering: no") && head.contains("cache-control: no-cache"),
        "{head}"
    );
    let events: Vec<serde_json::Value> = answer
        .lines()
        .filter_map(|line| line.strip_prefix("data: "))
        .map(|data| serde_json::from_str(data).unwrap())
        .collect();
    assert_eq!(events.len(), 2, "the request asked for no log: {answer}");
    assert_eq!(
        events[0]["params"],
        json!({ "progressToken": "p", "progress": 0.0, "total": 100.0, "message": "starting" })
    );
    assert_eq!(
        (&events[1]["id"], &events[1]["result"]["resultType"]),
        (&json!(7), &json!("input_required"))
    );
}
