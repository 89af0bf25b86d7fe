//! The cost of abandoned calls, for which a server keeps nothing.

use super::subject::{Load, Subject, built, check};
use super::{Extent, Part, Sheet, Target};
use crate::Result;

const CALLS: u32 = 1_000_000;

pub fn measure(_: &Extent) -> Result<Part> {
    check()?;
    built("load")?;
    let served = built("mrtr")?.join("served").display().to_string();
    let load = Load::new("abandoned", 32).with(&["--flows", &CALLS.to_string()]);
    // Ends when all calls are done.
    let extent = Extent { rounds: 1, seconds: 600.0, all: false };
    let sample = Subject::new("mrtr, served", &[&served]).measure(&load, &extent)?;
    if sample.get("flows") < f64::from(CALLS) {
        return Err(format!("only {} calls in ten minutes", sample.get("flows")).into());
    }
    let mb = |name: &str| sample.get(name) / 1e6;
    let mut sheet = Sheet::new(&["metric", "value"]);
    let mut push = |name: &str, value: String| sheet.push(vec![name.to_owned(), value]);
    push("abandoned calls", format!("{:.0}", sample.get("flows")));
    push("per second", format!("{:.0}", sample.get("per_second")));
    push("RSS after the first answer, MB", format!("{:.1}", mb("idle")));
    push("RSS after the warm-up, MB", format!("{:.2}", mb("warm")));
    push("RSS at the end, MB", format!("{:.2}", mb("rss")));
    push("peak RSS, MB", format!("{:.2}", mb("peak")));
    let target = Target {
        what: "memory of a million abandoned calls".to_owned(),
        wanted: 1.0,
        measured: mb("rss") - mb("warm"),
        spread: None,
        at_least: false,
        unit: "MB",
    };
    Ok(Part { sheet, targets: vec![target] })
}
