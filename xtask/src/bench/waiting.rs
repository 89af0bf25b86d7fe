//! What flows cost that wait for an answer, or wait forever: nothing stays on the server.

use super::subject::{Load, Subject, built, check};
use super::{Extent, Part, Target};
use crate::Result;

const FLOWS: u32 = 1_000_000;

pub fn measure(_: &Extent) -> Result<Part> {
    check()?;
    built("load")?;
    let served = built("mrtr")?.join("served").display().to_string();
    let load = Load::new("abandoned", 32).with(&["--flows", &FLOWS.to_string()]);
    // As long as they take.
    let extent = Extent { rounds: 1, seconds: 600.0, all: false };
    let sample = Subject::new("mrtr, served", &[&served]).measure(&load, &extent)?;
    if sample.get("flows") < f64::from(FLOWS) {
        return Err(format!("only {} flows in ten minutes", sample.get("flows")).into());
    }
    let mb = |name: &str| sample.get(name) / 1e6;
    let text = format!(
        "{:.0} flows were begun and left at their first question, {:.0} a second. Resident memory: {:.1} MB after the \
         first answer, {:.2} MB after the warm-up, {:.2} MB at the end, {:.2} MB at most.\n",
        sample.get("flows"),
        sample.get("per_second"),
        mb("idle"),
        mb("warm"),
        mb("rss"),
        mb("peak"),
    );
    let target = Target {
        what: "a million abandoned flows add".to_owned(),
        wanted: 1.0,
        measured: mb("rss") - mb("warm"),
        spread: None,
        at_least: false,
        unit: "MB",
    };
    Ok(Part { text, targets: vec![target] })
}
