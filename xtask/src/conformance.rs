//! Runs the official conformance suite against the fixtures of `crates/conformance`.

mod peers;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde_json::Value;

use crate::Result;
use crate::requirements::{self, LEDGER};
use crate::run::{Server, build, free_port, root, scratch};
use crate::tools::conformance_suite;

/// The revision whose requirements the ledger lists.
const CURRENT: &str = "2026-07-28";

/// One run of the suite: a fixture at a revision.
#[derive(Clone, Copy)]
struct Leg {
    fixture: Fixture,
    revision: &'static str,
    /// The suite has a list of the scenarios that the revision requires. Otherwise, all scenarios
    /// that apply to it are run.
    has_requirements: bool,
}

const LEGS: &[Leg] = &[
    Leg { fixture: Fixture::Server, revision: CURRENT, has_requirements: true },
    Leg { fixture: Fixture::Server, revision: "2025-11-25", has_requirements: true },
    Leg { fixture: Fixture::Server, revision: "2025-06-18", has_requirements: false },
    Leg { fixture: Fixture::Server, revision: "2025-03-26", has_requirements: false },
    Leg { fixture: Fixture::Gateway, revision: CURRENT, has_requirements: true },
    Leg { fixture: Fixture::Gateway, revision: "2025-11-25", has_requirements: true },
    Leg { fixture: Fixture::Client, revision: CURRENT, has_requirements: true },
    Leg { fixture: Fixture::Client, revision: "2025-11-25", has_requirements: true },
    Leg { fixture: Fixture::Client, revision: "2025-06-18", has_requirements: false },
    Leg { fixture: Fixture::Client, revision: "2025-03-26", has_requirements: false },
];

/// A program of `crates/conformance`.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Fixture {
    Server,
    /// A gateway in front of the server.
    Gateway,
    Client,
}

impl Fixture {
    fn name(self) -> &'static str {
        match self {
            Self::Server => "server",
            Self::Gateway => "gateway",
            Self::Client => "client",
        }
    }

    /// The side that the suite tests.
    fn side(self) -> &'static str {
        match self {
            Self::Server | Self::Gateway => "server",
            Self::Client => "client",
        }
    }
}

impl Leg {
    /// The name of the leg in the baseline.
    fn name(&self) -> String {
        let name = self.fixture.name();
        if self.revision == CURRENT { name.to_owned() } else { format!("{name}@{}", self.revision) }
    }

    /// The folder of its results.
    fn folder(&self) -> String {
        format!("conformance-{}-{}", self.fixture.name(), self.revision)
    }
}

/// Runs the suite against a server of another SDK, directly and through a gateway.
pub use peers::run as through_gateway;

pub fn run(args: &[String]) -> Result {
    if let Some(peer) = args.first().and_then(|arg| arg.strip_prefix("gateway-")) {
        return through_gateway(peer);
    }
    let mut args = args.iter().map(String::as_str).peekable();
    let fixture = args.next_if(|arg| LEGS.iter().any(|leg| leg.fixture.name() == *arg));
    let revision = args.next_if(|arg| LEGS.iter().any(|leg| leg.revision == *arg));
    let scenarios: Vec<&str> = args.collect();
    let is_wanted = |leg: &&Leg| {
        fixture.is_none_or(|name| name == leg.fixture.name())
            && revision
                .map_or(scenarios.is_empty() || leg.revision == CURRENT, |r| r == leg.revision)
    };
    let legs: Vec<_> = LEGS.iter().filter(is_wanted).collect();
    if legs.is_empty() {
        return Err("the suite is not run for this fixture at this revision".into());
    }
    let (node, script) = conformance_suite()?;
    let bin = build()?;
    let (mut wrong, mut passed, mut table) = (Vec::new(), BTreeSet::new(), Vec::new());
    for leg in &legs {
        let suite = Suite::new((&node, &script), leg.fixture.side(), &leg.folder())?;
        leg.run(&suite, &bin, &scenarios)?;
        let results = suite.results()?;
        let (counts, differences) = compare(leg, &results, &scenarios)?;
        table.push((leg, counts));
        wrong.extend(differences);
        if leg.revision == CURRENT && leg.fixture != Fixture::Gateway {
            passed.extend(
                results.into_iter().filter(|(_, outcome)| outcome.is_good()).map(|(name, _)| name),
            );
        }
    }
    println!("\n{:<8}{:<12}{:>8}{:>8}{:>8}", "fixture", "revision", "passed", "known", "wrong");
    for (Leg { fixture, revision, .. }, Counts { passed, known, wrong }) in table {
        println!("{:<8}{revision:<12}{passed:>8}{known:>8}{wrong:>8}", fixture.name());
    }
    if legs.len() == LEGS.len() {
        // The scenarios that the ledger cites have to pass.
        let relied_on = requirements::scenarios()?;
        let missing = relied_on.difference(&passed);
        wrong.extend(missing.map(|name| format!("{LEDGER} relies on {name}, which did not pass")));
    }
    if wrong.is_empty() { Ok(()) } else { Err(wrong.join("\n  ").into()) }
}

