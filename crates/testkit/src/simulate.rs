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

mod program;
mod random;
mod world;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::task::Poll;

use mrtr_codec::RingError;
use mrtr_schema::elicitation::ElicitResult;
use mrtr_schema::jsonrpc::{Request, RequestId, Version, raw};
use mrtr_server::{Context, KeyRing, Secret, Server, SharedKeyRing, Tool};
use mrtr_transport::{Exchange as _, InProcess, Outgoing};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Map, Value, json};

use program::{Expected, Program, mix};
use random::Random;
use world::{Leg, World};

use crate::TestClock;

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
        let program = format!("{:?}", Program::of(seed));
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
    phases: Vec<Vec<Server>>,
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
        let replica = |ring: &SharedKeyRing| {
            let in_world = world.clone();
            let tool =
                Tool::new("program", "Runs a random program", move |cx: Context, args: Args| {
                    let world = in_world.clone();
                    async move {
                        let program = Program::of(args.seed.parse().unwrap_or_default());
                        let learned = program.run(&cx, &world).await?;
                        Ok(learned.to_string())
                    }
                });
            let server = Server::builder("simulation", "1").anonymous().clock(clock.clone());
            let overloaded = Arc::clone(&overloaded);
            let server = server.overloaded(move || overloaded.load(Ordering::Relaxed));
            server.sealer(ring.clone()).tool(tool).build().map_err(|error| error.to_string())
        };
        let phase = |ring: Result<KeyRing, RingError>| {
            let ring = SharedKeyRing::new(ring.map_err(|error| error.to_string())?);
            Ok(vec![replica(&ring)?, replica(&ring)?])
        };
        let phases = rings.into_iter().map(phase).collect::<Result<_, String>>()?;
        Ok(Self { phases, world: world.clone(), overloaded: Arc::clone(&overloaded) })
    }
}

/// One call, its client, and what goes wrong on the way.
struct Flow<'f> {
    fleet: &'f Fleet,
    program: Program,
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

/// What goes wrong with a request.
#[derive(Debug, Clone, Copy)]
enum Fault {
    None,
    /// The response is lost, and the request sent again.
    Lost,
    /// It is sent twice at once.
    Twice,
    /// The client goes away in the middle, and comes again.
    Cut(u64),
    /// The request of the round before comes once more.
    Late,
}

impl<'f> Flow<'f> {
    fn new(fleet: &'f Fleet, seed: u64) -> Self {
        let mut random = Random::new(mix(seed, 1));
        let faults = if random.below(2) == 0 { 0 } else { random.below(60) };
        let garbled = if random.below(4) == 0 { 20 } else { 0 };
        let overloaded = if random.below(4) == 0 { 50 } else { 0 };
        let phase = random.below(fleet.phases.len() as u64);
        let program = Program::of(seed);
        Self { fleet, program, random, faults, garbled, overloaded, phase, requests: 0, faulty: 0 }
    }

