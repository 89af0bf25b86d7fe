//! Checks a model of tasks exhaustively: `crates/model`, optimized.

use std::process::Command;

use crate::Result;
use crate::run::{optimized, run as step};

pub fn run(args: &[String]) -> Result {
    if let Some(other) = args.first() {
        return Err(format!("`model` takes no arguments, not {other:?}").into());
    }
    step(&mut Command::new(optimized()?.join("mrtr-model")))
}
