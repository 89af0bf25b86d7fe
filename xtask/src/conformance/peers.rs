//! Runs the suite against a server of another SDK, directly and through a gateway. Every scenario
//! that passes directly must pass through the gateway.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::process::{Command, Stdio};

use super::{CURRENT, Outcome, Suite, baseline, start_gateway, url};
use crate::Result;
use crate::run::{Server, build, free_port, scratch};
use crate::tools::{conformance_suite, python, rmcp, script};

/// The minimum number of scenarios that must pass both directly and through the gateway. With fewer,
/// the run shows nothing.
const MIN_PASSED: usize = 20;

/// Runs the suite against the server of one SDK.
pub fn run(peer: &str) -> Result {
    let mut command = match peer {
        "python" => {
            let mut command = Command::new(python("python")?);
            command.arg(script("python", "conformance.py"));
            command
        }
        "rmcp" => Command::new(rmcp()?.join("conformance")),
        _ => return Err(format!("unknown SDK {peer:?}; known SDKs: python, rmcp").into()),
    };
    let (node, script) = conformance_suite()?;
    let bin = build()?;
    let log = File::create(scratch("conformance")?.join(format!("{peer}.log")))?;
    let server = Server::start_on(command.stdout(Stdio::null()).stderr(log), free_port()?)?;
    let gateway = start_gateway(&bin, &server)?;
    let name = format!("gateway-{peer}");
    let results_of = |server: &Server, folder: String| -> Result<_> {
        println!("conformance: {folder} ({CURRENT})");
        let suite = Suite::new((&node, &script), "server", &format!("conformance-{folder}"))?;
        suite.invoke(&[&format!("--url={}", url(server)), "--requirements", CURRENT])?;
        Ok((suite.results()?, suite.out))
    };
    let (direct, _) = results_of(&server, peer.to_owned())?;
    let (through, out) = results_of(&gateway, name.clone())?;
    let known = baseline(&name)?;
    let is_good = |outcome: Option<&Outcome>| outcome.is_some_and(Outcome::is_good);
    let scenarios: BTreeSet<_> = direct.keys().chain(through.keys()).chain(&known).collect();
    let mut table = BTreeMap::<_, Vec<_>>::new();
    for scenario in scenarios {
        let kind = match (is_good(direct.get(scenario)), is_good(through.get(scenario))) {
            (true, true) => Kind::Both,
            // The gateway validates some requests and answers them itself.
            (false, true) => Kind::Gateway,
            (false, false) => Kind::Neither,
            (true, false) => Kind::Direct,
        };
        table.entry(kind).or_default().push(scenario);
    }
    for (kind, scenarios) in &table {
        println!("{name}: {} {}", scenarios.len(), kind.text());
        if *kind != Kind::Both {
            for scenario in scenarios {
                println!("    {scenario}");
            }
        }
    }
    let passed = table.get(&Kind::Both).map_or(0, Vec::len);
    let lost: BTreeSet<_> = table.remove(&Kind::Direct).unwrap_or_default().into_iter().collect();
    let mut wrong = Vec::new();
    if passed < MIN_PASSED {
        wrong.push(format!("{name}: {passed} scenarios pass directly and through the gateway, and {MIN_PASSED} have to; see {}", out.join("log.txt").display()));
    }
    for scenario in lost.iter().filter(|scenario| !known.contains(**scenario)) {
        let why = through.get(*scenario).and_then(|outcome| outcome.wrong.first());
        let why = why.map_or("the suite made no check", String::as_str);
        wrong.push(format!("{name} {scenario} fails through the gateway: {why}"));
    }
    let solved = known.iter().filter(|scenario| !lost.contains(scenario));
    wrong.extend(solved.map(|scenario| {
        format!("{name} {scenario} does not pass directly only: remove it from the baseline")
    }));
    if wrong.is_empty() { Ok(()) } else { Err(wrong.join("\n  ").into()) }
}

/// Where a scenario passes.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
enum Kind {
    Both,
    Gateway,
    Neither,
    Direct,
}

impl Kind {
    fn text(&self) -> &'static str {
        match self {
            Self::Both => "pass directly and through the gateway",
            Self::Gateway => "pass through the gateway only",
            Self::Neither => "fail both ways",
            Self::Direct => "pass directly only",
        }
    }
}
