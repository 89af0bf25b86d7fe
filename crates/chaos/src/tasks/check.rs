//! What is guaranteed of one call.

use std::collections::BTreeSet;

use super::drive::LATE;
use super::faults::{Fault, Kind};
use super::history::{Attempt, History, Ledgered, Restoration, Step};
use super::observed::{Answered, Call, End, Status};
use super::scenario::LEASE;
use super::workload::{BOUGHT, DECLINED, Outcome};
use crate::workload::{answer_to, consents};

/// A call, the ledger's entries about it, and what happened meanwhile.
#[derive(Clone, Copy)]
pub(crate) struct Checked<'a> {
    pub(crate) call: &'a Call,
    pub(crate) ledgered: &'a Ledgered<'a>,
    pub(crate) faults: &'a [Fault],
    pub(crate) restoration: Option<&'a Restoration>,
}

impl Checked<'_> {
    fn say(&self, what: impl std::fmt::Display) -> String {
        format!("{}: {what}", self.call.id)
    }

    fn may_lose(&self, happened: (f64, f64), later: f64) -> bool {
        self.restoration.is_some_and(|it| it.may_lose(happened, later))
    }

    fn spans_restoration(&self, request: (f64, f64)) -> bool {
        self.restoration.is_some_and(|it| it.is_spanned(request))
    }

    /// Returns the steps of all histories.
    fn steps(&self) -> impl Iterator<Item = (&str, &Step<'_>)> {
        self.ledgered
            .histories()
            .flat_map(|history| history.steps.iter().map(|(name, step)| (*name, step)))
    }

    /// A task that a caller knows is found, unless it is younger than the copy that was restored.
    pub(crate) fn found(&self) -> Vec<String> {
        let Some((_, created)) = self.call.task else { return Vec::new() };
        let absent = |status: &Status| *status == Status::NotFound;
        let gone = self.call.observations.iter().filter(|it| absent(&it.status));
        let gone = gone.filter(|it| !self.may_lose(created, it.at));
        gone.map(|_| self.say("the task does not exist")).collect()
    }

    /// Once a task has ended, all later responses have the same end.
    pub(crate) fn one_end(&self) -> Vec<String> {
        let mut wrong = Vec::new();
        let observations = &self.call.observations;
        for (at, first) in observations.iter().enumerate() {
            let Status::Ended(end) = &first.status else { continue };
            let later = observations.iter().skip(at + 1).find(|later| {
                later.asked >= first.at
                    && later.status != first.status
                    && !self.may_lose((first.asked, first.at), later.at)
            });
            if let Some(later) = later {
                wrong.push(self.say(format_args!(
                    "first, from {:.3} to {:.3}, {end:?}, then, from {:.3} to {:.3}, {:?}",
                    first.asked, first.at, later.asked, later.at, later.status
                )));
                break;
            }
        }
        wrong
    }

    pub(crate) fn ended(&self) -> Vec<String> {
        let is_over = |status: &Status| matches!(status, Status::Ended(_) | Status::NotFound);
        let last = self.call.observations.last();
        if self.call.task.is_none() || last.is_some_and(|last| is_over(&last.status)) {
            return Vec::new();
        }
        vec![self.say("has not ended")]
    }

    /// A handler got the result of a run that was superseded before: it was written without the
    /// lease. Or the task's result has such a one.
    pub(crate) fn journal(&self) -> Vec<String> {
        let mut wrong = Vec::new();
        for (name, step) in self.steps() {
            for pair in step.passed.windows(2) {
                let [before, after] = pair else { continue };
                let run = step.runs.iter().find(|run| run.nonce == after.nonce);
                if before.nonce != after.nonce && run.is_none_or(|run| run.at < before.at) {
                    wrong
                        .push(self.say(format_args!("{name}: a result of an earlier run is back")));
                }
            }
        }
        for (history, outcome) in self.outcomes() {
            for (name, nonce) in &outcome.steps {
                let last = history.steps.get(name.as_str()).and_then(Step::last_that_counts);
                if last.is_none_or(|last| last.nonce != nonce) {
                    wrong.push(self.say(format_args!("{name}: not the result of the last run")));
                }
            }
        }
        wrong
    }

    /// A step whose result a handler has got does not run again. A belated run may, if no handler
    /// gets its result.
    pub(crate) fn recorded(&self) -> Vec<String> {
        let mut wrong = Vec::new();
        for (name, step) in self.steps() {
            let again = step.runs.iter().filter(|run| step.is_again(run));
            wrong.extend(again.map(|_| self.say(format_args!("{name} ran again"))));
        }
        wrong
    }

    /// Each run but the last one lost its lease, for a reason that is known.
    pub(crate) fn runs(&self) -> Vec<String> {
        let mut wrong = Vec::new();
        for (name, step) in self.steps() {
            for pair in step.runs.windows(2) {
                let [run, next] = pair else { continue };
                let is_fine = match (step.counts(run), step.counts(next)) {
                    // See `recorded`.
                    _ if step.is_again(next) => true,
                    // Two replicas believed that they had the lease.
                    (true, false) => next.is_belated,
                    // See `recorded` and `journal`.
                    (true, true) => true,
                    (false, _) => next.is_belated || self.is_excused(run, next),
                };
                if !is_fine {
                    let (port, at) = (run.port, run.at);
                    wrong.push(self.say(format_args!(
                        "{name} ran at {port} at {at:.3}, and again {:.3} s later at {}",
                        next.at - at,
                        next.port
                    )));
                }
            }
        }
        wrong
    }

    fn is_excused(&self, run: &Attempt<'_>, next: &Attempt<'_>) -> bool {
        // The step in flight when the creation of its task failed.
        let is_broken = self.call.broken.is_some_and(|(from, to)| run.at >= from && run.at <= to);
        let hits = |fault: &&Fault| {
            fault.port.is_none_or(|port| port == run.port)
                && fault.from <= next.at
                && fault.to >= run.at - 0.1
        };
        let hits = || self.faults.iter().filter(hits);
        // A write is repeated when its connection is cut, so one cut loses no lease.
        let cuts = hits().filter(|fault| fault.kind == Kind::Cut).count();
        // A machine that is slow enough loses leases, but not at once.
        let is_late = next.at - run.began >= LEASE.as_secs_f64() / 2.0;
        is_broken || is_late || cuts > 1 || hits().any(|fault| fault.kind != Kind::Cut)
    }

    /// In a history, a step has one key. After a restoration, answers may come in other groups, and
    /// keys depend on the answers that a step knows.
    pub(crate) fn keys(&self) -> Vec<String> {
        let mut wrong = Vec::new();
        for (name, step) in self.steps() {
            let keys: BTreeSet<_> = step.runs.iter().map(|run| run.key).collect();
            if keys.len() > 1 {
                wrong.push(self.say(format_args!("{name} ran with {} keys", keys.len())));
            }
        }
        wrong
    }

    /// Acknowledged answers are used, and only they.
    pub(crate) fn answers(&self) -> Vec<String> {
        let call = self.call;
        // The copy may lack the question, too: an answer to a question that is not open is ignored.
        let is_lost = |it: &Answered, later: f64| self.may_lose((it.seen, it.at), later);
        let again = call.asked_again.iter().filter(|(_, it, (_, later))| !is_lost(it, *later));
        let mut wrong: Vec<_> = again
            .map(|(key, Answered { seen, at }, (asked, later))| {
                self.say(format_args!(
                    "{key}, seen at {seen:.3}, is open between {asked:.3} and {later:.3} after its \
                     answer was accepted at {at:.3}"
                ))
            })
            .collect();
        for observed in &call.observations {
            let Some(outcome) = parse(&observed.status) else { continue };
            for used in &outcome.used {
                // A second answer may have become the first one.
                let mut first = call.answered.iter().filter(|(key, _)| name_of(key) == used.key);
                let is_lost = first.any(|(_, first)| is_lost(first, observed.at));
                let right = answer_to(&call.caller, &used.key, &used.message);
                let is_late = used.answer.strip_suffix(LATE) == Some(&right);
                if used.answer != right && !(is_late && is_lost) {
                    wrong.push(self.say(format_args!("{:?} got another answer", used.message)));
                }
                if !call.asked.iter().any(|(_, message)| *message == used.message) {
                    wrong.push(self.say(format_args!("{:?} was not asked", used.message)));
                }
            }
        }
        let foreign = self.ledgered.callers.iter().find(|caller| **caller != call.caller);
        wrong.extend(foreign.map(|caller| self.say(format_args!("ran for {caller}"))));
        wrong
    }

    /// No step begins after a cancellation was learned of.
    pub(crate) fn cancelled(&self) -> Vec<String> {
        let mut wrong = Vec::new();
        let begun_after = |history: &History<'_>, time: f64| {
            let steps = history.steps.iter();
            let begun = steps
                .filter(|(_, step)| step.runs.iter().any(|run| run.at > time && !run.is_belated));
            begun.count()
        };
        let observed = self.call.observations.iter();
        let seen = observed.filter(|it| it.status == Status::Ended(End::Cancelled));
        let seen = seen.filter(|it| !self.spans_restoration((it.asked, it.at)));
        for seen in seen {
            let history = self.ledgered.at(seen.at, self.restoration);
            if begun_after(history, seen.at) > 0 {
                wrong.push(self.say("a step began after the task was cancelled"));
            }
        }
        let Some(cancelled) = self.call.cancelled else { return wrong };
        if self.spans_restoration((cancelled.asked, cancelled.at)) {
            return wrong;
        }
        let history = self.ledgered.at(cancelled.at, self.restoration);
        // The write after the acknowledgement tells the holder. Two steps are joined at most.
        let allowed = if cancelled.was_waiting { 0 } else { 2 };
        let begun = begun_after(history, cancelled.at);
        if begun > allowed {
            wrong.push(self.say(format_args!("{begun} steps began after its cancellation")));
        }
        let has_other_end = self.call.end().is_some_and(|end| *end != End::Cancelled);
        let last = self.call.observations.last().map_or(0.0, |last| last.at);
        let is_lost = self.may_lose((cancelled.asked, cancelled.at), last);
        if cancelled.was_waiting && has_other_end && !is_lost {
            wrong.push(self.say("it waited, was cancelled, and ended otherwise"));
        }
        wrong
    }

    /// The end is what the handler does with these answers.
    pub(crate) fn outcome(&self) -> Vec<String> {
        let mut wrong = self.call.unexpected.clone();
        for observed in &self.call.observations {
            match &observed.status {
                Status::Ended(End::Failed(why)) => wrong.push(self.say(why)),
                Status::Ended(End::Cancelled)
                    if self.call.cancelled.is_none() && !self.call.is_cancel_lost =>
                {
                    wrong.push(self.say("cancelled, but not by its caller"));
                }
                status @ Status::Ended(End::Completed(text)) => match parse(status) {
                    Some(outcome) => wrong.extend(self.differs(&outcome)),
                    None => wrong.push(self.say(text)),
                },
                _ => {}
            }
        }
        wrong
    }

    fn differs(&self, outcome: &Outcome) -> Option<String> {
        let consents = consents(&self.call.id);
        let steps: BTreeSet<_> = outcome.steps.iter().map(|(name, _)| name.as_str()).collect();
        let expected: &[&str] = if consents { &BOUGHT } else { &DECLINED };
        if outcome.steps.len() != steps.len() || steps != expected.iter().copied().collect() {
            return Some(self.say(format_args!("its steps were {steps:?}")));
        }
        let used: BTreeSet<_> = outcome.used.iter().map(|used| used.key.as_str()).collect();
        let mut due: BTreeSet<_> = ["seat", "meal"].into();
        due.extend((self.call.tool == "on_detach").then_some("who"));
        if consents {
            due.extend(["consent", "tip"]);
        }
        // The second version asks for it.
        let has_more = consents && used.len() == due.len() + 1 && used.contains("invoice");
        due.extend(has_more.then_some("invoice"));
        let is_right = outcome.used.len() == used.len() && used == due;
        (!is_right).then(|| self.say(format_args!("it used the answers {used:?}")))
    }

    /// Returns the results of the task, each with the history that it belongs to.
    fn outcomes(&self) -> impl Iterator<Item = (&History<'_>, Outcome)> {
        self.call.observations.iter().filter_map(|observed| {
            if self.spans_restoration((observed.asked, observed.at)) {
                return None;
            }
            Some((self.ledgered.at(observed.at, self.restoration), parse(&observed.status)?))
        })
    }

    /// The task ended twice, each time in one of its histories.
    pub(crate) fn ended_twice(&self) -> bool {
        let Some(restoration) = self.restoration else { return false };
        let ends =
            || self.call.observations.iter().filter(|it| matches!(it.status, Status::Ended(_)));
        self.ledgered.has_two_histories()
            && ends().any(|it| it.at < restoration.restored.from)
            && ends().any(|it| it.asked > restoration.restored.to)
    }

    pub(crate) fn was_lost(&self) -> bool {
        self.call.observations.last().is_some_and(|last| last.status == Status::NotFound)
    }

    /// Returns the number of step runs that were not the last ones.
    pub(crate) fn repetitions(&self) -> usize {
        self.steps().map(|(_, step)| step.runs.len().saturating_sub(1)).sum()
    }
}

