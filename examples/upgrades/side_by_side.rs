//! Servers of several versions, and a client whose requests alternate between them.

use std::future::pending;
use std::net::Ipv4Addr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use mrtr::client::{OutgoingRequest, Transport, TransportError};
use mrtr::http::{Endpoint, HttpClient, ServeOptions, serve};
use mrtr::schema::elicitation::FormParams;
use mrtr::schema::input::InputRequiredResult;
use mrtr::schema::jsonrpc::Response;
use mrtr::{Client, ElicitResult, KeyRing, Secret, Server, Tool};
use serde_json::Value;
use tokio::net::TcpListener;

use crate::Result;

/// All versions share a key ring. A real secret is stored outside the code.
const SECRET: &[u8] = b"the public secret of the example";

/// Creates a server with one tool.
pub fn replica(name: &str, version: &str, tool: Tool) -> crate::Result<Server> {
    let secret = Secret::from_bytes(SECRET)?;
    let ring = KeyRing::builder(format!("https://{name}.example/mcp")).active(secret).build()?;
    Ok(Server::builder(name, version).key_ring(ring).allow_anonymous().tool(tool).build()?)
}

pub struct SideBySide {
    sides: Vec<(&'static str, HttpClient)>,
    next: AtomicUsize,
    asked: Arc<Mutex<Vec<String>>>,
}

impl SideBySide {
    /// Serves them until the program ends.
    pub async fn start<const N: usize>(servers: [(&'static str, Server); N]) -> Result<Self> {
        let mut sides = Vec::new();
        for (name, server) in servers {
            sides.push((name, start(server).await?));
        }
        Ok(Self { sides, next: AtomicUsize::new(0), asked: Arc::default() })
    }

    /// Calls a tool. Returns its text, and the keys of the questions in order.
    pub async fn call(
        self,
        tool: &str,
        arguments: Value,
        answer: fn(&str, &FormParams) -> ElicitResult,
    ) -> Result<(String, Vec<String>)> {
        let asked = Arc::clone(&self.asked);
        let answering = Arc::clone(&self.asked);
        let client = Client::builder(self).on_form(move |question, form| {
            println!("            {:<16} {}", question.key, form.message);
            answering.lock().unwrap_or_else(PoisonError::into_inner).push(question.key.clone());
            std::future::ready(Ok(answer(&question.key, &form)))
        });
        let text = client.build().call_tool(tool, arguments).await?.text();
        println!("            {text}");
        let asked = asked.lock().unwrap_or_else(PoisonError::into_inner).clone();
        Ok((text, asked))
    }
}

async fn start(server: Server) -> Result<HttpClient> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
    let url = format!("http://{}/mcp", listener.local_addr()?);
    tokio::spawn(serve(listener, Endpoint::new(server), ServeOptions::default(), pending()));
    Ok(HttpClient::builder(url).build()?)
}

impl Transport for SideBySide {
    async fn send(&self, outgoing: OutgoingRequest<'_>) -> Result<Response, TransportError> {
        let turn = self.next.fetch_add(1, Ordering::Relaxed);
        let side = self.sides.get(turn % self.sides.len());
        let (name, side) = side.ok_or_else(|| TransportError::not_sent("there is no server"))?;
        let response = side.send(outgoing).await?;
        let result = response.outcome.as_ref().ok();
        let state = result
            .and_then(|result| serde_json::from_str::<InputRequiredResult>(result.get()).ok())
            .and_then(|asks| asks.request_state);
        match state {
            Some(state) => println!("  {name}       asks, with a state of {} bytes", state.len()),
            None => println!("  {name}       answers"),
        }
        Ok(response)
    }
}
