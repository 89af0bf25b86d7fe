//! What was promised, held against what was seen.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::sync::atomic::{AtomicU32, Ordering};

use crate::balancer::{Served, statuses};
use crate::clients::{Flow, Foreign};
use crate::ledger::Entry;
use crate::scenario::Done;
use crate::workload::{BOUGHT, DECLINED, answer_to, consents, may_run};
use crate::{lock, quarter};

/// How much more memory the witness may hold in the end, in KiB.
const GROWTH: u64 = 2048;

#[derive(Debug)]
pub(crate) struct Seen<'a> {
    pub(crate) flows: Vec<Flow>,
    /// Callers who still waited when the run was over.
    pub(crate) unended: usize,
    pub(crate) entries: Vec<Entry>,
    pub(crate) served: Vec<Served>,
    /// Until when nobody was killed, in seconds since the run began.
    pub(crate) calm_until: f64,
    /// When that was, in seconds since 1970.
    pub(crate) began_at: f64,
    /// When, and how many KiB the witness held.
    pub(crate) memory: Vec<(f64, u64)>,
    pub(crate) foreign: &'a Foreign,
    pub(crate) done: &'a Done,
}

/// A promise, and all that was seen against it.
#[derive(Debug)]
struct Promise {
    name: &'static str,
    text: &'static str,
    broken: Vec<String>,
}

/// Runs of steps by flow and step.
type Runs<'a> = BTreeMap<&'a str, BTreeMap<&'a str, Vec<&'a Entry>>>;

/// The report, and whether all promises were kept.
pub(crate) fn report(seen: &Seen<'_>) -> (String, bool) {
    let promises = judge(seen);
    let mut text = what_happened(seen);
    text += "\n| promise | kept |\n|---|---|\n";
    for Promise { name, text: said, broken } in &promises {
        let kept = match broken.len() {
            0 => "yes".to_owned(),
            times => format!("**no**, {times} times: {}", broken.first().map_or("", |first| first)),
        };
        let _ = writeln!(text, "| {name}: {said} | {} |", kept.replace('|', "\\|"));
    }
    let broken: Vec<_> = promises.iter().filter(|promise| !promise.broken.is_empty()).collect();
    let names: Vec<_> = broken.iter().map(|promise| promise.name).collect();
    let _ = match names.len() {
        0 => writeln!(text, "\nbroken promises: none"),
        _ => writeln!(text, "\nbroken promises: {}", names.join(", ")),
    };
    (text, broken.is_empty())
}

fn judge(seen: &Seen<'_>) -> Vec<Promise> {
    let mut runs = Runs::new();
    for entry in &seen.entries {
        runs.entry(&entry.flow).or_default().entry(&entry.step).or_default().push(entry);
    }
    let all = |check: fn(&Flow, &BTreeMap<&str, Vec<&Entry>>) -> Vec<String>| {
        let none = BTreeMap::new();
        let each = seen.flows.iter();
        each.flat_map(|flow| check(flow, runs.get(&*flow.id).unwrap_or(&none))).collect::<Vec<_>>()
    };
    let mut lost = all(|flow, _| ended(flow));
    lost.extend((0..seen.unended).map(|_| "a caller still waited a minute later".to_owned()));
    let mut crossed = all(answers);
    crossed.extend(lock(&seen.foreign.otherwise).iter().cloned());
    vec![
        Promise {
            name: "flows",
            text: "each ends, as its caller was told to expect",
            broken: lost,
        },
        Promise {
            name: "questions",
            text: "nobody is asked the same twice in a flow",
            broken: all(|flow, _| asked_twice(flow)),
        },
        Promise {
            name: "requests",
            text: "a step runs at most once for each request received",
            broken: all(once_per_request),
        },
        Promise {
            name: "steps",
            text: "a step runs exactly once if no response was lost, and again only where one was",
            broken: all(steps),
        },
        Promise {
            name: "keys",
            text: "all runs of a step after the first state have one idempotency key",
            broken: all(keys),
        },
        Promise {
            name: "answers",
            text: "an answer counts for its own question, flow and caller only",
            broken: crossed,
        },
        Promise {
            name: "rotation",
            text: "rotating keys and rolling out a version refuses no state",
            broken: all(|flow, _| refused(flow)),
        },
        Promise {
            name: "drain",
            text: "a replica that is told to end cuts nobody off",
            broken: cut(seen),
        },
        Promise { name: "run", text: "all that was to happen did", broken: idle(seen) },
        Promise { name: "memory", text: "a replica does not grow", broken: grown(seen) },
    ]
}

fn ended(flow: &Flow) -> Vec<String> {
    let id = &flow.id;
    match &flow.outcome {
        Some(Ok(_)) => Vec::new(),
        // Its caller can begin again, and knows; whether it had to is another promise.
        Some(Err(_)) if !refused(flow).is_empty() => Vec::new(),
        Some(Err(why)) => vec![format!("{id}: {why}")],
        None => vec![format!("{id}: no outcome")],
    }
}

