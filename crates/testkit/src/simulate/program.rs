//! Random handlers, and their expected results.

use std::collections::BTreeSet;
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::time::Duration;

use futures_util::future::join_all;
use mrtr_server::{Context, Error};
use mrtr_transport::GrantedScopes;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::tokens;
use super::world::World;
use crate::random::Random;

/// A part of a handler.
#[derive(Debug, Clone)]
pub(super) enum Node {
    /// Asks a question, after yielding to other tasks `yields` times.
    Ask { key: u32, yields: u8, spawned: bool, differs: Differs },
    /// Has a side effect, which takes some time.
    Step(Step),
    /// Ends the round without a question.
    Checkpoint { key: u32 },
    /// Requires a scope of the access token.
    Scope(u64),
    /// Runs parts concurrently.
    Join(Vec<Vec<Node>>),
    /// Runs one of two parts, depending on the value computed so far.
    Branch(Vec<Node>, Vec<Node>),
    /// Runs a part one to three times, depending on the value computed so far. Keys contain the
    /// number.
    Loop(Vec<Node>),
}

impl Node {
    /// Returns the number of keys, this node's own included.
    fn keys(&self) -> u64 {
        let sum = |nodes: &[Self]| nodes.iter().map(Self::keys).sum::<u64>();
        1 + match self {
            Self::Join(parts) => parts.iter().map(|part| sum(part)).sum(),
            Self::Branch(one, other) => sum(one) + sum(other),
            Self::Loop(body) => sum(body),
            Self::Ask { .. } | Self::Step(_) | Self::Checkpoint { .. } | Self::Scope(_) => 0,
        }
    }

    fn differs(&self) -> bool {
        let any = |nodes: &[Self]| nodes.iter().any(Self::differs);
        match self {
            Self::Ask { differs, .. } | Self::Step(Step { differs, .. }) => {
                *differs != Differs::Not
            }
            Self::Checkpoint { .. } | Self::Scope(_) => false,
            Self::Join(parts) => parts.iter().any(|part| any(part)),
            Self::Branch(one, other) => any(one) || any(other),
            Self::Loop(body) => any(body),
        }
    }
}

#[derive(Debug, Clone, Copy)]
pub(super) struct Step {
    key: u32,
    takes: Takes,
    fails: bool,
    records_errors: bool,
    after_checkpoint: bool,
    differs: Differs,
}

/// The difference of a part between the two versions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Differs {
    Not,
    /// The question has another message.
    Worded,
    /// Only this version has the part.
    Only(Version),
}

/// A version of a handler.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Version {
    Old,
    New,
}

impl Differs {
    fn is_in(self, version: Version) -> bool {
        !matches!(self, Self::Only(only) if only != version)
    }
}

/// The duration of a step.
#[derive(Debug, Clone, Copy)]
pub(super) enum Takes {
    /// A number of polls. The step is ready again at once.
    Polls(u8),
    /// A time in which nothing wakes a task.
    Milliseconds(Duration),
}

/// A random handler.
#[derive(Clone)]
pub(super) struct Program {
    pub(super) seed: u64,
    pub(super) version: Version,
    /// The question or step before which the handler turns the call into a task, if the client can
    /// follow tasks.
    pub(super) detaches_at: Option<u32>,
    nodes: Vec<Node>,
}

/// The answer to a question.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
pub(super) struct Number {
    pub(super) n: u32,
}

impl Program {
    pub(super) fn of(seed: u64, version: Version) -> Self {
        let mut random = Random::new(seed);
        let mut keys = 0;
        let length = random.below(4) + 1;
        let nodes = nodes(&mut random, &mut keys, length, 3);
        Self { seed, version, detaches_at: None, nodes }
    }

    /// Lets the handler turn the call into a task at a random point.
    pub(super) fn detaching(mut self) -> Self {
        let mut random = Random::new(mix(self.seed, 2));
        let keys = self.nodes.iter().map(Node::keys).sum::<u64>();
        self.detaches_at = u32::try_from(random.below(keys) + 1).ok();
        self
    }

