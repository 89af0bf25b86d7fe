//! Counts the instructions of single operations, which do not depend on the load of the machine,
//! and compares them with the recorded counts.

use std::collections::BTreeMap;
use std::error::Error;
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::Result;
use crate::callgrind::{self, counting, counts};
use crate::run::{output, release, root};

const BASELINE: &str = "benches/instructions.txt";
/// The tolerance in percent: allocators and compilers differ slightly.
const TOLERANCE: i64 = 5;
/// Numbers of repetitions in one process, and of additional ones in a second process. The
/// difference is counted.
const TIMES: (i64, i64) = (100, 300);

pub fn run(args: &[String]) -> Result {
    callgrind::check()?;
    let program = program()?;
    let names = output(&mut Command::new(&program))?;
    let known = recorded_counts()?;
    let file = fs::read_to_string(root().join(BASELINE))?;
    let notes: Vec<_> = file.lines().filter(|line| line.starts_with('#')).collect();
    let mut text = notes.join("\n") + "\n";
    let mut wrong = Vec::new();
    println!("\n  {:<12}{:>10}{:>10}{:>8}", "", "recorded", "counted", "");
    for name in names.lines() {
        let [few, many] = [TIMES.0, TIMES.0 + TIMES.1].map(|times| count(&program, name, times));
        let counted = (many? - few?) / TIMES.1;
        let recorded = known.get(name).copied().unwrap_or_default();
        let more = (counted - recorded) * 100 / recorded.max(1);
        println!("  {name:<12}{recorded:>10}{counted:>10}{more:>+7} %");
        writeln!(text, "{name} {counted}")?;
        // An operation without a recorded count differs by all of its instructions.
        if (counted - recorded).abs() * 100 > TOLERANCE * recorded {
            wrong.push(format!("{name} takes {counted} instructions, {recorded} are recorded"));
        }
    }
    if args.iter().any(|arg| arg == "--write") {
        fs::write(root().join(BASELINE), text)?;
        return Ok(());
    }
    if wrong.is_empty() {
        return Ok(());
    }
    let wrong = wrong.join("\n  ");
    Err(format!(
        "{wrong}\n  If that is intended, run `cargo xtask instructions --write` to update {BASELINE}"
    )
    .into())
}

/// Builds the program that runs operations. Without arguments, it prints their names.
pub fn program() -> Result<PathBuf> {
    Ok(release("benches")?.join("counted"))
}

/// Reads the recorded counts.
pub fn recorded_counts() -> Result<BTreeMap<String, i64>> {
    let file = fs::read_to_string(root().join(BASELINE))?;
    let counts = file.lines().filter(|line| !line.starts_with('#'));
    let count = |line: &str| {
        let (name, count) = line.split_once(' ').ok_or("no count")?;
        Ok((name.to_owned(), count.trim().parse()?))
    };
    counts
        .map(|line| {
            count(line).map_err(|e: Box<dyn Error>| format!("{BASELINE}: {line:?}: {e}").into())
        })
        .collect()
}

/// Counts the instructions of a process that runs an operation a number of times.
fn count(program: &Path, name: &str, times: i64) -> Result<i64> {
    let (tool, counted) = counting()?;
    let (first, rest) = tool.split_first().ok_or("no tool")?;
    let mut command = Command::new(first);
    command.args(rest).arg(program).args([name, &times.to_string()]);
    output(&mut command)?;
    Ok(counts(&counted)?.all)
}
