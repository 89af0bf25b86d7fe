//! What has happened, as an observer of everything sees it, and the rules that it must follow.

use mrtr_server::tasks::{HeldTask, LeaseId, StoredStatus};

use crate::run::Run;

/// A rule that every history of a task follows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(u16)]
pub enum Rule {
    /// A task ends once. After that, it does not change.
    OneEnd = 1,
    /// A step does not begin if it was recorded before the claim of the run. A result that a
    /// handler has seen stays in the journal.
    OnceRecorded = 1 << 1,
    /// All runs of a step have the same idempotency key.
    OneKey = 1 << 2,
    /// A write without the lease changes nothing.
    LeaseRequired = 1 << 3,
    /// A task is not claimed before the lease of its holder has run out.
    OneHolder = 1 << 4,
    /// The first answer to a question is stored, stays, and is the one that is used.
    FirstAnswer = 1 << 5,
    /// An answer belongs to one epoch, which is not one that was in progress when it came.
    OneEpoch = 1 << 6,
    /// A task that is not held is cancelled at once. A replica that was told begins no step, and
    /// the task is not claimed again.
    Cancelled = 1 << 7,
    /// The journal in the store is that of the replica that has written it.
    SameJournal = 1 << 8,
    /// As long as the task has not ended, something can happen.
    Progress = 1 << 9,
}

impl Rule {
    pub(crate) const ALL: [Self; 10] = [
        Self::OneEnd,
        Self::OnceRecorded,
        Self::OneKey,
        Self::LeaseRequired,
        Self::OneHolder,
        Self::FirstAnswer,
        Self::OneEpoch,
        Self::Cancelled,
        Self::SameJournal,
        Self::Progress,
    ];

    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::OneEnd => "one end",
            Self::OnceRecorded => "once recorded",
            Self::OneKey => "one key",
            Self::LeaseRequired => "lease required",
            Self::OneHolder => "one holder",
            Self::FirstAnswer => "first answer",
            Self::OneEpoch => "one epoch",
            Self::Cancelled => "cancelled",
            Self::SameJournal => "same journal",
            Self::Progress => "progress",
        }
    }
}

/// A situation that a check of some size must have reached, or else it proves little.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u32)]
pub enum Visited {
    /// The task completed.
    Completed = 1,
    /// The task was cancelled while it was not held.
    CancelledAtOnce = 1 << 1,
    /// A replica ended the task because it was cancelled.
    CancelledByHolder = 1 << 2,
    /// A step ran again on another replica.
    StepAgain = 1 << 3,
    /// A write was refused.
    Refused = 1 << 4,
    /// A write was repeated that had been performed.
    Repeated = 1 << 5,
    /// A write was performed after it was reported as failed and was repeated.
    Late = 1 << 6,
    /// An answer came while the task was held.
    AnsweredWhileHeld = 1 << 7,
    /// An answer came after another one to the same question.
    AnsweredTwice = 1 << 8,
    /// The answers came in two epochs.
    TwoEpochs = 1 << 9,
}

impl Visited {
    /// All situations.
    pub const ALL: [Self; 10] = [
        Self::Completed,
        Self::CancelledAtOnce,
        Self::CancelledByHolder,
        Self::StepAgain,
        Self::Refused,
        Self::Repeated,
        Self::Late,
        Self::AnsweredWhileHeld,
        Self::AnsweredTwice,
        Self::TwoEpochs,
    ];
}

/// The idempotency key of a step: the answers that it depends on.
type StepKey = Vec<(String, Vec<u8>)>;

#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub(crate) struct History {
    /// The broken rules, as bits.
    broken: u16,
    /// The number of runs.
    pub(crate) runs: u8,
    /// The run that holds the task, and its lease.
    pub(crate) holder: Option<(u8, LeaseId)>,
    /// The steps that were recorded, as bits.
    recorded: u8,
    /// The results that handlers have seen.
    seen: [Option<u8>; 2],
    keys: [Option<StepKey>; 2],
    /// The number of times that each step began.
    begun: [u8; 2],
    first_answers: [Option<u8>; 2],
    epochs: [Option<u32>; 2],
    /// The epoch of the last claim, and the number of its answers.
    last_epoch: (u32, usize),
    ended: Option<(StoredStatus, Vec<u8>)>,
    pub(crate) is_cancelled: bool,
    /// True if the store was restored from a backup.
    pub(crate) is_restored: bool,
}

impl History {
    /// The history after run 0 has created the task with a lease.
    pub(crate) fn new(lease: LeaseId) -> Self {
        Self { runs: 1, holder: Some((0, lease)), ..Self::default() }
    }

    pub(crate) fn is_holder(&self, run: u8) -> bool {
        self.holder.is_some_and(|(holder, _)| holder == run)
    }

