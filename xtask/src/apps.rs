//! Shows the view of the example `apps` in a browser, with the official SDK as its host.

use std::process::Command;

use crate::Result;
use crate::interop::{outcomes, report};
use crate::needs::{CHROMIUM, find_program, require};
use crate::run::build;
use crate::tools::npm_programs;

/// The rows, in the order of `interop/README.md`.
const ROWS: [&str; 7] = ["list", "shown", "round", "decline", "teardown", "policy", "requests"];

/// Prints the outcome of each row, and fails if one failed. The argument is the file for a picture
/// of the view.
pub fn run(args: &[String]) -> Result {
    require(&[CHROMIUM])?;
    let browser = find_program("chromium").ok_or("chromium is missing")?;
    let (node, folder) = npm_programs("apps")?;
    let bin = build()?;
    let mut program = Command::new(bin.join("apps"));
    let outcomes = outcomes(program.args([node, folder, browser]).args(args), &ROWS)?;
    report("apps", &ROWS, &outcomes, |outcome| outcome == "ok")
}
