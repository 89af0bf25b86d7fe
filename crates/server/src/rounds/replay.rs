//! One pass of the handler over what is recorded.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use mrtr_schema::input::InputResponses;

use super::fault::Fault;
use super::journal::{
    Entry, EntryKind, Journal, MAX_ENTRY, MAX_JOURNAL, PendingInputs, Pin, SKIPPED, StepKind,
};
use super::shared_str::SharedStr;

/// An index takes as long as some searches.
const FEW: usize = 16;

/// The journal as this pass finds it, and what the pass adds.
#[derive(Debug, Default)]
pub(super) struct Replay {
    journal: Journal,
    /// Answers that arrived with this request. They enter the journal when their question accepts them, so that it
    /// stays in the order in which things were learned.
    fresh: Vec<Entry>,
    /// Keys that this pass has used, and that it found nothing under, or nothing that did.
    new: BTreeSet<Arc<str>>,
    /// How many keys were not found at once.
    missed: usize,
    /// Where keys are, once many were not found at once, as far as it was made.
    index: HashMap<SharedStr, usize>,
    indexed: usize,
    /// Where the next key will be, most often: a pass goes over the journal in its order.
    next: usize,
    /// How many entries that an earlier pass came to this one has not come to.
    ahead: usize,
    /// Whether it has come to something that no earlier pass had come to.
    at_the_end: bool,
    /// How long the entries are, packed, with those that this pass has forgotten.
    size: usize,
}

/// What there is under a key.
#[derive(Debug, Clone, Copy)]
pub(super) enum Place {
    /// The journal's entry at this position.
    Recorded(usize),
    /// The answer at this position of those that arrived.
    Fresh(usize),
    Nothing,
}

/// What an answer is to its question.
#[derive(Debug)]
pub(super) enum Lookup<T> {
    Answered(T),
    /// The question was passed over, since the client could not be asked.
    Skipped,
    /// It is asked, with the reason why the last answer did not do, if there was one.
    Ask(Option<String>),
    Fault(Fault),
}

impl Replay {
    /// `pending` are the questions of the state that came with the request; a response to anything else is not looked at.
    pub(super) fn new(
        journal: Journal,
        pending: &PendingInputs,
        responses: InputResponses,
    ) -> Self {
        let ahead = journal.entries.iter().filter(|entry| entry.kind.is_behind()).count();
        let size = journal.entries.iter().map(Entry::size).sum();
        let mut replay = Self { journal, ahead, size, ..Self::default() };
        for (key, answer) in responses.0 {
            if let Some((key, pin)) = pending.get(&key)
                && replay.find(key).is_none()
            {
                let kind = EntryKind::Answer { pin: *pin, read: false };
                let (key, value) = (key.into(), answer.get().into());
                replay.fresh.push(Entry { key, kind, value, used: false });
            }
        }
        replay
    }

    /// The answers that are known, by their keys.
    pub(super) fn answers(&self) -> Vec<(SharedStr, SharedStr)> {
        let all = self.journal.entries.iter().chain(&self.fresh);
        let answers = all.filter(|entry| matches!(entry.kind, EntryKind::Answer { .. }));
        answers.map(|entry| (entry.key.clone(), entry.value.clone())).collect()
    }

    fn find(&mut self, key: &str) -> Option<usize> {
        let is_aside = |entry: &Entry| matches!(entry.kind, EntryKind::Aside(_));
        let is_it = |entry: &Entry| *entry.key == *key && !is_aside(entry);
        if self.journal.entries.get(self.next).is_some_and(is_it) {
            return Some(self.next);
        }
        self.missed += 1;
        if self.missed <= FEW {
            return self.journal.entries.iter().position(is_it);
        }
        for (at, entry) in self.journal.entries.iter().enumerate().skip(self.indexed) {
            if !is_aside(entry) {
                self.index.insert(entry.key.clone(), at);
            }
        }
        self.indexed = self.journal.entries.len();
        self.index.get(key).copied()
    }