fn asked_twice(flow: &Flow) -> Vec<String> {
    let mut known = BTreeSet::new();
    let twice = flow.asked.iter().filter(|question| !known.insert(*question));
    twice.map(|(key, message)| format!("{}: {key}: {message}", flow.id)).collect()
}

fn once_per_request(flow: &Flow, runs: &BTreeMap<&str, Vec<&Entry>>) -> Vec<String> {
    let mut wrong = Vec::new();
    for (step, runs) in runs {
        let mut requests = BTreeSet::new();
        let twice = runs.iter().find(|run| !requests.insert(&run.request));
        wrong.extend(twice.map(|run| format!("{}: {step} in request {}", flow.id, run.request)));
    }
    wrong
}

fn steps(flow: &Flow, runs: &BTreeMap<&str, Vec<&Entry>>) -> Vec<String> {
    if !matches!(flow.outcome, Some(Ok(_))) {
        return Vec::new();
    }
    let expected: &[&str] = if consents(&flow.id) { &BOUGHT } else { &DECLINED };
    let mut wrong = Vec::new();
    for step in expected {
        let times = runs.get(step).map_or(0, Vec::len);
        // Those in which it may have run.
        let lost = flow.legs.iter().filter(|leg| leg.broken.is_some() && may_run(step, leg.asked));
        let broken = lost.count();
        if times == 0 || times > 1 + broken {
            wrong.push(format!("{}: {step} ran {times} times, {broken} responses lost", flow.id));
        }
    }
    let other = runs.keys().filter(|step| !expected.contains(step));
    wrong.extend(other.map(|step| format!("{}: {step} ran", flow.id)));
    wrong
}

fn keys(flow: &Flow, runs: &BTreeMap<&str, Vec<&Entry>>) -> Vec<String> {
    // A first request that is sent again begins another flow, as far as servers know.
    let begun = flow.legs.iter().filter(|leg| leg.is_first).count();
    let mut wrong = Vec::new();
    for (step, runs) in runs {
        let keys: BTreeSet<_> = runs.iter().map(|run| &run.key).collect();
        let most = if may_run(step, 0) { begun } else { 1 };
        if keys.len() > most {
            wrong.push(format!("{}: {step} ran with {} keys", flow.id, keys.len()));
        }
    }
    wrong
}

fn answers(flow: &Flow, runs: &BTreeMap<&str, Vec<&Entry>>) -> Vec<String> {
    let mut wrong = Vec::new();
    for used in flow.outcome.iter().flatten().flatten() {
        let (key, message) = (&used.key, &used.message);
        let was_asked = flow.asked.iter().any(|asked| (&asked.0, &asked.1) == (key, message));
        if !was_asked {
            wrong.push(format!("{}: an answer for {message:?}, which was not asked", flow.id));
        } else if used.answer != answer_to(&flow.caller, key, message) {
            wrong.push(format!("{}: {message:?} took another question's answer", flow.id));
        }
    }
    let of_others = runs.values().flatten().filter(|run| run.caller != flow.caller);
    wrong.extend(of_others.map(|run| format!("{}: {} ran for {}", flow.id, run.step, run.caller)));
    wrong
}

fn refused(flow: &Flow) -> Vec<String> {
    let why = flow.legs.iter().filter_map(|leg| leg.refused.as_ref());
    why.map(|why| format!("{}: {why}", flow.id)).collect()
}

/// What had no answer while nobody was killed, for the load balancer or for callers.
fn cut(seen: &Seen<'_>) -> Vec<String> {
    // Some statuses are none: -1 is a request that came to nothing.
    let failed = calm(seen).filter(|served| !(200..499).contains(&served.status));
    let of_balancer =
        failed.map(|served| format!("{} at {:.1} s", served.status, served.at - seen.began_at));
    let legs = seen.flows.iter().flat_map(|flow| &flow.legs);
    let broken = legs.filter(|leg| leg.begun < seen.calm_until - 1.0);
    let of_callers =
        broken.filter_map(|leg| Some(format!("{} at {:.1} s", leg.broken.as_ref()?, leg.begun)));
    of_balancer.chain(of_callers).collect()
}

/// A run in which little happened says little.
fn idle(seen: &Seen<'_>) -> Vec<String> {
    let answered = seen.flows.iter().flat_map(|flow| &flow.legs).filter(|leg| leg.broken.is_none());
    let enough = [
        ("no replica was drained", seen.done.drained.load(Ordering::Relaxed) > 4),
        ("no replica was killed", seen.done.killed.load(Ordering::Relaxed) > 0),
        ("no key was rotated", seen.done.rotated.load(Ordering::Relaxed) > 0),
        ("nobody tried to steal", seen.foreign.tried.load(Ordering::Relaxed) > 0),
        ("hardly a call was made", seen.flows.len() > 100),
        ("the load balancer's log cannot be read", seen.served.len() >= answered.count()),
    ];
    enough.iter().filter(|(_, is_so)| !is_so).map(|(what, _)| (*what).to_owned()).collect()
}

