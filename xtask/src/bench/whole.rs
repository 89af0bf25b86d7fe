//! Instructions of whole servers for each call, HTTP included.

use super::rivals::{SHIPPED, subjects};
use super::subject::{Load, Subject, check};
use super::{Extent, Part, Sheet, show};
use crate::Result;
use crate::callgrind::{self, Counts, counting, counts};

const WORKLOADS: [(&str, &str); 5] = [
    ("echo", "echo"),
    ("a call of two rounds", "order"),
    ("a call of three rounds with ten steps", "plan"),
    ("three progress notifications and a result", "count"),
    ("an argument of 64 KiB", "length"),
];

/// The numbers of calls in two processes; the difference of their counts is measured.
const FLOWS: (i64, i64) = (50, 250);

pub fn measure(_: &Extent) -> Result<Part> {
    check()?;
    callgrind::check()?;
    let mut subjects = subjects(false)?;
    // The two rmcp servers differ only in how the socket waits.
    subjects.retain(|subject| subject.name != SHIPPED);
    let mut sheet = Sheet::new(&[
        "workload",
        "server",
        "instructions",
        "of which SHA-256",
        "others",
        "ratio to bare axum",
    ]);
    for (title, workload) in WORKLOADS {
        show(&format!("  {title:<50}"))?;
        let mut floor = None;
        for subject in &subjects {
            let [few, many] = [FLOWS.0, FLOWS.1].map(|flows| count(subject, workload, flows));
            let (few, many) = (few?, many?);
            let each = |of: fn(Counts) -> i64| (of(many) - of(few)) / (FLOWS.1 - FLOWS.0);
            let (all, sha) = (each(|counts| counts.all), each(|counts| counts.sha));
            show(&format!(" {all:>8}"))?;
            let others = all - sha;
            let floor = *floor.get_or_insert(others);
            // In hundredths, to the nearest.
            let ratio = (others * 100 + floor / 2) / floor.max(1);
            let (whole, parts) = (ratio / 100, ratio % 100);
            let mut row = vec![title.to_owned(), subject.name.clone()];
            row.extend([all, sha, others].map(|count| count.to_string()));
            row.push(format!("{whole}.{parts:02}"));
            sheet.push(row);
        }
        println!();
    }
    Ok(Part { sheet, targets: Vec::new() })
}

/// Counts the instructions of a process that serves that many calls, and one more.
fn count(subject: &Subject, workload: &str, flows: i64) -> Result<Counts> {
    let (tool, counted) = counting()?;
    let load = Load::new(workload, 1);
    let load = load.with(&["--flows", &flows.to_string(), "--warm-up", "0", "--terminate"]);
    // Until all are done.
    let extent = Extent { rounds: 1, seconds: 600.0, all: false };
    subject.under(&tool).measure(&load, &extent)?;
    counts(&counted)
}
