//! Mutants: changes of the code that some test has to notice. What is mutated, and what survives and why, stands in
//! `.cargo/mutants.toml`.

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
        // With some mutants the tests go on for ever, which is noticed, too; it tells of no others then.
        let missed = fs::read_to_string(home.join("mutants.out/missed.txt")).unwrap_or_default();
        match status.code() {
            Some(0 | SOME_HANG) if missed.is_empty() => Ok(()),
            _ => Err(format!("cargo-mutants ended with {status}\n{missed}").into()),
        }
    };
    run("all", args)?;
    if args.is_empty() {
        // What is compiled with a feature only.
        let aws_lc =
            "--no-config --package=mrtr-codec --re=aws_lc:: --features=aws-lc -- --lib --tests";
        run("aws-lc", &aws_lc.split(' ').map(str::to_owned).collect::<Vec<_>>())?;
    }
    Ok(())
}

/// What `cargo-mutants` ends with if tests did not end.
const SOME_HANG: i32 = 3;
