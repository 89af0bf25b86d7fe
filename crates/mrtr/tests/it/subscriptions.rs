//! Subscriptions over HTTP.

use std::time::Duration;

use futures_util::StreamExt;
use mrtr::client::SubscriptionEvent;
use mrtr::http::{Endpoint, HttpClient, RequestLimits, ServeOptions};
use mrtr::schema::subscription::SubscriptionFilter;
use mrtr::{Change, ChangeNotifier, Context, Resource, Server, Tool};
use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;
use tokio::sync::oneshot;

use crate::http_wire::{self, Head};

fn server(changes: &ChangeNotifier) -> Server {
    Server::builder("test", "1")
        .ephemeral_key()
        .tool(Tool::new("t", "", async |_: Context| "x"))
        .resource(Resource::new("a:1", "one", async |_: Context| "x"))
        .resource(Resource::new("a:2", "two", async |_: Context| "x").subscribable(false))
        .changes(changes.clone())
        .allow_anonymous()
        .build()
        .unwrap()
}

/// Starts a server, and returns its port, a sender that begins its shutdown, and its task.
async fn serve(
    server: Server,
    port: u16,
) -> (u16, oneshot::Sender<()>, tokio::task::JoinHandle<()>) {
    let listener = TcpListener::bind(("127.0.0.1", port)).await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let (end, ended) = oneshot::channel();
    let endpoint = Endpoint::new(server.clone());
    let task = tokio::spawn(async move {
        let shutdown = async move {
            let _ = ended.await;
            server.begin_shutdown();
        };
        mrtr::http::serve(listener, endpoint, ServeOptions::default(), shutdown).await.unwrap();
    });
    (port, end, task)
}

fn all() -> SubscriptionFilter {
    SubscriptionFilter::new().with_tools().with_prompts().with_resource("a:1")
}

#[tokio::test]
async fn client_receives_requested_changes_and_the_graceful_end() {
    let changes = ChangeNotifier::new();
    let (port, end, task) = serve(server(&changes), 0).await;
    let client = mrtr::connect(format!("http://127.0.0.1:{port}/mcp")).unwrap().build();
    let mut events = client.listen(&all().with_resource("a:2")).unwrap();
    // The server has no prompts and does not report changes of all resources.
    let acknowledged = SubscriptionFilter::new().with_tools().with_resource("a:1");
    assert_eq!(
        events.next().await.unwrap().unwrap(),
        SubscriptionEvent::Acknowledged(acknowledged)
    );
    for change in [Change::Resources, Change::Prompts, Change::Resource("a:2".into())] {
        changes.publish(change);
    }
    changes.publish(Change::Tools);
    changes.publish(Change::Resource("a:1".into()));
    assert_eq!(events.next().await.unwrap().unwrap(), SubscriptionEvent::ToolsListChanged);
    assert_eq!(
        events.next().await.unwrap().unwrap(),
        SubscriptionEvent::ResourceUpdated("a:1".into())
    );
    end.send(()).unwrap();
    assert!(events.next().await.is_none(), "the server ended the subscription");
    task.await.unwrap();
}

#[tokio::test]
async fn server_without_changes_acknowledges_an_empty_filter() {
    let resource = Resource::new("a:1", "one", async |_: Context| "x");
    let bare = Server::builder("bare", "1")
        .ephemeral_key()
        .allow_anonymous()
        .resource(resource)
        .build()
        .unwrap();
    let (port, end, task) = serve(bare, 0).await;
    let client = mrtr::connect(format!("http://127.0.0.1:{port}/mcp")).unwrap().build();
    let mut events = client.listen(&all()).unwrap();
    let nothing = SubscriptionEvent::Acknowledged(SubscriptionFilter::default());
    assert_eq!(events.next().await.unwrap().unwrap(), nothing);
    end.send(()).unwrap();
    assert!(events.next().await.is_none());
    task.await.unwrap();
}

#[tokio::test]
async fn only_requested_changes_of_existing_resources_are_sent() {
    let changes = ChangeNotifier::new();
    let (port, _end, _task) = serve(server(&changes), 0).await;
    let client = mrtr::connect(format!("http://127.0.0.1:{port}/mcp")).unwrap().build();
    let requested =
        SubscriptionFilter::new().with_resources().with_resource("a:1").with_resource("a:none");
    let mut events = client.listen(&requested).unwrap();
    let acknowledged = SubscriptionFilter::new().with_resources().with_resource("a:1");
    assert_eq!(
        events.next().await.unwrap().unwrap(),
        SubscriptionEvent::Acknowledged(acknowledged)
    );
    for change in [Change::Tools, Change::Resource("a:none".into()), Change::Resources] {
        changes.publish(change);
    }
    assert_eq!(events.next().await.unwrap().unwrap(), SubscriptionEvent::ResourcesListChanged);
}

