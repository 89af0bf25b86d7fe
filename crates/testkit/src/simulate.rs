//! Random handlers, random faults: what rounds promise, checked over many flows. A seed brings a flow back.
//!
//! Checked for each flow, whose every leg goes to another replica while the key ring is rotated:
//!
//! - It comes to what its handler comes to without rounds, and so no answer went to another question.
//! - Every question is asked once, in the first round in which it can be asked, together with all others that can.
//! - A step runs at most once for each request received, and exactly once if no request was lost or sent twice; and
//!   nothing is done that the handler does not do.
//! - All runs of a step after the first state have one idempotency key.
//! - Answers to what was not asked change nothing; answers of another type are asked for again.
//! - If the handler is replaced in between by one that asks otherwise, for some requests or for ever by turns, then every question is
//!   asked once in each wording, and the call comes to what
//!   the version that ends it comes to without rounds, and so to nothing that was answered to another wording; or it ends
//!   because of the change, if a step was done before.

mod network;
mod program;
mod world;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use mrtr_codec::RingError;
use mrtr_schema::elicitation::ElicitResult;
use mrtr_server::{Context, KeyRing, Secret, Server, SharedKeyRing, Tool};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Map, Value, json};

use network::Upgrade;
use program::{Expected, Program, Version, mix};
use world::World;

use crate::TestClock;
use crate::random::Random;

/// What was simulated.
#[derive(Debug, Default, Clone, Copy)]
pub struct Report {
    /// Calls from their first request to their result.
    pub flows: u64,
    /// Requests that a server received.
    pub requests: u64,
    /// Rounds that ended with questions.
    pub rounds: u64,
    /// Questions that were asked, each by the first response that did.
    pub questions: u64,
    /// Runs of steps.
    pub runs: u64,
    /// Responses that were lost, requests that were cut off, sent twice, or sent late.
    pub faults: u64,
    /// The most rounds of a flow.
    pub most_rounds: u64,
    /// Flows whose handler was replaced in between by one that asks or does something else.
    pub upgraded: u64,
    /// How many of them ended because of that.
    pub ended_by_upgrade: u64,
}

/// A flow that did not come to what it should.
#[derive(Debug)]
pub struct Failure {
    /// Brings it back: `simulate` with one flow and this seed.
    pub seed: u64,
    /// What the handler does.
    pub program: String,
    /// What went wrong.
    pub why: String,
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "seed {}: {}\nthe handler: {}", self.seed, self.why, self.program)
    }
}

impl std::error::Error for Failure {}

/// Simulates flows with the seeds `seed`, `seed + 1` and so on, as many as `flows`, on this thread. `done` counts them.
///
/// # Errors
///
/// The first flow that breaks a promise.
pub fn simulate(seed: u64, flows: u64, done: &AtomicU64) -> Result<Report, Box<Failure>> {
    let failed = |seed, why: String| {
        let program = format!("{:?}", Program::of(seed, Version::Old));
        Box::new(Failure { seed, program, why })
    };
    // Its clock goes on when all wait for it.
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build();
    let runtime = runtime.map_err(|error| failed(seed, error.to_string()))?;
    let fleet = Fleet::new().map_err(|why| failed(seed, why))?;
    let mut report = Report::default();
    for seed in seed..seed.saturating_add(flows) {
        let outcome = runtime.block_on(Flow::new(&fleet, seed).run(&mut report));
        outcome.map_err(|why| failed(seed, why))?;
        done.fetch_add(1, Ordering::Relaxed);
    }
    Ok(report)
}

/// Replicas in each phase of a rotation of keys.
struct Fleet {
    /// The old version's, and the new one's.
    phases: Vec<[Vec<Server>; 2]>,
    world: World,
    /// Whether the replicas have too much to do.
    overloaded: Arc<AtomicBool>,
}

#[derive(Deserialize, JsonSchema)]
struct Args {
    seed: String,
}

