//! Calls that become tasks, over a store with faults.
//!
//! A call runs on three replicas with a common store. Operations of the store fail, take long, or
//! are performed and reported as failed; replicas are cut off from it for longer than a lease. The
//! call is a task from its beginning, or becomes one at a random point of its handler or of time,
//! after rounds or in the middle of steps. The client repeats requests, answers in parts, and sends
//! a second answer to the same question. Checked for each call:
//!
//! - Its result is that of its handler without rounds, so the first answer to each question counted.
//! - Every question is asked, and asked once if its answer was of the right type.
//! - Every step runs, and no other one. All runs of a step have one idempotency key.
//! - A step does not run again after the handler of a task has used its result.
//! - A step runs once if there was no fault.

mod store;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use mrtr_schema::jsonrpc::{Params, Request, RequestId};
use mrtr_server::tasks::{MemoryTaskStore, TaskPolicy};
use mrtr_server::{Context, KeyRing, Secret, Server, Tool};
use mrtr_transport::{InProcess, OutgoingRequest, Transport as _};
use serde_json::{Map, Value, json};

use store::{Connection, Faults};

use super::program::{Expected, Program, Version, mix};
use super::tokens;
use super::world::{RequestMark, World};
use super::{Args, Failure, Report, accept, check_outcome, for_each_seed};
use crate::random::Random;

const REPLICAS: usize = 3;

/// Maximum number of requests of a call.
const MAX_REQUESTS: u64 = 5_000;

/// Where the journal of a call is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Carrier {
    /// In a store, from the beginning.
    Store,
    /// In the hands of the client, and then in a store.
    HandOver,
}

/// Simulates calls that become tasks, as [`simulate`](super::simulate) does calls of rounds.
///
/// # Errors
///
/// The first call that violates a guarantee.
pub fn simulate_tasks(
    carrier: Carrier,
    seed: u64,
    calls: u64,
    done: &AtomicU64,
) -> Result<Report, Box<Failure>> {
    for_each_seed(seed..seed.saturating_add(calls), done, &async |seed, report| {
        let mut call = Call::new(carrier, seed)?;
        let outcome = call.run(report).await;
        call.servers.iter().for_each(Server::begin_shutdown);
        outcome
    })
}

/// How a call becomes a task.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Start {
    Immediately,
    /// At a point of the handler.
    Detach,
    /// After a time.
    After(Duration),
}

struct Call {
    servers: Vec<Server>,
    connections: Vec<Connection>,
    faults: Arc<Faults>,
    world: World,
    program: Program,
    start: Start,
    random: Random,
    /// Percentage of answers with another type.
    garbled: u64,
    /// Percentage of requests before which a replica is cut off, or its connection restored.
    cuts: u64,
    requests: u64,
    /// Requests that were repeated, and replicas that were cut off.
    faulty: u64,
    asked: BTreeMap<String, u64>,
    /// The messages whose last answer had another type.
    was_garbled: BTreeSet<String>,
}

impl Call {
    fn new(carrier: Carrier, seed: u64) -> Result<Self, String> {
        let mut random = Random::new(mix(seed, 3));
        let start = match (carrier, random.below(2)) {
            (Carrier::Store, _) => Start::Immediately,
            (Carrier::HandOver, 0) => Start::Detach,
            (Carrier::HandOver, _) => Start::After(Duration::from_millis(1 + random.below(3))),
        };
        let is_faulty = random.below(4) > 0;
        let percentage = if is_faulty { random.below(30) } else { 0 };
        let faults = Arc::new(Faults::new(Random::new(mix(seed, 4)), percentage, 12));
        let cuts = if is_faulty { random.below(20) } else { 0 };
        let garbled = if random.below(4) == 0 { 20 } else { 0 };
        let (world, store) = (World::default(), Arc::new(MemoryTaskStore::new(100)));
        let connections: Vec<_> = (0..REPLICAS).map(|_| Connection::new(&store, &faults)).collect();
        let servers = connections.iter().map(|store| replica(&world, start, store.clone()));
        let servers: Vec<_> = servers.collect::<Result<_, String>>()?;
        for server in &servers {
            let server = server.clone();
            tokio::spawn(async move { server.run_tasks().await });
        }
        let program = Program::of(seed, Version::Old);
        Ok(Self {
            servers,
            connections,
            faults,
            world,
            program,
            start,
            random,
            garbled,
            cuts,
            requests: 0,
            faulty: 0,
            asked: BTreeMap::new(),
            was_garbled: BTreeSet::new(),
        })
    }

