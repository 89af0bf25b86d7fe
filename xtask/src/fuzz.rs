//! Runs the fuzz targets, with libFuzzer and the address sanitizer.

use std::path::Path;
use std::process::Command;

use crate::Result;
use crate::needs::CARGO_FUZZ;
use crate::run::{output, root, run as step, scratch, target};
use crate::tools::installed;

pub fn run(args: &[String]) -> Result {
    let mut minutes = 1.0;
    let mut wanted = Vec::new();
    let mut rest = args.iter();
    while let Some(arg) = rest.next() {
        match arg.as_str() {
            "--minutes" => {
                let value = rest.next().and_then(|value| value.parse::<f64>().ok());
                minutes =
                    value.filter(|n| *n > 0.0).ok_or("`--minutes` takes a positive number")?;
            }
            name => wanted.push(name),
        }
    }
    let fuzz = installed(CARGO_FUZZ)?;
    let listed = output(command(&fuzz).arg("list"))?;
    let known: Vec<&str> = listed.lines().collect();
    if let Some(other) = wanted.iter().find(|name| !known.contains(name)) {
        return Err(format!("unknown target {other:?}; known targets: {}", known.join(", ")).into());
    }
    let seconds = (minutes * 60.0).ceil();
    for name in known.iter().filter(|name| wanted.is_empty() || wanted.contains(name)) {
        // New inputs are written to the first folder; the committed corpus is only read.
        let found = scratch("fuzz-corpus")?.join(name);
        std::fs::create_dir_all(&found)?;
        let mut fuzzing = command(&fuzz);
        fuzzing.args(["run", name]).arg(found).arg(root().join("fuzz/corpus").join(name));
        fuzzing.arg("--").arg(format!("-max_total_time={seconds}"));
        fuzzing.args([
            "-max_len=4096",
            "-rss_limit_mb=2048",
            "-timeout=10",
            "-print_final_stats=1",
        ]);
        step(&mut fuzzing)?;
    }
    Ok(())
}

/// Returns a `cargo fuzz` command. It passes options of nightly compilers, which `RUSTC_BOOTSTRAP`
/// enables.
fn command(fuzz: &Path) -> Command {
    let mut command = Command::new(fuzz);
    command.env("RUSTC_BOOTSTRAP", "1").env("CARGO_TARGET_DIR", target().join("fuzz"));
    command.current_dir(root());
    command
}
