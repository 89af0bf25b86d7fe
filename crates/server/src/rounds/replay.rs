//! One replay: the execution of a handler over a journal.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use mrtr_schema::input::InputResponses;

use super::fault::Fault;
use super::journal::{
    Entry, EntryKind, Journal, Limits, PendingInputs, QuestionDigest, SKIPPED, StepKind,
};
use super::shared_str::SharedStr;

/// The number of linear searches before an index is built: an index costs as much as about this
/// many.
const SEARCHES_BEFORE_INDEX: usize = 16;

/// The journal as the current replay finds it, and what the replay adds.
#[derive(Debug, Default)]
pub(super) struct Replay {
    journal: Journal,
    /// Answers that arrived with this request. Each enters the journal when its question accepts
    /// it, which keeps the journal in the order in which the handler used its entries.
    arrived: Vec<Entry>,
    /// Keys that this replay has used and that are not in the journal, or were not when it used
    /// them.
    new_keys: BTreeSet<Arc<str>>,
    /// The number of keys that were not at `next`.
    searches: usize,
    /// The positions of keys, after many searches. It covers the first `indexed` entries.
    index: HashMap<SharedStr, usize>,
    indexed: usize,
    /// The likely position of the next key: a replay mostly reads the journal in its order.
    next: usize,
    /// The number of entries that an earlier replay reached, and this one has not reached yet.
    unreached: usize,
    /// True if the handler has used a key that no earlier replay has used.
    is_past_journal: bool,
    /// True if this replay has recorded a step.
    has_new_step: bool,
    /// True if this replay has recorded a decision.
    has_new_decision: bool,
    /// The packed length of the entries of the journal.
    size: usize,
    /// No value of the journal, and no answer that arrived, is longer.
    longest: usize,
    /// The number of changes to the entries.
    changes: u64,
    /// The number of leading entries that have not changed since they were last
    /// [taken](Self::take_unsaved).
    saved: usize,
}

/// The place of a key's entry.
#[derive(Debug)]
pub(super) enum Location {
    /// A position in the journal.
    Journal(usize),
    /// A position among the answers that arrived with the request.
    Arrived(usize),
    /// There is no entry. The key is now one of the keys of this replay.
    Absent(Arc<str>),
}

impl Location {
    /// Returns `key`, whose location this is, as a shared string.
    pub(super) fn into_key(self, key: &str) -> Arc<str> {
        match self {
            Self::Absent(key) => key,
            Self::Journal(_) | Self::Arrived(_) => key.into(),
        }
    }
}

/// The result of looking up the answer to a question.
#[derive(Debug)]
pub(super) enum Lookup<T> {
    Answered(T),
    /// The optional question was skipped, because the client does not support it.
    Skipped,
    /// The question has to be asked, with the reason why the previous answer was rejected, if any.
    Unanswered(Option<String>),
    Fault(Fault),
}

impl Replay {
    /// Starts a replay. Responses to anything but `pending`, the questions of the request state,
    /// are ignored.
    pub(super) fn new(
        journal: Journal,
        pending: &PendingInputs,
        responses: InputResponses,
    ) -> Self {
        let unreached = journal.entries.iter().filter(|entry| entry.kind.was_reached()).count();
        let size = journal.entries.iter().map(Entry::size).sum();
        let longest = journal.entries.iter().map(|entry| entry.value.len()).max().unwrap_or(0);
        let mut replay = Self { journal, unreached, size, longest, ..Self::default() };
        for (key, answer) in responses.0 {
            if let Some((key, digest)) = pending.get(&key)
                && replay.find(key).is_none()
            {
                let kind = EntryKind::Answer { digest: *digest, read: false };
                let (key, value): (_, SharedStr) = (key.into(), answer.get().into());
                replay.longest = replay.longest.max(value.len());
                replay.arrived.push(Entry { key, kind, value, used: false });
            }
        }
        replay
    }

    /// Returns the keys and values of all answers.
    pub(super) fn answers(&self) -> Vec<(SharedStr, SharedStr)> {
        let all = self.journal.entries.iter().chain(&self.arrived);
        let answers = all.filter(|entry| matches!(entry.kind, EntryKind::Answer { .. }));
        answers.map(|entry| (entry.key.clone(), entry.value.clone())).collect()
    }