    async fn detach_at(&self, key: u32, cx: &Context) -> Result<(), Error> {
        if self.detaches_at == Some(key) { cx.detach().await } else { Ok(()) }
    }

    /// Returns true if the two versions differ.
    pub(super) fn differs(&self) -> bool {
        self.nodes.iter().any(Node::differs)
    }

    /// Returns the message of a question.
    fn message(&self, key: &str, differs: Differs) -> String {
        let other = self.version == Version::New && differs == Differs::Worded;
        format!("{key}{}", if other { ", please?" } else { "?" })
    }

    /// Returns the honest answer to a question. Another wording has another answer.
    pub(super) fn answer(&self, message: &str) -> u32 {
        u32::try_from(mix(self.seed, text_hash(message)) % 1000).unwrap_or_default()
    }

    /// Returns the result of a step.
    pub(super) fn result(&self, key: &str) -> u64 {
        mix(self.seed ^ 0x5a5a, text_hash(key)) % 1000
    }

    /// Computes the expected result without rounds. The handler does not get beyond the scope that
    /// the user has refused.
    pub(super) fn expected(&self, refused: Option<String>) -> Expected {
        let mut expected = Expected { refused, ..Expected::default() };
        expected.outcome = self.predict(&self.nodes, "", self.seed, 0, &mut expected);
        expected
    }

    fn predict(
        &self,
        nodes: &[Node],
        suffix: &str,
        start: u64,
        before: usize,
        out: &mut Expected,
    ) -> Result<u64, String> {
        let mut value = start;
        for node in nodes {
            let ended = before + out.rounds.len();
            value = match node {
                Node::Ask { differs, .. } | Node::Step(Step { differs, .. })
                    if !differs.is_in(self.version) =>
                {
                    value
                }
                Node::Ask { key, differs, .. } => {
                    let key = format!("q{key}{suffix}");
                    let n = self.answer(&self.message(&key, *differs));
                    out.rounds.push(vec![key]);
                    mix(value, n.into())
                }
                Node::Step(step) => {
                    let key = format!("s{}{suffix}", step.key);
                    if step.after_checkpoint && ended == 0 {
                        out.rounds.push(Vec::new());
                    }
                    let result = self.result(&key);
                    let done = if step.fails && !step.records_errors {
                        &mut out.failing
                    } else {
                        &mut out.steps
                    };
                    done.push(key.clone());
                    if step.fails {
                        return Err(format!("{key} failed"));
                    }
                    mix(value, result)
                }
                Node::Checkpoint { .. } => {
                    out.rounds.push(Vec::new());
                    value
                }
                Node::Scope(scope) => {
                    let scope = tokens::name(*scope);
                    let is_refused = out.refused.as_ref() == Some(&scope);
                    out.scopes.insert(scope);
                    if is_refused {
                        out.is_blocked = true;
                        return Err("the scope was refused".to_owned());
                    }
                    value
                }
                Node::Join(parts) => {
                    let mut sides = Vec::new();
                    let mut outcomes = Vec::new();
                    for part in parts {
                        let mut side =
                            Expected { refused: out.refused.clone(), ..Expected::default() };
                        outcomes.push(self.predict(part, suffix, value, ended, &mut side));
                        sides.push(side);
                    }
                    out.join(sides);
                    let mut together = value;
                    for outcome in outcomes {
                        together = mix(together, outcome?);
                    }
                    together
                }
                Node::Branch(one, other) => {
                    let taken = if value.is_multiple_of(2) { one } else { other };
                    self.predict(taken, suffix, value, before, out)?
                }
                Node::Loop(body) => {
                    let mut last = value;
                    for iteration in 0..=(value % 3) {
                        last = self.predict(
                            body,
                            &format!("{suffix}.{iteration}"),
                            last,
                            before,
                            out,
                        )?;
                    }
                    last
                }
            };
        }
        Ok(value)
    }

