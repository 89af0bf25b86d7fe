//! The instructions of whole servers per call, including HTTP.

use super::rivals::{SERVED, SHIPPED, subjects};
use super::subject::{Load, Subject, check};
use super::{Extent, Part, Sheet, Target, show};
use crate::Result;
use crate::callgrind::{self, Counts, counting, counts};

/// The workloads, each with the ratio to bare axum that is wanted, if any.
const WORKLOADS: [(&str, &str, Option<f64>); 5] = [
    ("echo", "echo", None),
    ("a call of two rounds", "order", Some(1.12)),
    ("a call of three rounds with ten steps", "plan", Some(1.4)),
    ("three progress notifications and a result", "count", Some(1.2)),
    ("an argument of 64 KiB", "length", None),
];

/// Numbers of calls in two processes. The difference of their counts is measured.
const CALLS: (i64, i64) = (50, 250);

pub fn measure(_: &Extent) -> Result<Part> {
    check()?;
    callgrind::check()?;
    let mut subjects = subjects(false)?;
    // The two rmcp servers differ only in the settings of the socket and the response format.
    subjects.retain(|subject| subject.name != SHIPPED);
    let mut sheet = Sheet::new(&[
        "workload",
        "server",
        "instructions",
        "of which SHA-256",
        "others",
        "ratio to bare axum",
    ]);
    let mut targets = Vec::new();
    for (title, workload, wanted) in WORKLOADS {
        show(&format!("  {title:<50}"))?;
        let mut floor = None;
        for subject in &subjects {
            let [few, many] = [CALLS.0, CALLS.1].map(|calls| count(subject, workload, calls));
            let (few, many) = (few?, many?);
            let each = |of: fn(Counts) -> i64| (of(many) - of(few)) / (CALLS.1 - CALLS.0);
            let (all, sha) = (each(|counts| counts.all), each(|counts| counts.sha));
            show(&format!(" {all:>8}"))?;
            let others = all - sha;
            let floor = *floor.get_or_insert(others);
            // In hundredths, to the nearest.
            let ratio = (others * 100 + floor / 2) / floor.max(1);
            let (whole, parts) = (ratio / 100, ratio % 100);
            if let Some(wanted) = wanted.filter(|_| subject.name == SERVED) {
                let what = format!("{title}: instructions to axum's, without SHA-256");
                let measured = i32::try_from(ratio).map_or(f64::NAN, f64::from) / 100.0;
                let (spread, at_least, unit) = (None, false, "×");
                targets.push(Target { what, wanted, measured, spread, at_least, unit });
            }
            let mut row = vec![title.to_owned(), subject.name.clone()];
            row.extend([all, sha, others].map(|count| count.to_string()));
            row.push(format!("{whole}.{parts:02}"));
            sheet.push(row);
        }
        println!();
    }
    Ok(Part { sheet, targets })
}

/// Counts the instructions of a process that serves `calls` calls, and one more.
fn count(subject: &Subject, workload: &str, calls: i64) -> Result<Counts> {
    let (tool, counted) = counting()?;
    let load = Load::new(workload, 1);
    let load = load.with(&["--flows", &calls.to_string(), "--warm-up", "0", "--terminate"]);
    // Ends when all calls are done.
    let extent = Extent { rounds: 1, seconds: 600.0, all: false };
    subject.under(&tool).measure(&load, &extent)?;
    counts(&counted)
}
