//! Runs random handlers under random faults: `mrtr_testkit::simulate`, optimized.

use crate::Result;
use crate::run::{cargo, run as step};

pub fn run(args: &[String]) -> Result {
    let mut simulate = cargo(&["run", "--quiet", "--release", "--package", "mrtr-testkit"]);
    step(simulate.args(["--bin", "simulate", "--"]).args(args))
}
