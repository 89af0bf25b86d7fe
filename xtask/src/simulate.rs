//! Runs random handlers under random faults: `mrtr_testkit::simulate`, optimized.

use std::process::Command;

use crate::Result;
use crate::run::{optimized, run as step};

pub fn run(args: &[String]) -> Result {
    step(Command::new(optimized()?.join("simulate")).args(args))
}
