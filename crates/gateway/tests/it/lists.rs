//! What is listed of several upstreams, and in which order.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use mrtr_client::Client;
use mrtr_gateway::Gateway;
use mrtr_server::{Context, Principal, Server, Tool};
use mrtr_transport::InProcess;

use super::upstreams::{Cut, named};
use super::{caller, gateway, gateway_server, tool_names, upstream};

#[tokio::test]
async fn features_beyond_the_limit_are_skipped() {
    let server = upstream("u", (0..1_001).map(|n| named(&format!("t{n}"))));
    let gateway = gateway(&[("u", &server)]).await;
    assert_eq!(tool_names(&caller(&gateway, "alice").build()).await.len(), 1_000);
}

/// One upstream must not make the list too long for the clients of all.
#[tokio::test]
async fn definitions_that_are_too_long_are_skipped() {
    let described =
        |name: &str, length: usize| Tool::new(name, "x".repeat(length), async |_: Context| "x");
    let long = upstream("long", [described("long", 65_536), described("short", 10)]);
    let many = upstream("many", (0..40).map(|n| described(&format!("t{n}"), 60_000)));
    let gateway = gateway(&[("long", &long), ("many", &many)]).await;
    let names = tool_names(&caller(&gateway, "alice").build()).await;
    assert_eq!(names[0], "long__short");
    // 34 of 60 kB and a little more fit into 2 MiB.
    assert_eq!(names.len(), 1 + 34);
}

/// Also if they answer in another order, as at another replica.
#[tokio::test]
async fn lists_have_the_order_of_the_upstreams() {
    let first = upstream("first", [named("b"), named("a")]);
    let second = upstream("second", [named("c")]);
    let (is_cut, principal) =
        (Arc::new(AtomicBool::new(true)), Principal::new("https://login.example", "the gateway"));
    let to = |server: &Server, is_cut: &Arc<AtomicBool>| {
        let transport = InProcess::new(server.clone()).with_extension(principal.clone());
        Client::builder(Cut(transport, Arc::clone(is_cut))).build()
    };
    let gateway = Gateway::builder()
        .upstream("first", to(&first, &is_cut))
        .upstream("second", to(&second, &Arc::default()))
        .build(gateway_server().tool(named("own")))
        .unwrap();
    let client = caller(&gateway, "alice").build();
    gateway.refresh().await;
    assert_eq!(tool_names(&client).await, ["own", "second__c"]);
    is_cut.store(false, Ordering::Relaxed);
    gateway.refresh().await;
    let all = ["own", "first__b", "first__a", "second__c"];
    assert_eq!(tool_names(&client).await, all);
    first
        .update(|update| {
            update.remove::<Tool>("b");
            update.add(named("d"))
        })
        .unwrap();
    gateway.refresh().await;
    assert_eq!(tool_names(&client).await, ["own", "first__a", "first__d", "second__c"]);
}