    /// Returns the position of a key in the journal. Answers to other wordings are not found.
    fn find(&mut self, key: &str) -> Option<usize> {
        let is_other_wording = |entry: &Entry| matches!(entry.kind, EntryKind::OtherWording(_));
        let matches =
            |entry: &Entry| entry.key.as_bytes() == key.as_bytes() && !is_other_wording(entry);
        if self.journal.entries.get(self.next).is_some_and(matches) {
            return Some(self.next);
        }
        self.searches += 1;
        if self.searches <= SEARCHES_BEFORE_INDEX {
            return self.journal.entries.iter().position(matches);
        }
        for (position, entry) in self.journal.entries.iter().enumerate().skip(self.indexed) {
            if !is_other_wording(entry) {
                self.index.insert(entry.key.clone(), position);
            }
        }
        self.indexed = self.journal.entries.len();
        self.index.get(key).copied()
    }

    /// Marks a key as used, and locates its entry.
    ///
    /// # Errors
    ///
    /// A fault, if this replay has used the key before.
    pub(super) fn use_key(&mut self, key: &str) -> Result<Location, Fault> {
        let used_twice = || Fault::Handler(format!("the key {key:?} is used twice in one replay"));
        if let Some(position) = self.find(key)
            && let Some(entry) = self.journal.entries.get_mut(position)
        {
            if std::mem::replace(&mut entry.used, true) {
                return Err(used_twice());
            }
            self.unreached -= usize::from(entry.kind.was_reached());
            self.next = position + 1;
            return Ok(Location::Journal(position));
        }
        if let Some(position) = self.arrived.iter().position(|entry| *entry.key == *key) {
            return Ok(Location::Arrived(position));
        }
        self.is_past_journal = true;
        let key: Arc<str> = key.into();
        let is_new = self.new_keys.insert(Arc::clone(&key));
        if is_new { Ok(Location::Absent(key)) } else { Err(used_twice()) }
    }

    /// Looks up the answer to a question, whose entry is at `location`.
    ///
    /// `digest` is of the question as it reads now. An answer that `decode` rejects is removed, and
    /// an answer to another wording is kept as such. The error of `decode` is the reason of the
    /// rejection.
    pub(super) fn answer<T>(
        &mut self,
        (key, location): (&str, &Location),
        digest: QuestionDigest,
        optional: bool,
        decode: impl Fn(&str) -> Result<T, String>,
    ) -> Lookup<T> {
        let previous = match *location {
            Location::Absent(_) => None,
            Location::Arrived(position) => Some(self.arrived.remove(position)),
            Location::Journal(position) => {
                let Some(entry) = self.journal.entries.get(position) else {
                    return Lookup::Unanswered(None);
                };
                let was_read = match entry.kind {
                    EntryKind::Answer { digest: answered, read: true } => {
                        if answered == digest
                            && let Ok(answer) = decode(&entry.value)
                        {
                            return Lookup::Answered(answer);
                        }
                        true
                    }
                    EntryKind::Answer { read: false, .. } => false,
                    EntryKind::Decision if *entry.value == *SKIPPED && optional => {
                        return Lookup::Skipped;
                    }
                    EntryKind::Decision if *entry.value == *SKIPPED => true,
                    EntryKind::Step(_) => {
                        return Lookup::Fault(entry.kind_changed("a step", "a question"));
                    }
                    _ => return Lookup::Fault(entry.kind_changed("another choice", "a question")),
                };
                // A step may have acted on an answer that the handler has read, so the answer
                // cannot be replaced silently.
                if let Some(step) = self.journal.first_step_after(position).filter(|_| was_read) {
                    let step = &step.key;
                    return Lookup::Fault(Fault::Changed(format!(
                        "the question {key:?} has changed since it was answered, and the step \
                         {step:?} has run since"
                    )));
                }
                Some(self.remove(position))
            }
        };
        let found = match previous {
            Some(entry) if entry.kind.digest() == Some(digest) => match decode(&entry.value) {
                Err(reason) => Lookup::Unanswered(Some(reason)),
                Ok(answer) => {
                    self.push(Entry { kind: EntryKind::Answer { digest, read: true }, ..entry });
                    Lookup::Answered(answer)
                }
            },
            other => self.swap_wording(key, other, digest, decode),
        };
        if matches!(found, Lookup::Unanswered(_)) && !matches!(location, Location::Absent(_)) {
            self.new_keys.insert(key.into());
        }
        found
    }

