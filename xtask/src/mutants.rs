//! Mutants: changes of the code that some test has to notice. What is mutated, and what survives and why, stands in
//! `.cargo/mutants.toml`.

use std::process::Command;

use crate::Result;
use crate::run::{root, run as step, scratch};
use crate::tools::installed;

pub fn run(args: &[String]) -> Result {
    let tool = installed("cargo-mutants", "27.1.0")?;
    let command = |name: &str| -> Result<Command> {
        let mut command = Command::new(&tool);
        command.arg("mutants").current_dir(root()).args(["--no-times", "--output"]);
        command.arg(scratch("mutants")?.join(name));
        Ok(command)
    };
    step(command("all")?.args(args))?;
    if args.is_empty() {
        // What is compiled with a feature only.
        let mut aws_lc = command("aws-lc")?;
        aws_lc.args(["--no-config", "--package=mrtr-codec", "--re=aws_lc::", "--features=aws-lc"]);
        step(aws_lc.args(["--", "--lib", "--tests"]))?;
    }
    Ok(())
}
