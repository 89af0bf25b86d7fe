//! Gateways in front of servers in memory.

#![expect(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test fails by panicking"
)]

mod changes;
mod forwarded;
mod lists;
mod rounds;
mod task_updates;
mod tasks;
mod upstreams;

use std::sync::Arc;

use mrtr_client::{Client, ClientBuilder, Transport};
use mrtr_gateway::Gateway;
use mrtr_schema::elicitation::ElicitResult;
use mrtr_server::{KeyRing, Principal, Secret, Server, ServerBuilder, Tool};
use mrtr_transport::InProcess;
use serde_json::json;
use tokio::task::JoinHandle;

/// The keys of all replicas of the gateway.
fn gateway_server() -> ServerBuilder {
    keyed("gateway", 1)
}

/// A server that needs a principal, with keys made from `seed`.
fn keyed(name: &str, seed: u8) -> ServerBuilder {
    let ring = KeyRing::builder("test")
        .active(Secret::from_bytes(&(seed..seed + 32).collect::<Vec<_>>()).unwrap())
        .build()
        .unwrap();
    Server::builder(name, "1.0.0").key_ring(ring).require_principal()
}

/// An upstream server with these tools.
fn upstream(name: &str, tools: impl IntoIterator<Item = Tool>) -> Server {
    let server = tools.into_iter().fold(keyed(name, 2).updatable::<Tool>(), ServerBuilder::tool);
    server.build().unwrap()
}

/// Connects a client to `server`, as `principal`.
fn connect(server: &Server, principal: &str) -> ClientBuilder<InProcess<Server>> {
    let transport = InProcess::new(server.clone());
    Client::builder(transport.with_extension(Principal::new("https://login.example", principal)))
}

/// A replica of the gateway, which has listed its upstreams.
async fn gateway(upstreams: &[(&str, &Server)]) -> Arc<Gateway<InProcess<Server>>> {
    let gateway = upstreams.iter().fold(Gateway::builder(), |gateway, (prefix, server)| {
        gateway.upstream(*prefix, connect(server, "the gateway").build())
    });
    let gateway = gateway.build(gateway_server()).unwrap();
    gateway.refresh().await;
    Arc::new(gateway)
}

/// Keeps the gateway up to date, until the task is aborted.
fn run<T: Transport>(gateway: &Arc<Gateway<T>>) -> JoinHandle<()> {
    let gateway = Arc::clone(gateway);
    tokio::spawn(async move { gateway.run().await })
}

/// A client that accepts every form with `{"text": "hello"}`.
fn caller(gateway: &Gateway<impl Transport>, principal: &str) -> ClientBuilder<InProcess<Server>> {
    connect(gateway.server(), principal)
        .on_form(async |_, _| Ok(ElicitResult::accept(json!({ "text": "hello" }))?))
}

async fn tool_names(client: &Client<InProcess<Server>>) -> Vec<String> {
    client.clear_cache();
    client.list_tools().await.unwrap().into_iter().map(|tool| tool.name).collect()
}
