//! Calls in a dialect, with lost, repeated and incomplete messages.
//!
//! Each message goes to any of two replicas, which share a key ring and a task store. Requests and
//! responses are lost, requests arrive twice, answers are left out, and answers to questions that
//! do not exist are added. In the dialects with tasks, half of the calls are tasks from their
//! beginning. Checked for each call:
//!
//! - Its result is that of its handler without rounds, so no answer was used for another question.
//! - Every question is asked. Without faults, the rounds are those of the handler, and no question
//!   is asked twice.
//! - A step runs at most once per received request, and exactly once without faults. All runs after
//!   the first state have one idempotency key. No other step runs.
//! - A step of a task runs once.
//! - A call that is too long for an event id ends with the error that says so.

mod client;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use mrtr_dialects::{Dialect, DialectEndpoint};
use mrtr_server::tasks::{MemoryTaskStore, TaskPolicy};
use mrtr_server::{KeyRing, Secret, Server};
use serde_json::{Value, json};

use client::{Answers, Client, Reply};

use super::program::{Expected, Program, Version, mix};
use super::world::{RequestMark, Run, World};
use super::{Failure, Report, accept, check_outcome, for_each_seed, tool};
use crate::random::Random;

/// The largest number of requests of a call.
const MAX_REQUESTS: u64 = 2_000;

/// Simulates calls in a dialect, as [`simulate`](super::simulate) does those of rounds.
///
/// # Errors
///
/// The first call that violates a guarantee.
pub fn simulate_wire(
    dialect: Dialect,
    seed: u64,
    calls: u64,
    done: &AtomicU64,
) -> Result<Report, Box<Failure>> {
    for_each_seed(seed..seed.saturating_add(calls), done, &async |seed, report| {
        let mut call = Call::new(dialect, seed)?;
        let outcome = call.run(report).await;
        call.servers.iter().for_each(Server::begin_shutdown);
        outcome
    })
}

fn replica(world: &World, store: &Arc<MemoryTaskStore>, is_task: bool) -> Result<Server, String> {
    let secret: Vec<u8> = (0..32).collect();
    let secret = Secret::from_bytes(&secret).map_err(|error| error.to_string())?;
    let ring = KeyRing::builder("https://simulation.example").active(secret).build();
    let ring = ring.map_err(|error| error.to_string())?;
    let mut tool = tool(world, Version::Old).max_rounds(1_000);
    if is_task {
        tool = tool.task(TaskPolicy::immediately());
    }
    let server = Server::builder("simulation", "1").allow_anonymous().key_ring(ring);
    let server = server.task_store(Arc::clone(store)).tool(tool);
    server.build().map_err(|error| error.to_string())
}

struct Call {
    dialect: Dialect,
    servers: Vec<Server>,
    endpoints: Vec<DialectEndpoint<Server>>,
    world: World,
    program: Program,
    is_task: bool,
    random: Random,
    /// Percentage of messages with a fault.
    faults: u64,
    client: Client,
    requests: u64,
    faulty: u64,
    asked: BTreeMap<String, u64>,
    rounds: Vec<BTreeSet<String>>,
}

/// How a call has ended.
enum Ended {
    Result(Value),
    /// The state does not fit into an event id.
    TooLong,
}

impl Call {
    fn new(dialect: Dialect, seed: u64) -> Result<Self, String> {
        let mut random = Random::new(mix(seed, 5));
        let has_tasks = !matches!(dialect, Dialect::Dependent);
        let is_task = has_tasks && random.below(2) == 0;
        let faults = if random.below(2) == 0 { 0 } else { random.below(40) };
        let (world, store) = (World::default(), Arc::new(MemoryTaskStore::new(100)));
        let servers: Vec<Server> =
            (0..2).map(|_| replica(&world, &store, is_task)).collect::<Result<_, _>>()?;
        for server in servers.iter().filter(|_| is_task) {
            let server = server.clone();
            tokio::spawn(async move { server.run_tasks().await });
        }
        let endpoints = servers
            .iter()
            .map(|server| DialectEndpoint::new(dialect, server.clone(), server.sealer()))
            .collect();
        Ok(Self {
            dialect,
            servers,
            endpoints,
            world,
            program: Program::of(seed, Version::Old),
            is_task,
            random,
            faults,
            client: Client::new(dialect, seed, is_task),
            requests: 0,
            faulty: 0,
            asked: BTreeMap::new(),
            rounds: Vec::new(),
        })
    }

    async fn run(&mut self, report: &mut Report) -> Result<(), String> {
        let expected = self.program.expected(None);
        let ended = self.follow().await?;
        let history = self.world.take(self.program.seed);
        report.calls += 1;
        report.requests += self.requests;
        report.faults += self.faulty;
        report.questions += self.asked.len() as u64;
        report.rounds += self.rounds.len() as u64;
        report.runs += history.runs.len() as u64;
        report.tasks += u64::from(self.is_task);
        match ended {
            Ended::TooLong if self.dialect == Dialect::MultiTurnSse && !self.is_task => {
                report.lost += 1;
                Ok(())
            }
            Ended::TooLong => Err("a call failed that needs no event id".to_owned()),
            Ended::Result(result) => {
                self.check(&expected, &result)?;
                self.check_steps(&expected, &history.runs)
            }
        }
    }