    async fn run(&mut self, report: &mut Report) -> Result<(), String> {
        let expected = self.program.expected(None);
        if self.start == Start::Immediately {
            self.world.became_task(self.program.seed);
        }
        let mut state: Option<Value> = None;
        let mut answers = Map::new();
        let result = loop {
            let mut params = json!({
                "name": "program",
                "arguments": { "seed": self.program.seed.to_string() },
            });
            if let (Some(params), Some(state)) = (params.as_object_mut(), &state) {
                params.insert("requestState".to_owned(), state.clone());
                params.insert("inputResponses".to_owned(), answers.clone().into());
            }
            let with_state = state.is_some();
            self.faults.may_lose_creation.store(with_state, Ordering::Relaxed);
            let Some(result) = self.send("tools/call", params, with_state).await? else { continue };
            match result.get("resultType").and_then(Value::as_str) {
                Some("task") => {
                    report.tasks += 1;
                    self.world.became_task(self.program.seed);
                    let id = result.get("taskId").and_then(Value::as_str).unwrap_or_default();
                    break self.follow(id).await?;
                }
                Some("input_required") => {
                    report.rounds += 1;
                    state = result.get("requestState").cloned();
                    let all = result.get("inputRequests").and_then(Value::as_object).cloned();
                    answers.clear();
                    for (key, request) in all.into_iter().flatten() {
                        let (_, answer) = self.answer_to(&request)?;
                        answers.insert(key, answer);
                    }
                }
                _ => break result,
            }
        };
        check_outcome(&expected, &result)?;
        self.check(&expected, report)
    }

    /// Polls a task, and answers its questions, until it ends. Returns its result.
    async fn follow(&mut self, id: &str) -> Result<Value, String> {
        let mut answers: BTreeMap<String, Value> = BTreeMap::new();
        loop {
            tokio::time::sleep(Duration::from_millis(self.random.below(1_500))).await;
            let Some(task) = self.send("tasks/get", json!({ "taskId": id }), true).await? else {
                continue;
            };
            let requests = match task.get("status").and_then(Value::as_str) {
                Some("working") => continue,
                Some("input_required") => task.get("inputRequests").and_then(Value::as_object),
                Some("completed") => return Ok(task.get("result").cloned().unwrap_or_default()),
                other => return Err(format!("the task is {other:?}: {task}")),
            };
            let mut some = Map::new();
            let requests: Vec<_> = requests.into_iter().flatten().collect();
            for (key, request) in requests {
                if !answers.contains_key(key) {
                    let (_, answer) = self.answer_to(request)?;
                    answers.insert(key.clone(), answer);
                }
                // A part of the answers may come later.
                if let Some(answer) = answers.get(key)
                    && self.random.below(3) > 0
                {
                    some.insert(key.clone(), answer.clone());
                }
            }
            if some.is_empty() {
                continue;
            }
            let update =
                |answers: &Map<String, Value>| json!({ "taskId": id, "inputResponses": answers });
            if self.send("tasks/update", update(&some), true).await?.is_none() {
                // It is sent again, with the same answers, if they are still required.
                continue;
            }
            if self.random.below(4) == 0 {
                some.values_mut().for_each(|answer| *answer = accept(json!({ "n": 1_000_000 })));
                self.send("tasks/update", update(&some), true).await?;
            }
        }
    }

    /// Answers a question, and counts it. A question is asked again only after an answer of another
    /// type.
    fn answer_to(&mut self, request: &Value) -> Result<(String, Value), String> {
        let message = request.pointer("/params/message").and_then(Value::as_str);
        // Without the reason that a repeated question adds.
        let message = message.and_then(|message| message.lines().next());
        let message = message.ok_or("a question without a message")?.to_owned();
        let times = self.asked.entry(message.clone()).or_default();
        *times += 1;
        if *times > 1 && !self.was_garbled.remove(&message) {
            return Err(format!("{message} is asked again"));
        }
        let content = if self.random.below(100) < self.garbled {
            self.was_garbled.insert(message.clone());
            json!({ "n": "many" })
        } else {
            json!({ "n": self.program.answer(&message) })
        };
        Ok((message, accept(content)))
    }

