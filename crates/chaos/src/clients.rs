//! Those who call: each makes one order after the other, and one tries to go on with the orders of others.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use mrtr::client::{OutgoingRequest, Transport, TransportError};
use mrtr::http::HttpClient;
use mrtr::schema::jsonrpc::{Request, Response};
use mrtr::{Client, ElicitResult};
use mrtr_testkit::random::Random;
use serde_json::json;

use crate::workload::{TOOL, Used, answer_to, consents};
use crate::{Result, lock};

/// How often a leg is sent again in one call; a load balancer may fail many times over.
const RESENDS: u32 = 60;

/// One order, as its caller saw it.
#[derive(Debug, Default)]
pub(crate) struct Flow {
    pub(crate) id: String,
    pub(crate) caller: String,
    /// In seconds since the run began.
    pub(crate) begun: f64,
    pub(crate) ended: f64,
    pub(crate) legs: Vec<Leg>,
    /// Keys and messages.
    pub(crate) asked: Vec<(String, String)>,
    /// What it came to, or why to nothing; once it has ended.
    pub(crate) outcome: Option<std::result::Result<Vec<Used>, String>>,
}

#[derive(Debug)]
pub(crate) struct Leg {
    /// In seconds since the run began.
    pub(crate) begun: f64,
    /// How many questions its caller had been asked by then.
    pub(crate) asked: usize,
    pub(crate) took: Duration,
    /// Whether it went out without a state.
    pub(crate) is_first: bool,
    /// Why there was no answer of the server's.
    pub(crate) broken: Option<String>,
    /// The reason that the server gave for refusing its state.
    pub(crate) refused: Option<String>,
}

#[derive(Debug)]
pub(crate) struct People {
    url: String,
    begun: Instant,
    leaving: AtomicBool,
    flows: Mutex<Vec<Flow>>,
    /// A request of somebody that carries a state.
    last: Mutex<Option<Request>>,
    pub(crate) foreign: Foreign,
}

/// What came of going on with the orders of others.
#[derive(Debug, Default)]
pub(crate) struct Foreign {
    pub(crate) tried: AtomicU64,
    /// What was answered otherwise.
    pub(crate) otherwise: Mutex<Vec<String>>,
}

impl People {
    pub(crate) fn new(url: String, begun: Instant) -> Arc<Self> {
        Arc::new(Self {
            url,
            begun,
            leaving: AtomicBool::new(false),
            flows: Mutex::default(),
            last: Mutex::default(),
            foreign: Foreign::default(),
        })
    }

    /// No more orders are begun.
    pub(crate) fn leave(&self) {
        self.leaving.store(true, Ordering::Relaxed);
    }

    /// All orders that have ended.
    pub(crate) fn flows(&self) -> Vec<Flow> {
        std::mem::take(&mut *lock(&self.flows))
    }

    /// How many orders have ended.
    pub(crate) fn ended(&self) -> usize {
        lock(&self.flows).len()
    }

    fn connection(&self, name: &str) -> Result<HttpClient> {
        Ok(HttpClient::builder(&self.url).bearer(name)?.timeout(Duration::from_secs(20)).build()?)
    }

    /// Orders until it is time to leave.
    pub(crate) async fn order(self: Arc<Self>, nth: u64, seed: u64) -> Result {
        let caller = format!("caller-{nth}");
        let now = Arc::<Mutex<Flow>>::default();
        let random = Arc::new(Mutex::new(Random::new(seed.wrapping_add(nth))));
        let http = self.connection(&caller)?;
        let watched = Watched { http, now: Arc::clone(&now), people: Arc::clone(&self) };
        let (asked, by) = (Arc::clone(&now), caller.clone());
        let client = Client::builder(watched).on_form(move |question, form| {
            let answer = {
                let mut flow = lock(&asked);
                flow.asked.push((question.key.clone(), form.message.clone()));
                if question.key == "consent" && !consents(&flow.id) {
                    Ok(ElicitResult::decline())
                } else {
                    let text = answer_to(&by, &question.key, &form.message);
                    ElicitResult::accept(json!({ "text": text }))
                }
            };
            let thinks = Duration::from_millis(lock(&random).below(200));
            async move {
                tokio::time::sleep(thinks).await;
                Ok(answer?)
            }
        });
        let client = client.build().with_retries(RESENDS);
        for order in 0_u64.. {
            if self.leaving.load(Ordering::Relaxed) {
                break;
            }
            let (id, begun) = (format!("{nth}-{order}"), self.begun.elapsed().as_secs_f64());
            let flow = Flow { id: id.clone(), caller: caller.clone(), begun, ..Flow::default() };
            *lock(&now) = flow;
            let result = client.call_tool(TOOL, json!({ "flow": id })).await;
            let mut flow = std::mem::take(&mut *lock(&now));
            flow.ended = self.begun.elapsed().as_secs_f64();
            flow.outcome = Some(match result {
                Ok(result) => serde_json::from_str(&result.text()).map_err(|_| result.text()),
                Err(error) => Err(error.to_string()),
            });
            lock(&self.flows).push(flow);
        }
        Ok(())
    }

    /// Goes on with what belongs to others, now and then.
    pub(crate) async fn steal(self: Arc<Self>) -> Result {
        let http = self.connection("thief")?;
        while !self.leaving.load(Ordering::Relaxed) {
            tokio::time::sleep(Duration::from_millis(100)).await;
            let Some(request) = lock(&self.last).take() else { continue };
            // What does not get through says nothing.
            let Ok(response) = http.send(OutgoingRequest::new(request)).await else { continue };
            self.foreign.tried.fetch_add(1, Ordering::Relaxed);
            let is_refused = matches!(&response.outcome, Err(error)
                if error.data == Some(json!({ "reason": "invalid_request_state" })));
            if !is_refused {
                lock(&self.foreign.otherwise).push(format!("{:?}", response.outcome));
            }
        }
        Ok(())
    }
}

/// A connection whose every leg is written down.
struct Watched {
    http: HttpClient,
    now: Arc<Mutex<Flow>>,
    people: Arc<People>,
}

impl Transport for Watched {
    async fn send(
        &self,
        outgoing: OutgoingRequest<'_>,
    ) -> std::result::Result<Response, TransportError> {
        let request = outgoing.request.clone();
        let carries = |name| request.params.as_ref().is_some_and(|all| all.member(name).is_some());
        let is_first = !carries("requestState");
        let (begun, since) = (Instant::now(), self.people.begun.elapsed().as_secs_f64());
        let response = self.http.send(outgoing).await;
        let took = begun.elapsed();
        let refused = match &response {
            Ok(Response { outcome: Err(error), .. }) => {
                let reason = error.data.as_ref().and_then(|data| data["reason"].as_str());
                Some(reason.unwrap_or(&error.message).to_owned())
            }
            _ => None,
        };
        let broken = response.as_ref().err().map(ToString::to_string);
        let mut now = lock(&self.now);
        let asked = now.asked.len();
        now.legs.push(Leg { begun: since, asked, took, is_first, broken, refused });
        drop(now);
        if !is_first {
            *lock(&self.people.last) = Some(request);
        }
        response
    }
}
