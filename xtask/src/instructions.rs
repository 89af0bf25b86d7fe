//! How many instructions an operation takes: a number that noise does not touch. It is held against the one that is
//! written down.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

use crate::Result;
use crate::run::{cargo, output, root, run as step, scratch, there};

const BASELINE: &str = "benches/instructions.txt";
/// By how much a count may differ, either way, in percent: allocators and compilers differ a little.
const TOLERANCE: i64 = 5;
/// An operation is done so often in one process, and that often more in another; the difference is counted.
const TIMES: (i64, i64) = (100, 300);

pub fn run(args: &[String]) -> Result {
    if !there("valgrind") {
        return Err("counting instructions needs valgrind: install it, for example by `apt-get install valgrind`".into());
    }
    let home = scratch("instructions")?;
    let build = [
        "build",
        "--quiet",
        "--locked",
        "--release",
        "--bins",
        "--manifest-path=benches/Cargo.toml",
    ];
    step(cargo(&build).env("CARGO_TARGET_DIR", &home))?;
    let program = home.join("release/counted");
    let names = output(&mut Command::new(&program))?;
    let file = fs::read_to_string(root().join(BASELINE)).unwrap_or_default();
    let (notes, counts): (Vec<_>, Vec<_>) = file.lines().partition(|line| line.starts_with('#'));
    let known = counts.iter().filter_map(|line| {
        let (name, count) = line.split_once(' ')?;
        Some((name, count.trim().parse::<i64>().ok()?))
    });
    let known: BTreeMap<_, _> = known.collect();
    let mut text = notes.join("\n") + "\n";
    let mut wrong = Vec::new();
    println!("\n  {:<12}{:>10}{:>10}{:>8}", "", "written", "counted", "");
    for name in names.lines() {
        let [few, many] =
            [TIMES.0, TIMES.0 + TIMES.1].map(|times| count(&program, &home, name, times));
        let counted = (many? - few?) / TIMES.1;
        let written = known.get(name).copied().unwrap_or_default();
        let more = if written == 0 { 100 } else { (counted - written) * 100 / written };
        println!("  {name:<12}{written:>10}{counted:>10}{more:>+7} %");
        writeln!(text, "{name} {counted}")?;
        if more.abs() > TOLERANCE {
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

/// Of a whole process that does an operation so often.
fn count(program: &Path, home: &Path, name: &str, times: i64) -> Result<i64> {
    let counts = home.join("counts");
    let mut valgrind = Command::new("valgrind");
    valgrind
        .args(["--tool=callgrind", "--quiet"])
        .arg(format!("--callgrind-out-file={}", counts.display()));
    let status =
        valgrind.arg(program).args([name, &times.to_string()]).stderr(Stdio::inherit()).status()?;
    if !status.success() {
        return Err(format!("{name} ended with {status}").into());
    }
    let counts = fs::read_to_string(counts)?;
    let total = counts
        .lines()
        .find_map(|line| line.strip_prefix("summary: ")?.split(' ').next()?.parse().ok());
    Ok(total.ok_or("callgrind wrote no sum")?)
}
