//! Calls of legacy clients, with faults of their connections and of replicas.
//!
//! A call runs on three replicas, which share a key ring. Half of them have a bus; then each message
//! goes to any replica, otherwise to the one that holds the call. Connections break after any byte,
//! replicas lose their memory, sessions move, answers are repeated, go to the wrong replica, or come
//! from another session. Checked for each call:
//!
//! - Its result is that of its handler without rounds, so no answer was used for another question.
//! - Every question is asked, and asked once if its replica did not change.
//! - A step runs exactly once if the replica did not change, and at least once otherwise. No other
//!   step runs.
//! - What was done before the last question that the client has read, is not done again: no step
//!   runs, and no question is asked.
//! - A call is lost only if the client had read no event from which another replica can continue.

mod reading;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use bytes::Bytes;
use http::{Method, Request, Response, StatusCode};
use http_body_util::Full;
use mrtr_legacy::{LegacyOptions, LegacyServer};
use mrtr_server::{KeyRing, Secret, Server};
use mrtr_transport::http::{Endpoint, ResponseBody};
use serde_json::{Value, json};
use tokio::time::timeout;
use tower_service::Service as _;

use reading::{Reading, is_json, read_json};

use super::program::{Expected, Program, Version, mix};
use super::tokens;
use super::world::{Run, World};
use super::{Failure, Report, check_outcome, for_each_seed, tool};
use crate::BusChannel;
use crate::random::Random;

const REPLICAS: u64 = 3;

/// Longer than any timeout of a server.
const PATIENCE: Duration = Duration::from_mins(30);

/// Simulates calls of legacy clients, as [`simulate`](super::simulate) does those of current ones.
///
/// # Errors
///
/// The first call that violates a guarantee.
pub fn simulate_legacy(seed: u64, calls: u64, done: &AtomicU64) -> Result<Report, Box<Failure>> {
    let world = World::default();
    let server = server(&world).map_err(|why| Failure::of(seed, why))?;
    for_each_seed(seed..seed.saturating_add(calls), done, &async |seed, report| {
        Call::new(&server, &world, seed)?.run(report).await
    })
}

fn server(world: &World) -> Result<Server, String> {
    let secret: Vec<u8> = (0..32).collect();
    let secret = Secret::from_bytes(&secret).map_err(|error| error.to_string())?;
    let ring = KeyRing::builder("https://simulation.example").active(secret).build();
    let ring = ring.map_err(|error| error.to_string())?;
    let server = Server::builder("simulation", "1").allow_anonymous().key_ring(ring);
    server.tool(tool(world, Version::Old)).build().map_err(|error| error.to_string())
}

/// A process with its sessions.
struct Replica {
    endpoint: Endpoint<Server>,
    legacy: LegacyServer<Server>,
}

impl Replica {
    fn start(server: &Server, bus: Option<&BusChannel>) -> Result<Self, String> {
        let mut options = LegacyOptions::default();
        if let Some(bus) = bus {
            options = options.with_bus(bus.connect());
        }
        let legacy = LegacyServer::new(server.clone(), server.sealer(), options);
        let legacy = legacy.map_err(|error| error.to_string())?;
        let endpoint = Endpoint::new(server.clone()).legacy(legacy.clone());
        Ok(Self { endpoint, legacy })
    }
}

/// One call with its client and its faults.
struct Call<'f> {
    server: &'f Server,
    world: &'f World,
    program: Program,
    bus: Option<BusChannel>,
    replicas: Vec<Replica>,
    random: Random,
    /// Percentage of events that a fault follows.
    faults: u64,
    version: &'static str,
    session: String,
    /// The session of another client.
    other_session: String,
    /// The replica that holds the call.
    home: usize,
    /// The call went to another replica.
    has_moved: bool,
    /// The questions that were answered.
    answered: BTreeSet<String>,
    settled: Settled,
    requests: u64,
    faulty: u64,
}

/// What was done before the last question that the client has read.
#[derive(Default)]
struct Settled {
    /// The sealed call in the id of that question.
    state: String,
    answered: BTreeSet<String>,
    runs: BTreeMap<String, usize>,
}

