//! The server of a replica that is a gateway, and a record of its requests that got no response.

use std::sync::Arc;
use std::time::Duration;

use mrtr::client::{OutgoingRequest, Transport, TransportError};
use mrtr::gateway::Gateway;
use mrtr::http::HttpClient;
use mrtr::schema::jsonrpc::{Request, Response};
use mrtr::{Client, ServerBuilder};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::Result;
use crate::clients::RETRIES;
use crate::ledger::Ledger;

/// The identity that gateways use towards servers. No caller has it.
pub(crate) const IDENTITY: &str = "gateway";

/// A request to a server that got no response.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Lost {
    pub(crate) call: String,
    /// Number of questions that the caller had been asked when the request was sent.
    pub(crate) asked: usize,
}

/// A server with a prefix, and its URL: `PREFIX=URL`.
#[derive(Debug)]
pub(crate) struct Upstream {
    prefix: String,
    url: String,
}

impl std::str::FromStr for Upstream {
    type Err = ();

    fn from_str(text: &str) -> std::result::Result<Self, ()> {
        let (prefix, url) = text.split_once('=').ok_or(())?;
        Ok(Self { prefix: prefix.to_owned(), url: url.to_owned() })
    }
}

/// Builds a gateway that has listed its upstreams.
pub(crate) async fn build(
    server: ServerBuilder,
    upstreams: &[Upstream],
    ledger: &Arc<Ledger>,
) -> Result<Gateway<impl Transport>> {
    let mut gateway = Gateway::builder();
    for Upstream { prefix, url } in upstreams {
        let http = HttpClient::builder(url).bearer(IDENTITY)?.timeout(Duration::from_secs(20));
        let recorded = Recorded { http: http.build()?, ledger: Arc::clone(ledger) };
        gateway = gateway.upstream(prefix, Client::builder(recorded).build().with_retries(RETRIES));
    }
    let gateway = gateway.build(server)?;
    gateway.refresh().await;
    Ok(gateway)
}

/// A connection that records requests without a response.
struct Recorded {
    http: HttpClient,
    ledger: Arc<Ledger>,
}

impl Transport for Recorded {
    async fn send(
        &self,
        outgoing: OutgoingRequest<'_>,
    ) -> std::result::Result<Response, TransportError> {
        let lost = lost(&outgoing.request);
        let response = self.http.send(outgoing).await;
        if let (Err(error), Some(lost)) = (&response, lost)
            && let Err(unwritten) = self.ledger.write(&lost)
        {
            tracing::error!(%error, %unwritten, "a lost response was not recorded");
        }
        response
    }
}

/// Returns what is recorded if a request gets no response; `None` if it does not belong to an order.
fn lost(request: &Request) -> Option<Lost> {
    let member = |name| {
        let text = request.params.as_ref()?.member(name)?;
        serde_json::from_str::<Value>(text).ok()
    };
    let call = member("arguments")?["call"].as_str()?.to_owned();
    let answers = member("inputResponses").unwrap_or_default();
    let answered = |key: &str| answers.get(key).is_some();
    let asked = match () {
        () if answered("tip") => 4,
        () if answered("consent") => 3,
        () if answered("seat") => 2,
        () => 0,
    };
    Some(Lost { call, asked })
}
