//! The cost of single operations, without a network.

use std::process::Command;

use super::subject::check;
use super::{Extent, Part, Sheet, Target, median, show};
use crate::Result;
use crate::instructions::{program, recorded_counts};
use crate::run::output;

/// The operations of a round with a hundred results of a hundred bytes, and with none.
const ROUNDS: (&str, &str) = ("replay", "round");

pub fn measure(extent: &Extent) -> Result<Part> {
    check()?;
    let program = program()?;
    let names = output(&mut Command::new(&program))?;
    let names: Vec<&str> = names.lines().collect();
    let mut all: Vec<Vec<f64>> = names.iter().map(|_| Vec::new()).collect();
    for round in 1..=extent.rounds {
        show(&format!("  {round}/{} ", extent.rounds))?;
        for (name, taken) in names.iter().zip(&mut all) {
            let mut timed = Command::new("taskset");
            timed.args(["-c", "1"]).arg(&program).args([*name, "3000"]);
            let nanos: f64 = output(&mut timed)?.trim().parse()?;
            show(&format!(" {nanos:.0}"))?;
            taken.push(nanos);
        }
        println!();
    }
    let at = |name: &str| names.iter().position(|other| *other == name).and_then(|at| all.get(at));
    let (with, without) = (at(ROUNDS.0).ok_or("no replay")?, at(ROUNDS.1).ok_or("no round")?);
    let mut added: Vec<f64> =
        with.iter().zip(without).map(|(with, without)| (with - without) / 1e3).collect();
    let measured = median(&mut added);
    let counts = recorded_counts()?;
    let mut sheet = Sheet::new(&["operation", "µs", "instructions"]);
    for (name, taken) in names.iter().zip(&mut all) {
        let count = counts.get(*name).copied().unwrap_or_default();
        let time = format!("{:.2}", median(taken) / 1e3);
        sheet.push(vec![(*name).to_owned(), time, count.to_string()]);
    }
    let what = "100 recorded steps of 100 bytes add to a round".to_owned();
    let spread = added.first().copied().zip(added.last().copied());
    let target = Target { what, wanted: 40.0, measured, spread, at_least: false, unit: "µs" };
    Ok(Part { sheet, targets: vec![target] })
}
