//! Runs many calls with random handlers and random faults, and checks the guarantees of rounds. A
//! seed reproduces a call.
//!
//! Each request of a call goes to another replica, while the key ring is rotated. Checked for each
//! call:
//!
//! - Its result is that of its handler without rounds, so no answer was used for another question.
//! - Every question is asked once, in the first possible round, together with all others that are
//!   possible then.
//! - A step runs at most once per received request, and exactly once if no request was lost or sent
//!   twice. No other step runs.
//! - All runs of a step after the first state have one idempotency key.
//! - Answers without a question have no effect. Answers of another type are asked for again.
//! - Access tokens may lack scopes, and later tokens may lose them again. The client logs in and
//!   repeats its request. All of the above holds, each login costs one round at most, and a challenge
//!   names only scopes that the handler requires. No step behind a refused scope runs.
//! - The handler may be replaced by one with other questions, for some requests or alternating.
//!   Then every question is asked once per wording, and the result is that of the version that ends
//!   the call, without rounds. No answer to another wording is used. The call may end because of
//!   the change instead, if a step ran before.

mod legacy;
mod network;
mod program;
mod tasks;
mod tokens;
mod wires;
mod world;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use mrtr_codec::RingError;
use mrtr_schema::elicitation::ElicitResult;
use mrtr_server::{Context, KeyRing, Secret, Server, SharedKeyRing, Tool};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Map, Value, json};

pub use legacy::simulate_legacy;
use network::{Outcome, Sent, Upgrade};
use program::{Expected, Program, Version, mix};
pub use tasks::{Carrier, simulate_tasks};
use tokens::Tokens;
pub use wires::simulate_wire;
use world::World;

use crate::TestClock;
use crate::random::Random;

/// Counts of a simulation.
#[derive(Debug, Default, Clone, Copy)]
pub struct Report {
    /// Calls from their first request to their result.
    pub calls: u64,
    /// Requests that a server received.
    pub requests: u64,
    /// Rounds that ended with questions.
    pub rounds: u64,
    /// Questions, each counted once per wording.
    pub questions: u64,
    /// Runs of steps.
    pub runs: u64,
    /// Faults: responses that were lost, and requests that were cut off, sent twice or sent late.
    pub faults: u64,
    /// Largest number of rounds of a call.
    pub most_rounds: u64,
    /// Calls whose handler was replaced.
    pub upgraded: u64,
    /// Calls that ended because their handler was replaced.
    pub ended_by_upgrade: u64,
    /// Challenges that named missing scopes.
    pub logins: u64,
    /// Calls that ended because the user refused a scope.
    pub refused: u64,
    /// Calls of legacy clients that had nothing to resume from.
    pub lost: u64,
    /// Calls that became tasks.
    pub tasks: u64,
}

impl Report {
    /// Adds the counts of another simulation.
    pub fn add(&mut self, other: &Self) {
        self.calls += other.calls;
        self.requests += other.requests;
        self.rounds += other.rounds;
        self.questions += other.questions;
        self.runs += other.runs;
        self.faults += other.faults;
        self.upgraded += other.upgraded;
        self.ended_by_upgrade += other.ended_by_upgrade;
        self.logins += other.logins;
        self.refused += other.refused;
        self.lost += other.lost;
        self.tasks += other.tasks;
        self.most_rounds = self.most_rounds.max(other.most_rounds);
    }
}

/// A call with a wrong result.
#[derive(Debug)]
pub struct Failure {
    /// Seed that reproduces the failure: `simulate` with one call and this seed.
    pub seed: u64,
    /// The handler's program.
    pub program: String,
    /// The violated guarantee.
    pub why: String,
}

impl Failure {
    fn of(seed: u64, why: String) -> Self {
        let program = format!("{:?}", Program::of(seed, Version::Old));
        Self { seed, program, why }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "seed {}: {}\nthe handler: {}", self.seed, self.why, self.program)
    }
}

impl std::error::Error for Failure {}

/// Simulates `calls` calls with the seeds `seed`, `seed + 1` and so on, on this thread. Counts them
/// in `done`.
///
/// # Errors
///
/// The first call that violates a guarantee.
pub fn simulate(seed: u64, calls: u64, done: &AtomicU64) -> Result<Report, Box<Failure>> {
    let fleet = Fleet::new().map_err(|why| Failure::of(seed, why))?;
    for_each_seed(seed..seed.saturating_add(calls), done, &async |seed, report| {
        Call::new(&fleet, seed).run(report).await
    })
}

/// Runs one call for each seed.
fn for_each_seed(
    seeds: Range<u64>,
    done: &AtomicU64,
    run: &impl AsyncFn(u64, &mut Report) -> Result<(), String>,
) -> Result<Report, Box<Failure>> {
    // The clock of the runtime advances when all tasks wait for it.
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build();
    let runtime = runtime.map_err(|error| Failure::of(seeds.start, error.to_string()))?;
    let mut report = Report::default();
    for seed in seeds {
        runtime.block_on(run(seed, &mut report)).map_err(|why| Failure::of(seed, why))?;
        done.fetch_add(1, Ordering::Relaxed);
    }
    Ok(report)
}