impl Leg {
    fn run(&self, suite: &Suite<'_>, bin: &Path, scenarios: &[&str]) -> Result {
        let Self { fixture, revision, has_requirements } = *self;
        let mut servers = Vec::new();
        if fixture.side() == "server" {
            servers.push(start_server(bin)?);
        }
        if let (Fixture::Gateway, Some(upstream)) = (fixture, servers.last()) {
            servers.push(start_gateway(bin, upstream)?);
        }
        let target = match servers.last() {
            Some(server) => format!("--url={}", url(server)),
            None => format!("--command={}", program(bin, "client").display()),
        };
        println!("\nconformance: {} against the official suite ({revision})", fixture.name());
        if scenarios.is_empty() {
            if has_requirements {
                suite.invoke(&[&target, "--requirements", revision])?;
            } else {
                suite.invoke(&[&target, "--spec-version", revision, "--suite", "all"])?;
            }
        }
        for scenario in scenarios {
            suite.invoke(&[&target, "--spec-version", revision, "--scenario", scenario])?;
        }
        Ok(())
    }
}

fn program(bin: &Path, name: &str) -> PathBuf {
    bin.join(format!("conformance-{name}"))
}

fn start_server(bin: &Path) -> Result<Server> {
    Server::start_on(Command::new(program(bin, "server")).stdout(Stdio::null()), free_port()?)
}

/// Starts a gateway to a server.
fn start_gateway(bin: &Path, upstream: &Server) -> Result<Server> {
    let mut gateway = Command::new(program(bin, "gateway"));
    Server::start_on(gateway.env("UPSTREAM", url(upstream)).stdout(Stdio::null()), free_port()?)
}

fn url(server: &Server) -> String {
    format!("http://127.0.0.1:{}/mcp", server.port)
}

/// The program of the suite, for one side, and the folder of its results.
struct Suite<'a> {
    node: &'a Path,
    script: &'a Path,
    side: &'static str,
    out: PathBuf,
}

impl<'a> Suite<'a> {
    /// Prepares a run, whose results are in `target/xtask/{folder}`.
    fn new((node, script): (&'a Path, &'a Path), side: &'static str, folder: &str) -> Result<Self> {
        let out = scratch(folder)?;
        fs::remove_dir_all(&out)?;
        fs::create_dir_all(&out)?;
        Ok(Self { node, script, side, out })
    }

    /// Runs the suite. Its exit code does not matter, since the results are read from its files.
    fn invoke(&self, args: &[&str]) -> Result {
        let log =
            fs::OpenOptions::new().create(true).append(true).open(self.out.join("log.txt"))?;
        let mut command = Command::new(self.node);
        command.arg(self.script).arg(self.side).args(args).arg("-o").arg(&self.out);
        command.stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log);
        command.status().map_err(|e| format!("cannot run the suite: {e}"))?;
        Ok(())
    }

    /// Returns the results of the scenarios. Fails if the suite announced another number: it writes
    /// no result for a scenario that it did not reach, or in which the suite itself failed.
    fn results(&self) -> Result<BTreeMap<String, Outcome>> {
        let results = read_results(&self.out, self.side)?;
        let log = self.out.join("log.txt");
        let announced: usize = fs::read_to_string(&log)?.lines().filter_map(announced).sum();
        // A single scenario is not announced.
        if announced > 0 && announced != results.len() {
            return Err(format!(
                "the suite announced {announced} scenarios, and has results of {}; see {}",
                results.len(),
                log.display()
            )
            .into());
        }
        Ok(results)
    }
}

/// Returns the number of scenarios in `Running … (50 scenarios) …`.
fn announced(line: &str) -> Option<usize> {
    let (_, rest) = line.strip_prefix("Running ")?.split_once(" (")?;
    rest.split_once(" scenarios)")?.0.parse().ok()
}

/// The results of the checks of a scenario.
#[derive(Default)]
struct Outcome {
    passed: usize,
    /// Failures and warnings.
    wrong: Vec<String>,
}

impl Outcome {
    fn is_good(&self) -> bool {
        self.wrong.is_empty() && self.passed > 0
    }
}

