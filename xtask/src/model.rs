//! Checks a model of tasks exhaustively: `crates/model`, optimized.

use crate::Result;
use crate::run::{cargo, run as step};

pub fn run(args: &[String]) -> Result {
    if let Some(other) = args.first() {
        return Err(format!("`model` takes no arguments, not {other:?}").into());
    }
    step(&mut cargo(&["run", "--quiet", "--release", "--package", "mrtr-model"]))
}