impl Fleet {
    fn new() -> Result<Self, String> {
        let (world, clock) = (World::default(), TestClock::default());
        let overloaded = Arc::new(AtomicBool::new(false));
        let secret = |first: u8| Secret::from_bytes(&(first..first + 32).collect::<Vec<_>>());
        let (old, new) = (secret(0), secret(1));
        let (Ok(old), Ok(new)) = (old, new) else { return Err("no secrets".to_owned()) };
        let start = || KeyRing::builder("https://simulation.example");
        let rings = [
            start().active(old.clone()).build(),
            start().active(old.clone()).staged(new.clone()).build(),
            start().active(new.clone()).retiring(old).build(),
            start().active(new).build(),
        ];
        let replica = |ring: &SharedKeyRing, version: Version| {
            let in_world = world.clone();
            let tool =
                Tool::new("program", "Runs a random program", move |cx: Context, args: Args| {
                    let world = in_world.clone();
                    async move {
                        let program = Program::of(args.seed.parse().unwrap_or_default(), version);
                        let learned = program.run(&cx, &world).await?;
                        Ok::<_, mrtr_server::Error>(learned.to_string())
                    }
                });
            let server = Server::builder("simulation", "1")
                .ephemeral_key()
                .allow_anonymous()
                .clock(clock.clone());
            let overloaded = Arc::clone(&overloaded);
            let server = server.shed_load_when(move || overloaded.load(Ordering::Relaxed));
            server.sealer(ring.clone()).tool(tool).build().map_err(|error| error.to_string())
        };
        let phase = |ring: Result<KeyRing, RingError>| {
            let ring = SharedKeyRing::new(ring.map_err(|error| error.to_string())?);
            let two =
                |version| Ok::<_, String>(vec![replica(&ring, version)?, replica(&ring, version)?]);
            Ok([two(Version::Old)?, two(Version::New)?])
        };
        let phases = rings.into_iter().map(phase).collect::<Result<_, String>>()?;
        Ok(Self { phases, world: world.clone(), overloaded: Arc::clone(&overloaded) })
    }
}

/// One call, its client, and what goes wrong on the way.
struct Flow<'f> {
    fleet: &'f Fleet,
    old: Program,
    new: Program,
    upgrade: Option<Upgrade>,
    random: Random,
    /// How many in a hundred requests meet a fault.
    faults: u64,
    /// How many in a hundred answers are of another type.
    garbled: u64,
    /// How many in a hundred requests come to a replica that is overloaded.
    overloaded: u64,
    phase: u64,
    requests: u64,
    faulty: u64,
}

impl<'f> Flow<'f> {
    fn new(fleet: &'f Fleet, seed: u64) -> Self {
        let mut random = Random::new(mix(seed, 1));
        let faults = if random.below(2) == 0 { 0 } else { random.below(60) };
        let garbled = if random.below(4) == 0 { 20 } else { 0 };
        let overloaded = if random.below(4) == 0 { 50 } else { 0 };
        let phase = random.below(fleet.phases.len() as u64);
        let (old, new) = (Program::of(seed, Version::Old), Program::of(seed, Version::New));
        let from = 2 + random.below(4);
        let mixed = if random.below(3) == 0 { u64::MAX / 2 } else { random.below(4) };
        let upgrade = (random.below(4) == 0).then_some(Upgrade { from, mixed });
        Self {
            fleet,
            old,
            new,
            upgrade,
            random,
            faults,
            garbled,
            overloaded,
            phase,
            requests: 0,
            faulty: 0,
        }
    }