    /// Looks up an answer to this wording that was kept while another wording was in use, and keeps
    /// `other`, an answer to another wording, instead.
    ///
    /// During an upgrade, two versions of a handler may alternate; each then finds the answer to
    /// its own wording. If a message contains something that changes, this happens in every round.
    fn swap_wording<T>(
        &mut self,
        key: &str,
        other: Option<Entry>,
        digest: QuestionDigest,
        decode: impl Fn(&str) -> Result<T, String>,
    ) -> Lookup<T> {
        let is_kept =
            |entry: &Entry| matches!(entry.kind, EntryKind::OtherWording(_)) && *entry.key == *key;
        let mut kept = self.journal.entries.iter().position(is_kept);
        let mut found = Lookup::Unanswered(None);
        if let Some(position) = kept
            && let Some(entry) = self.journal.entries.get(position)
            && entry.kind == EntryKind::OtherWording(digest)
            && let Ok(answer) = decode(&entry.value)
        {
            let entry = self.remove(position);
            self.push(Entry { kind: EntryKind::Answer { digest, read: true }, ..entry });
            kept = None;
            found = Lookup::Answered(answer);
        }
        if let Some(other) = other
            && let Some(answered) = other.kind.digest()
        {
            tracing::warn!(
                target: "mrtr::rounds",
                key, "the question has changed since it was answered"
            );
            if let Some(position) = kept {
                self.remove(position);
            }
            self.push(Entry { kind: EntryKind::OtherWording(answered), ..other });
        }
        found
    }

    /// Removes an entry from the journal.
    fn remove(&mut self, position: usize) -> Entry {
        self.changes += 1;
        self.saved = self.saved.min(position);
        self.next = self.next.min(position);
        self.index.clear();
        self.indexed = 0;
        let entry = self.journal.entries.remove(position);
        self.size -= entry.size();
        entry
    }

    fn entry(&self, location: &Location) -> Option<&Entry> {
        match location {
            Location::Absent(_) => None,
            Location::Journal(position) => self.journal.entries.get(*position),
            Location::Arrived(position) => self.arrived.get(*position),
        }
    }

    /// Returns the recorded result of the step at `location`.
    pub(super) fn step(&self, location: &Location) -> Result<Option<(StepKind, &str)>, Fault> {
        let Some(entry) = self.entry(location) else { return Ok(None) };
        match entry.kind {
            EntryKind::Step(kind) => Ok(Some((kind, &entry.value))),
            EntryKind::Decision => Err(entry.kind_changed("a choice", "a step")),
            _ => Err(entry.kind_changed("a question", "a step")),
        }
    }

    /// Returns the recorded decision at `location`, which is one of `choices`. `what` names the
    /// decision in errors.
    pub(super) fn decision<const N: usize>(
        &self,
        location: &Location,
        what: &str,
        choices: [&'static str; N],
    ) -> Result<Option<&'static str>, Fault> {
        let Some(entry) = self.entry(location) else { return Ok(None) };
        let chosen = choices.into_iter().find(|choice| *entry.value == **choice);
        match (entry.kind, chosen) {
            (EntryKind::Decision, Some(chosen)) => Ok(Some(chosen)),
            (EntryKind::Decision, None) => Err(entry.kind_changed("another choice", what)),
            (EntryKind::Step(_), _) => Err(entry.kind_changed("a step", what)),
            _ => Err(entry.kind_changed("a question", what)),
        }
    }

    /// Records an entry under a key that this replay has used.
    pub(super) fn record(&mut self, key: &Arc<str>, kind: EntryKind, value: String) {
        match kind {
            EntryKind::Step(_) => {
                self.has_new_step = true;
                // Its key is one of `new_keys`, so the index does not need it.
                self.indexed += usize::from(self.indexed == self.journal.entries.len());
            }
            _ => self.has_new_decision = true,
        }
        self.push(Entry { key: key.into(), kind, value: value.into(), used: true });
    }

    /// Replaces the recorded result of a step of this replay.
    pub(super) fn replace_step(&mut self, key: &str, kind: StepKind, value: String) {
        let is_of = |entry: &Entry| *entry.key == *key && matches!(entry.kind, EntryKind::Step(_));
        let Some(position) = self.journal.entries.iter().rposition(is_of) else { return };
        let Some(entry) = self.journal.entries.get_mut(position) else { return };
        self.size -= entry.size();
        *entry = Entry { kind: EntryKind::Step(kind), value: value.into(), ..entry.clone() };
        self.size += entry.size();
        self.longest = self.longest.max(entry.value.len());
        self.changes += 1;
        self.saved = self.saved.min(position);
    }

    /// Returns true if this replay has recorded a step or a decision, which the request state that
    /// arrived does not have.
    pub(super) fn has_recorded(&self) -> bool {
        self.has_new_step || self.has_new_decision
    }