    /// Runs the program as a handler.
    pub(super) async fn run(&self, cx: &Context, world: &World) -> Result<u64, Error> {
        self.run_nodes(&self.nodes, String::new(), self.seed, cx, world).await
    }

    fn run_nodes<'a>(
        &'a self,
        nodes: &'a [Node],
        suffix: String,
        start: u64,
        cx: &'a Context,
        world: &'a World,
    ) -> Pin<Box<dyn Future<Output = Result<u64, Error>> + Send + 'a>> {
        Box::pin(async move {
            let mut value = start;
            for node in nodes {
                value = match node {
                    Node::Ask { differs, .. } | Node::Step(Step { differs, .. })
                        if !differs.is_in(self.version) =>
                    {
                        value
                    }
                    Node::Ask { key, yields, spawned, differs } => {
                        self.detach_at(*key, cx).await?;
                        let key = format!("q{key}{suffix}");
                        yield_times(*yields).await;
                        let message = self.message(&key, *differs);
                        let asked = cx.elicit::<Number>(key, message.clone());
                        let answer = if *spawned {
                            // In a separate task, which the round releases.
                            let task = tokio::spawn(asked);
                            task.await.map_err(Error::internal)??
                        } else {
                            asked.await?
                        };
                        world.read(self.seed, &message, cx);
                        mix(value, answer.n.into())
                    }
                    Node::Step(Step {
                        key,
                        takes,
                        fails,
                        records_errors,
                        after_checkpoint,
                        ..
                    }) => {
                        self.detach_at(*key, cx).await?;
                        let key = format!("s{key}{suffix}");
                        let mut step = cx.step(key.clone(), async |step| {
                            world.ran(self.seed, &key, step.idempotency_key(), cx);
                            match takes {
                                Takes::Polls(times) => yield_times(*times).await,
                                Takes::Milliseconds(time) => tokio::time::sleep(*time).await,
                            }
                            if *fails {
                                return Err(Error::new(format!("{key} failed")));
                            }
                            Ok(self.result(&key))
                        });
                        if *records_errors {
                            step = step.record_errors();
                        }
                        if *after_checkpoint {
                            step = step.after_checkpoint();
                        }
                        let result = step.await?;
                        world.done(self.seed, &key);
                        mix(value, result)
                    }
                    Node::Checkpoint { key } => {
                        cx.checkpoint(format!("c{key}{suffix}")).await?;
                        value
                    }
                    Node::Scope(scope) => {
                        let scope = tokens::name(*scope);
                        cx.require_scope(scope.clone()).await?;
                        let granted = cx.parts().extensions().get::<GrantedScopes>();
                        if granted.is_some_and(|granted| !granted.contains(&scope)) {
                            return Err(Error::new(format!("{scope} was not granted")));
                        }
                        value
                    }
                    Node::Join(parts) => {
                        let sides = parts
                            .iter()
                            .map(|part| self.run_nodes(part, suffix.clone(), value, cx, world));
                        let mut together = value;
                        for outcome in join_all(sides).await {
                            together = mix(together, outcome?);
                        }
                        together
                    }
                    Node::Branch(one, other) => {
                        let taken = if value.is_multiple_of(2) { one } else { other };
                        self.run_nodes(taken, suffix.clone(), value, cx, world).await?
                    }
                    Node::Loop(body) => {
                        let mut last = value;
                        for iteration in 0..=(value % 3) {
                            let suffix = format!("{suffix}.{iteration}");
                            last = self.run_nodes(body, suffix, last, cx, world).await?;
                        }
                        last
                    }
                };
            }
            Ok(value)
        })
    }
}

