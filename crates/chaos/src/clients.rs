//! The clients: each caller makes one order after the other, and one thief tries to continue the
//! orders of other callers.

use std::error::Error as _;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use mrtr::client::{OutgoingRequest, Transport, TransportError};
use mrtr::http::HttpClient;
use mrtr::legacy::{AnyRevisionClient, RevisionMode};
use mrtr::schema::jsonrpc::{Request, Response};
use mrtr::{Client, ElicitResult};
use mrtr_testkit::random::Random;
use serde_json::json;

use crate::workload::{Used, answer_to, consents, key_of};
use crate::{Result, lock};

/// Maximum number of times that a caller or a gateway sends a request again in one call: a load
/// balancer may fail many times.
pub(crate) const RETRIES: u32 = 60;

/// One call, as its caller observed it.
#[derive(Debug, Default)]
pub(crate) struct Call {
    pub(crate) id: String,
    pub(crate) caller: String,
    /// The caller from the server's point of view.
    pub(crate) identity: String,
    /// The caller speaks a legacy revision.
    pub(crate) is_legacy: bool,
    /// In seconds since the run began.
    pub(crate) begun: f64,
    pub(crate) ended: f64,
    pub(crate) attempts: Vec<Attempt>,
    /// Requests of a gateway to the server that got no response: the number of questions that the
    /// caller had been asked when each was sent.
    pub(crate) lost_upstream: Vec<usize>,
    /// Keys and messages.
    pub(crate) asked: Vec<(String, String)>,
    /// The result of the call, or the reason for its failure. `None` until the call has ended.
    pub(crate) outcome: Option<std::result::Result<Vec<Used>, String>>,
}

#[derive(Debug)]
pub(crate) struct Attempt {
    /// In seconds since the run began.
    pub(crate) begun: f64,
    /// Number of questions that the caller had been asked when the request was sent.
    pub(crate) asked: usize,
    pub(crate) took: Duration,
    /// True if the request carried no state.
    pub(crate) is_first: bool,
    /// The reason that no response of the server arrived.
    pub(crate) broken: Option<String>,
    /// The reason that the server gave for rejecting the state.
    pub(crate) refused: Option<String>,
}

impl Attempt {
    /// Returns true if the server does not know the session of a legacy client.
    pub(crate) fn lost_its_session(&self) -> bool {
        self.broken.as_ref().is_some_and(|why| why.contains("ended the session"))
    }
}

#[derive(Debug)]
pub(crate) struct Callers {
    url: String,
    /// The tools that are called, in turn.
    tools: Vec<String>,
    begun: Instant,
    stopping: AtomicBool,
    calls: Mutex<Vec<Call>>,
    /// The last request of any caller that carried a state.
    last: Mutex<Option<Request>>,
    pub(crate) foreign: Foreign,
}

/// The outcome of the attempts to continue the orders of other callers.
#[derive(Debug, Default)]
pub(crate) struct Foreign {
    pub(crate) tried: AtomicU64,
    /// Responses other than a rejection of the state.
    pub(crate) not_rejected: Mutex<Vec<String>>,
}

impl Callers {
    pub(crate) fn new(url: String, tools: Vec<String>, begun: Instant) -> Arc<Self> {
        Arc::new(Self {
            url,
            tools,
            begun,
            stopping: AtomicBool::new(false),
            calls: Mutex::default(),
            last: Mutex::default(),
            foreign: Foreign::default(),
        })
    }

    /// Lets callers finish their order and start no other.
    pub(crate) fn stop(&self) {
        self.stopping.store(true, Ordering::Relaxed);
    }

    /// Takes the calls that have ended.
    pub(crate) fn calls(&self) -> Vec<Call> {
        std::mem::take(&mut *lock(&self.calls))
    }

    /// Number of calls that have ended.
    pub(crate) fn ended(&self) -> usize {
        lock(&self.calls).len()
    }

    fn connection(&self, name: &str) -> Result<HttpClient> {
        Ok(HttpClient::builder(&self.url).bearer(name)?.timeout(Duration::from_secs(20)).build()?)
    }

    /// Makes orders until callers are stopped. Every fourth caller speaks a legacy revision.
    pub(crate) async fn order(self: Arc<Self>, nth: u64, seed: u64) -> Result {
        let http = self.connection(&format!("caller-{nth}"))?;
        if nth % 4 == 3 {
            // A session for each order.
            let transport = || AnyRevisionClient::new(http.clone(), RevisionMode::Legacy);
            self.order_over(transport, nth, seed).await
        } else {
            self.order_over(|| http.clone(), nth, seed).await
        }
    }

