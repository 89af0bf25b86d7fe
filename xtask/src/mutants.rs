//! Mutation tests: changes of the code that a test must detect. `.cargo/mutants.toml` lists the
//! mutated files, and the surviving mutants with their reasons.

use std::fs;
use std::process::Command;

use crate::Result;
use crate::needs::CARGO_MUTANTS;
use crate::run::{root, scratch};
use crate::tools::installed;

pub fn run(args: &[String]) -> Result {
    let tool = installed(CARGO_MUTANTS)?;
    let run = |name: &str, args: &[String]| -> Result {
        let home = scratch("mutants")?.join(name);
        let mut command = Command::new(&tool);
        command.arg("mutants").current_dir(root()).args(["--no-times", "--output"]).arg(&home);
        let status = command.args(args).status()?;
        // A mutant under which the tests hang counts as detected.
        let missed = fs::read_to_string(home.join("mutants.out/missed.txt")).unwrap_or_default();
        match status.code() {
            Some(0 | SOME_HANG) if missed.is_empty() => Ok(()),
            _ => Err(format!("cargo-mutants ended with {status}\n{missed}").into()),
        }
    };
    run("all", args)?;
    if args.is_empty() {
        // Code that is compiled only with a feature.
        let aws_lc =
            "--no-config --package=mrtr-codec --re=aws_lc:: --features=aws-lc -- --lib --tests";
        run("aws-lc", &aws_lc.split(' ').map(str::to_owned).collect::<Vec<_>>())?;
    }
    Ok(())
}

/// The exit code of `cargo-mutants` if tests hung.
const SOME_HANG: i32 = 3;
