//! One pass of the handler over what is recorded.

use std::collections::HashMap;

use mrtr_codec::Digest;
use mrtr_schema::input::InputResponses;

use super::journal::{Entry, EntryKind, Journal, MAX_ENTRY, MAX_JOURNAL, Pin, StepKind, unordered};
use super::round::Fault;

/// The journal as this pass finds it, and what the pass adds.
#[derive(Debug, Default)]
pub(super) struct Pass {
    journal: Journal,
    /// Answers that arrived with this request. They enter the journal when their question accepts them, so that it
    /// stays in the order in which things were learned.
    fresh: Vec<Entry>,
    /// Keys that this pass has used, and that it found nothing under.
    new: Vec<String>,
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
pub(super) enum Found<T> {
    Fits(T),
    /// The question was passed over, since the client could not be asked.
    PassedOver,
    /// It is asked, with the reason why the last answer did not do, if there was one.
    Ask(Option<String>),
    Fault(Fault),
}

impl Pass {
    /// `asked` are the questions of the state that came with the request; a response to anything else is not looked at.
    pub(super) fn new(
        journal: Journal,
        asked: &[(String, Pin)],
        responses: InputResponses,
    ) -> Self {
        let asked: HashMap<&str, Pin> = asked.iter().map(|(key, pin)| (&**key, *pin)).collect();
        let ahead = journal.entries.iter().filter(|entry| entry.kind.is_behind()).count();
        let size = journal.entries.iter().map(Entry::size).sum();
        let (fresh, new) = (Vec::new(), Vec::new());
        let mut pass = Self { journal, fresh, new, next: 0, ahead, at_the_end: false, size };
        for (key, answer) in responses.0 {
            if let (Some(pin), None) = (asked.get(&*key), pass.find(&key)) {
                let kind = EntryKind::Answer { pin: *pin, read: false };
                let (key, value) = (key.into(), answer.get().into());
                pass.fresh.push(Entry { key, kind, value, used: false });
            }
        }
        pass
    }

    /// The digest of the answers that are known. They count by their meaning, not by how a client writes them. Results of
    /// steps do not: how many of them are known when a leg begins depends on where the leg before ended, which is chance
    /// where a replica lets others go on, and a step has to have the same key wherever it runs.
    pub(super) fn known(&self) -> Digest {
        let mut parts = Vec::new();
        for entry in self.journal.entries.iter().chain(&self.fresh) {
            if let EntryKind::Answer { .. } = entry.kind {
                let value = Digest::of_json(Some(&entry.value));
                let value = value.unwrap_or_else(|_| Digest::of_parts(&[entry.value.as_bytes()]));
                parts.push((entry.key.as_bytes(), value));
            }
        }
        unordered(parts)
    }

    fn find(&self, key: &str) -> Option<usize> {
        let is_it = |entry: &Entry| *entry.key == *key;
        if self.journal.entries.get(self.next).is_some_and(is_it) {
            return Some(self.next);
        }
        self.journal.entries.iter().position(is_it)
    }

    /// Uses a key; a key is used once in a pass.
    pub(super) fn take(&mut self, key: &str) -> Result<Place, Fault> {
        let twice = || Fault::Handler(format!("the key {key:?} is used twice in one pass"));
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
        if self.new.iter().any(|used| used == key) {
            return Err(twice());
        }
        self.new.push(key.to_owned());
        let fresh = self.fresh.iter().position(|entry| *entry.key == *key);
        self.at_the_end |= fresh.is_none();
        Ok(fresh.map_or(Place::Nothing, Place::Fresh))
    }