    /// Sends a request to a random replica. `None`: it did not reach the store, or the response was
    /// lost.
    async fn send(
        &mut self,
        method: &'static str,
        mut params: Value,
        with_state: bool,
    ) -> Result<Option<Value>, String> {
        self.requests += 1;
        if self.requests > MAX_REQUESTS {
            return Err("the call does not end".to_owned());
        }
        let replica = usize::try_from(self.random.below(REPLICAS as u64)).unwrap_or_default();
        // At the end, everything is well.
        let cuts = if self.requests < 200 { self.cuts } else { 0 };
        for connection in &self.connections {
            if self.random.below(100) < cuts {
                connection.cut(self.random.below(2) == 0);
                self.faulty += 1;
            } else if cuts == 0 {
                connection.cut(false);
            }
        }
        let meta = json!({
            "io.modelcontextprotocol/protocolVersion": "2026-07-28",
            "io.modelcontextprotocol/clientCapabilities": {
                "elicitation": {},
                "extensions": { "io.modelcontextprotocol/tasks": {} },
            },
        });
        if let Some(params) = params.as_object_mut() {
            params.insert("_meta".to_owned(), meta);
        }
        let params = Params::new(&params).map_err(|error| error.to_string())?;
        let request = Request::new(RequestId::Number(1), method, Some(params));
        let with_state = with_state || self.start == Start::Immediately;
        let mark = RequestMark { number: self.requests, with_state };
        let server = self.servers.get(replica).ok_or("no replica")?.clone();
        let server = InProcess::new(server).with_extension(mark).with_extension(tokens::all());
        let response = server.send(OutgoingRequest::new(request)).await;
        let outcome = response.map_err(|error| error.to_string())?.outcome;
        let result = match outcome {
            Ok(result) => serde_json::from_str(result.get()).map_err(|error| error.to_string())?,
            Err(error) => {
                let unavailable = json!({ "reason": "task_store_unavailable" });
                if error.data == Some(unavailable) {
                    self.faulty += 1;
                    return Ok(None);
                }
                return Err(format!("{method}: {error:?}"));
            }
        };
        if self.cuts > 0 && with_state && method != "tools/call" && self.random.below(10) == 0 {
            return Ok(None);
        }
        Ok(Some(result))
    }

    fn check(&self, expected: &Expected, report: &mut Report) -> Result<(), String> {
        let all: BTreeSet<String> =
            expected.rounds.iter().flatten().map(|key| format!("{key}?")).collect();
        if !self.asked.keys().eq(&all) {
            return Err(format!("the call asked {:?}, expected {all:?}", self.asked.keys()));
        }
        let faults = self.faulty + u64::from(self.faults.count.load(Ordering::Relaxed));
        let runs = self.world.take(self.program.seed).runs;
        report.calls += 1;
        report.requests += self.requests;
        report.questions += self.asked.len() as u64;
        report.faults += faults;
        report.runs += runs.len() as u64;
        let mut of: BTreeMap<&String, Vec<_>> = BTreeMap::new();
        for run in &runs {
            of.entry(&run.key).or_default().push(run);
        }
        for (key, runs) in &of {
            let keys: BTreeSet<_> =
                runs.iter().filter_map(|run| run.idempotency_key.as_ref()).collect();
            let fails = expected.failing.contains(key);
            if keys.len() > 1 && !fails {
                return Err(format!("{key} has {} idempotency keys", keys.len()));
            }
            if runs.iter().any(|run| run.is_repeated) {
                return Err(format!("{key} ran again after its result was used"));
            }
            if faults == 0 && runs.len() > 1 && !fails {
                return Err(format!("{key} ran {} times although nothing failed", runs.len()));
            }
            if !fails && !expected.steps.contains(key) {
                return Err(format!("{key} ran, which is not a step of the handler"));
            }
        }
        let missing = expected.steps.iter().find(|step| !of.contains_key(step));
        missing.map_or(Ok(()), |step| Err(format!("{step} did not run")))
    }
}

/// Starts a replica.
fn replica(world: &World, start: Start, store: Connection) -> Result<Server, String> {
    let secret: Vec<u8> = (0..32).collect();
    let secret = Secret::from_bytes(&secret).map_err(|error| error.to_string())?;
    let ring = KeyRing::builder("https://simulation.example").active(secret).build();
    let ring = ring.map_err(|error| error.to_string())?;
    let policy = match start {
        Start::Immediately => TaskPolicy::immediately(),
        Start::Detach => TaskPolicy::on_detach(),
        Start::After(time) => TaskPolicy::after(time),
    };
    let world = world.clone();
    let tool = Tool::new("program", "Runs a random program", move |cx: Context, args: Args| {
        let world = world.clone();
        async move {
            let program = Program::of(args.seed.parse().unwrap_or_default(), Version::Old);
            let program = if start == Start::Detach { program.detaching() } else { program };
            let value = program.run(&cx, &world).await?;
            Ok::<_, mrtr_server::Error>(value.to_string())
        }
    });
    let server = Server::builder("simulation", "1").allow_anonymous().key_ring(ring);
    let server = server.task_store(store).task_lease(Duration::from_secs(5));
    server.tool(tool.task(policy).max_rounds(1_000)).build().map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_keep_the_guarantees_of_tasks() {
        for carrier in [Carrier::Store, Carrier::HandOver] {
            let report = simulate_tasks(carrier, 0, 500, &AtomicU64::new(0));
            let report = report.map_err(|failure| failure.to_string()).unwrap();
            let are_tasks = report.tasks > 100;
            assert!(report.calls == 500 && are_tasks && report.faults > 500, "{report:?}");
        }
    }
}
