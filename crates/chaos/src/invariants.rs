//! Compares observations with the guarantees.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::sync::atomic::{AtomicU32, Ordering};

use crate::balancer::{Served, statuses};
use crate::clients::{Call, Foreign};
use crate::ledger::Entry;
use crate::service::Done;
use crate::workload::{BOUGHT, DECLINED, answer_to, consents, may_run};
use crate::{lock, quarter};

/// Maximum growth of the witness's memory, in KiB.
const GROWTH: u64 = 2048;

#[derive(Debug)]
pub(crate) struct Observed<'a> {
    pub(crate) calls: Vec<Call>,
    /// Number of callers that still waited when the run was over.
    pub(crate) unended: usize,
    pub(crate) entries: Vec<Entry>,
    pub(crate) served: Vec<Served>,
    /// Requests of gateways to servers.
    pub(crate) served_upstream: Vec<Served>,
    /// The time until which no replica was killed, in seconds since the run began.
    pub(crate) calm_until: f64,
    /// The time when the run began, in seconds since 1970.
    pub(crate) began_at: f64,
    /// Memory of the witness: times in seconds since the run began, and KiB.
    pub(crate) memory: Vec<(f64, u64)>,
    pub(crate) foreign: &'a Foreign,
    pub(crate) done: &'a Done,
}

/// A guarantee, and all observed violations.
#[derive(Debug)]
pub(crate) struct Guarantee {
    pub(crate) name: &'static str,
    pub(crate) text: &'static str,
    pub(crate) broken: Vec<String>,
}

/// Runs of steps by call and step.
type Runs<'a> = BTreeMap<&'a str, BTreeMap<&'a str, Vec<&'a Entry>>>;

/// Returns the report, and whether all guarantees hold.
pub(crate) fn report(observed: &Observed<'_>) -> (String, bool) {
    let mut text = summary(observed);
    let kept = table(&check_all(observed), &mut text);
    (text, kept)
}

/// Adds a table of guarantees to a report. Returns true if all of them hold.
pub(crate) fn table(guarantees: &[Guarantee], text: &mut String) -> bool {
    *text += "\n| guarantee | kept |\n|---|---|\n";
    for Guarantee { name, text: rule, broken } in guarantees {
        let kept = match broken.len() {
            0 => "yes".to_owned(),
            times => format!("**no**, {times} times: {}", broken.first().map_or("", |first| first)),
        };
        let _ = writeln!(text, "| {name}: {rule} | {} |", kept.replace('|', "\\|"));
    }
    let broken: Vec<_> =
        guarantees.iter().filter(|guarantee| !guarantee.broken.is_empty()).collect();
    let names: Vec<_> = broken.iter().map(|guarantee| guarantee.name).collect();
    let _ = match names.len() {
        0 => writeln!(text, "\nbroken guarantees: none"),
        _ => writeln!(text, "\nbroken guarantees: {}", names.join(", ")),
    };
    broken.is_empty()
}

fn check_all(observed: &Observed<'_>) -> Vec<Guarantee> {
    let mut runs = Runs::new();
    for entry in &observed.entries {
        runs.entry(&entry.call).or_default().entry(&entry.step).or_default().push(entry);
    }
    let all = |check: fn(&Call, &BTreeMap<&str, Vec<&Entry>>) -> Vec<String>| {
        let none = BTreeMap::new();
        let each = observed.calls.iter();
        each.flat_map(|call| check(call, runs.get(&*call.id).unwrap_or(&none))).collect::<Vec<_>>()
    };
    let calm_until = observed.calm_until;
    let calls = observed.calls.iter();
    let mut lost: Vec<_> = calls.flat_map(|call| ended(call, calm_until)).collect();
    lost.extend(
        (0..observed.unended).map(|_| "a caller still waited one minute after the run".to_owned()),
    );
    // A gateway that is killed takes the sessions of its legacy clients with it.
    let has_gateways = !observed.served_upstream.is_empty();
    let excused = |call: &&Call| has_gateways && call.is_legacy && call.ended > calm_until;
    let counted = observed.calls.iter().filter(|call| !excused(call));
    let rejected: Vec<_> = counted.flat_map(refused).collect();
    let mut crossed = all(answers);
    crossed.extend(lock(&observed.foreign.not_rejected).iter().cloned());
    vec![
        Guarantee {
            name: "calls",
            text: "each call completes, except those of legacy clients whose replica is killed",
            broken: lost,
        },
        Guarantee {
            name: "questions",
            text: "no question is asked twice in a call, except to legacy clients",
            broken: all(|call, _| asked_twice(call)),
        },
        Guarantee {
            name: "requests",
            text: "a step runs at most once for each request received",
            broken: all(once_per_request),
        },
        Guarantee {
            name: "steps",
            text: "a step runs exactly once if no response was lost, and again only after a lost response",
            broken: all(steps).into_iter().chain(legacy_steps(observed, &runs)).collect(),
        },
        Guarantee {
            name: "keys",
            text: "all runs of a step after the first state have the same idempotency key",
            broken: all(keys),
        },
        Guarantee {
            name: "answers",
            text: "an answer is used for its own question, call and caller only",
            broken: crossed,
        },
        Guarantee {
            name: "rotation",
            text: "no state or session is rejected because of a key rotation or a new version",
            broken: rejected,
        },
        Guarantee {
            name: "drain",
            text: "a replica that drains does not cut off a request",
            broken: cut(observed),
        },
        Guarantee {
            name: "run",
            text: "all planned operations took place",
            broken: idle(observed),
        },
        Guarantee {
            name: "memory",
            text: "the memory of a replica does not grow",
            broken: memory_growth(observed),
        },
    ]
}

