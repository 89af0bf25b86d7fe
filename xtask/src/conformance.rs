//! Runs the official conformance suite against the fixtures of `crates/conformance`.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

use serde_json::Value;

use crate::Result;
use crate::requirements::{self, LEDGER};
use crate::run::{Server, build, free_port, root, scratch};
use crate::tools::conformance_suite;

const REVISION: &str = "2026-07-28";

pub fn run(args: &[String]) -> Result {
    let (sides, scenarios) = match args.split_first() {
        Some((side, rest)) if side == "server" || side == "client" => (vec![side.as_str()], rest),
        Some((other, _)) => {
            return Err(format!("{other:?} is neither `server` nor `client`").into());
        }
        None => (vec!["server", "client"], args),
    };
    let (node, suite) = conformance_suite()?;
    let bin = build(&["--package", "mrtr-conformance", "--bins"])?;
    let (mut wrong, mut passed) = (Vec::new(), BTreeSet::new());
    for side in sides {
        let out = scratch(&format!("conformance-{side}"))?;
        fs::remove_dir_all(&out)?;
        fs::create_dir_all(&out)?;
        let suite = Suite { node: &node, script: &suite, out: &out, bin: &bin, side };
        suite.run(scenarios)?;
        let results = read_results(&out, side)?;
        wrong.extend(compare(side, &results, scenarios)?);
        passed.extend(
            results.into_iter().filter(|(_, outcome)| outcome.is_good()).map(|(name, _)| name),
        );
    }
    if args.is_empty() {
        // The scenarios that the ledger cites must pass.
        let relied_on = requirements::scenarios()?;
        let missing = relied_on.difference(&passed);
        wrong.extend(missing.map(|name| format!("{LEDGER} relies on {name}, which did not pass")));
    }
    if wrong.is_empty() { Ok(()) } else { Err(wrong.join("\n  ").into()) }
}

struct Suite<'a> {
    node: &'a Path,
    script: &'a Path,
    out: &'a Path,
    bin: &'a Path,
    side: &'a str,
}

impl Suite<'_> {
    fn run(&self, scenarios: &[String]) -> Result {
        let fixture = self.bin.join(format!("conformance-{}", self.side));
        let server = if self.side == "server" {
            Some(Server::start_on(Command::new(&fixture).stdout(Stdio::null()), free_port()?)?)
        } else {
            None
        };
        let target = match &server {
            Some(server) => format!("--url=http://127.0.0.1:{}/mcp", server.port),
            None => format!("--command={}", fixture.display()),
        };
        println!("\nconformance: {} against the official suite ({REVISION})", self.side);
        if scenarios.is_empty() {
            self.invoke(&[&target, "--requirements", REVISION])?;
        }
        for scenario in scenarios {
            self.invoke(&[&target, "--spec-version", REVISION, "--scenario", scenario])?;
        }
        Ok(())
    }

    /// Runs the suite. The exit code is ignored, because the results are read from files.
    fn invoke(&self, args: &[&str]) -> Result {
        let log =
            fs::OpenOptions::new().create(true).append(true).open(self.out.join("log.txt"))?;
        let mut command = Command::new(self.node);
        command.arg(self.script).arg(self.side).args(args).arg("-o").arg(self.out);
        command.stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log);
        command.status().map_err(|e| format!("cannot run the suite: {e}"))?;
        Ok(())
    }
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

/// Compares the results with the baseline: a scenario fails if and only if it is listed there.
fn compare(
    side: &str,
    results: &BTreeMap<String, Outcome>,
    asked: &[String],
) -> Result<Vec<String>> {
    let baseline = baseline(side)?;
    let mut wrong = Vec::new();
    let mut counts = (0, 0);
    for (scenario, outcome) in results {
        let Outcome { passed, wrong: failed } = outcome;
        let expected = baseline.contains(scenario);
        let mark = match (outcome.is_good(), expected) {
            (true, false) => {
                counts.0 += 1;
                "ok      "
            }
            (false, true) => {
                counts.1 += 1;
                "not yet "
            }
            (true, true) => {
                wrong.push(format!("{side} {scenario} passes: remove it from the baseline"));
                "passes! "
            }
            (false, false) => {
                let first = failed.first().map_or("the suite made no check", String::as_str);
                wrong.push(format!("{side} {scenario}: {first:.80}"));
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
        let missing = baseline.iter().filter(|name| !results.contains_key(*name));
        wrong.extend(
            missing.map(|name| format!("{side} {name} is in the baseline but was not run")),
        );
    }
    if let Some(name) = asked.iter().find(|name| !results.contains_key(*name)) {
        wrong.push(format!(
            "{side} {name} was not run: the suite may have no such scenario for {REVISION}"
        ));
    }
    if results.is_empty() {
        wrong.push(format!(
            "the suite ran no {side} scenario; see target/xtask/conformance-{side}/log.txt"
        ));
    }
    println!(
        "  {side}: {} scenarios pass, {} fail as in the baseline, {} are wrong",
        counts.0,
        counts.1,
        wrong.len()
    );
    Ok(wrong)
}

/// Reads the known failures of one side: lines `side scenario`, with the reason after a `#`.
fn baseline(side: &str) -> Result<BTreeSet<String>> {
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
        if of == side {
            all.insert(scenario.trim().to_owned());
        }
    }
    Ok(all)
}