    /// Holds the answer at `place` against its question as it reads now. One that does not do is forgotten.
    ///
    /// `decode` says why an answer does not fit, or what it is.
    pub(super) fn answer<T>(
        &mut self,
        place: Place,
        pin: Pin,
        decode: impl FnOnce(&str) -> Result<T, String>,
    ) -> Found<T> {
        let at = match place {
            Place::Nothing => return Found::Ask(None),
            Place::Fresh(at) => {
                let mut entry = self.fresh.remove(at);
                let read = entry.read(pin, decode);
                if read.is_ok() {
                    entry.kind = EntryKind::Answer { pin, read: true };
                    self.push(entry);
                }
                return read.map_or_else(Found::Ask, Found::Fits);
            }
            Place::Recorded(at) => at,
        };
        let Some(entry) = self.journal.entries.get_mut(at) else { return Found::Ask(None) };
        let reason = match entry.kind {
            EntryKind::Choice => return Found::PassedOver,
            EntryKind::Step(_) => {
                let key = &entry.key;
                let why = format!("{key:?} is a question now, but was a step when it was recorded");
                return Found::Fault(Fault::Changed(why));
            }
            EntryKind::Answer { .. } => match entry.read(pin, decode) {
                Err(reason) => reason,
                Ok(answer) => {
                    entry.kind = EntryKind::Answer { pin, read: true };
                    return Found::Fits(answer);
                }
            },
        };
        // Something was done on the strength of this answer: it cannot be taken back silently.
        if let Some(step) = self.journal.step_after(at) {
            let (key, step) = (self.journal.entries.get(at).map(|entry| &entry.key), &step.key);
            return Found::Fault(Fault::Changed(format!(
                "the question {:?} reads differently than when it was answered, and the step {step:?} was done since",
                key.map_or("", |key| key),
            )));
        }
        self.forget(place);
        Found::Ask(reason)
    }

    /// Takes an entry out of the journal; its key stays used.
    pub(super) fn forget(&mut self, place: Place) {
        let Place::Recorded(at) = place else { return };
        let entry = self.journal.entries.remove(at);
        self.next = at;
        self.at_the_end = true;
        self.new.push(entry.key.to_string());
    }

    /// The step that is recorded at `place`.
    pub(super) fn step(&self, place: Place) -> Result<Option<(StepKind, &str)>, Fault> {
        let entry = match place {
            Place::Nothing => None,
            Place::Recorded(at) => self.journal.entries.get(at),
            Place::Fresh(at) => self.fresh.get(at),
        };
        let was = |entry: &Entry, what: &str| {
            let key = &entry.key;
            Fault::Changed(format!("{key:?} is a step now, but was {what} when it was recorded"))
        };
        match entry.map(|entry| (entry, entry.kind)) {
            None => Ok(None),
            Some((entry, EntryKind::Step(kind))) => Ok(Some((kind, &entry.value))),
            Some((entry, EntryKind::Answer { .. })) => Err(was(entry, "a question")),
            Some((entry, EntryKind::Choice)) => Err(was(entry, "a choice")),
        }
    }

    /// The choice that is recorded at `place`.
    pub(super) fn choice(&self, place: Place) -> Result<Option<&str>, Fault> {
        let Place::Recorded(at) = place else { return Ok(None) };
        match self.journal.entries.get(at) {
            Some(Entry { kind: EntryKind::Choice, value, .. }) => Ok(Some(value)),
            Some(entry) => {
                let key = &entry.key;
                let why = format!("{key:?} is a race now, but was none when it was recorded");
                Err(Fault::Changed(why))
            }
            None => Ok(None),
        }
    }

    /// Keeps what was learned under a key that this pass has used.
    pub(super) fn record(&mut self, key: &str, kind: EntryKind, value: String) {
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
        // An answer that nobody reads, such as the second one of a race, is waited for until something new comes up.
        self.ahead > 0 || (!self.fresh.is_empty() && !self.at_the_end)
    }

    /// What the next leg is to know.
    pub(super) fn into_journal(mut self) -> Journal {
        // Answers whose question this pass has not come to are kept for the next.
        self.journal.entries.append(&mut self.fresh);
        self.journal
    }
}

impl Entry {
    /// Reads an answer to the question with this pin; the error is the reason to ask again, if it is one
    /// that a person can mend.
    fn read<T>(
        &self,
        pin: Pin,
        decode: impl FnOnce(&str) -> Result<T, String>,
    ) -> Result<T, Option<String>> {
        if !matches!(self.kind, EntryKind::Answer { pin: answered, .. } if answered == pin) {
            // After an upgrade once; on every round, if the message is made of what changes.
            tracing::warn!(
                target: "mrtr::rounds",
                key = &*self.key,
                "the question reads differently than when it was answered"
            );
            return Err(None);
        }
        decode(&self.value).map_err(Some)
    }
}