fn ended(call: &Call, calm_until: f64) -> Vec<String> {
    let id = &call.id;
    match &call.outcome {
        Some(Ok(_)) => Vec::new(),
        // A legacy client has nothing to resume from before its first question. Behind a gateway
        // that is killed, it cannot always resume after one either.
        Some(Err(_)) if call.is_legacy && call.ended > calm_until => Vec::new(),
        // Its caller knows, and can start again. Another guarantee covers the rejection itself.
        Some(Err(_)) if !refused(call).is_empty() => Vec::new(),
        Some(Err(why)) => vec![format!("{id}: {why}")],
        None => vec![format!("{id}: no outcome")],
    }
}

fn asked_twice(call: &Call) -> Vec<String> {
    // A replica that takes over a call of a legacy client asks its last question again.
    if call.is_legacy {
        return Vec::new();
    }
    let mut known = BTreeSet::new();
    let twice = call.asked.iter().filter(|question| !known.insert(*question));
    twice.map(|(key, message)| format!("{}: {key}: {message}", call.id)).collect()
}

fn once_per_request(call: &Call, runs: &BTreeMap<&str, Vec<&Entry>>) -> Vec<String> {
    let mut wrong = Vec::new();
    for (step, runs) in runs {
        let mut requests = BTreeSet::new();
        let twice = runs.iter().find(|run| !requests.insert(&run.request));
        wrong.extend(
            twice.map(|run| {
                format!("{}: step {step} ran twice in request {}", call.id, run.request)
            }),
        );
    }
    wrong
}

fn steps(call: &Call, runs: &BTreeMap<&str, Vec<&Entry>>) -> Vec<String> {
    if call.is_legacy || !matches!(call.outcome, Some(Ok(_))) {
        return Vec::new();
    }
    let expected = expected_steps(call);
    let mut wrong = Vec::new();
    for step in expected {
        let times = runs.get(step).map_or(0, Vec::len);
        // The requests in which the step may have run.
        let lost = call.attempts.iter().filter(|attempt| attempt.broken.is_some());
        let lost = lost.map(|attempt| attempt.asked).chain(call.lost_upstream.iter().copied());
        let broken = lost.filter(|asked| may_run(step, *asked)).count();
        if times == 0 || times > 1 + broken {
            wrong.push(format!(
                "{}: step {step} ran {times} times; {broken} responses were lost",
                call.id
            ));
        }
    }
    let other = runs.keys().filter(|step| !expected.contains(step));
    wrong.extend(other.map(|step| format!("{}: unexpected step {step}", call.id)));
    wrong
}

fn expected_steps(call: &Call) -> &'static [&'static str] {
    if consents(&call.id) { &BOUGHT } else { &DECLINED }
}

/// Checks the steps of legacy clients, whose requests do not show which responses were lost: while
/// no replica is killed, none is, unless a replica that drains cut off a request.
fn legacy_steps(observed: &Observed<'_>, runs: &Runs<'_>) -> Vec<String> {
    let finished = |call: &&Call| call.is_legacy && matches!(call.outcome, Some(Ok(_)));
    let calm_until = if cut(observed).is_empty() { observed.calm_until } else { 0.0 };
    let mut wrong = Vec::new();
    for call in observed.calls.iter().filter(finished) {
        for step in expected_steps(call) {
            let times = runs.get(&*call.id).and_then(|runs| runs.get(step)).map_or(0, Vec::len);
            if times == 0 || (times > 1 && call.ended < calm_until) {
                wrong.push(format!("{}: step {step} ran {times} times", call.id));
            }
        }
    }
    wrong
}