fn read_results(out: &Path, side: &str) -> Result<BTreeMap<String, Outcome>> {
    let mut results: BTreeMap<String, Outcome> = BTreeMap::new();
    let mut directories = vec![out.to_path_buf()];
    while let Some(directory) = directories.pop() {
        for entry in fs::read_dir(&directory)? {
            let path = entry?.path();
            if path.is_dir() {
                directories.push(path);
            } else if path.file_name().is_some_and(|name| name == "checks.json") {
                let name = directory.strip_prefix(out)?.to_string_lossy().into_owned();
                let outcome = results.entry(scenario_of(&name, side)).or_default();
                let checks: Vec<Value> = serde_json::from_slice(&fs::read(&path)?)?;
                for check in checks {
                    let text = |key: &str| check[key].as_str().unwrap_or_default().to_owned();
                    match text("status").as_str() {
                        "FAILURE" | "WARNING" => {
                            let why = format!("{}: {}", text("id"), text("errorMessage"));
                            outcome.wrong.push(why.chars().take(200).collect());
                        }
                        "SUCCESS" => outcome.passed += 1,
                        _ => {}
                    }
                }
            }
        }
    }
    Ok(results)
}

/// Returns the scenario of a directory `server-NAME-TIMESTAMP` or `NAME-TIMESTAMP`, where the time
/// begins with the year.
fn scenario_of(directory: &str, side: &str) -> String {
    let name = directory.strip_prefix(&format!("{side}-")).unwrap_or(directory);
    let is_time = |rest: &str| rest.len() == 24 && rest.ends_with('Z');
    let cut = name.match_indices('-').find(|(at, _)| is_time(&name[at + 1..]));
    cut.map_or(name, |(at, _)| &name[..at]).to_owned()
}

/// How many scenarios passed, failed as in the baseline, and did neither.
#[derive(Default)]
struct Counts {
    passed: usize,
    known: usize,
    wrong: usize,
}

/// Compares the results with the baseline: a scenario fails if and only if it is listed there.
fn compare(
    leg: &Leg,
    results: &BTreeMap<String, Outcome>,
    asked: &[&str],
) -> Result<(Counts, Vec<String>)> {
    let name = leg.name();
    let baseline = baseline(&name)?;
    let mut wrong = Vec::new();
    let mut counts = Counts::default();
    for (scenario, outcome) in results {
        let Outcome { passed, wrong: failed } = outcome;
        let expected = baseline.contains(scenario);
        let mark = match (outcome.is_good(), expected) {
            (true, false) => {
                counts.passed += 1;
                "ok      "
            }
            (false, true) => {
                counts.known += 1;
                "not yet "
            }
            (true, true) => {
                wrong.push(format!("{name} {scenario} passes: remove it from the baseline"));
                "passes! "
            }
            (false, false) => {
                let first = failed.first().map_or("the suite made no check", String::as_str);
                wrong.push(format!("{name} {scenario}: {first:.80}"));
                "FAILED  "
            }
        };
        println!("  {mark} {scenario} ({passed} checks)");
        if mark == "FAILED  " {
            for why in failed {
                println!("           {why}");
            }
        }
    }
    if asked.is_empty() {
        let missing = baseline.iter().filter(|known| !results.contains_key(*known));
        wrong.extend(
            missing.map(|known| format!("{name} {known} is in the baseline but was not run")),
        );
    }
    if let Some(missing) = asked.iter().find(|asked| !results.contains_key(**asked)) {
        wrong.push(format!(
            "{name} {missing} was not run: the suite may have no such scenario for {}",
            leg.revision
        ));
    }
    if results.is_empty() {
        wrong.push(format!(
            "the suite ran no scenario of the {}; see target/xtask/{}/log.txt",
            leg.fixture.name(),
            leg.folder()
        ));
    }
    counts.wrong = wrong.len();
    Ok((counts, wrong))
}

/// Reads the known failures of one leg: lines `leg scenario`, with the reason after a `#`.
fn baseline(leg: &str) -> Result<BTreeSet<String>> {
    let path = root().join("crates/conformance/baseline.txt");
    let text = fs::read_to_string(&path)?;
    let mut all = BTreeSet::new();
    for line in text.lines().filter(|line| !line.trim().is_empty() && !line.starts_with('#')) {
        let (entry, reason) =
            line.split_once('#').ok_or_else(|| format!("baseline: {line:?} has no reason"))?;
        if reason.trim().is_empty() {
            return Err(format!("baseline: {line:?} has no reason").into());
        }
        let (of, scenario) =
            entry.trim().split_once(' ').ok_or_else(|| format!("baseline: {line:?}"))?;
        if of == leg {
            all.insert(scenario.trim().to_owned());
        }
    }
    Ok(all)
}

#[cfg(test)]
mod tests {
    use super::announced;

    #[test]
    fn announced_scenarios_are_counted() {
        let server =
            "Running requirements 2026-07-28 (50 scenarios) against http://127.0.0.1:1/mcp";
        assert_eq!(announced(server), Some(50));
        assert_eq!(announced("Running auth suite (25 scenarios) in parallel..."), Some(25));
        let one = "Running client scenario 'tools-list' against server: http://127.0.0.1:1/mcp";
        assert_eq!(announced(one), None);
    }
}