    pub(crate) fn is_broken(&self, rule: Rule) -> bool {
        self.broken & rule as u16 != 0
    }

    pub(crate) fn require(&mut self, rule: Rule, holds: bool) {
        let is_excused =
            self.is_restored && !matches!(rule, Rule::LeaseRequired | Rule::SameJournal);
        if !holds && !is_excused {
            self.broken |= rule as u16;
        }
    }

    /// Notes that a run has claimed the task.
    pub(crate) fn claimed(&mut self, run: &mut Run, held: &HeldTask) {
        self.holder = Some((run.number, run.lease));
        self.require(Rule::Cancelled, !self.is_cancelled);
        run.could_see = self.recorded;
        for answer in &held.answers {
            let number = number_of(&answer.question);
            let first = self.first_answers.get(number).copied().flatten();
            self.require(Rule::FirstAnswer, first.is_some_and(|first| answer.answer == [first]));
            let epoch = self.epochs.get(number).copied().flatten();
            self.require(Rule::OneEpoch, epoch.is_none_or(|epoch| epoch == answer.epoch));
            if let Some(epoch) = self.epochs.get_mut(number) {
                *epoch = Some(answer.epoch);
            }
        }
        let claim = (held.epoch, held.answers.len());
        let goes_on = claim.0 == self.last_epoch.0;
        self.require(Rule::OneEpoch, claim.0 >= self.last_epoch.0);
        self.require(Rule::OneEpoch, !goes_on || claim == self.last_epoch);
        self.last_epoch = claim;
        self.check_seen(&held.entries);
    }

    /// Requires the results that handlers have seen to be in a journal.
    fn check_seen(&mut self, journal: &[Vec<u8>]) {
        for (step, seen) in (0_u8..).zip(self.seen) {
            if let Some(value) = seen {
                let is_there = journal.iter().any(|entry| *entry == [b's', step, value]);
                self.require(Rule::OnceRecorded, is_there);
            }
        }
    }

    /// Notes that a step begins. Returns its result: the number of times that it has begun.
    pub(crate) fn began(&mut self, run: &Run, step: u8) -> u8 {
        self.require(Rule::OnceRecorded, run.could_see & (1 << step) == 0);
        self.require(Rule::Cancelled, !run.was_told);
        let step = usize::from(step);
        let key = self.keys.get(step).and_then(Option::as_ref);
        self.require(Rule::OneKey, key.is_none_or(|key| *key == run.known));
        if let Some(key) = self.keys.get_mut(step) {
            key.get_or_insert_with(|| run.known.clone());
        }
        let Some(begun) = self.begun.get_mut(step) else { return 0 };
        *begun += 1;
        *begun
    }

    /// Notes entries that the holder has written.
    pub(crate) fn recorded(&mut self, entries: &[Vec<u8>]) {
        for entry in entries {
            if let [b's', step, _] = **entry {
                self.recorded |= 1 << step;
            }
        }
    }

    /// Notes that a handler continues with its results.
    pub(crate) fn saw(&mut self, journal: &[Vec<u8>]) {
        for entry in journal {
            if let [b's', step, value] = **entry
                && let Some(seen) = self.seen.get_mut(usize::from(step))
            {
                *seen = Some(value);
            }
        }
    }

    /// Notes an answer that an open task got. Returns true if it is the first one.
    pub(crate) fn answered(&mut self, question: u8, value: u8) -> bool {
        let Some(first) = self.first_answers.get_mut(usize::from(question)) else { return false };
        let is_first = first.is_none();
        first.get_or_insert(value);
        is_first
    }

    /// Notes that the holder has completed the task.
    pub(crate) fn completed(&mut self, journal: &[Vec<u8>]) {
        self.check_seen(journal);
        for (question, first) in (b'0'..).zip(self.first_answers) {
            let used = journal.iter().find_map(|entry| match **entry {
                [b'a', number, value] if number == question => Some(value),
                _ => None,
            });
            self.require(Rule::FirstAnswer, used == first);
        }
    }

    /// Notes the status of the task and its view.
    pub(crate) fn observed(&mut self, status: StoredStatus, view: Vec<u8>) {
        if self.ended.is_none() && status == StoredStatus::Open {
            return;
        }
        let ended = (status, view);
        let is_same = self.ended.as_ref().is_none_or(|before| *before == ended);
        self.require(Rule::OneEnd, is_same);
        self.ended.get_or_insert(ended);
    }

    /// Returns the number of epochs that took in an answer.
    pub(crate) fn answer_epochs(&self) -> usize {
        let mut epochs: Vec<_> = self.epochs.iter().flatten().collect();
        epochs.dedup();
        epochs.len()
    }
}

fn number_of(question: &str) -> usize {
    question.parse().unwrap_or(usize::MAX)
}