    /// Uses a key; a key is used once in a pass.
    pub(super) fn take(&mut self, key: &Arc<str>) -> Result<Place, Fault> {
        let twice = || Fault::Handler(format!("the key {key:?} is used twice in one replay"));
        let found = self.find(key);
        if let Some((at, entry)) =
            found.and_then(|at| Some((at, self.journal.entries.get_mut(at)?)))
        {
            if std::mem::replace(&mut entry.used, true) {
                return Err(twice());
            }
            self.ahead -= usize::from(entry.kind.is_behind());
            self.next = at + 1;
            return Ok(Place::Recorded(at));
        }
        if let Some(at) = self.fresh.iter().position(|entry| *entry.key == **key) {
            return Ok(Place::Fresh(at));
        }
        self.at_the_end = true;
        if self.new.insert(Arc::clone(key)) { Ok(Place::Nothing) } else { Err(twice()) }
    }

    /// Holds the answer at `place` against its question as it reads now. One that does not fit is forgotten, and one to another
    /// wording is set aside.
    ///
    /// `decode` says why an answer does not fit, or what it is.
    pub(super) fn answer<T>(
        &mut self,
        (key, place): (&Arc<str>, Place),
        pin: Pin,
        optional: bool,
        decode: impl Fn(&str) -> Result<T, String>,
    ) -> Lookup<T> {
        let last = match place {
            Place::Nothing => None,
            Place::Fresh(at) => Some(self.fresh.remove(at)),
            Place::Recorded(at) => {
                let Some(entry) = self.journal.entries.get(at) else {
                    return Lookup::Ask(None);
                };
                let is_read = match entry.kind {
                    EntryKind::Answer { pin: answered, read: true } => {
                        if answered == pin
                            && let Ok(answer) = decode(&entry.value)
                        {
                            return Lookup::Answered(answer);
                        }
                        true
                    }
                    EntryKind::Answer { read: false, .. } => false,
                    EntryKind::Choice if *entry.value == *SKIPPED && optional => {
                        return Lookup::Skipped;
                    }
                    EntryKind::Choice if *entry.value == *SKIPPED => true,
                    EntryKind::Step(_) => return Lookup::Fault(entry.was("a step", "a question")),
                    _ => return Lookup::Fault(entry.was("another choice", "a question")),
                };
                // Something was done on the strength of this: it cannot be taken back silently. What nobody has read, nothing
                // was done on.
                if let Some(step) = self.journal.step_after(at).filter(|_| is_read) {
                    let step = &step.key;
                    return Lookup::Fault(Fault::Changed(format!(
                        "the question {key:?} reads differently than when it was answered, and the step {step:?} was \
                         done since"
                    )));
                }
                Some(self.remove(at))
            }
        };
        let found = match last {
            Some(entry) if entry.kind.pin() == Some(pin) => match decode(&entry.value) {
                Err(reason) => Lookup::Ask(Some(reason)),
                Ok(answer) => {
                    self.push(Entry { kind: EntryKind::Answer { pin, read: true }, ..entry });
                    Lookup::Answered(answer)
                }
            },
            other => self.answer_aside(key, other, pin, decode),
        };
        if matches!(found, Lookup::Ask(_)) {
            self.new.insert(Arc::clone(key));
        }
        found
    }

    /// Looks for an answer that was set aside, and sets `other` aside instead, if it is one. After an upgrade that happens once.
    /// While two versions take turns, each finds the answer to its own wording. If the message is made of what changes, it
    /// happens on every round.
    fn answer_aside<T>(
        &mut self,
        key: &str,
        other: Option<Entry>,
        pin: Pin,
        decode: impl Fn(&str) -> Result<T, String>,
    ) -> Lookup<T> {
        let is_aside =
            |entry: &Entry| matches!(entry.kind, EntryKind::Aside(_)) && *entry.key == *key;
        let mut aside = self.journal.entries.iter().position(is_aside);
        let mut found = Lookup::Ask(None);
        if let Some((at, entry)) = aside.and_then(|at| Some((at, self.journal.entries.get(at)?)))
            && entry.kind == EntryKind::Aside(pin)
            && let Ok(answer) = decode(&entry.value)
        {
            let entry = self.remove(at);
            self.push(Entry { kind: EntryKind::Answer { pin, read: true }, ..entry });
            (aside, found) = (None, Lookup::Answered(answer));
        }
        if let Some(other) = other
            && let Some(answered) = other.kind.pin()
        {
            tracing::warn!(target: "mrtr::rounds", key, "the question reads differently than when it was answered");
            aside.map(|at| self.remove(at));
            self.push(Entry { kind: EntryKind::Aside(answered), ..other });
        }
        found
    }

    /// Takes an entry out of the journal.
    fn remove(&mut self, at: usize) -> Entry {
        self.next = self.next.min(at);
        self.index.clear();
        self.indexed = 0;
        self.journal.entries.remove(at)
    }