    /// Returns true if this replay has recorded a step.
    pub(super) fn has_new_step(&self) -> bool {
        self.has_new_step
    }

    /// Marks the decision under a key as used, which may happen any number of times. Returns false
    /// if there is none.
    pub(super) fn use_decision(&mut self, key: &str) -> bool {
        // The index has no steps of this replay.
        if self.new_keys.contains(key) {
            return self.journal.entries.iter().any(|entry| *entry.key == *key);
        }
        let Some(position) = self.find(key) else { return false };
        let Some(entry) = self.journal.entries.get_mut(position) else { return false };
        if !std::mem::replace(&mut entry.used, true) {
            self.unreached -= usize::from(entry.kind.was_reached());
            self.next = position + 1;
        }
        true
    }

    /// Adds a decision that another round would make again, so it does not count as recorded.
    pub(super) fn push_decision(&mut self, key: &str, decision: &str) {
        let kind = EntryKind::Decision;
        self.push(Entry { key: key.into(), kind, value: decision.into(), used: true });
    }

    fn push(&mut self, entry: Entry) {
        self.changes += 1;
        self.size += entry.size();
        self.longest = self.longest.max(entry.value.len());
        self.journal.entries.push(Entry { used: true, ..entry });
    }

    /// Checks, before a step has any effect, that the answers can be kept, and that there is room
    /// for a result of maximum length.
    ///
    /// # Errors
    ///
    /// A fault that names the answer that is too long, or the longest entry.
    pub(super) fn check_room(&self, key: &str, limits: Limits) -> Result<(), Fault> {
        self.check_answers(limits)?;
        let Limits { entry, journal } = limits;
        // What has arrived enters the journal when its question is reached.
        let size = self.size + self.arrived.iter().map(Entry::size).sum::<usize>();
        if size + entry <= journal {
            return Ok(());
        }
        Err(Fault::Handler(format!(
            "the step {key:?} was not run: its result may not fit, because {size} of {journal} \
             bytes are in use (longest entry: {:?})",
            self.journal.largest().map_or("", |entry| &entry.key)
        )))
    }

    /// Checks that no answer is too long to be kept.
    ///
    /// # Errors
    ///
    /// A fault that names the answer.
    pub(super) fn check_answers(&self, limits: Limits) -> Result<(), Fault> {
        // Each step asks, so that this does not search a long journal.
        if self.longest <= limits.entry {
            return Ok(());
        }
        let mut answers = self.journal.entries.iter().chain(&self.arrived);
        match answers.find(|answer| answer.value.len() > limits.entry) {
            Some(answer) => Err(answer.too_long(limits.entry)),
            None => Ok(()),
        }
    }

    /// Returns the number of changes to the entries so far.
    pub(super) fn changes(&self) -> u64 {
        self.changes
    }

    /// Marks all entries of the journal that was given to [`new`](Self::new) as saved.
    pub(super) fn mark_saved(&mut self) {
        self.saved = self.journal.entries.len();
    }

    /// Marks all entries as not saved.
    pub(super) fn mark_unsaved(&mut self) {
        self.saved = 0;
    }

    /// Puts answers that have arrived into the journal, so that they are saved with it.
    pub(super) fn keep_arrived(&mut self) {
        self.size += self.arrived.iter().map(Entry::size).sum::<usize>();
        self.journal.entries.append(&mut self.arrived);
    }

    /// Returns the entries that changed since they were last taken, and the position of the first.
    pub(super) fn take_unsaved(&mut self) -> (usize, Vec<Entry>) {
        let position = std::mem::replace(&mut self.saved, self.journal.entries.len());
        (position, self.journal.entries.get(position..).unwrap_or_default().to_vec())
    }

    /// Returns the number of leading entries that are saved.
    pub(super) fn saved(&self) -> usize {
        self.saved
    }

    /// Returns true if the replay has not reached the end of the previous round yet: some entries,
    /// or some questions that were answered since.
    pub(super) fn is_replaying(&self) -> bool {
        // Some entries may never be reached, such as the losing side of a race. A new key shows
        // that the replay is past them.
        !self.is_past_journal && (self.unreached > 0 || !self.arrived.is_empty())
    }

    /// Returns the journal for the next round.
    pub(super) fn into_journal(mut self) -> Journal {
        // Answers whose question this replay has not reached are kept for the next one.
        self.journal.entries.append(&mut self.arrived);
        self.journal
    }
}

