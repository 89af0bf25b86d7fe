//! Checks tasks exhaustively: `mrtr-model`.
//!
//! First, no rule may be broken at any of the scales, which together must reach every situation.
//! Then each fault is introduced, and has to be found by one of its rules.

#![expect(clippy::print_stdout, reason = "the output of a program")]

use std::time::Instant;

use mrtr_model::{Fault, Rule, Scale, Visited, check};

const CALM: Scale = Scale::calm();

/// The explored scales.
const SCALES: &[(&str, Scale)] = &[
    (
        "suspended replicas, and lost replies",
        Scale { crashes: 1, zombies: 1, lost_replies: 1, expiries: 1, ..CALM },
    ),
    (
        "a step before the questions, and two replies lost",
        Scale { crashes: 1, lost_replies: 2, asks_early: false, ..CALM },
    ),
    ("two questions", Scale { crashes: 1, zombies: 1, expiries: 1, questions: 2, ..CALM }),
    ("two questions, and two crashes", Scale { crashes: 2, questions: 2, ..CALM }),
    ("three replicas", Scale { replicas: 3, crashes: 1, zombies: 2, expiries: 2, ..CALM }),
    ("a client that cancels", Scale { crashes: 1, zombies: 1, expiries: 1, cancels: true, ..CALM }),
    (
        "a replica that shuts down",
        Scale { crashes: 1, releases: 1, lost_replies: 1, cancels: true, ..CALM },
    ),
    ("late writes", Scale { crashes: 1, late_writes: 1, lost_replies: 1, ..CALM }),
    ("late writes of steps", Scale { crashes: 1, late_writes: 1, asks_early: false, ..CALM }),
    ("a store that is restored", RESTORED),
];

const TWO_QUESTIONS: Scale = Scale { crashes: 1, questions: 2, ..CALM };
const CANCELS: Scale = Scale { crashes: 1, expiries: 1, zombies: 1, cancels: true, ..CALM };
const RESTORED: Scale = Scale { restores: 1, zombies: 1, expiries: 1, ..CALM };

/// The faults, each with a scale at which it is found, and the rules that may find it.
const FAULTS: &[(Fault, Scale, &[Rule])] = &[
    (Fault::NoLeaseCheck, CANCELS, &[Rule::LeaseRequired]),
    (Fault::AnswersInMidEpoch, TWO_QUESTIONS, &[Rule::OneEpoch]),
    (Fault::WaitsForgetsAnswers, TWO_QUESTIONS, &[Rule::Progress]),
    (Fault::ClaimForgetsAnswers, TWO_QUESTIONS, &[Rule::Progress]),
    (Fault::AnswerWakesHeldTask, TWO_QUESTIONS, &[Rule::OneHolder]),
    (Fault::LastAnswerStands, CALM, &[Rule::FirstAnswer]),
    (Fault::NumberedLeases, RESTORED, &[Rule::LeaseRequired]),
    (Fault::AcceptsGaps, RESTORED, &[Rule::SameJournal]),
    (Fault::VerdictHidesCancel, CANCELS, &[Rule::Cancelled]),
    (Fault::StepAfterCancel, CANCELS, &[Rule::Cancelled]),
    (Fault::ActsBeforeCommit, TWO_QUESTIONS, &[Rule::OnceRecorded]),
    (Fault::LateWrites, Scale { crashes: 1, late_writes: 1, ..CALM }, &[Rule::OnceRecorded]),
];

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let begun = Instant::now();
    let (mut states, mut unvisited) = (0, Visited::ALL.to_vec());
    for (name, scale) in SCALES {
        let begun = Instant::now();
        let report = check(*scale, None);
        if !report.broken.is_empty() {
            return Err(format!("{name}: {report}").into());
        }
        println!("{name}: {} states ({:.1} s)", report.states, begun.elapsed().as_secs_f64());
        states += report.states;
        let left = report.unvisited();
        unvisited.retain(|visited| left.contains(visited));
    }
    if !unvisited.is_empty() {
        return Err(format!("no history reaches {unvisited:?}").into());
    }
    for fault in Fault::ALL {
        let Some((_, scale, rules)) = FAULTS.iter().find(|(known, ..)| *known == fault) else {
            return Err(format!("no scale for {fault:?}").into());
        };
        let report = check(*scale, Some(fault));
        let broken: Vec<Rule> = report.broken.iter().map(|(rule, _)| *rule).collect();
        if !broken.iter().any(|rule| rules.contains(rule)) {
            return Err(format!("{fault:?} should break one of {rules:?}; it is {report}").into());
        }
        println!("{fault:?} is found by {broken:?}");
    }
    println!(
        "all rules hold in {states} states, and {} faults are found; {:.1} s",
        FAULTS.len(),
        begun.elapsed().as_secs_f64()
    );
    Ok(())
}