fn keys(call: &Call, runs: &BTreeMap<&str, Vec<&Entry>>) -> Vec<String> {
    // A first request that is sent again begins another call from the server's point of view.
    let begun = call.attempts.iter().filter(|attempt| attempt.is_first).count();
    let begun = begun + call.lost_upstream.iter().filter(|asked| **asked == 0).count();
    let mut wrong = Vec::new();
    for (step, runs) in runs {
        let keys: BTreeSet<_> = runs.iter().map(|run| &run.key).collect();
        let most = if may_run(step, 0) { begun } else { 1 };
        if keys.len() > most {
            wrong.push(format!(
                "{}: step {step} ran with {} idempotency keys",
                call.id,
                keys.len()
            ));
        }
    }
    wrong
}

fn answers(call: &Call, runs: &BTreeMap<&str, Vec<&Entry>>) -> Vec<String> {
    let mut wrong = Vec::new();
    for used in call.outcome.iter().flatten().flatten() {
        let (key, message) = (&used.key, &used.message);
        let was_asked = call.asked.iter().any(|asked| (&asked.0, &asked.1) == (key, message));
        if !was_asked {
            wrong.push(format!(
                "{}: an answer was used for {message:?}, which was not asked",
                call.id
            ));
        } else if used.answer != answer_to(&call.caller, key, message) {
            wrong.push(format!("{}: {message:?} got the answer of another question", call.id));
        }
    }
    let foreign = runs.values().flatten().filter(|run| run.caller != call.identity);
    wrong.extend(
        foreign.map(|run| format!("{}: step {} ran for {}", call.id, run.step, run.caller)),
    );
    wrong
}

fn refused(call: &Call) -> Vec<String> {
    // The states of legacy clients are their own. Their sessions are sealed like states.
    if call.is_legacy {
        let ended = call.attempts.iter().filter(|attempt| attempt.lost_its_session());
        return ended.map(|_| format!("{}: the session has ended", call.id)).collect();
    }
    let why = call.attempts.iter().filter_map(|attempt| attempt.refused.as_ref());
    why.map(|why| format!("{}: {why}", call.id)).collect()
}

/// Failed requests while no replica was killed, as observed by the load balancer or by clients.
fn cut(observed: &Observed<'_>) -> Vec<String> {
    // The status -1 is not an HTTP status: no response was sent.
    let all = calm(observed, &observed.served).chain(calm(observed, &observed.served_upstream));
    let failed = all.filter(|served| !(200..499).contains(&served.status));
    let of_balancer =
        failed.map(|served| format!("{} at {:.1} s", served.status, served.at - observed.began_at));
    let attempts = observed.calls.iter().flat_map(|call| &call.attempts);
    let broken = attempts
        .filter(|attempt| attempt.begun < observed.calm_until - LONGEST_REQUEST)
        .filter(|attempt| !attempt.lost_its_session());
    let of_callers = broken.filter_map(|attempt| {
        Some(format!("{} at {:.1} s", attempt.broken.as_ref()?, attempt.begun))
    });
    of_balancer.chain(of_callers).collect()
}

/// A run with little activity proves little.
fn idle(observed: &Observed<'_>) -> Vec<String> {
    let answered = observed
        .calls
        .iter()
        .flat_map(|call| &call.attempts)
        .filter(|attempt| attempt.broken.is_none());
    let enough = [
        ("no replica was drained", observed.done.drained.load(Ordering::Relaxed) > 4),
        ("no replica was killed", observed.done.killed.load(Ordering::Relaxed) > 0),
        ("no key was rotated", observed.done.rotated.load(Ordering::Relaxed) > 0),
        ("no foreign state was tried", observed.foreign.tried.load(Ordering::Relaxed) > 0),
        ("too few calls were made", observed.calls.len() > 100),
        ("too few legacy clients called", finished_legacy(observed) > 20),
        ("the load balancer's log is incomplete", observed.served.len() >= answered.count()),
    ];
    enough.iter().filter(|(_, is_so)| !is_so).map(|(what, _)| (*what).to_owned()).collect()
}

fn finished_legacy(observed: &Observed<'_>) -> usize {
    let is_finished = |call: &&Call| call.is_legacy && matches!(call.outcome, Some(Ok(_)));
    observed.calls.iter().filter(is_finished).count()
}

/// How long before the first fault a request has to begin, so that it is over by then.
const LONGEST_REQUEST: f64 = 1.0;

/// Returns the requests while no replica was killed. Nginx logs when they ended, and HAProxy when
/// they began.
fn calm<'a>(
    observed: &Observed<'_>,
    served: &'a [Served],
) -> impl Iterator<Item = &'a Served> + use<'a> {
    let end = observed.began_at + observed.calm_until - LONGEST_REQUEST;
    served.iter().filter(move |served| served.at < end)
}

