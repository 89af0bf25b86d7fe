//! How many instructions an operation takes: a number that noise does not touch. It is held against the one that is
//! written down.

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
/// By how much a count may differ, either way, in percent: allocators and compilers differ a little.
const TOLERANCE: i64 = 5;
/// An operation is done so often in one process, and that often more in another; the difference is counted.
const TIMES: (i64, i64) = (100, 300);

pub fn run(args: &[String]) -> Result {
    callgrind::check()?;
    let program = program()?;
    let names = output(&mut Command::new(&program))?;
    let known = written_down()?;
    let file = fs::read_to_string(root().join(BASELINE))?;
    let notes: Vec<_> = file.lines().filter(|line| line.starts_with('#')).collect();
    let mut text = notes.join("\n") + "\n";
    let mut wrong = Vec::new();
    println!("\n  {:<12}{:>10}{:>10}{:>8}", "", "written", "counted", "");
    for name in names.lines() {
        let [few, many] = [TIMES.0, TIMES.0 + TIMES.1].map(|times| count(&program, name, times));
        let counted = (many? - few?) / TIMES.1;
        let written = known.get(name).copied().unwrap_or_default();
        let more = (counted - written) * 100 / written.max(1);
        println!("  {name:<12}{written:>10}{counted:>10}{more:>+7} %");
        writeln!(text, "{name} {counted}")?;
        // What is not written down differs by all there is.
        if (counted - written).abs() * 100 > TOLERANCE * written {
            wrong.push(format!("{name} takes {counted} instructions; {written} are written down"));
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
        "{wrong}\n  If that is right, `cargo xtask instructions --write` writes {BASELINE} anew"
    )
    .into())
}

/// Does operations; without arguments, it names them.
pub fn program() -> Result<PathBuf> {
    Ok(release("benches")?.join("counted"))
}

/// The counts that are written down.
pub fn written_down() -> Result<BTreeMap<String, i64>> {
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

/// Of a whole process that does an operation so often.
fn count(program: &Path, name: &str, times: i64) -> Result<i64> {
    let (tool, counted) = counting()?;
    let (first, rest) = tool.split_first().ok_or("no tool")?;
    let mut command = Command::new(first);
    command.args(rest).arg(program).args([name, &times.to_string()]);
    output(&mut command)?;
    Ok(counts(&counted)?.all)
}
