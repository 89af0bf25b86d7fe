//! Upstreams that change.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures_util::StreamExt as _;
use mrtr_client::{Client, OutgoingRequest, SubscriptionEvent, Transport, TransportError};
use mrtr_gateway::Gateway;
use mrtr_schema::jsonrpc::Response;
use mrtr_schema::subscription::{ListenParams, SubscriptionFilter};
use mrtr_server::{ChangeNotifier, Context, Principal, Resource, Server, ServerUpdate, Tool};
use mrtr_transport::InProcess;
use serde_json::json;

use super::{caller, gateway, gateway_server, keyed, run, tool_names, upstream};

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

/// An upstream must not undo what the operator of the gateway has decided.
#[tokio::test]
async fn disabled_tool_stays_disabled_when_it_is_listed_again() {
    let server = upstream("u", [tool("a"), tool("b")]);
    let gateway = gateway(&[("u", &server)]).await;
    let client = caller(&gateway, "alice").build();
    gateway
        .server()
        .update(|update| {
            assert!(update.disable::<Tool>("u__a"));
            Ok(())
        })
        .unwrap();
    assert_eq!(tool_names(&client).await, ["u__b"]);
    server
        .update(|update| {
            assert!(update.remove::<Tool>("a"));
            Ok(())
        })
        .unwrap();
    gateway.refresh().await;
    gateway.refresh().await;
    server.update(|update| update.add(tool("a"))).unwrap();
    gateway.refresh().await;
    let error = client.call_tool("u__a", json!({})).await.unwrap_err();
    assert!(error.to_string().contains("Unknown tool"), "{error}");
    gateway
        .server()
        .update(|update| {
            assert!(update.enable::<Tool>("u__a"));
            Ok(())
        })
        .unwrap();
    assert_eq!(client.call_tool("u__a", json!({})).await.unwrap().text(), "x");
}

/// URIs have no prefix, so another upstream may list what was disabled.
#[tokio::test]
async fn disabled_resource_stays_disabled_if_another_upstream_has_it() {
    let resource = || Resource::new("file:///x", "x", async |_: Context| "x");
    let one = keyed("one", 2).updatable::<Resource>().resource(resource()).build().unwrap();
    let other = keyed("other", 2).resource(resource()).build().unwrap();
    let gateway = gateway(&[("one", &one), ("other", &other)]).await;
    let disable = |update: &mut ServerUpdate| {
        assert!(update.disable::<Resource>("file:///x"));
        Ok(())
    };
    gateway.server().update(disable).unwrap();
    one.update(|update| {
        assert!(update.remove::<Resource>("file:///x"));
        Ok(())
    })
    .unwrap();
    gateway.refresh().await;
    gateway.refresh().await;
    let is_offered_disabled = |update: &mut ServerUpdate| {
        assert!(update.is_disabled::<Resource>("file:///x"));
        Ok(())
    };
    gateway.server().update(is_offered_disabled).unwrap();
    let client = caller(&gateway, "alice").build();
    assert!(client.read_resource("file:///x").await.is_err());
    assert!(client.list_resources().await.unwrap().is_empty());
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
    let next = tokio::time::timeout(Duration::from_mins(5), changes.next()).await;
    assert!(next.is_err(), "{next:?}");
}

/// A connection that records what is subscribed to.
struct Recorded {
    transport: InProcess<Server>,
    filters: Arc<Mutex<Vec<SubscriptionFilter>>>,
}

impl Transport for Recorded {
    async fn send(&self, outgoing: OutgoingRequest<'_>) -> Result<Response, TransportError> {
        if outgoing.request.method == "subscriptions/listen" {
            let params: ListenParams = outgoing.request.decode_params().unwrap();
            self.filters.lock().unwrap().push(params.notifications);
        }
        self.transport.send(outgoing).await
    }
}

/// Returns what a gateway subscribes to at an upstream.
async fn subscriptions_to(server: Server) -> Vec<SubscriptionFilter> {
    let filters = Arc::<Mutex<Vec<_>>>::default();
    let principal = Principal::new("https://login.example", "the gateway");
    let transport = InProcess::new(server).with_extension(principal);
    let recorded = Recorded { transport, filters: Arc::clone(&filters) };
    let client = Client::builder(recorded).build();
    let gateway = Gateway::builder().upstream("u", client).build(gateway_server()).unwrap();
    let running = tokio::time::timeout(Duration::from_mins(5), gateway.run()).await;
    assert!(running.is_err());
    let filters = filters.lock().unwrap();
    filters.clone()
}

/// An upstream that is asked for more would grant less, which is logged each time.
#[tokio::test(start_paused = true)]
async fn only_changes_that_an_upstream_reports_are_subscribed_to() {
    let reporting = keyed("u", 2).updatable::<Tool>().tool(tool("a")).build().unwrap();
    assert_eq!(subscriptions_to(reporting).await, [SubscriptionFilter::new().with_tools()]);
    let silent = keyed("u", 2).tool(tool("a")).build().unwrap();
    assert_eq!(subscriptions_to(silent).await, []);
}

/// Each subscription is acknowledged and ended at once.
#[tokio::test(start_paused = true)]
async fn upstream_that_ends_each_subscription_is_not_listed_all_the_time() {
    let changes = ChangeNotifier::new();
    let server = keyed("u", 2).updatable::<Tool>().tool(tool("a")).changes(changes.clone());
    let server = server.build().unwrap();
    changes.close();
    let subscribed = subscriptions_to(server).await.len();
    assert!((2..20).contains(&subscribed), "{subscribed} in 5 min");
}