    async fn run(mut self, report: &mut Report) -> Result<(), String> {
        let (old, new) = (self.old.expected(), self.new.expected());
        let mut state: Option<String> = None;
        let mut answers = Map::new();
        let mut before: Option<(Option<String>, Map<String, Value>)> = None;
        let mut asked: BTreeMap<String, u64> = BTreeMap::new();
        // What was last answered under a key.
        let mut answered: BTreeMap<String, String> = BTreeMap::new();
        let (mut rounds, mut garbled) = (0_usize, BTreeSet::new());
        let (version, result) = loop {
            let reply = self.request(state.as_deref(), &answers, before.as_ref()).await?;
            let Some(result) = reply.result else {
                if self.upgrade.is_none() || !self.old.differs() {
                    return Err("it ended because of a change, and there was none".to_owned());
                }
                self.fleet.world.take(self.old.seed);
                report.ended_by_upgrade += 1;
                self.count(report, rounds, asked.len());
                return Ok(());
            };
            if result.get("resultType") != Some(&json!("input_required")) {
                break (reply.version, result);
            }
            let expected = if reply.version == Version::Old { &old } else { &new };
            let questions = result.get("inputRequests").and_then(Value::as_object);
            let keys: BTreeSet<String> =
                questions.into_iter().flat_map(|all| all.keys().cloned()).collect();
            let foreseen = expected.rounds.get(rounds).into_iter().flatten().cloned();
            let foreseen: BTreeSet<String> = foreseen.collect();
            if self.is_regular() && keys != foreseen {
                return Err(format!("round {rounds} asks {keys:?} and not {foreseen:?}"));
            }
            rounds += 1;
            if rounds > 500 {
                return Err("it does not come to an end".to_owned());
            }
            let token = result.get("requestState").and_then(Value::as_str);
            before = Some((state, std::mem::take(&mut answers)));
            state = Some(token.ok_or("a round without a state")?.to_owned());
            for key in keys {
                let message = result.pointer(&format!("/inputRequests/{key}/params/message"));
                let message =
                    message.and_then(Value::as_str).ok_or("a question without a message")?;
                // Without the reason why it is asked again.
                let message = message.lines().next().unwrap_or_default();
                let again = asked.entry(message.to_owned()).or_default();
                *again += 1;
                if *again > 1 && !garbled.remove(message) {
                    return Err(format!("{message} is asked again"));
                }
                if let Some(other) = answered.insert(key.clone(), message.to_owned())
                    && other != message
                    && let Some(step) = self.done_on(&other, [&old, &new])
                {
                    return Err(format!(
                        "{message} is asked after {step} was done on the answer to {other}"
                    ));
                }
                let honest = json!({ "n": self.old.answer(message) });
                let garble = self.random.below(100) < self.garbled;
                if garble {
                    garbled.insert(message.to_owned());
                }
                let content = if garble { json!({ "n": "many" }) } else { honest };
                answers.insert(key, accept(content));
            }
            // Answers to questions of later rounds, and to none.
            let early = expected.rounds.get(rounds).into_iter().flatten().cloned();
            for key in early.chain(["poison".to_owned()]).filter(|_| self.random.below(3) == 0) {
                answers.entry(key).or_insert_with(|| accept(json!({ "n": 1_000_000 })));
            }
        };
        let expected = if version == Version::Old { &old } else { &new };
        self.check(expected, &result, rounds, &asked)?;
        self.check_steps([&old, &new], expected, report)?;
        self.count(report, rounds, asked.len());
        Ok(())
    }

    fn count(&self, report: &mut Report, rounds: usize, questions: usize) {
        report.flows += 1;
        report.requests += self.requests;
        report.rounds += rounds as u64;
        report.questions += questions as u64;
        report.faults += self.faulty;
        report.most_rounds = report.most_rounds.max(rounds as u64);
        report.upgraded +=
            u64::from(self.upgrade.is_some_and(|upgrade| upgrade.from <= self.requests));
    }

    /// A step that was done on a later leg than the one that went on with the answer to `message`, and before this one.
    fn done_on(&self, message: &str, either: [&Expected; 2]) -> Option<String> {
        let fails = |key: &String| either.iter().any(|expected| expected.failing.contains(key));
        let past = self.fleet.world.peek(self.old.seed);
        let read = *past.read.get(message)?;
        let mut since =
            past.runs.into_iter().filter(|run| run.leg > read && run.leg < self.requests);
        since.find(|run| self.faulty == 0 && !fails(&run.key)).map(|run| run.key)
    }

