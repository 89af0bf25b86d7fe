//! The figures of a run.

use std::sync::atomic::Ordering;

use super::check::{Checked, is_planned};
use super::faults::{Fault, Kind};
use super::invariants::{Run, row, witness_memory};
use super::link::Counts;
use super::observed::{End, Status};
use super::record::Event;
use super::workload::TOOLS;
use crate::lock;

/// Returns a table.
pub(crate) fn summary(run: &Run<'_>, calls: &[Checked<'_>], faults: &[Fault]) -> String {
    let mut text = String::from("| | |\n|---|---|\n");
    let mut row = |name: &str, value: String| row(&mut text, name, value);
    let count = |kind| faults.iter().filter(|fault| fault.kind == kind).count();
    let (killed, frozen, held) = (count(Kind::Killed), count(Kind::Frozen), count(Kind::Held));
    row("replicas killed, frozen, cut off", format!("{killed}, {frozen}, {held}"));
    let done = &run.world.done;
    let [drained, returned, rotated] =
        [&done.drained, &done.returned, &done.rotated].map(|count| count.load(Ordering::Relaxed));
    row(
        "replicas drained, started with the old version, key rotations",
        format!("{drained}, {returned}, {rotated}"),
    );
    let cut = |of: fn(&Counts) -> u32| -> u32 {
        run.world.links.iter().map(|link| of(&link.counts)).sum()
    };
    let lost = [
        cut(|all| all.responses.load(Ordering::Relaxed)),
        cut(|all| all.requests.load(Ordering::Relaxed)),
        cut(|all| all.bytes.load(Ordering::Relaxed)),
    ];
    row(
        "connections cut after a commit, in a commit, at any byte",
        lost.map(|count| count.to_string()).join(", "),
    );
    let (crashed, restored) = (count(Kind::Crashed), count(Kind::Restored));
    row("PostgreSQL killed, restored from a copy", format!("{crashed}, {restored}"));
    let unplanned = faults.iter().filter(|fault| !is_planned(fault.kind)).count();
    row("stalls of the machine", unplanned.to_string());

    let tasks = || calls.iter().filter(|it| it.call.task.is_some());
    row("calls, tasks", format!("{}, {}", calls.len(), tasks().count()));
    let of_tool = |tool: &&str| tasks().filter(|it| it.call.tool == **tool).count().to_string();
    let tools = TOOLS.iter().map(of_tool).collect::<Vec<_>>().join(", ");
    row(&format!("tasks by policy: {}", TOOLS.join(", ")), tools);
    let ended = |is: fn(&End) -> bool| tasks().filter(|it| it.call.end().is_some_and(is)).count();
    let ends = [
        ended(|end| matches!(end, End::Completed(_))),
        ended(|end| *end == End::Cancelled),
        ended(|end| matches!(end, End::Failed(_))),
    ];
    row("completed, cancelled, failed", ends.map(|count| count.to_string()).join(", "));
    let waiting = |it: &&Checked<'_>| it.call.cancelled.is_some_and(|it| it.was_waiting);
    row("cancelled while they waited", tasks().filter(waiting).count().to_string());
    let lost = tasks().filter(|it| it.was_lost()).count();
    let twice = tasks().filter(|it| it.ended_twice()).count();
    row("lost by the restoration, ended again after it", format!("{lost}, {twice}"));

    let events = |is: fn(&Event) -> bool| run.entries.iter().filter(|it| is(&it.event)).count();
    let runs = events(|event| matches!(event, Event::Began { .. }));
    let steps = events(|event| matches!(event, Event::Step { .. }));
    let again: usize = calls.iter().map(Checked::repetitions).sum();
    row("runs of handlers, of steps, of which again", format!("{runs}, {steps}, {again}"));
    let calm = run.entries.iter().filter(|it| it.at < run.calm_until);
    let calm = calm.filter(|it| matches!(it.event, Event::Step { .. })).count();
    row("runs of steps while only connections were cut", calm.to_string());
    let answers: usize = tasks().map(|it| it.call.answered.len()).sum();
    row("answers acknowledged", answers.to_string());
    let observed: usize = tasks()
        .map(|it| {
            it.call.observations.iter().filter(|it| matches!(it.status, Status::Ended(_))).count()
        })
        .sum();
    row("ends observed", observed.to_string());
    let tried = run.foreign.tried.load(Ordering::Relaxed);
    let not_refused = lock(&run.foreign.not_refused).len();
    row("requests about foreign tasks, not refused", format!("{tried}, {not_refused}"));
    if let Some(time) = run.ended {
        row("time until all tasks had ended", format!("{:.1} s", time.as_secs_f64()));
    }
    if let Some((first, last)) = witness_memory(run) {
        row("memory of a replica in the time of faults", format!("{first} KiB, then {last} KiB"));
    }
    text
}