    /// Runs the call to its end.
    async fn follow(&mut self) -> Result<Ended, String> {
        let mut answers = None;
        loop {
            let reply = self.exchange(answers.take()).await?;
            match reply {
                Reply::Result(result) => return Ok(Ended::Result(result)),
                Reply::TooLong => return Ok(Ended::TooLong),
                // The next message asks for questions, or for the result.
                Reply::Nothing => {}
                Reply::Questions(questions) => {
                    self.rounds.push(questions.iter().cloned().collect());
                    let mut all = Answers::default();
                    for message in questions {
                        *self.asked.entry(message.clone()).or_default() += 1;
                        if self.is_fault() {
                            continue;
                        }
                        let answer = accept(json!({ "n": self.program.answer(&message) }));
                        all.given.push((message, answer));
                    }
                    all.has_poison = self.random.below(3) == 0;
                    answers = Some(all);
                }
            }
        }
    }

    fn is_fault(&mut self) -> bool {
        let is_fault = self.random.below(100) < self.faults;
        self.faulty += u64::from(is_fault);
        is_fault
    }

    /// Sends the next message, with faults, and returns what the client reads.
    async fn exchange(&mut self, answers: Option<Answers>) -> Result<Reply, String> {
        let request = self.client.request(answers)?;
        // Another first request of a task is another task.
        while !self.client.is_first_of_task() && self.is_fault() {
            // The response is lost; or, if it is not read, the request has arrived twice.
            self.send(&request).await?;
        }
        let response = self.send(&request).await?;
        self.client.read(response)
    }

    async fn send(&mut self, request: &client::Request) -> Result<client::Response, String> {
        self.requests += 1;
        if self.requests > MAX_REQUESTS {
            return Err("the call does not end".to_owned());
        }
        let at = usize::try_from(self.random.below(2)).unwrap_or_default();
        let endpoint = self.endpoints.get(at).ok_or("no replica")?.clone();
        let mark = RequestMark { number: self.requests, with_state: request.has_state };
        request.send(endpoint, mark).await
    }

    fn check(&self, expected: &Expected, result: &Value) -> Result<(), String> {
        check_outcome(expected, result)?;
        let message = |key: &String| format!("{key}?");
        let all: BTreeSet<String> = expected.rounds.iter().flatten().map(message).collect();
        if !self.asked.keys().eq(&all) {
            return Err(format!("the call asked {:?}, expected {all:?}", self.asked.keys()));
        }
        if self.faulty > 0 || self.is_task {
            return Ok(());
        }
        let rounds: Vec<BTreeSet<String>> =
            expected.rounds.iter().map(|keys| keys.iter().map(message).collect()).collect();
        if self.rounds != rounds {
            return Err(format!("the rounds are {:?}, expected {rounds:?}", self.rounds));
        }
        Ok(())
    }

    fn check_steps(&self, expected: &Expected, runs: &[Run]) -> Result<(), String> {
        let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
        let mut per_request = BTreeSet::new();
        let mut idempotency_keys: BTreeMap<&str, &String> = BTreeMap::new();
        for run in runs {
            let key = run.key.as_str();
            if expected.failing.iter().any(|step| step == key) {
                continue;
            }
            if !expected.steps.iter().any(|step| step == key) {
                return Err(format!("{key} ran, which is not a step of the handler"));
            }
            *counts.entry(key).or_default() += 1;
            if !self.is_task && !per_request.insert((key, run.request)) {
                return Err(format!("{key} ran twice in one request"));
            }
            if let Some(one) = &run.idempotency_key
                && idempotency_keys.insert(key, one).is_some_and(|other| other != one)
            {
                return Err(format!("{key} ran with several idempotency keys"));
            }
        }
        let is_once = self.is_task || self.faulty == 0;
        match counts.iter().find(|(_, count)| is_once && **count > 1) {
            Some((key, count)) => Err(format!("{key} ran {count} times")),
            None => {
                let missing =
                    expected.steps.iter().find(|step| !counts.contains_key(step.as_str()));
                missing.map_or(Ok(()), |step| Err(format!("{step} did not run")))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_keep_the_guarantees_in_every_dialect() {
        for dialect in Dialect::ALL.iter().copied() {
            let report = simulate_wire(dialect, 0, 200, &AtomicU64::new(0));
            let report = report.map_err(|failure| failure.to_string()).unwrap();
            assert!(
                report.calls == 200
                    && report.faults > 40
                    && report.questions > 200
                    && report.lost < 20
                    && (report.tasks > 50 || dialect == Dialect::Dependent),
                "{dialect}: {report:?}"
            );
        }
    }
}