    /// Whether its rounds can be foreseen.
    fn is_regular(&self) -> bool {
        self.garbled == 0 && self.overloaded == 0 && self.upgrade.is_none()
    }

    fn check(
        &self,
        expected: &Expected,
        result: &Value,
        rounds: usize,
        asked: &BTreeMap<String, u64>,
    ) -> Result<(), String> {
        let text = result.pointer("/content/0/text").and_then(Value::as_str).unwrap_or_default();
        let failed = result.get("isError") == Some(&json!(true));
        let came_to =
            if failed { Err(text.to_owned()) } else { text.parse().map_err(|_| text.to_owned()) };
        if came_to != expected.outcome {
            return Err(format!("it came to {result} and not to {:?}", expected.outcome));
        }
        if self.is_regular() && rounds != expected.rounds.len() {
            return Err(format!("it took {rounds} rounds and not {}", expected.rounds.len()));
        }
        let all: BTreeSet<String> =
            expected.rounds.iter().flatten().map(|key| format!("{key}?")).collect();
        if self.upgrade.is_none() && !asked.keys().eq(&all) {
            return Err(format!("it asked {:?} and not {all:?}", asked.keys()));
        }
        Ok(())
    }

    /// `either` of the versions may have done something.
    fn check_steps(
        &self,
        either: [&Expected; 2],
        expected: &Expected,
        report: &mut Report,
    ) -> Result<(), String> {
        let runs = self.fleet.world.take(self.old.seed).runs;
        let either = |steps: fn(&Expected) -> &Vec<String>, key: &str| {
            either.iter().any(|expected| steps(expected).iter().any(|step| step == key))
        };
        report.runs += runs.len() as u64;
        let mut of: BTreeMap<&String, Vec<_>> = BTreeMap::new();
        for run in &runs {
            of.entry(&run.key).or_default().push(run);
        }
        for (key, runs) in &of {
            let legs: BTreeSet<u64> = runs.iter().map(|run| run.leg).collect();
            if legs.len() < runs.len() {
                return Err(format!("{key} ran twice for one request"));
            }
            let keys: BTreeSet<_> =
                runs.iter().filter_map(|run| run.idempotency_key.as_ref()).collect();
            let fails = either(|expected| &expected.failing, key);
            // What fails is not recorded: more may be known when it runs again. And to another version, other answers are.
            if keys.len() > 1 && !fails && self.upgrade.is_none() {
                return Err(format!("{key} has {} idempotency keys", keys.len()));
            }
            if self.faulty == 0 && runs.len() > 1 && !fails {
                return Err(format!("{key} ran {} times though nothing was lost", runs.len()));
            }
            if !fails && !either(|expected| &expected.steps, key) {
                return Err(format!("{key} ran, which the handler does not do"));
            }
            // What was done for the other version, and is known to this one, it must not pass over.
            let passed_over = !expected.steps.contains(key) && expected.outcome.is_ok();
            if self.faulty == 0 && !fails && passed_over {
                return Err(format!(
                    "{key} was done, and the version that ended the call does not do it"
                ));
            }
        }
        let missing = expected.steps.iter().find(|step| !of.contains_key(step));
        missing.map_or(Ok(()), |step| Err(format!("{step} did not run")))
    }
}

fn accept(content: Value) -> Value {
    serde_json::to_value(ElicitResult::accept(content).ok()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thousand_flows_keep_what_rounds_promise() {
        let report = simulate(0, 1000, &AtomicU64::new(0)).map_err(|failure| failure.to_string());
        let report = report.unwrap();
        assert!(
            report.flows == 1000 && report.faults > 200 && report.questions > 1000,
            "{report:?}"
        );
    }
}
