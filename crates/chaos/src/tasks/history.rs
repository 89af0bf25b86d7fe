//! The history of each call, as the ledger has it.
//!
//! When an old data directory is restored, what happened since the copy is undone. A call that
//! lived through that has two histories: the one up to the restoration, and the one that the copy
//! continues with. Each of them has to be right by itself.

use std::collections::BTreeMap;

use super::faults::{Fault, Kind};
use super::record::{Entry, Event};

/// A time in which the server of the store was stopped on purpose, in seconds since 1970.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Outage {
    pub(crate) from: f64,
    /// A time at which it was certainly down.
    pub(crate) at: f64,
    pub(crate) to: f64,
}

/// The loss of what the store had done since it was copied.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Restoration {
    pub(crate) copied: Outage,
    pub(crate) restored: Outage,
}

impl Restoration {
    /// Returns true if something that happened between two times, those of a request and of its
    /// response, may be gone at `later`.
    pub(crate) fn may_lose(&self, (asked, at): (f64, f64), later: f64) -> bool {
        at >= self.copied.from && asked <= self.restored.to && later >= self.restored.from
    }

    /// Returns true if a response may belong to either history.
    pub(crate) fn is_spanned(&self, (asked, at): (f64, f64)) -> bool {
        asked <= self.restored.to && at >= self.restored.from
    }

    fn part(&self, began: f64, at: f64) -> Part {
        // A run that began before the restoration cannot write any more.
        if began > self.restored.at {
            Part::Afterwards
        } else if at <= self.copied.at {
            Part::Copied
        } else {
            Part::Lost
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Part {
    /// It is in the copy.
    Copied,
    /// It happened between the copy and the restoration.
    Lost,
    Afterwards,
}

/// The runs of one step.
#[derive(Debug, Default)]
pub(crate) struct Step<'a> {
    pub(crate) runs: Vec<Attempt<'a>>,
    /// The results that handlers got.
    pub(crate) passed: Vec<Passed<'a>>,
}

#[derive(Debug, Clone, Copy)]
pub(crate) struct Attempt<'a> {
    pub(crate) at: f64,
    /// The time at which the handler began to run.
    pub(crate) began: f64,
    pub(crate) port: u16,
    /// The idempotency key.
    pub(crate) key: &'a str,
    pub(crate) nonce: &'a str,
    /// The process was stopped in the middle of a poll of the handler, and the step begins in the
    /// rest of that poll: its lease may be over, and its result does not count.
    pub(crate) is_belated: bool,
}

#[derive(Debug, Clone, Copy)]
pub(crate) struct Passed<'a> {
    pub(crate) at: f64,
    pub(crate) nonce: &'a str,
}

impl<'a> Step<'a> {
    /// Returns true if a handler got the result of this run.
    pub(crate) fn counts(&self, run: &Attempt<'_>) -> bool {
        self.passed.iter().any(|passed| passed.nonce == run.nonce)
    }

    /// Returns true if a run began after a handler had got the result of an earlier one.
    pub(crate) fn is_again(&self, run: &Attempt<'_>) -> bool {
        self.passed.first().is_some_and(|passed| run.at > passed.at)
            && (self.counts(run) || !run.is_belated)
    }

    /// Returns the last run whose result a handler got.
    pub(crate) fn last_that_counts(&self) -> Option<&Attempt<'a>> {
        self.runs.iter().rev().find(|run| self.counts(run))
    }
}

/// The steps of a call in one history.
#[derive(Debug, Default)]
pub(crate) struct History<'a> {
    pub(crate) steps: BTreeMap<&'a str, Step<'a>>,
}

/// All that the ledger has about a call.
#[derive(Debug, Default)]
pub(crate) struct Ledgered<'a> {
    pub(crate) callers: Vec<&'a str>,
    /// The history up to the restoration, and the one with what came afterwards.
    histories: [History<'a>; 2],
    has_lost: bool,
    has_more: bool,
}

impl<'a> Ledgered<'a> {
    #[cfg(test)]
    pub(crate) fn of(history: History<'a>) -> Self {
        Self { histories: [history, History::default()], ..Self::default() }
    }

    /// Returns the histories that differ.
    pub(crate) fn histories(&self) -> impl Iterator<Item = &History<'a>> {
        let [before, after] = &self.histories;
        let both = [(before, self.has_lost || !self.has_more), (after, self.has_more)];
        both.into_iter().filter(|(_, counts)| *counts).map(|(history, _)| history)
    }

    /// Returns the history that something observed then belongs to.
    pub(crate) fn at(&self, time: f64, restoration: Option<&Restoration>) -> &History<'a> {
        let [before, after] = &self.histories;
        if restoration.is_some_and(|it| time >= it.restored.at) { after } else { before }
    }

    pub(crate) fn has_two_histories(&self) -> bool {
        self.has_lost && self.has_more
    }
}

/// Sorts the ledger by call.
pub(crate) fn by_call<'a>(
    entries: &'a [Entry],
    faults: &[Fault],
    restoration: Option<&Restoration>,
) -> BTreeMap<&'a str, Ledgered<'a>> {
    let mut calls = BTreeMap::<&str, Ledgered<'_>>::new();
    let mut began = BTreeMap::new();
    let stops = |kind| matches!(kind, Kind::Frozen | Kind::Stalled);
    let stops: Vec<_> = faults.iter().filter(|fault| stops(fault.kind)).collect();
    for entry in entries {
        let call = calls.entry(&entry.call).or_default();
        if let Event::Began { caller } = &entry.event {
            began.insert(entry.run, entry.at);
            call.callers.push(caller);
            continue;
        }
        let began = began.get(&entry.run).copied().unwrap_or(entry.at);
        let place = restoration.map_or(Part::Copied, |it| it.part(began, entry.at));
        call.has_lost |= place == Part::Lost;
        call.has_more |= place == Part::Afterwards;
        let [before, after] = &mut call.histories;
        let in_before = (place != Part::Afterwards).then_some(before);
        let in_after = (place != Part::Lost).then_some(after);
        for history in [in_before, in_after].into_iter().flatten() {
            match &entry.event {
                Event::Step { step, key, nonce } => {
                    let is_belated = stops.iter().any(|stop| {
                        stop.port == Some(entry.port)
                            && (stop.from..=stop.to + 0.1).contains(&entry.at)
                    });
                    let Entry { at, port, .. } = *entry;
                    let run = Attempt { at, began, port, key, nonce, is_belated };
                    history.steps.entry(step).or_default().runs.push(run);
                }
                Event::Passed { step, nonce } => {
                    let passed = Passed { at: entry.at, nonce };
                    history.steps.entry(step).or_default().passed.push(passed);
                }
                Event::Began { .. } | Event::Stalled { .. } => {}
            }
        }
    }
    for call in calls.values_mut() {
        for step in call.histories.iter_mut().flat_map(|history| history.steps.values_mut()) {
            step.runs.sort_by(|one, other| one.at.total_cmp(&other.at));
            step.passed.sort_by(|one, other| one.at.total_cmp(&other.at));
        }
    }
    calls
}