/// The client reconnects, and receives a new acknowledgement.
#[tokio::test]
async fn subscription_reconnects_after_a_broken_connection() {
    let changes = ChangeNotifier::new();
    let (port, _end, _task) = serve(server(&changes), 0).await;
    // A relay in front of the server, whose connections can be cut.
    let relay = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let relay_port = relay.local_addr().unwrap().port();
    let (cut, mut cuts) = tokio::sync::mpsc::channel::<()>(1);
    tokio::spawn(async move {
        loop {
            let (mut inward, _) = relay.accept().await.unwrap();
            let mut outward = tokio::net::TcpStream::connect(("127.0.0.1", port)).await.unwrap();
            tokio::select! {
                _ = tokio::io::copy_bidirectional(&mut inward, &mut outward) => {}
                _ = cuts.recv() => {}
            }
        }
    });
    let client = mrtr::connect(format!("http://127.0.0.1:{relay_port}/mcp")).unwrap().build();
    let mut events = client.listen(&all()).unwrap();
    for _ in 0..3 {
        assert!(matches!(events.next().await, Some(Ok(SubscriptionEvent::Acknowledged(_)))));
        cut.send(()).await.unwrap();
    }
}

/// Opens 2,000 subscriptions in batches of 100. A batch fits only if the previous one left nothing.
#[tokio::test]
async fn closed_subscriptions_leave_no_tasks() {
    let limits = RequestLimits::default().with_max_in_flight(100);
    let port = http_wire::serve(limits).await;
    let head = Head::new("subscriptions/listen", None);
    let body = http_wire::request(
        "subscriptions/listen",
        &http_wire::params(json!({ "notifications": {} })),
    );
    let request = format!("{}Content-Length: {}\r\n\r\n", head.text("POST"), body.len());
    let request = [request.into_bytes(), body].concat();
    let listen = async || {
        let mut stream = http_wire::connect(port).await;
        stream.write_all(&request).await.unwrap();
        let (status, ..) = http_wire::read_response(&mut stream).await;
        (status, stream)
    };
    let tasks = || tokio::runtime::Handle::current().metrics().num_alive_tasks();
    let before = tasks();
    for _ in 0..20 {
        let mut all = Vec::new();
        while all.len() < 100 {
            all.push(listen().await);
            assert_eq!(all.last().map(|(status, _)| *status), Some(200));
        }
        assert_eq!(listen().await.0, 503);
        drop(all);
        while tasks() > before {
            tokio::task::yield_now().await;
        }
    }
}

/// A server, or a proxy in front of it, that accepts the request and never answers it, or sends
/// nothing but comments.
#[tokio::test]
async fn subscription_that_is_not_acknowledged_is_requested_again() {
    let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
    let url = format!("http://{}/mcp", listener.local_addr().unwrap());
    let http = HttpClient::builder(&url).timeout(Duration::from_millis(300)).build().unwrap();
    let client = mrtr::Client::builder(http).build();
    let mut events = client.listen(&SubscriptionFilter::new().with_tools()).unwrap();
    let server = async {
        let mut accepted = Vec::new();
        loop {
            let mut stream = listener.accept().await.unwrap().0;
            // The client has sent its request, or has given up.
            if stream.read_exact(&mut [0; 64]).await.is_err() {
                continue;
            }
            let head = "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n:\n\n";
            let acknowledged = json!({
                "jsonrpc": "2.0",
                "method": "notifications/subscriptions/acknowledged",
                "params": { "notifications": { "toolsListChanged": true } },
            });
            let sent = match accepted.len() {
                0 => String::new(),
                1 => head.to_owned(),
                _ => format!("{head}data: {acknowledged}\n\n"),
            };
            // The client may have given up.
            let _ = stream.write_all(sent.as_bytes()).await;
            accepted.push(stream);
        }
    };
    let event = tokio::select! {
        event = events.next() => event,
        () = server => unreachable!("the server accepts connections for ever"),
    };
    let tools = SubscriptionFilter::new().with_tools();
    assert_eq!(event.unwrap().unwrap(), SubscriptionEvent::Acknowledged(tools));
}
