//! Runs replicas behind a load balancer, of servers or of a gateway to servers, or with tasks in
//! PostgreSQL, and checks the guarantees: `crates/chaos`, optimized.
//!
//! With `--break`, one fault is introduced, and the run has to find that fault and no other. Most of
//! the faults are patches, applied to a copy of the sources, so that the released code has no
//! switch for them.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::Result;
use crate::needs::{HAPROXY, NGINX, Need, require};
use crate::run::{OPTIMIZED, cargo, optimized, output, root, run as step, scratch};

/// A fault, and the guarantees that it breaks.
struct Break {
    name: &'static str,
    how: How,
    /// The guarantees that the run must find broken.
    breaks: &'static [&'static str],
    /// A guarantee that may be broken as a consequence.
    consequence: Option<&'static str>,
}

const fn fault(name: &'static str, how: How, breaks: &'static [&'static str]) -> Break {
    Break { name, how, breaks, consequence: None }
}

/// The faults of replicas behind a load balancer. A step that is not recorded runs again after the
/// next answer, with another idempotency key, so that `recording` breaks two guarantees.
const BREAKS: &[Break] = &[
    fault("pinning", How::Patch, &["answers"]),
    fault("recording", How::Patch, &["steps", "keys"]),
    fault("retire", How::Option("--retire-early"), &["rotation"]),
    fault("drain", How::Option("--ignore-drain"), &["drain"]),
];

/// The faults of replicas of a gateway: it passes the answers of a round on in the wrong order, and
/// faults that the servers behind it have, too. A server that no longer opens a state ends the call
/// even of a legacy client, which cannot see why.
const GATEWAY_BREAKS: &[Break] = &[
    fault("forwarding", How::Patch, &["answers"]),
    Break {
        consequence: Some("calls"),
        ..fault("retire", How::Option("--retire-early"), &["rotation"])
    },
    fault("drain", How::Option("--ignore-drain"), &["drain"]),
];

/// The faults of tasks: a claim takes tasks that are held, entries are written without the lease, a
/// result counts before it is committed, any caller sees a task, and an answer that comes while its
/// task runs wakes nothing.
///
/// Two replicas that run one task overwrite each other's entries. With `lease`, the handler then no
/// longer reaches what the journal has, which breaks the outcome. With `fence`, a late writer may
/// overwrite the entry of another step, which then runs again.
const TASK_BREAKS: &[Break] = &[
    fault("lease", How::Patch, &["runs", "outcome"]),
    Break { consequence: Some("runs"), ..fault("fence", How::Patch, &["journal"]) },
    fault("commit", How::Patch, &["recorded"]),
    fault("owner", How::Patch, &["owner"]),
    fault("wakeup", How::Patch, &["continues"]),
];

enum How {
    /// `crates/chaos/broken/{name}.patch`
    Patch,
    /// An option of the program.
    Option(&'static str),
}

/// The patches. `tidy` checks that they apply.
pub fn patches() -> Vec<PathBuf> {
    let all = BREAKS.iter().chain(GATEWAY_BREAKS).chain(TASK_BREAKS);
    let patched = all.filter(|fault| matches!(fault.how, How::Patch));
    patched.map(|fault| patch(fault.name)).collect()
}

fn patch(name: &str) -> PathBuf {
    root().join("crates/chaos/broken").join(name).with_extension("patch")
}

pub fn run(args: &[String]) -> Result {
    let (of_tasks, args): (Vec<_>, Vec<_>) = args.iter().cloned().partition(|arg| arg == "--tasks");
    if of_tasks.is_empty() { behind_balancer(&args) } else { with_tasks(&args) }
}

fn behind_balancer(args: &[String]) -> Result {
    let (mut seconds, mut balancer, mut broken) = ("120".to_owned(), "nginx".to_owned(), None);
    let mut rest = Vec::new();
    let (gateway, args): (Vec<_>, Vec<_>) =
        args.iter().cloned().partition(|arg| arg == "--gateway");
    let faults = if gateway.is_empty() { BREAKS } else { GATEWAY_BREAKS };
    for option in options(&args) {
        let (arg, value) = option?;
        match arg.as_str() {
            "--minutes" => seconds = in_seconds(value)?,
            "--balancer" => balancer.clone_from(value),
            "--break" => broken = Some(find(faults, value)?),
            "--seed" | "--people" => rest.extend([arg.clone(), value.clone()]),
            other => return Err(format!("`chaos` has no option {other}").into()),
        }
    }
    let (conf, program) = match &*balancer {
        "nginx" => ("docs/deploying/nginx.conf", NGINX),
        "haproxy" => ("docs/deploying/haproxy.cfg", HAPROXY),
        other => {
            return Err(format!("unknown load balancer {other:?}; known: nginx, haproxy").into());
        }
    };
    require(&[program])?;
    let dir = scratch("chaos")?.join(if gateway.is_empty() { &*balancer } else { "gateway" });
    let mut options = vec!["--balancer".to_owned(), balancer, "--seconds".to_owned(), seconds];
    options.extend(["--conf".to_owned(), root().join(conf).display().to_string()]);
    execute("run", &dir, &[options, rest, gateway].concat(), broken)
}

/// Runs tasks whose PostgreSQL server is killed, too.
fn with_tasks(args: &[String]) -> Result {
    let (mut seconds, mut broken) = ("120".to_owned(), None);
    let mut rest = Vec::new();
    for option in options(args) {
        let (arg, value) = option?;
        match arg.as_str() {
            "--minutes" => seconds = in_seconds(value)?,
            "--break" => broken = Some(find(TASK_BREAKS, value)?),
            "--seed" | "--callers" => rest.extend([arg.clone(), value.clone()]),
            other => return Err(format!("`chaos --tasks` has no option {other}").into()),
        }
    }
    require(&[Need::Postgres])?;
    let options = ["--seconds".to_owned(), seconds];
    execute("tasks", &scratch("chaos")?.join("tasks"), &[&options[..], &rest].concat(), broken)
}

fn find(breaks: &'static [Break], value: &str) -> Result<&'static Break> {
    let known = breaks.iter().find(|fault| fault.name == value);
    Ok(known.ok_or_else(|| {
        let names: Vec<_> = breaks.iter().map(|fault| fault.name).collect();
        format!("unknown fault {value:?}; known faults: {}", names.join(", "))
    })?)
}

/// Runs a scenario, with a fault if one is given, which the run then has to find.
fn execute(command: &str, dir: &Path, options: &[String], broken: Option<&Break>) -> Result {
    let program = match broken {
        Some(Break { name, how: How::Patch, .. }) => build_broken(name)?,
        _ => optimized()?.join("mrtr-chaos"),
    };
    let mut chaos = Command::new(program);
    chaos.arg(command).arg("--dir").arg(dir).args(options);
    let Some(Break { name, how, breaks, consequence }) = broken else {
        return step(&mut chaos).map_err(|error| reasons(dir).map_or(error, Into::into));
    };
    if let How::Option(option) = how {
        chaos.arg(option);
    }
    // The exit code is ignored: the run fails because it finds the fault.
    let _ = chaos.status()?;
    let report = fs::read_to_string(dir.join("report.md"))?;
    let found = report.lines().last().unwrap_or_default();
    let found: BTreeSet<_> =
        found.strip_prefix("broken guarantees: ").unwrap_or_default().split(", ").collect();
    let mut expected: BTreeSet<_> = breaks.iter().copied().collect();
    expected.extend(consequence.filter(|guarantee| found.contains(guarantee)));
    let names = |set: &BTreeSet<&str>| set.iter().copied().collect::<Vec<_>>().join(", ");
    if found == expected {
        println!("the fault {name} was found, by its guarantees ({}) and no others", names(&found));
        return Ok(());
    }
    let (found, expected) = (names(&found), names(&expected));
    Err(format!("the fault {name} should break {expected}; the report says: {found}").into())
}

/// Returns why a run failed: the guarantees of its report that were broken, or the error that ended
/// it before.
fn reasons(dir: &Path) -> Option<String> {
    let report = fs::read_to_string(dir.join("report.md")).ok()?;
    let broken: Vec<_> = report.lines().filter(|line| line.contains("**no**")).collect();
    Some(if broken.is_empty() { report } else { broken.join("\n  ") })
}

/// Sends requests over a thousand connections, at the highest rate that the machine allows.
pub fn load(args: &[String]) -> Result {
    let mut seconds = "300".to_owned();
    let mut rest = Vec::new();
    for option in options(args) {
        let (arg, value) = option?;
        match arg.as_str() {
            "--minutes" => seconds = in_seconds(value)?,
            "--connections" => rest.extend([arg.clone(), value.clone()]),
            other => return Err(format!("`load` has no option {other}").into()),
        }
    }
    let mut load = Command::new(optimized()?.join("mrtr-chaos"));
    load.args(["load", "--seconds", &seconds]).arg("--dir").arg(scratch("load")?).args(rest);
    step(&mut load)
}

/// Options and their values.
fn options(args: &[String]) -> impl Iterator<Item = Result<(&String, &String)>> {
    args.chunks(2).map(|pair| match pair {
        [arg, value] => Ok((arg, value)),
        _ => Err(format!("{} needs a value", pair.concat()).into()),
    })
}

fn in_seconds(minutes: &str) -> Result<String> {
    let given = minutes.parse::<f64>().ok().filter(|minutes| *minutes > 0.0);
    Ok(format!("{:.0}", given.ok_or("`--minutes` takes a positive number")? * 60.0))
}

/// Builds the same program from a patched copy of the sources.
fn build_broken(name: &str) -> Result<PathBuf> {
    let copy = scratch("broken")?.join("sources");
    let _ = fs::remove_dir_all(&copy);
    let files = output(Command::new("git").args(["ls-files", "-z"]).current_dir(root()))?;
    for file in files.split('\0').filter(|file| root().join(file).is_file()) {
        let to = copy.join(file);
        to.parent().map_or(Ok(()), fs::create_dir_all)?;
        fs::copy(root().join(file), to)?;
    }
    let mut apply = Command::new("git");
    // The copy is below this repository's folder, but git should not treat it as a part of it.
    apply.env("GIT_CEILING_DIRECTORIES", scratch("broken")?);
    step(apply.arg("apply").arg(patch(name)).current_dir(&copy))?;
    let target = scratch("broken")?.join("target");
    let mut build = cargo(&["build", "--quiet", "--profile", OPTIMIZED, "--package", "mrtr-chaos"]);
    step(build.current_dir(&copy).env("CARGO_TARGET_DIR", &target))?;
    Ok(target.join(OPTIMIZED).join("mrtr-chaos"))
}