/// Returns the key that the handler has given to a question.
pub(crate) fn name_of(key: &str) -> &str {
    key.split('~').next().unwrap_or(key)
}

fn parse(status: &Status) -> Option<Outcome> {
    match status {
        Status::Ended(End::Completed(text)) => serde_json::from_str(text).ok(),
        _ => None,
    }
}

/// Returns true for faults that are planned.
pub(crate) fn is_planned(kind: Kind) -> bool {
    !matches!(kind, Kind::Slow | Kind::Stalled)
}

#[cfg(test)]
mod tests {
    use super::super::history::{Outage, Passed};
    use super::super::observed::Observation;
    use super::*;

    /// A run after the result was passed on, whose own result no handler got: its replica was
    /// killed, for example.
    #[test]
    fn a_run_after_a_result_was_passed_on_breaks_one_guarantee() {
        let run =
            |at, nonce, is_belated| Attempt { at, began: at, port: 1, key: "k", nonce, is_belated };
        for (second, is_belated, again, twice) in
            [(3.0, false, 1, 0), (3.0, true, 0, 0), (1.5, false, 0, 1), (1.5, true, 0, 0)]
        {
            let runs = vec![run(1.0, "a", false), run(second, "b", is_belated)];
            let step = Step { runs, passed: vec![Passed { at: 2.0, nonce: "a" }] };
            let steps = [("hold", step)].into();
            let ledgered = Ledgered::of(History { steps });
            let call = Call::default();
            let checked =
                Checked { call: &call, ledgered: &ledgered, faults: &[], restoration: None };
            let broken = (checked.recorded().len(), checked.runs().len());
            assert_eq!(broken, (again, twice), "at {second}, belated: {is_belated}");
        }
    }