impl<'f> Call<'f> {
    fn new(server: &'f Server, world: &'f World, seed: u64) -> Result<Self, String> {
        let mut random = Random::new(mix(seed, 2));
        let bus = (random.below(2) == 0).then(BusChannel::default);
        let faults = if random.below(3) == 0 { 0 } else { random.below(40) };
        let version = if random.below(3) == 0 { "2025-06-18" } else { "2025-11-25" };
        let replicas = (0..REPLICAS).map(|_| Replica::start(server, bus.as_ref()));
        Ok(Self {
            server,
            world,
            program: Program::of(seed, Version::Old),
            replicas: replicas.collect::<Result<_, _>>()?,
            bus,
            random,
            faults,
            version,
            session: String::new(),
            other_session: String::new(),
            home: 0,
            has_moved: false,
            answered: BTreeSet::new(),
            settled: Settled::default(),
            requests: 0,
            faulty: 0,
        })
    }

    async fn run(mut self, report: &mut Report) -> Result<(), String> {
        self.session = self.open_session().await?;
        self.other_session = self.open_session().await?;
        self.home = self.any_replica();
        let params =
            json!({ "name": "program", "arguments": { "seed": self.program.seed.to_string() } });
        let call = json!({ "jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params });
        let response = self.post(self.home, &self.session.clone(), &call).await?;
        let expected = self.program.expected(None);
        let outcome = self.follow(response).await?;
        let history = self.world.take(self.program.seed);
        report.calls += 1;
        report.requests += self.requests;
        report.faults += self.faulty;
        report.runs += history.runs.len() as u64;
        let Some((result, asked)) = outcome else {
            report.lost += 1;
            return Ok(());
        };
        report.questions += asked.len() as u64;
        self.check(&expected, &result, &asked)?;
        self.check_steps(&expected, &count(&history.runs))
    }

    fn any_replica(&mut self) -> usize {
        usize::try_from(self.random.below(REPLICAS)).unwrap_or_default()
    }

    /// Returns the replica that a load balancer gives a request to.
    fn route(&mut self) -> usize {
        if self.bus.is_some() { self.any_replica() } else { self.home }
    }

    /// Reads the call to its end. Returns the result and how often each question was asked, or
    /// `None` if the call is lost.
    async fn follow(
        &mut self,
        response: Response<ResponseBody>,
    ) -> Result<Option<(Value, BTreeMap<String, u64>)>, String> {
        let mut asked = BTreeMap::new();
        let mut open: Vec<Value> = Vec::new();
        let mut place: Option<String> = None;
        if is_json(&response) {
            return Ok(Some((result_of(&read_json(response).await?)?, asked)));
        }
        let mut reading = Reading::new(response);
        loop {
            // A client that has questions answers them while it reads.
            let limit = if open.is_empty() { PATIENCE } else { Duration::from_millis(1) };
            let Ok(event) = timeout(limit, reading.next()).await else {
                if open.is_empty() {
                    return Err("the call does not end".to_owned());
                }
                self.answer_one(&mut open).await?;
                continue;
            };
            place = reading.decoder.last_event_id().map(str::to_owned).or(place);
            let Some(event) = event else {
                if self.change_replica()? {
                    open.clear();
                }
                match self.resume(place.as_deref()).await? {
                    Some(response) => reading = Reading::new(response),
                    None if place.is_some_and(|place| place.contains('~') || !self.has_moved)
                        || self.faulty == 0 =>
                    {
                        return Err("the call cannot be resumed".to_owned());
                    }
                    None => return Ok(None),
                }
                continue;
            };
            if !event.is_empty() {
                let message: Value =
                    serde_json::from_slice(&event).map_err(|error| error.to_string())?;
                if message.get("method").is_none() {
                    return Ok(Some((result_of(&message)?, asked)));
                }
                self.settle(place.as_deref().unwrap_or_default());
                let text = text_of(&message);
                if self.settled.answered.contains(text) {
                    return Err(format!("{text} is asked again after its answer was recorded"));
                }
                *asked.entry(text.to_owned()).or_default() += 1;
                open.push(message);
            }
            if self.random.below(100) < self.faults {
                // The connection breaks, after any byte.
                self.faulty += 1;
                reading.cut(usize::try_from(self.random.below(2_000)).unwrap_or_default()).await;
            } else if !open.is_empty() && self.random.below(2) == 0 {
                self.answer_one(&mut open).await?;
            }
        }
    }

    /// After a broken connection: perhaps the process dies and starts again, or the session moves.
    /// Returns true if another replica continues the call.
    fn change_replica(&mut self) -> Result<bool, String> {
        let next = self.any_replica();
        match self.random.below(3) {
            0 => return Ok(false),
            1 => {
                let started = Replica::start(self.server, self.bus.as_ref())?;
                let home = self.replicas.get_mut(self.home).ok_or("no replica")?;
                std::mem::replace(home, started).legacy.close();
            }
            _ if next == self.home => return Ok(false),
            _ => {}
        }
        self.home = next;
        self.has_moved = true;
        // The answers to that question are lost.
        self.settled.state = String::new();
        self.answered = self.settled.answered.clone();
        Ok(true)
    }

    async fn resume(
        &mut self,
        place: Option<&str>,
    ) -> Result<Option<Response<ResponseBody>>, String> {
        let Some(place) = place else { return Ok(None) };
        let request = self.request(Method::GET, &self.session).header("last-event-id", place);
        let request = request.body(Full::default()).map_err(|error| error.to_string())?;
        let response = self.send(self.home, request).await?;
        Ok((response.status() == StatusCode::OK).then_some(response))
    }

    /// Records what was done before a question with this event id.
    fn settle(&mut self, place: &str) {
        let state = place.split_once('~').map_or("", |(_, state)| state);
        if state.is_empty() || state == self.settled.state {
            return;
        }
        // A replica that takes over begins with the last question, under another token.
        let is_same = self.settled.state.is_empty() && self.has_moved;
        state.clone_into(&mut self.settled.state);
        if !is_same {
            self.settled.answered = self.answered.clone();
            self.settled.runs = count(&self.world.peek(self.program.seed).runs);
        }
    }

    /// Answers one of the questions, and sends some answers that must have no effect.
    async fn answer_one(&mut self, open: &mut Vec<Value>) -> Result<(), String> {
        let at = usize::try_from(self.random.below(open.len() as u64)).unwrap_or_default();
        let question = open.swap_remove(at);
        let text = text_of(&question);
        let answer = |n: u64| {
            let result = json!({ "action": "accept", "content": { "n": n } });
            json!({ "jsonrpc": "2.0", "id": question.get("id"), "result": result })
        };
        let wrong = answer(1_000_000);
        if self.random.below(4) == 0 {
            let foreign = self.other_session.clone();
            let to = self.route();
            let status = self.post(to, &foreign, &wrong).await?.status();
            if self.bus.is_none() && status != StatusCode::BAD_REQUEST {
                return Err(format!("an answer of another session got {status}"));
            }
        }
        if self.bus.is_none() && self.random.below(4) == 0 {
            let to = (self.home + 1) % self.replicas.len();
            let session = self.session.clone();
            let status = self.post(to, &session, &wrong).await?.status();
            if status != StatusCode::BAD_REQUEST {
                return Err(format!("an answer got {status} from a replica that did not ask"));
            }
        }
        let honest = answer(self.program.answer(text).into());
        let to = self.route();
        let session = self.session.clone();
        let status = self.post(to, &session, &honest).await?.status();
        if status != StatusCode::ACCEPTED {
            return Err(format!("the answer to {text} got {status}"));
        }
        self.answered.insert(text.to_owned());
        if self.random.below(4) == 0 {
            // Repeated. Over a bus, the second answer may arrive first.
            let to = self.route();
            let again = if self.bus.is_some() { &honest } else { &wrong };
            self.post(to, &session, again).await?;
        }
        Ok(())
    }

    async fn open_session(&mut self) -> Result<String, String> {
        let params = json!({
            "protocolVersion": self.version,
            "capabilities": { "elicitation": {} },
            "clientInfo": { "name": "simulation", "version": "1" },
        });
        let message =
            json!({ "jsonrpc": "2.0", "id": 0, "method": "initialize", "params": params });
        let to = self.any_replica();
        let response = self.post(to, "", &message).await?;
        let id = response.headers().get("mcp-session-id").and_then(|id| id.to_str().ok());
        id.map(str::to_owned).ok_or_else(|| "no session".to_owned())
    }

    fn request(&self, method: Method, session: &str) -> http::request::Builder {
        let mut request = Request::builder()
            .method(method)
            .uri("/mcp")
            .extension(tokens::all())
            .header("host", "localhost")
            .header("content-type", "application/json")
            .header("accept", "application/json, text/event-stream");
        if !session.is_empty() {
            request = request.header("mcp-session-id", session);
            request = request.header("mcp-protocol-version", self.version);
        }
        request
    }

    async fn post(
        &mut self,
        to: usize,
        session: &str,
        message: &Value,
    ) -> Result<Response<ResponseBody>, String> {
        let request = self.request(Method::POST, session);
        let request = request.body(Full::from(message.to_string()));
        let request = request.map_err(|error| error.to_string())?;
        self.send(to, request).await
    }

    async fn send(
        &mut self,
        to: usize,
        request: Request<Full<Bytes>>,
    ) -> Result<Response<ResponseBody>, String> {
        self.requests += 1;
        let mut endpoint = self.replicas.get(to).ok_or("no replica")?.endpoint.clone();
        match endpoint.call(request).await {
            Ok(response) => Ok(response),
            Err(never) => match never {},
        }
    }

    fn check(
        &self,
        expected: &Expected,
        result: &Value,
        asked: &BTreeMap<String, u64>,
    ) -> Result<(), String> {
        check_outcome(expected, result)?;
        let all: BTreeSet<String> =
            expected.rounds.iter().flatten().map(|key| format!("{key}?")).collect();
        if !asked.keys().eq(&all) {
            return Err(format!("the call asked {:?}, expected {all:?}", asked.keys()));
        }
        match asked.iter().find(|(_, times)| **times > 1) {
            Some((message, _)) if !self.has_moved => Err(format!("{message} is asked again")),
            _ => Ok(()),
        }
    }

    fn check_steps(
        &self,
        expected: &Expected,
        runs: &BTreeMap<String, usize>,
    ) -> Result<(), String> {
        for (key, times) in runs {
            let fails = expected.failing.iter().any(|step| step == key);
            if !fails && !expected.steps.iter().any(|step| step == key) {
                return Err(format!("{key} ran, which is not a step of the handler"));
            }
            if *times > 1 && !fails && !self.has_moved {
                return Err(format!("{key} ran {times} times at one replica"));
            }
            if self.settled.runs.get(key).is_some_and(|settled| settled < times) && !fails {
                return Err(format!("{key} ran again after its result was recorded"));
            }
        }
        let missing = expected.steps.iter().find(|step| !runs.contains_key(step.as_str()));
        missing.map_or(Ok(()), |step| Err(format!("{step} did not run")))
    }
}

/// Counts the runs of each step.
fn count(runs: &[Run]) -> BTreeMap<String, usize> {
    let mut counts = BTreeMap::new();
    for run in runs {
        *counts.entry(run.key.clone()).or_default() += 1;
    }
    counts
}

/// Returns the text of a question, without the reason that a repeated one adds.
fn text_of(question: &Value) -> &str {
    let text = question.pointer("/params/message").and_then(Value::as_str).unwrap_or_default();
    text.lines().next().unwrap_or_default()
}

fn result_of(response: &Value) -> Result<Value, String> {
    response.get("result").cloned().ok_or_else(|| format!("the call failed: {response}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_of_legacy_clients_keep_the_guarantees() {
        let report = simulate_legacy(0, 400, &AtomicU64::new(0));
        let report = report.map_err(|failure| failure.to_string()).unwrap();
        assert!(report.calls == 400 && report.faults > 80 && report.questions > 400, "{report:?}");
        assert!(report.lost < 40, "{report:?}");
    }
}