/// Replicas in each phase of a key rotation.
struct Fleet {
    /// Replicas of the old version, and of the new one.
    phases: Vec<[Vec<Server>; 2]>,
    world: World,
    /// True if the replicas are overloaded.
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
            let tool = tool(&world, version);
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

/// Returns a tool that runs the program of the seed in its argument.
fn tool(world: &World, version: Version) -> Tool {
    let world = world.clone();
    Tool::new("program", "Runs a random program", move |cx: Context, args: Args| {
        let world = world.clone();
        async move {
            let program = Program::of(args.seed.parse().unwrap_or_default(), version);
            let value = program.run(&cx, &world).await?;
            Ok::<_, mrtr_server::Error>(value.to_string())
        }
    })
}

/// One call with its client and its faults.
struct Call<'f> {
    fleet: &'f Fleet,
    old: Program,
    new: Program,
    upgrade: Option<Upgrade>,
    tokens: Tokens,
    random: Random,
    /// Percentage of requests with a fault.
    faults: u64,
    /// Percentage of answers with another type.
    garbled: u64,
    /// Percentage of requests that an overloaded replica receives.
    overloaded: u64,
    phase: u64,
    requests: u64,
    faulty: u64,
}

impl<'f> Call<'f> {
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
        let tokens = Tokens::new(&mut random);
        Self {
            fleet,
            old,
            new,
            upgrade,
            tokens,
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
        let refused = self.tokens.refused.clone();
        let (old, new) = (self.old.expected(refused.clone()), self.new.expected(refused));
        let scopes = old.scopes.union(&new.scopes).cloned().collect();
        let mut state: Option<String> = None;
        let mut answers = Map::new();
        let mut before: Option<Sent> = None;
        let mut asked: BTreeMap<String, u64> = BTreeMap::new();
        // The last answered message of each key.
        let mut answered: BTreeMap<String, String> = BTreeMap::new();
        let (mut rounds, mut garbled) = (0_usize, BTreeSet::new());
        let (version, result) = loop {
            let reply = self.request(state.as_deref(), &answers, before.as_ref()).await?;
            let result = match reply.outcome {
                Outcome::Result(result) => result,
                Outcome::Changed => {
                    let was_upgraded =
                        self.upgrade.is_some_and(|upgrade| upgrade.from <= self.requests);
                    if !was_upgraded || !self.old.differs() {
                        return Err(
                            "the call ended with call_changed, but its handler did not change"
                                .to_owned(),
                        );
                    }
                    if self.fleet.world.take(self.old.seed).runs.is_empty() {
                        return Err("the call ended with call_changed, but no step ran".to_owned());
                    }
                    report.ended_by_upgrade += 1;
                    self.count(report, rounds, asked.len());
                    return Ok(());
                }
                // The same request is repeated, with the same state.
                Outcome::MissingScopes(missing) => {
                    if self.tokens.log_in(&missing, &scopes, &mut self.random)? {
                        continue;
                    }
                    let expected = if old.is_blocked { &old } else { &new };
                    self.check_steps([&old, &new], expected, report)?;
                    report.refused += 1;
                    self.count(report, rounds, asked.len());
                    return Ok(());
                }
            };
            if result.get("resultType") != Some(&json!("input_required")) {
                break (reply.version, result);
            }
            let expected = if reply.version == Version::Old { &old } else { &new };
            let questions = result.get("inputRequests").and_then(Value::as_object);
            let keys: BTreeSet<String> =
                questions.into_iter().flat_map(|all| all.keys().cloned()).collect();
            let predicted = expected.rounds.get(rounds).into_iter().flatten().cloned();
            let predicted: BTreeSet<String> = predicted.collect();
            if self.is_regular() && keys != predicted {
                return Err(format!("round {rounds} asks {keys:?}, expected {predicted:?}"));
            }
            rounds += 1;
            if rounds > 500 {
                return Err("the call does not end".to_owned());
            }
            let token = result.get("requestState").and_then(Value::as_str);
            let scopes = self.tokens.current();
            before = Some(Sent { state, answers: std::mem::take(&mut answers), scopes });
            state = Some(token.ok_or("a round without a state")?.to_owned());
            for key in keys {
                let message = result.pointer(&format!("/inputRequests/{key}/params/message"));
                let message =
                    message.and_then(Value::as_str).ok_or("a question without a message")?;
                // Without the reason that a repeated question adds.
                let message = message.lines().next().unwrap_or_default();
                let again = asked.entry(message.to_owned()).or_default();
                *again += 1;
                if *again > 1 && !garbled.remove(message) {
                    return Err(format!("{message} is asked again"));
                }
                if let Some(other) = answered.insert(key.clone(), message.to_owned())
                    && other != message
                    && let Some(step) = self.ran_after(&other, [&old, &new])
                {
                    return Err(format!(
                        "{message} is asked after step {step} ran with the answer to {other}"
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
            // Answers to questions of later rounds, and to a question that does not exist.
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
        report.calls += 1;
        report.requests += self.requests;
        report.rounds += rounds as u64;
        report.questions += questions as u64;
        report.faults += self.faulty;
        report.logins += self.tokens.logins as u64;
        report.most_rounds = report.most_rounds.max(rounds as u64);
        report.upgraded +=
            u64::from(self.upgrade.is_some_and(|upgrade| upgrade.from <= self.requests));
    }

    /// Returns a step that ran in a request after the one that used the answer to `message`, and
    /// before the current request.
    fn ran_after(&self, message: &str, either: [&Expected; 2]) -> Option<String> {
        let fails = |key: &String| either.iter().any(|expected| expected.failing.contains(key));
        let past = self.fleet.world.peek(self.old.seed);
        let read = *past.read.get(message)?;
        let mut since =
            past.runs.into_iter().filter(|run| run.request > read && run.request < self.requests);
        since.find(|run| self.faulty == 0 && !fails(&run.key)).map(|run| run.key)
    }

    /// Returns true if the rounds can be predicted.
    fn is_regular(&self) -> bool {
        self.garbled == 0
            && self.overloaded == 0
            && self.upgrade.is_none()
            && self.tokens.are_complete()
    }

    fn check(
        &self,
        expected: &Expected,
        result: &Value,
        rounds: usize,
        asked: &BTreeMap<String, u64>,
    ) -> Result<(), String> {
        check_outcome(expected, result)?;
        if self.is_regular() && rounds != expected.rounds.len() {
            return Err(format!(
                "the call took {rounds} rounds, expected {}",
                expected.rounds.len()
            ));
        }
        let most = expected.rounds.len() + self.tokens.logins;
        let is_bounded = self.garbled == 0 && self.overloaded == 0 && self.tokens.only_gain();
        if is_bounded && self.upgrade.is_none() && rounds > most {
            return Err(format!("the call took {rounds} rounds, expected at most {most}"));
        }
        let all: BTreeSet<String> =
            expected.rounds.iter().flatten().map(|key| format!("{key}?")).collect();
        if self.upgrade.is_none() && !asked.keys().eq(&all) {
            return Err(format!("the call asked {:?}, expected {all:?}", asked.keys()));
        }
        Ok(())
    }

    /// Checks the runs of steps. With an upgrade, each of the two versions may have run steps.
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
            let requests: BTreeSet<u64> = runs.iter().map(|run| run.request).collect();
            if requests.len() < runs.len() {
                return Err(format!("{key} ran twice for one request"));
            }
            let keys: BTreeSet<_> =
                runs.iter().filter_map(|run| run.idempotency_key.as_ref()).collect();
            let fails = either(|expected| &expected.failing, key);
            // A failed step is not recorded. When it runs again, more answers may be known, so its
            // idempotency key may differ. So may those of a step that ran in a lost
            // round, and whose scope was lost after it. Another version may have other answers.
            let may_differ = fails || self.upgrade.is_some() || !self.tokens.only_gain();
            if keys.len() > 1 && !may_differ {
                return Err(format!("{key} has {} idempotency keys", keys.len()));
            }
            if self.faulty == 0 && runs.len() > 1 && !fails {
                return Err(format!("{key} ran {} times although nothing was lost", runs.len()));
            }
            if !fails && !either(|expected| &expected.steps, key) {
                return Err(format!("{key} ran, which is not a step of the handler"));
            }
            // A step that ran for the other version, and that this version knows, must not be
            // skipped.
            let skipped = !expected.steps.contains(key) && expected.outcome.is_ok();
            if self.faulty == 0 && !fails && skipped {
                return Err(format!("{key} ran, but the version that ended the call skips it"));
            }
        }
        if expected.is_blocked {
            return Ok(());
        }
        let missing = expected.steps.iter().find(|step| !of.contains_key(step));
        missing.map_or(Ok(()), |step| Err(format!("{step} did not run")))
    }
}

/// Compares the result of a call with that of its handler without rounds.
fn check_outcome(expected: &Expected, result: &Value) -> Result<(), String> {
    let text = result.pointer("/content/0/text").and_then(Value::as_str).unwrap_or_default();
    let failed = result.get("isError") == Some(&json!(true));
    let outcome =
        if failed { Err(text.to_owned()) } else { text.parse().map_err(|_| text.to_owned()) };
    if outcome == expected.outcome {
        return Ok(());
    }
    Err(format!("the result is {result}, expected {:?}", expected.outcome))
}

fn accept(content: Value) -> Value {
    serde_json::to_value(ElicitResult::accept(content).ok()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thousand_calls_keep_the_guarantees_of_rounds() {
        let report = simulate(0, 1000, &AtomicU64::new(0)).map_err(|failure| failure.to_string());
        let report = report.unwrap();
        assert!(
            report.calls == 1000
                && report.faults > 200
                && report.questions > 1000
                && report.logins > 100
                && report.refused > 0,
            "{report:?}"
        );
    }
}