    async fn order_over<T: Transport>(
        self: Arc<Self>,
        transport: impl Fn() -> T,
        nth: u64,
        seed: u64,
    ) -> Result {
        let (caller, is_legacy) = (format!("caller-{nth}"), nth % 4 == 3);
        let now = Arc::<Mutex<Call>>::default();
        let random = Arc::new(Mutex::new(Random::new(seed.wrapping_add(nth))));
        let connect = || {
            let (transport, callers) = (transport(), Arc::clone(&self));
            let recorded = Recorded { transport, now: Arc::clone(&now), callers };
            let (asked, by, random) = (Arc::clone(&now), caller.clone(), Arc::clone(&random));
            let client = Client::builder(recorded).on_form(move |question, form| {
                let answer = {
                    let mut call = lock(&asked);
                    let key = if is_legacy { key_of(&form.message) } else { &question.key };
                    call.asked.push((key.to_owned(), form.message.clone()));
                    if key == "consent" && !consents(&call.id) {
                        Ok(ElicitResult::decline())
                    } else {
                        ElicitResult::accept(json!({ "text": answer_to(&by, key, &form.message) }))
                    }
                };
                let thinks = Duration::from_millis(lock(&random).below(200));
                async move {
                    tokio::time::sleep(thinks).await;
                    Ok(answer?)
                }
            });
            client.build().with_retries(RETRIES)
        };
        for (order, tool) in self.tools.iter().cycle().enumerate() {
            if self.stopping.load(Ordering::Relaxed) {
                break;
            }
            let (id, begun) = (format!("{nth}-{order}"), self.begun.elapsed().as_secs_f64());
            let (call, caller) = (id.clone(), caller.clone());
            let identity = caller.clone();
            *lock(&now) = Call { id: call, caller, identity, is_legacy, begun, ..Call::default() };
            let result = connect().call_tool(tool, json!({ "call": id })).await;
            let mut call = std::mem::take(&mut *lock(&now));
            call.ended = self.begun.elapsed().as_secs_f64();
            call.outcome = Some(match result {
                Ok(result) => serde_json::from_str(&result.text()).map_err(|_| result.text()),
                Err(error) => Err(error.to_string()),
            });
            lock(&self.calls).push(call);
        }
        Ok(())
    }

    /// Tries to continue the orders of other callers, about ten times a second.
    pub(crate) async fn steal(self: Arc<Self>) -> Result {
        let http = self.connection("thief")?;
        while !self.stopping.load(Ordering::Relaxed) {
            tokio::time::sleep(Duration::from_millis(100)).await;
            let Some(request) = lock(&self.last).take() else { continue };
            // A request without a response proves nothing.
            let Ok(response) = http.send(OutgoingRequest::new(request)).await else { continue };
            self.foreign.tried.fetch_add(1, Ordering::Relaxed);
            let is_refused = matches!(&response.outcome, Err(error)
                if error.data == Some(json!({ "reason": "invalid_request_state" })));
            if !is_refused {
                lock(&self.foreign.not_rejected).push(format!("{:?}", response.outcome));
            }
        }
        Ok(())
    }
}

/// Returns the text of an error, with its causes.
fn with_causes(error: &TransportError) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        text = format!("{text}: {error}");
        cause = error.source();
    }
    text
}

/// A connection that records every request.
struct Recorded<T> {
    transport: T,
    now: Arc<Mutex<Call>>,
    callers: Arc<Callers>,
}

impl<T: Transport> Transport for Recorded<T> {
    async fn send(
        &self,
        outgoing: OutgoingRequest<'_>,
    ) -> std::result::Result<Response, TransportError> {
        let request = outgoing.request.clone();
        let carries = |name| request.params.as_ref().is_some_and(|all| all.member(name).is_some());
        let is_first = !carries("requestState");
        let (begun, since) = (Instant::now(), self.callers.begun.elapsed().as_secs_f64());
        let response = self.transport.send(outgoing).await;
        let took = begun.elapsed();
        let refused = match &response {
            Ok(Response { outcome: Err(error), .. }) => {
                let reason = error.data.as_ref().and_then(|data| data["reason"].as_str());
                Some(reason.unwrap_or(&error.message).to_owned())
            }
            _ => None,
        };
        let broken = response.as_ref().err().map(with_causes);
        let mut now = lock(&self.now);
        let (asked, is_legacy) = (now.asked.len(), now.is_legacy);
        now.attempts.push(Attempt { begun: since, asked, took, is_first, broken, refused });
        drop(now);
        // The state of a call on a legacy session is its client's own.
        if !is_first && !is_legacy {
            *lock(&self.callers.last) = Some(request);
        }
        response
    }
}