    fn entry(&self, place: Place) -> Option<&Entry> {
        match place {
            Place::Nothing => None,
            Place::Recorded(at) => self.journal.entries.get(at),
            Place::Fresh(at) => self.fresh.get(at),
        }
    }

    /// The step that is recorded at `place`.
    pub(super) fn step(&self, place: Place) -> Result<Option<(StepKind, &str)>, Fault> {
        match self.entry(place).map(|entry| (entry, entry.kind)) {
            None => Ok(None),
            Some((entry, EntryKind::Step(kind))) => Ok(Some((kind, &entry.value))),
            Some((entry, EntryKind::Choice)) => Err(entry.was("a choice", "a step")),
            Some((entry, _)) => Err(entry.was("a question", "a step")),
        }
    }

    /// Which of these was chosen under the key at `place`, of `what` it is now.
    pub(super) fn choice<const N: usize>(
        &self,
        place: Place,
        what: &str,
        of: [&'static str; N],
    ) -> Result<Option<&'static str>, Fault> {
        let Some(entry) = self.entry(place) else { return Ok(None) };
        match (entry.kind, of.into_iter().find(|value| *entry.value == **value)) {
            (EntryKind::Choice, Some(chosen)) => Ok(Some(chosen)),
            (EntryKind::Choice, None) => Err(entry.was("another choice", what)),
            (EntryKind::Step(_), _) => Err(entry.was("a step", what)),
            _ => Err(entry.was("a question", what)),
        }
    }

    /// Keeps what was learned under a key that this pass has used.
    pub(super) fn record(&mut self, key: &Arc<str>, kind: EntryKind, value: String) {
        self.push(Entry { key: key.into(), kind, value: value.into(), used: true });
    }

    fn push(&mut self, entry: Entry) {
        self.size += entry.size();
        self.journal.entries.push(Entry { used: true, ..entry });
    }

    /// Whether the result of a step would find no room, however short it is in the end. To be asked before the step
    /// has done anything.
    pub(super) fn check_room(&self, key: &str) -> Result<(), Fault> {
        if self.size + MAX_ENTRY <= MAX_JOURNAL {
            return Ok(());
        }
        Err(Fault::Handler(format!(
            "the step {key:?} was not begun: there may be no room for its result, as {} bytes of {MAX_JOURNAL} are in \
             use, most of them by {:?}",
            self.size,
            self.journal.largest().map_or("", |entry| &entry.key)
        )))
    }

    /// Whether the pass has not yet come to where the last leg ended: to all that was recorded, and to the questions
    /// that were answered since.
    pub(super) fn is_replaying(&self) -> bool {
        // What nobody comes to any more, such as the other side of a race, is waited for until something new comes up.
        !self.at_the_end && (self.ahead > 0 || !self.fresh.is_empty())
    }

    /// What the next leg is to know.
    pub(super) fn into_journal(mut self) -> Journal {
        // Answers whose question this pass has not come to are kept for the next.
        self.journal.entries.append(&mut self.fresh);
        self.journal
    }
}

impl Entry {
    /// It was one thing when it was recorded, and is another now.
    fn was(&self, before: &str, now: &str) -> Fault {
        let key = &self.key;
        Fault::Changed(format!("{key:?} is {now} now, but was {before} when it was recorded"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_used_once_whatever_became_of_its_answer() {
        let (key, pin) = (Arc::from("a"), Pin([1; 16]));
        let fits = |fits: bool| move |_: &str| fits.then_some(()).ok_or_else(String::new);
        for (answered, does_fit, is_asked) in
            [(pin, true, false), (pin, false, true), (Pin([2; 16]), true, true)]
        {
            let pending = PendingInputs::from_iter([(Arc::clone(&key), answered)]);
            let responses = serde_json::from_str(r#"{"a":{"action":"decline"}}"#).unwrap();
            let mut replay = Replay::new(Journal::default(), &pending, responses);
            let place = replay.take(&key).unwrap();
            let found = replay.answer((&key, place), pin, false, fits(does_fit));
            assert_eq!(matches!(found, Lookup::Ask(_)), is_asked, "{found:?}");
            assert!(replay.take(&key).is_err());
        }
        let mut replay = Replay::default();
        assert!(matches!(replay.take(&key), Ok(Place::Nothing)));
        assert!(replay.take(&key).is_err());
    }
}
