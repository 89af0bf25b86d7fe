//! Compares observations with the guarantees.

use std::fmt::Write as _;
use std::sync::atomic::Ordering;
use std::time::Duration;

use super::check::Checked;
use super::clients::{Foreign, Shared};
use super::events::World;
use super::faults::{Fault, Kind};
use super::history::{Ledgered, by_call};
use super::observed::Call;
use super::record::{Entry, Event};
use super::summary::summary;
use crate::invariants::{Guarantee, table};
use crate::{lock, quarter};

/// Maximum growth of the witness's memory, in KiB.
const GROWTH: u64 = 3072;

/// What is known of a run at its end.
pub(crate) struct Run<'a> {
    pub(crate) calls: Vec<Shared>,
    pub(crate) entries: Vec<Entry>,
    pub(crate) faults: Vec<Fault>,
    /// The time until which there were no faults but cut connections.
    pub(crate) calm_until: f64,
    /// The time after the faults in which all tasks ended. `None`: not all have.
    pub(crate) ended: Option<Duration>,
    /// Memory of the witness: times in seconds since 1970, and KiB.
    pub(crate) memory: Vec<(f64, u64)>,
    pub(crate) foreign: &'a Foreign,
    pub(crate) world: &'a World,
}

/// Returns the report, and whether all guarantees hold.
pub(crate) fn report(run: &Run<'_>) -> (String, bool) {
    let mut faults = run.faults.clone();
    for entry in &run.entries {
        if let Event::Stalled { since } = entry.event {
            let (port, from, to) = (Some(entry.port), since, entry.at);
            faults.push(Fault { kind: Kind::Stalled, port, from, to });
        }
    }
    let restoration = run.world.done.restoration();
    let ledger = by_call(&run.entries, &faults, restoration.as_ref());
    let none = Ledgered::default();
    let calls: Vec<_> = run.calls.iter().map(|call| std::mem::take(&mut *lock(call))).collect();
    let calls: Vec<_> = calls
        .iter()
        .map(|call: &Call| Checked {
            call,
            ledgered: ledger.get(&*call.id).unwrap_or(&none),
            faults: &faults,
            restoration: restoration.as_ref(),
        })
        .collect();
    let guarantees = check_all(run, &calls);
    let mut text = summary(run, &calls, &faults);
    let kept = table(&guarantees, &mut text);
    (text, kept)
}

fn check_all<'a>(run: &Run<'_>, calls: &[Checked<'a>]) -> Vec<Guarantee> {
    let all = |check: fn(&Checked<'a>) -> Vec<String>| calls.iter().flat_map(check).collect();
    // A journal with a foreign result was also cut: the steps after that result run again.
    let is_sound = |call: &&Checked<'a>| call.journal().is_empty();
    let sound = |check: fn(&Checked<'a>) -> Vec<String>| {
        calls.iter().filter(is_sound).flat_map(check).collect()
    };
    let mut not_ended: Vec<_> = all(Checked::ended);
    if run.ended.is_none() {
        // Also tasks that had ended before the copy was restored have to end again.
        not_ended.push("not all tasks had ended when the time was over".to_owned());
    }
    // Taken here: `idle` locks it, too.
    let not_refused = lock(&run.foreign.not_refused).clone();
    let guarantee = |name, text, broken| Guarantee { name, text, broken };
    vec![
        guarantee(
            "found",
            "a task that its caller knows is found, unless it is younger than the copy that was restored",
            all(Checked::found),
        ),
        guarantee(
            "end",
            "a task ends once, and its end does not change, unless an older copy is restored",
            all(Checked::one_end),
        ),
        guarantee(
            "recorded",
            "a step whose result the handler has seen does not run again",
            sound(Checked::recorded),
        ),
        guarantee(
            "runs",
            "a step in flight runs again only if its replica crashed, was frozen or did not reach the store",
            sound(Checked::runs),
        ),
        guarantee(
            "journal",
            "without the lease nothing is written: handlers and results see the last run of each step",
            all(Checked::journal),
        ),
        guarantee("keys", "a step has one idempotency key in all its runs", all(Checked::keys)),
        guarantee(
            "answers",
            "an accepted answer is kept, the first one counts, and for its own question only",
            all(Checked::answers),
        ),
        guarantee(
            "continues",
            "some replica continues: all tasks end once there are no more faults",
            not_ended,
        ),
        guarantee("owner", "for other callers, a task does not exist", not_refused),
        guarantee(
            "cancelled",
            "no step begins after a cancellation was learned of",
            all(Checked::cancelled),
        ),
        guarantee(
            "outcome",
            "a task ends as its handler does with the same answers",
            all(Checked::outcome),
        ),
        guarantee("run", "all planned faults took place", idle(run, calls)),
        guarantee("memory", "the memory of a replica does not grow", memory_growth(run)),
    ]
}

/// A run with few faults proves little.
fn idle(run: &Run<'_>, calls: &[Checked<'_>]) -> Vec<String> {
    let count = |kind| run.faults.iter().filter(|fault| fault.kind == kind).count();
    let done = &run.world.done;
    let links = || run.world.links.iter().map(|link| &link.counts);
    let cut = |counter: fn(&super::link::Counts) -> u32| links().map(counter).sum::<u32>() > 0;
    let enough = [
        ("no replica was killed", count(Kind::Killed) > 0),
        ("no replica was frozen", count(Kind::Frozen) > 0),
        ("no connections were held", count(Kind::Held) > 0),
        ("PostgreSQL was not killed", count(Kind::Crashed) > 0),
        ("no copy was restored", count(Kind::Restored) == 1),
        ("no replica was drained", done.drained.load(Ordering::Relaxed) > 4),
        ("no key was rotated", done.rotated.load(Ordering::Relaxed) > 0),
        ("no response to a commit was lost", cut(|all| all.responses.load(Ordering::Relaxed))),
        ("no commit was cut off", cut(|all| all.requests.load(Ordering::Relaxed))),
        ("no connection was cut at any byte", cut(|all| all.bytes.load(Ordering::Relaxed))),
        ("no foreign task was tried", run.foreign.tried.load(Ordering::Relaxed) > 0),
        ("no task was lost by the restoration", calls.iter().any(Checked::was_lost)),
        ("too few calls were made", calls.len() > 50),
        ("no task was cancelled", calls.iter().any(|it| it.call.cancelled.is_some())),
    ];
    // A foreign task that was not refused is another guarantee's.
    let is_exempt =
        |what: &str| what.contains("foreign") && !lock(&run.foreign.not_refused).is_empty();
    let missing = enough.iter().filter(|(what, is_so)| !is_so && !is_exempt(what));
    missing.map(|(what, _)| (*what).to_owned()).collect()
}

/// Returns the witness's memory in the first and in the last quarter of the time of faults.
pub(crate) fn witness_memory(run: &Run<'_>) -> Option<(u64, u64)> {
    let samples = run.memory.iter().filter(|(at, _)| *at > run.calm_until);
    let samples: Vec<_> = samples.map(|(_, kib)| *kib).collect();
    Some((quarter(&samples, 0)?, quarter(&samples, 3)?))
}

fn memory_growth(run: &Run<'_>) -> Vec<String> {
    match witness_memory(run) {
        Some((first, last)) if last <= first + GROWTH => Vec::new(),
        Some((first, last)) => vec![format!("{first} KiB, then {last} KiB")],
        None => vec!["memory was not measured".to_owned()],
    }
}

/// Adds a row to a table of two columns.
pub(crate) fn row(text: &mut String, name: &str, value: impl std::fmt::Display) {
    let _ = writeln!(text, "| {name} | {value} |");
}
