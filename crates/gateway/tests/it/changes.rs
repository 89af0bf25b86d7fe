//! Upstreams that change.

use futures_util::StreamExt as _;
use mrtr_client::SubscriptionEvent;
use mrtr_schema::subscription::SubscriptionFilter;
use mrtr_server::{Context, Tool};
use serde_json::json;

use super::{caller, gateway, run, tool_names, upstream};

fn tool(name: &str) -> Tool {
    Tool::new(name, "", async |_: Context| "x")
}

/// Callers that subscribed to the gateway are told, and see the new list.
#[tokio::test(start_paused = true)]
async fn change_of_an_upstream_reaches_the_callers() {
    let server = upstream("u", [tool("a")]);
    let gateway = gateway(&[("u", &server)]).await;
    let client = caller(&gateway, "alice").build();
    let running = run(&gateway);
    let mut changes = client.listen(&SubscriptionFilter::new().with_tools()).unwrap();
    assert!(matches!(changes.next().await, Some(Ok(SubscriptionEvent::Acknowledged(_)))));
    assert_eq!(tool_names(&client).await, ["u__a"]);
    // Changed lists are found within the interval even if the upstream does not report them.
    server
        .update(|update| {
            update.remove::<Tool>("a");
            update.add(tool("b"))?;
            update.add(tool("c"))
        })
        .unwrap();
    assert_eq!(changes.next().await.unwrap().unwrap(), SubscriptionEvent::ToolsListChanged);
    assert_eq!(tool_names(&client).await, ["u__b", "u__c"]);
    let error = client.call_tool("u__a", json!({})).await.unwrap_err();
    assert!(error.to_string().contains("Unknown tool"), "{error}");
    running.abort();
}

/// A listing that is the same changes nothing, so that callers are not told of it.
#[tokio::test(start_paused = true)]
async fn unchanged_listing_is_not_reported() {
    let server = upstream("u", [tool("a")]);
    let gateway = gateway(&[("u", &server)]).await;
    let client = caller(&gateway, "alice").build();
    let mut changes = client.listen(&SubscriptionFilter::new().with_tools()).unwrap();
    assert!(matches!(changes.next().await, Some(Ok(SubscriptionEvent::Acknowledged(_)))));
    gateway.refresh().await;
    server.update(|update| update.add(tool("b"))).unwrap();
    gateway.refresh().await;
    // One change: it is the first event, and the list has both tools by then.
    assert_eq!(changes.next().await.unwrap().unwrap(), SubscriptionEvent::ToolsListChanged);
    assert_eq!(tool_names(&client).await, ["u__a", "u__b"]);
    gateway.refresh().await;
    let next = tokio::time::timeout(std::time::Duration::from_mins(5), changes.next()).await;
    assert!(next.is_err(), "{next:?}");
}