impl Entry {
    /// Creates the fault of an answer that is too long to be kept.
    pub(crate) fn too_long(&self, limit: usize) -> Fault {
        Fault::AnswerTooLong(self.key.to_string(), self.value.len(), limit)
    }

    /// Creates the fault of an entry that was recorded for one thing and is used for another.
    fn kind_changed(&self, before: &str, now: &str) -> Fault {
        let key = &self.key;
        Fault::Changed(format!("{key:?} is {now} now, but was {before} when it was recorded"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_rejected_at_second_use_also_if_their_answer_was_removed() {
        let key = Arc::from("a");
        let digest = QuestionDigest([1; 16]);
        let fits = |fits: bool| move |_: &str| fits.then_some(()).ok_or_else(String::new);
        for (answered, does_fit, is_asked) in
            [(digest, true, false), (digest, false, true), (QuestionDigest([2; 16]), true, true)]
        {
            let pending = PendingInputs::from_iter([(Arc::clone(&key), answered)]);
            let responses = serde_json::from_str(r#"{"a":{"action":"decline"}}"#).unwrap();
            let mut replay = Replay::new(Journal::default(), &pending, responses);
            let location = replay.use_key(&key).unwrap();
            let found = replay.answer((&key, &location), digest, false, fits(does_fit));
            assert_eq!(matches!(found, Lookup::Unanswered(_)), is_asked, "{found:?}");
            assert!(replay.use_key(&key).is_err());
        }
        let mut replay = Replay::default();
        assert!(matches!(replay.use_key(&key), Ok(Location::Absent(_))));
        assert!(replay.use_key(&key).is_err());
    }

    /// Also of steps that the index does not cover, and of the longest entry.
    #[test]
    fn keys_of_a_long_replay_are_found() {
        let step = EntryKind::Step(StepKind { skippable: false, failed: false });
        let mut replay = Replay::default();
        for n in 0..3 * SEARCHES_BEFORE_INDEX {
            let key: Arc<str> = format!("step-{n}").into();
            replay.use_key(&key).unwrap();
            replay.record(&key, step, "x".repeat(n));
            replay.push_decision(&format!("decision-{n}"), "yes");
        }
        for n in 0..3 * SEARCHES_BEFORE_INDEX {
            assert!(replay.use_key(&format!("step-{n}")).is_err(), "step-{n}");
            assert!(replay.use_decision(&format!("decision-{n}")), "decision-{n}");
        }
        let too_long = |entry| replay.check_answers(Limits { entry, journal: 1 << 20 }).is_err();
        let longest = 3 * SEARCHES_BEFORE_INDEX - 1;
        assert_eq!([too_long(longest - 1), too_long(longest)], [true, false]);

        // A replay of that journal reaches all of it, in any order.
        let mut journal = replay.into_journal();
        journal.entries.iter_mut().for_each(|entry| entry.used = false);
        let mut replay = Replay::new(journal, &PendingInputs::default(), InputResponses::default());
        for n in (0..3 * SEARCHES_BEFORE_INDEX).rev() {
            let location = replay.use_key(&format!("step-{n}"));
            assert!(matches!(location, Ok(Location::Journal(_))), "step-{n}");
        }
        assert!(replay.use_key("step-0").is_err());
    }

    /// What the room for a step is computed from.
    #[test]
    fn size_is_that_of_the_entries_after_every_change() {
        let exact = |replay: &Replay, after: &str| {
            let sizes = replay.journal.entries.iter().map(Entry::size);
            assert_eq!(replay.size, sizes.sum::<usize>(), "{after}");
        };
        let (key, digest) = (Arc::from("a"), QuestionDigest([1; 16]));
        let pending = PendingInputs::from_iter([(Arc::clone(&key), digest)]);
        let responses = serde_json::from_str(r#"{"a":{"action":"decline"}}"#).unwrap();
        let mut replay = Replay::new(Journal::default(), &pending, responses);
        replay.keep_arrived();
        exact(&replay, "an answer was kept");
        let step = StepKind { skippable: false, failed: false };
        replay.record(&Arc::from("b"), EntryKind::Step(step), "1".to_owned());
        replay.replace_step("b", step, "longer".to_owned());
        exact(&replay, "a result was replaced");
        let location = replay.use_key(&key).unwrap();
        let rejected = |_: &str| Err::<(), _>(String::new());
        let found = replay.answer((&key, &location), digest, false, rejected);
        assert!(matches!(found, Lookup::Unanswered(_)), "{found:?}");
        exact(&replay, "an answer was removed");
    }
}