    async fn run(mut self, report: &mut Report) -> Result<(), String> {
        let expected = self.program.expected();
        let mut state: Option<String> = None;
        let mut answers = Map::new();
        let mut before: Option<(Option<String>, Map<String, Value>)> = None;
        let mut asked: BTreeMap<String, u64> = BTreeMap::new();
        let (mut rounds, mut garbled) = (0_usize, BTreeSet::new());
        let result = loop {
            let result = self.request(state.as_deref(), &answers, before.as_ref()).await?;
            if result.get("resultType") != Some(&json!("input_required")) {
                break result;
            }
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
                let again = asked.entry(key.clone()).or_default();
                *again += 1;
                if *again > 1 && !garbled.remove(&key) {
                    return Err(format!("{key} is asked again"));
                }
                let honest = json!({ "n": self.program.answer(&key) });
                let garble = self.random.below(100) < self.garbled;
                if garble {
                    garbled.insert(key.clone());
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
        self.check(&expected, &result, rounds, &asked)?;
        self.check_steps(&expected, report)?;
        report.flows += 1;
        report.requests += self.requests;
        report.rounds += rounds as u64;
        report.questions += asked.len() as u64;
        report.faults += self.faulty;
        report.most_rounds = report.most_rounds.max(rounds as u64);
        Ok(())
    }

    /// Whether its rounds can be foreseen.
    fn is_regular(&self) -> bool {
        self.garbled == 0 && self.overloaded == 0
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
        let all: BTreeSet<&String> = expected.rounds.iter().flatten().collect();
        if !asked.keys().eq(all.iter().copied()) {
            return Err(format!("it asked {:?} and not {all:?}", asked.keys()));
        }
        Ok(())
    }

    fn check_steps(&self, expected: &Expected, report: &mut Report) -> Result<(), String> {
        let runs = self.fleet.world.take(self.program.seed);
        report.runs += runs.len() as u64;
        let mut of: BTreeMap<&str, Vec<_>> = BTreeMap::new();
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
            let fails = expected.failing.iter().any(|failing| failing == key);
            // What fails is not recorded: more may be known when it runs again.
            if keys.len() > 1 && !fails {
                return Err(format!("{key} has {} idempotency keys", keys.len()));
            }
            if self.faulty == 0 && runs.len() > 1 && !fails {
                return Err(format!("{key} ran {} times though nothing was lost", runs.len()));
            }
            if !fails && !expected.steps.iter().any(|step| step == key) {
                return Err(format!("{key} ran, which the handler does not do"));
            }
        }
        let missing = expected.steps.iter().find(|step| !of.contains_key(step.as_str()));
        missing.map_or(Ok(()), |step| Err(format!("{step} did not run")))
    }

    /// Sends a request, whatever goes wrong, until there is a response.
    async fn request(
        &mut self,
        state: Option<&str>,
        answers: &Map<String, Value>,
        before: Option<&(Option<String>, Map<String, Value>)>,
    ) -> Result<Value, String> {
        let fault = match self.random.below(100) {
            n if n >= self.faults => Fault::None,
            _ => match self.random.below(4) {
                0 => Fault::Lost,
                1 => Fault::Twice,
                2 => Fault::Cut(self.random.below(12)),
                _ => Fault::Late,
            },
        };
        self.faulty += u64::from(!matches!(fault, Fault::None));
        match fault {
            Fault::None => {}
            Fault::Lost => drop(self.leg(state, answers).await?),
            Fault::Twice => {
                let both = (self.leg(state, answers), self.leg(state, answers));
                let (one, other) = futures_util::future::join(both.0, both.1).await;
                return if self.random.below(2) == 0 { one } else { other };
            }
            Fault::Cut(polls) => cut(self.leg(state, answers), polls).await,
            Fault::Late => {
                if let Some((state, answers)) = before {
                    drop(self.leg(state.as_deref(), answers).await?);
                }
            }
        }
        self.leg(state, answers).await
    }

    /// One request to some replica of the phase, or of the next.
    fn leg(
        &mut self,
        state: Option<&str>,
        answers: &Map<String, Value>,
    ) -> impl Future<Output = Result<Value, String>> + use<> {
        self.requests += 1;
        let overloaded = self.random.below(100) < self.overloaded;
        self.fleet.overloaded.store(overloaded, Ordering::Relaxed);
        let leg = Leg { number: self.requests, with_state: state.is_some() };
        let phase = self.phase + self.random.below(2);
        let phase = self.fleet.phases.get(usize::try_from(phase).unwrap_or_default());
        let phase = phase.or(self.fleet.phases.last());
        let replica = usize::try_from(self.random.below(2)).unwrap_or_default();
        let server = phase.and_then(|replicas| replicas.get(replica)).cloned();
        let mut params = json!({
            "name": "program",
            "arguments": { "seed": self.program.seed.to_string() },
            "_meta": {
                "io.modelcontextprotocol/protocolVersion": "2026-07-28",
                "io.modelcontextprotocol/clientCapabilities": { "elicitation": {} },
            },
        });
        if let (Some(params), Some(state)) = (params.as_object_mut(), state) {
            params.insert("requestState".to_owned(), state.into());
            params.insert("inputResponses".to_owned(), answers.clone().into());
        }
        async move {
            let server = InProcess::new(server.ok_or("no replica")?).with(leg);
            let request = Request {
                jsonrpc: Version,
                id: RequestId::Number(1),
                method: "tools/call".to_owned(),
                params: Some(raw(&params).map_err(|error| error.to_string())?),
            };
            let response = server.exchange(Outgoing::new(request)).await;
            let outcome = response.map_err(|error| error.to_string())?.outcome;
            let result = outcome.map_err(|error| format!("{error:?}"))?;
            serde_json::from_str(result.get()).map_err(|error| error.to_string())
        }
    }
}

fn accept(content: Value) -> Value {
    serde_json::to_value(ElicitResult::accept(content).ok()).unwrap_or_default()
}

/// Polls a future some times, and drops it.
async fn cut<T>(future: impl Future<Output = T>, polls: u64) {
    let mut future = pin!(future);
    for _ in 0..polls {
        let mut ready = false;
        std::future::poll_fn(|cx| {
            ready = future.as_mut().poll(cx).is_ready();
            Poll::Ready(())
        })
        .await;
        if ready {
            return;
        }
        tokio::task::yield_now().await;
    }
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
