//! How many instructions whole servers spend on a call, HTTP included.

use std::fmt::Write as _;

use super::rivals::{AXUM, SHIPPED, subjects};
use super::subject::{Load, Subject, check};
use super::{Extent, Part, show};
use crate::Result;
use crate::callgrind::{self, Counts, counting, counts};

const WORKLOADS: [(&str, &str); 5] = [
    ("echo", "echo"),
    ("a flow of two legs", "order"),
    ("a flow of three rounds with ten steps", "plan"),
    ("three notifications of progress and a result", "count"),
    ("an argument of 64 KiB", "length"),
];

/// So many flows in one process, and so many in another; the difference is counted.
const FLOWS: (i64, i64) = (50, 250);

pub fn measure(_: &Extent) -> Result<Part> {
    check()?;
    callgrind::check()?;
    let mut subjects = subjects(false)?;
    // It differs from the other in how its socket waits.
    subjects.retain(|subject| subject.name != SHIPPED);
    let mut text = String::new();
    for (title, workload) in WORKLOADS {
        show(&format!("  {title:<50}"))?;
        writeln!(text, "\n**{title}**\n")?;
        writeln!(text, "| server | instructions | of which SHA-256 | others | × {AXUM} |")?;
        text.push_str("|---|--:|--:|--:|--:|\n");
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
            writeln!(text, "| {} | {all} | {sha} | {others} | {whole}.{parts:02} |", subject.name)?;
        }
        println!();
    }
    text.push_str(
        "\nCounted by callgrind, over one connection. Its processor has no instructions for SHA-256: with them, that takes about a \
         tenth. What a system call does is not counted.\n",
    );
    Ok(Part { text, targets: Vec::new() })
}

/// Of a whole process that serves so many flows, and one more.
fn count(subject: &Subject, workload: &str, flows: i64) -> Result<Counts> {
    let (tool, counted) = counting()?;
    let load = Load::new(workload, 1);
    let load = load.with(&["--flows", &flows.to_string(), "--warm-up", "0", "--terminate"]);
    // As long as they take.
    let extent = Extent { rounds: 1, seconds: 600.0, all: false };
    subject.under(&tool).measure(&load, &extent)?;
    counts(&counted)
}