/// The expected result of a handler with honest answers.
#[derive(Debug)]
pub(super) struct Expected {
    /// The questions of each round.
    pub(super) rounds: Vec<Vec<String>>,
    /// Steps that run and whose result is recorded.
    pub(super) steps: Vec<String>,
    /// Steps that fail and whose result is not recorded.
    pub(super) failing: Vec<String>,
    /// Scopes that are required.
    pub(super) scopes: BTreeSet<String>,
    /// The scope that the user has refused.
    refused: Option<String>,
    /// True if the handler does not get beyond the refused scope.
    pub(super) is_blocked: bool,
    pub(super) outcome: Outcome,
}

pub(super) type Outcome = Result<u64, String>;

impl Expected {
    /// Merges concurrent parts: their first rounds are one round, their second rounds the next, and
    /// so on.
    fn join(&mut self, sides: Vec<Self>) {
        let most = sides.iter().map(|side| side.rounds.len()).max().unwrap_or_default();
        let mut rounds = vec![Vec::new(); most];
        for side in sides {
            for (round, keys) in rounds.iter_mut().zip(side.rounds) {
                round.extend(keys);
            }
            self.steps.extend(side.steps);
            self.failing.extend(side.failing);
            self.scopes.extend(side.scopes);
            self.is_blocked |= side.is_blocked;
        }
        self.rounds.extend(rounds);
    }
}

impl Default for Expected {
    fn default() -> Self {
        Self {
            rounds: Vec::new(),
            steps: Vec::new(),
            failing: Vec::new(),
            scopes: BTreeSet::new(),
            refused: None,
            is_blocked: false,
            outcome: Ok(0),
        }
    }
}

impl fmt::Debug for Program {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.nodes.fmt(f)
    }
}

fn nodes(random: &mut Random, keys: &mut u32, length: u64, depth: u32) -> Vec<Node> {
    (0..length).map(|_| node(random, keys, depth)).collect()
}

fn node(random: &mut Random, keys: &mut u32, depth: u32) -> Node {
    let kinds = if depth == 0 { 8 } else { 12 };
    let kind = random.below(kinds);
    *keys += 1;
    let key = *keys;
    let yields = u8::try_from(random.below(4)).unwrap_or_default();
    let mut inside = |most: u64| {
        let length = random.below(most) + 1;
        nodes(random, keys, length, depth - 1)
    };
    match kind {
        0..=2 => {
            let (spawned, differs) = (random.below(4) == 0, differs(random));
            Node::Ask { key, yields, spawned, differs }
        }
        3..=5 => {
            let takes = match random.below(3) {
                0 => Takes::Milliseconds(Duration::from_millis(yields.into())),
                _ => Takes::Polls(yields),
            };
            Node::Step(Step {
                key,
                takes,
                fails: random.below(40) == 0,
                records_errors: random.below(2) == 0,
                after_checkpoint: random.below(8) == 0,
                differs: differs(random),
            })
        }
        6 => Node::Checkpoint { key },
        7 => Node::Scope(random.below(tokens::SCOPES)),
        8 | 9 => Node::Join((0..2 + u64::from(yields) % 2).map(|_| inside(2)).collect()),
        10 => Node::Branch(inside(2), inside(2)),
        _ => Node::Loop(inside(2)),
    }
}

fn differs(random: &mut Random) -> Differs {
    match random.below(24) {
        0..=2 => Differs::Worded,
        3 => Differs::Only(Version::Old),
        4 => Differs::Only(Version::New),
        _ => Differs::Not,
    }
}

async fn yield_times(times: u8) {
    for _ in 0..times {
        tokio::task::yield_now().await;
    }
}

fn text_hash(text: &str) -> u64 {
    text.bytes().fold(7, |hash, byte| mix(hash, byte.into()))
}

/// Hashes two numbers into one that depends on both and on their order.
pub(super) fn mix(a: u64, b: u64) -> u64 {
    Random::new(a ^ b.rotate_left(32).wrapping_mul(0x9e37_79b9_7f4a_7c15)).any()
}
