//! `cargo xtask test` and `cargo xtask check`: parts that must pass, the cheap ones first.
//!
//! A part is left out if its needs are missing and this machine cannot install them. This is
//! reported before the first part and after the last one, and is an error with `--complete` or if
//! the part was asked for by name. An installation or a part that fails ends the run.

mod parts;
mod plan;

use std::time::Instant;

use crate::Result;
use parts::{PARTS, Part};
use plan::Plan;

/// Runs the given parts, or all of them. With `--plan`, it only reports what would run. With
/// `--complete`, all of them must run.
pub fn run(args: &[String]) -> Result {
    let (options, names): (Vec<_>, Vec<_>) = args.iter().partition(|arg| arg.starts_with("--"));
    let known = ["--plan", "--complete"];
    if let Some(other) = options.iter().find(|option| !known.contains(&option.as_str())) {
        return Err(format!("`test` has no option {other}").into());
    }
    let has = |name| options.iter().any(|option| *option == name);
    if let Some(other) = names.iter().find(|name| !PARTS.iter().any(|part| part.name == **name)) {
        let known: Vec<_> = PARTS.iter().map(|part| part.name).collect();
        return Err(format!("unknown part {other:?}; known parts: {}", known.join(", ")).into());
    }
    let is_wanted = |part: &&Part| names.is_empty() || names.iter().any(|name| *name == part.name);
    let plan = Plan::new(PARTS.iter().filter(is_wanted).collect(), true);
    println!("{plan}");
    if has("--plan") {
        return Ok(());
    }
    let left_out = execute(plan.install()?)?;
    let is_complete = has("--complete") || !names.is_empty();
    if !is_complete || left_out.is_empty() {
        return Ok(());
    }
    Err(format!("left out: {}", left_out.join(", ")).into())
}

/// Runs the daily parts, without installing anything.
pub fn check(args: &[String]) -> Result {
    if let Some(other) = args.first() {
        return Err(format!("`check` takes no arguments, not {other:?}").into());
    }
    execute(Plan::new(PARTS.iter().filter(|part| part.is_daily).collect(), false)).map(drop)
}

/// The outcome of a part.
enum Outcome {
    Passed(f64),
    Failed(f64),
    LeftOut(String),
    NotRun,
}

/// Runs the parts of a plan up to the first failure, and reports the outcome of each. Returns the
/// parts that were left out.
fn execute(plan: Plan) -> Result<Vec<&'static str>> {
    let parts = plan.into_parts();
    let count = parts.len();
    let mut failure = None;
    let mut outcomes = Vec::new();
    for (number, (part, missing)) in (1..).zip(parts) {
        let outcome = if let Some(missing) = missing {
            println!("\n[{number}/{count}] {}: left out ({missing})", part.name);
            Outcome::LeftOut(missing)
        } else if failure.is_some() {
            Outcome::NotRun
        } else {
            println!("\n[{number}/{count}] {} …", part.name);
            let started = Instant::now();
            let result = (part.run)();
            let seconds = started.elapsed().as_secs_f64();
            match result {
                Ok(()) => Outcome::Passed(seconds),
                Err(error) => {
                    failure = Some(format!("{}: {error}", part.name));
                    Outcome::Failed(seconds)
                }
            }
        };
        outcomes.push((part.name, outcome));
    }
    let left_out = report(&outcomes);
    failure.map_or(Ok(left_out), |error| Err(error.into()))
}

/// Prints a table of all parts, and returns those that were left out, which its last lines name.
fn report(outcomes: &[(&'static str, Outcome)]) -> Vec<&'static str> {
    println!("\n{:<28}{:<12}{:>8}", "part", "result", "seconds");
    for (name, outcome) in outcomes {
        match outcome {
            Outcome::Passed(seconds) => println!("{name:<28}{:<12}{seconds:>8.1}", "passed"),
            Outcome::Failed(seconds) => println!("{name:<28}{:<12}{seconds:>8.1}", "FAILED"),
            Outcome::LeftOut(_) => println!("{name:<28}left out"),
            Outcome::NotRun => println!("{name:<28}not run"),
        }
    }
    println!();
    let mut left_out = Vec::new();
    for (name, outcome) in outcomes {
        if let Outcome::LeftOut(missing) = outcome {
            println!("left out: {name} ({missing})");
            left_out.push(*name);
        }
    }
    if outcomes.iter().any(|(_, outcome)| matches!(outcome, Outcome::Failed(_))) {
        return left_out;
    }
    if left_out.is_empty() {
        println!("all {} parts pass", outcomes.len());
    } else {
        println!("all parts that ran pass; left out: {}", left_out.join(", "));
    }
    left_out
}