fn calm<'a>(seen: &'a Seen<'_>) -> impl Iterator<Item = &'a Served> {
    seen.served.iter().filter(|served| served.at < seen.began_at + seen.calm_until)
}

/// What the witness held in the first quarter of the time in which nobody was to touch it, and in the last.
fn held(seen: &Seen<'_>) -> Option<(u64, u64)> {
    // The second half of the run: it has its version by then.
    let untouched: Vec<u64> =
        seen.memory.iter().filter(|(at, _)| *at > seen.calm_until).map(|(_, kib)| *kib).collect();
    Some((quarter(&untouched, 0)?, quarter(&untouched, 3)?))
}

fn grown(seen: &Seen<'_>) -> Vec<String> {
    match held(seen) {
        Some((first, last)) if last <= first + GROWTH => Vec::new(),
        Some((first, last)) => vec![format!("{first} KiB, and then {last} KiB")],
        None => vec!["nobody looked".to_owned()],
    }
}

fn what_happened(seen: &Seen<'_>) -> String {
    let mut text = String::from("| | |\n|---|---|\n");
    let mut row = |name: &str, value: String| {
        let _ = writeln!(text, "| {name} | {value} |");
    };
    let count = |counter: &AtomicU32| counter.load(Ordering::Relaxed);
    let (drained, killed) = (count(&seen.done.drained), count(&seen.done.killed));
    row("replicas drained, killed", format!("{drained}, {killed}"));
    row("rotations of the key ring", count(&seen.done.rotated).to_string());
    row("calls", seen.flows.len().to_string());
    let finished = seen.flows.iter().filter(|flow| matches!(flow.outcome, Some(Ok(_)))).count();
    row("finished", finished.to_string());
    let legs = || seen.flows.iter().flat_map(|flow| &flow.legs);
    let broken = legs().filter(|leg| leg.broken.is_some()).count();
    row("legs, of them without an answer", format!("{}, {broken}", legs().count()));
    let mut why = BTreeMap::<&str, u32>::new();
    legs().filter_map(|leg| leg.broken.as_deref()).for_each(|text| {
        *why.entry(text).or_default() += 1;
    });
    for (text, times) in why {
        row("", format!("{times} × {}", text.replace('|', "\\|")));
    }
    let calm: Vec<_> = seen.flows.iter().filter(|flow| flow.ended < seen.calm_until).collect();
    let in_calm = calm.iter().flat_map(|flow| &flow.legs).filter(|leg| leg.broken.is_some());
    row("legs without an answer while nobody was killed", in_calm.count().to_string());
    let questions: usize = seen.flows.iter().map(|flow| flow.asked.len()).sum();
    row("questions a call", mean(questions, seen.flows.len()));
    let ids: BTreeSet<_> = calm.iter().map(|flow| &*flow.id).collect();
    let steps_of = |id: &str| if consents(id) { BOUGHT.len() } else { DECLINED.len() };
    let in_calm = seen.entries.iter().filter(|entry| ids.contains(&*entry.flow)).count();
    let due = calm.iter().map(|flow| steps_of(&flow.id)).sum();
    row("runs of a step while nobody was killed", mean(in_calm, due));
    let due_later = seen.flows.iter().map(|flow| steps_of(&flow.id)).sum::<usize>() - due;
    row("runs of a step afterwards", mean(seen.entries.len() - in_calm, due_later));
    let times = legs().filter(|leg| leg.broken.is_none()).map(|leg| leg.took.as_secs_f64() * 1e3);
    row("a leg, median, 99th of 100, slowest", spread(times.collect(), "ms"));
    let times = seen.flows.iter().map(|flow| flow.ended - flow.begun);
    row("a call with people who think 0.1 s, the same", spread(times.collect(), "s"));
    let tried = seen.foreign.tried.load(Ordering::Relaxed);
    let otherwise = lock(&seen.foreign.otherwise).len();
    row("states of others tried, not refused", format!("{tried}, {otherwise}"));
    row("the load balancer while nobody was killed", statuses(self::calm(seen)));
    let rest = seen.served.iter().filter(|it| it.at >= seen.began_at + seen.calm_until);
    row("the load balancer afterwards", statuses(rest));
    if let Some((first, last)) = held(seen) {
        row("memory of a replica in the second half", format!("{first} KiB, then {last} KiB"));
    }
    text
}

#[expect(clippy::cast_precision_loss, reason = "counts of a run are small")]
fn mean(sum: usize, of: usize) -> String {
    format!("{:.4}", sum as f64 / of.max(1) as f64)
}

fn spread(mut values: Vec<f64>, unit: &str) -> String {
    values.sort_by(f64::total_cmp);
    let at = |hundredth: usize| values.get((values.len() * hundredth / 100).min(values.len() - 1));
    let shown = [50, 99, 100]
        .map(|hundredth| at(hundredth).map_or(String::new(), |v| format!("{v:.1} {unit}")));
    shown.join(", ")
}