    /// A copy from 9 to 11, and its restoration from 19 to 21.
    fn restoration() -> Restoration {
        let outage = |at| Outage { from: at - 1.0, at, to: at + 1.0 };
        Restoration { copied: outage(10.0), restored: outage(20.0) }
    }

    /// The request came before the copy was made, and the task ended after it.
    #[test]
    fn an_end_that_may_be_younger_than_the_copy_may_change() {
        let restoration = restoration();
        for (asked, at, again, is_excused) in [
            (5.0, 6.0, 30.0, false),
            (8.0, 12.0, 30.0, true),
            (8.0, 12.0, 17.0, false),
            (12.0, 13.0, 30.0, true),
            (18.0, 23.0, 30.0, true),
            (22.0, 23.0, 30.0, false),
        ] {
            let ended = |asked, at, text: &str| {
                let status = Status::Ended(End::Completed(text.to_owned()));
                Observation { asked, at, status }
            };
            let observations = vec![ended(asked, at, "a"), ended(again, again + 1.0, "b")];
            let call = Call { observations, ..Call::default() };
            let (ledgered, restoration) = (&Ledgered::default(), Some(&restoration));
            let checked = Checked { call: &call, ledgered, faults: &[], restoration };
            assert_eq!(checked.one_end().is_empty(), is_excused, "{asked} to {at}, then {again}");
        }
    }

    /// A client sees a question, an older copy without it is restored, and then the answer is
    /// acknowledged, and ignored.
    #[test]
    fn an_answer_to_a_question_that_a_restoration_has_undone_may_be_asked_for_again() {
        let restoration = restoration();
        for (seen, at, again, is_excused) in [
            (5.0, 6.0, (30.0, 31.0), false),
            (8.0, 12.0, (30.0, 31.0), true),
            (12.0, 15.0, (17.0, 18.0), false),
            // The caller polled from before the restoration until after it.
            (12.0, 15.0, (17.0, 30.0), true),
            (18.0, 22.0, (30.0, 31.0), true),
            (22.0, 23.0, (30.0, 31.0), false),
        ] {
            let asked_again = vec![("tip".to_owned(), Answered { seen, at }, again)];
            let call = Call { asked_again, ..Call::default() };
            let (ledgered, restoration) = (&Ledgered::default(), Some(&restoration));
            let checked = Checked { call: &call, ledgered, faults: &[], restoration };
            assert_eq!(checked.answers().is_empty(), is_excused, "seen at {seen}");
        }
    }
}