/// Returns the memory of the witness in the first and in the last quarter of the time in which it
/// is not restarted.
fn witness_memory(observed: &Observed<'_>) -> Option<(u64, u64)> {
    // The second half of the run: the witness has its final version by then.
    let untouched: Vec<u64> = observed
        .memory
        .iter()
        .filter(|(at, _)| *at > observed.calm_until)
        .map(|(_, kib)| *kib)
        .collect();
    Some((quarter(&untouched, 0)?, quarter(&untouched, 3)?))
}

fn memory_growth(observed: &Observed<'_>) -> Vec<String> {
    match witness_memory(observed) {
        Some((first, last)) if last <= first + GROWTH => Vec::new(),
        Some((first, last)) => vec![format!("{first} KiB, then {last} KiB")],
        None => vec!["memory was not measured".to_owned()],
    }
}

fn summary(observed: &Observed<'_>) -> String {
    let mut text = String::from("| | |\n|---|---|\n");
    let mut row = |name: &str, value: String| {
        let _ = writeln!(text, "| {name} | {value} |");
    };
    let count = |counter: &AtomicU32| counter.load(Ordering::Relaxed);
    let (drained, killed) = (count(&observed.done.drained), count(&observed.done.killed));
    row("replicas drained, killed", format!("{drained}, {killed}"));
    row("rotations of the key ring", count(&observed.done.rotated).to_string());
    row("calls", observed.calls.len().to_string());
    let finished = observed.calls.iter().filter(|call| matches!(call.outcome, Some(Ok(_)))).count();
    row("finished", finished.to_string());
    let legacy = observed.calls.iter().filter(|call| call.is_legacy).count();
    let finished = finished_legacy(observed);
    row("calls of legacy clients, finished", format!("{legacy}, {finished}"));
    let attempts = || observed.calls.iter().flat_map(|call| &call.attempts);
    let broken = attempts().filter(|attempt| attempt.broken.is_some()).count();
    row("requests, of which unanswered", format!("{}, {broken}", attempts().count()));
    let mut why = BTreeMap::<&str, u32>::new();
    attempts().filter_map(|attempt| attempt.broken.as_deref()).for_each(|text| {
        *why.entry(text).or_default() += 1;
    });
    for (text, times) in why {
        row("", format!("{times} × {}", text.replace('|', "\\|")));
    }
    let calm: Vec<_> =
        observed.calls.iter().filter(|call| call.ended < observed.calm_until).collect();
    let in_calm =
        calm.iter().flat_map(|call| &call.attempts).filter(|attempt| attempt.broken.is_some());
    row("unanswered requests while no replica was killed", in_calm.count().to_string());
    let questions: usize = observed.calls.iter().map(|call| call.asked.len()).sum();
    row("questions per call", mean(questions, observed.calls.len()));
    let ids: BTreeSet<_> = calm.iter().map(|call| &*call.id).collect();
    let steps_of = |id: &str| if consents(id) { BOUGHT.len() } else { DECLINED.len() };
    let in_calm = observed.entries.iter().filter(|entry| ids.contains(&*entry.call)).count();
    let due = calm.iter().map(|call| steps_of(&call.id)).sum();
    row("runs per step while no replica was killed", mean(in_calm, due));
    let due_later = observed.calls.iter().map(|call| steps_of(&call.id)).sum::<usize>() - due;
    row("runs per step afterwards", mean(observed.entries.len() - in_calm, due_later));
    let times = attempts()
        .filter(|attempt| attempt.broken.is_none())
        .map(|attempt| attempt.took.as_secs_f64() * 1e3);
    row("time of a request: median, 99th percentile, maximum", spread(times.collect(), "ms"));
    let times = observed.calls.iter().map(|call| call.ended - call.begun);
    row("time of a call whose user takes 0.1 s per answer: the same", spread(times.collect(), "s"));
    let tried = observed.foreign.tried.load(Ordering::Relaxed);
    let not_rejected = lock(&observed.foreign.not_rejected).len();
    row("foreign states tried, not rejected", format!("{tried}, {not_rejected}"));
    row(
        "statuses at the load balancer while no replica was killed",
        statuses(self::calm(observed, &observed.served)),
    );
    let rest = observed.served.iter().filter(|it| it.at >= observed.began_at + observed.calm_until);
    row("statuses at the load balancer afterwards", statuses(rest));
    if !observed.served_upstream.is_empty() {
        row(
            "statuses of requests from gateways to servers",
            statuses(observed.served_upstream.iter()),
        );
        let lost: usize = observed.calls.iter().map(|call| call.lost_upstream.len()).sum();
        row("responses that servers lost", lost.to_string());
    }
    if let Some((first, last)) = witness_memory(observed) {
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
