//! The content of the sealed request state: the call, its open questions, and its journal.

use std::ops::Range;
use std::sync::Arc;

use mrtr_codec::encoding::{DecodeError, Decoder, Encoder};
use mrtr_codec::{Digest, UnixSeconds};

use super::fault::Fault;
use super::shared_str::SharedStr;
use super::version::Version;

/// The version of the binary format. A replica refuses states in a format that it does not know.
const FORMAT: u8 = 1;

/// Maximum number of entries for which memory is reserved before they are read.
const TYPICAL_ENTRIES: u64 = 32;

/// The longest value of one entry, in bytes.
pub(crate) const MAX_ENTRY: usize = 8 * 1024;
/// The longest packed state, in bytes. The journal goes over the network twice in each round.
pub(crate) const MAX_JOURNAL: usize = 64 * 1024;

/// The longest value of one entry of a task, in bytes.
pub(crate) const MAX_STORED_ENTRY: usize = 256 * 1024;

/// The length of all answers of a task, in bytes. Refused answers are kept as well.
pub(crate) const MAX_STORED_ANSWERS: u64 = 4 * 1024 * 1024;

/// The limits of a journal, in bytes.
#[derive(Debug, Clone, Copy)]
pub(super) struct Limits {
    /// The longest value of one entry.
    pub(super) entry: usize,
    /// The length of all entries.
    pub(super) journal: usize,
}

impl Limits {
    /// The limits of a journal that travels with the client.
    pub(super) const TOKEN: Self = Self { entry: MAX_ENTRY, journal: MAX_JOURNAL };
    /// The limits of a journal in a task store.
    pub(super) const STORE: Self = Self { entry: MAX_STORED_ENTRY, journal: 64 * MAX_JOURNAL };
}

/// The identity of a call and its progress, in each of its states.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct CallMeta {
    pub(crate) id: [u8; 16],
    pub(crate) started: UnixSeconds,
    /// The number of rounds that have ended without a result.
    pub(crate) rounds: u64,
    /// The number of those rounds that ended with a hand-over to another replica.
    pub(crate) hand_overs: u8,
}

/// A digest of a question's visible text and fields: an answer counts for this wording only.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct QuestionDigest(pub(crate) [u8; 16]);

impl QuestionDigest {
    pub(crate) fn new(parts: &[&[u8]]) -> Self {
        let mut digest = [0; 16];
        for (to, from) in digest.iter_mut().zip(*Digest::from_parts(parts).as_bytes()) {
            *to = from;
        }
        Self(digest)
    }
}

/// Returns a digest of keys and values that does not depend on their order: the order of concurrent
/// questions or steps is not deterministic.
pub(crate) fn order_independent_digest(mut parts: Vec<(&[u8], Digest)>) -> Digest {
    parts.sort_unstable_by_key(|(key, value)| (*key, *value.as_bytes()));
    let flat: Vec<&[u8]> = parts.iter().flat_map(|(key, value)| [*key, value.as_bytes()]).collect();
    Digest::from_parts(&flat)
}

/// One entry of the journal: an answer, a step result or a decision, under the handler's key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Entry {
    pub(crate) key: SharedStr,
    pub(crate) kind: EntryKind,
    /// JSON.
    pub(crate) value: SharedStr,
    /// True if the current replay has reached the entry.
    pub(crate) used: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum EntryKind {
    /// An answer to the question with this digest.
    Answer {
        digest: QuestionDigest,
        /// True if a replay has reached its question.
        read: bool,
    },
    /// The result of a step.
    Step(StepKind),
    /// An answer to another wording of a question, kept for the handler version that uses it.
    OtherWording(QuestionDigest),
    /// A decision about the control flow: [`SKIPPED`], one of [`RACE_WINNERS`],
    /// [`CHECKPOINT`], or [`SCOPE`].
    Decision,
}

/// The decision that an optional question was skipped, because the client does not support it.
pub(super) const SKIPPED: &str = "null";
/// The decision that a round ended at a checkpoint.
pub(super) const CHECKPOINT: &str = "true";
/// The decision that the call needs a scope, which follows from its key.
pub(super) const SCOPE: &str = "\"scope\"";
/// The decisions that the first or the second side won a race.
pub(super) const RACE_WINNERS: [&str; 2] = ["0", "1"];

/// The kind of a recorded step.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct StepKind {
    /// True if later replays need not reach the step.
    pub(crate) skippable: bool,
    /// True if the step failed. The value is then its error.
    pub(crate) failed: bool,
}

impl EntryKind {
    /// Returns true if an earlier replay has reached it, so that this one should reach it, too.
    pub(super) fn was_reached(self) -> bool {
        !matches!(self, Self::Answer { read: false, .. } | Self::OtherWording(_))
    }

    /// Returns the digest of the question that it answers.
    pub(super) fn digest(self) -> Option<QuestionDigest> {
        match self {
            Self::Answer { digest, .. } | Self::OtherWording(digest) => Some(digest),
            Self::Step(_) | Self::Decision => None,
        }
    }

    fn to_byte(self) -> u8 {
        match self {
            Self::Answer { read: true, .. } => 0,
            Self::Answer { read: false, .. } => 4,
            Self::OtherWording(_) => 6,
            Self::Decision => 2,
            Self::Step(StepKind { skippable: false, failed: false }) => 1,
            Self::Step(StepKind { skippable: true, failed: false }) => 3,
            Self::Step(StepKind { skippable: false, failed: true }) => 5,
            Self::Step(StepKind { skippable: true, failed: true }) => 7,
        }
    }

    fn unpack(input: &mut Decoder<'_>) -> Result<Self, DecodeError> {
        Ok(match input.byte()? {
            kind @ (0 | 4) => {
                Self::Answer { digest: QuestionDigest(input.array()?), read: kind == 0 }
            }
            6 => Self::OtherWording(QuestionDigest(input.array()?)),
            2 => Self::Decision,
            kind @ (1 | 3 | 5 | 7) => {
                Self::Step(StepKind { skippable: kind & 2 != 0, failed: kind & 4 != 0 })
            }
            _ => return Err(DecodeError),
        })
    }
}

impl Entry {
    /// Packs one entry by itself.
    pub(crate) fn pack(&self) -> Vec<u8> {
        let mut out = Encoder::with_capacity(self.size());
        self.pack_into(&mut out);
        out.finish()
    }

    fn pack_into(&self, out: &mut Encoder) {
        out.byte(self.kind.to_byte());
        if let Some(digest) = self.kind.digest() {
            out.raw(&digest.0);
        }
        out.bytes(self.key.as_bytes()).bytes(self.value.as_bytes());
    }

    /// Reverses [`pack`](Self::pack).
    pub(crate) fn unpack(packed: &[u8]) -> Result<Self, DecodeError> {
        let mut input = Decoder::new(packed);
        let kind = EntryKind::unpack(&mut input)?;
        let (key, value) = (input.text()?.into(), input.text()?.into());
        input.end()?;
        Ok(Self { key, kind, value, used: false })
    }

    /// Returns its packed length in bytes, rounded up: 1 for the kind, 3 each for the lengths of
    /// key and value, which are varints.
    pub(super) fn size(&self) -> usize {
        let digest = self.kind.digest().map_or(0, |digest| size_of_val(&digest));
        7 + digest + self.key.len() + self.value.len()
    }
}

/// The entries of a call, in the order in which they were recorded.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Journal {
    pub(crate) entries: Vec<Entry>,
}

impl Journal {
    /// Returns the first step that was recorded after the answer at `position`.
    pub(crate) fn first_step_after(&self, position: usize) -> Option<&Entry> {
        self.entries.iter().skip(position).find(|entry| matches!(entry.kind, EntryKind::Step(_)))
    }

    /// Checks, after a handler has returned, that it has reached all recorded steps.
    ///
    /// # Errors
    ///
    /// A fault that names the first step that it has not reached.
    pub(crate) fn check_reached(&self) -> Result<(), Fault> {
        let unreached = |entry: &&Entry| match entry.kind {
            EntryKind::Step(kind) => !entry.used && !kind.skippable,
            EntryKind::Answer { .. } | EntryKind::OtherWording(_) | EntryKind::Decision => false,
        };
        match self.entries.iter().find(unreached) {
            None => Ok(()),
            Some(Entry { key, .. }) => Err(Fault::Changed(format!(
                "the handler returned without reaching the recorded step {key:?}"
            ))),
        }
    }

    /// Returns the entry with the longest value.
    pub(crate) fn largest(&self) -> Option<&Entry> {
        self.entries.iter().max_by_key(|entry| entry.value.len())
    }
}

/// The questions that a state was sent with, sorted by key.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct PendingInputs(Vec<(Arc<str>, QuestionDigest)>);

impl PendingInputs {
    /// Returns the key and the digest of the question under `key`.
    pub(super) fn get(&self, key: &str) -> Option<&(Arc<str>, QuestionDigest)> {
        let index = self.0.binary_search_by(|(pending, _)| (**pending).cmp(key)).ok()?;
        self.0.get(index)
    }

    /// Returns the keys of the questions, sorted.
    #[cfg(feature = "development")]
    pub(crate) fn keys(&self) -> impl Iterator<Item = &str> {
        self.0.iter().map(|(key, _)| &**key)
    }

    pub(crate) fn contains(&self, key: &str) -> bool {
        self.get(key).is_some()
    }
}

impl FromIterator<(Arc<str>, QuestionDigest)> for PendingInputs {
    fn from_iter<I: IntoIterator<Item = (Arc<str>, QuestionDigest)>>(questions: I) -> Self {
        let mut questions = Vec::from_iter(questions);
        questions.sort_unstable_by(|(one, _), (other, _)| one.cmp(other));
        Self(questions)
    }
}

/// The content of a sealed request state.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct CallState {
    pub(crate) version: Version,
    pub(crate) meta: CallMeta,
    /// The questions that the state is sent with.
    pub(crate) pending: PendingInputs,
    pub(crate) content: CallStateContent,
}

#[derive(Debug, PartialEq, Eq)]
pub(crate) enum CallStateContent {
    /// The journal of an inline handler.
    Journal(Journal),
    /// The state of a handler in the manual form, as JSON.
    Manual(String),
}

impl CallState {
    /// Restarts the call: it keeps its identity, and loses its questions and its journal.
    pub(crate) fn restart(&mut self, manual: bool, method: &str, target: &str) {
        tracing::info!(
            target: "mrtr::rounds",
            method, target, version = self.version.number,
            "restarting a call of an earlier handler version"
        );
        self.pending = PendingInputs::default();
        self.content = if manual {
            CallStateContent::Manual(String::new())
        } else {
            CallStateContent::Journal(Journal::default())
        };
    }

    pub(crate) fn pack(&self) -> Vec<u8> {
        let entries: usize = match &self.content {
            CallStateContent::Journal(journal) => journal.entries.iter().map(Entry::size).sum(),
            CallStateContent::Manual(state) => state.len(),
        };
        let pending: usize =
            self.pending.0.iter().map(|(key, digest)| key.len() + size_of_val(digest)).sum();
        let mut out = Encoder::with_capacity(64 + pending + entries);
        out.byte(FORMAT).number(self.version.number.into()).number(self.version.since.into());
        out.raw(&self.meta.id).number(self.meta.started.0).number(self.meta.rounds);
        out.byte(self.meta.hand_overs);
        out.number(self.pending.0.len() as u64);
        for (key, digest) in &self.pending.0 {
            out.bytes(key.as_bytes()).raw(&digest.0);
        }
        match &self.content {
            CallStateContent::Manual(state) => {
                out.byte(0).bytes(state.as_bytes());
            }
            CallStateContent::Journal(journal) => {
                out.byte(1).number(journal.entries.len() as u64);
                for entry in &journal.entries {
                    entry.pack_into(&mut out);
                }
            }
        }
        out.finish()
    }

    pub(crate) fn unpack(body: &[u8]) -> Result<Self, DecodeError> {
        let mut input = Decoder::new(body);
        if input.byte()? != FORMAT {
            return Err(DecodeError);
        }
        let number = |number| u32::try_from(number).map_err(|_| DecodeError);
        let version = Version { number: number(input.number()?)?, since: number(input.number()?)? };
        let meta = CallMeta {
            id: input.array()?,
            started: UnixSeconds(input.number()?),
            rounds: input.number()?,
            hand_overs: input.byte()?,
        };
        // Little is allocated on the strength of a count: lists grow as their items are read.
        let mut pending = Vec::new();
        for _ in 0..input.number()? {
            pending.push((input.text()?.into(), QuestionDigest(input.array()?)));
        }
        let pending = pending.into_iter().collect();
        let content = match input.byte()? {
            0 => CallStateContent::Manual(input.text()?.to_owned()),
            1 => {
                let count = input.number()?;
                let mut texts = Vec::with_capacity(input.rest().len());
                let mut slices = Vec::with_capacity(count.min(TYPICAL_ENTRIES) as usize);
                let mut append = |text: &[u8]| {
                    texts.extend_from_slice(text);
                    texts.len() - text.len()..texts.len()
                };
                for _ in 0..count {
                    let kind = EntryKind::unpack(&mut input)?;
                    slices.push((kind, append(input.bytes()?), append(input.bytes()?)));
                }
                // Checked once, instead of once per key and value. Each of them must also end at
                // the end of a character.
                let texts: Arc<str> = String::from_utf8(texts).map_err(|_| DecodeError)?.into();
                let is_whole = |range: &Range<usize>| texts.is_char_boundary(range.end);
                if !slices.iter().all(|(_, key, value)| is_whole(key) && is_whole(value)) {
                    return Err(DecodeError);
                }
                let entry = |(kind, key, value)| Entry {
                    key: SharedStr::slice(&texts, key),
                    kind,
                    value: SharedStr::slice(&texts, value),
                    used: false,
                };
                let journal = Journal { entries: slices.into_iter().map(entry).collect() };
                CallStateContent::Journal(journal)
            }
            _ => return Err(DecodeError),
        };
        input.end()?;
        Ok(Self { version, meta, pending, content })
    }
}

/// Checks the length of a packed state, and warns if it is more than half of the limit.
///
/// # Errors
///
/// A fault that names the longest entry, if the state is too long to be sealed.
pub(crate) fn check_size(packed: usize, state: &CallState) -> Result<(), Fault> {
    if packed <= MAX_JOURNAL / 2 {
        return Ok(());
    }
    let largest = match &state.content {
        CallStateContent::Journal(journal) => journal.largest().map(|entry| &*entry.key),
        CallStateContent::Manual(_) => Some("the handler's own state"),
    };
    let largest = largest.unwrap_or("the questions");
    if packed <= MAX_JOURNAL {
        tracing::warn!(
            target: "mrtr::rounds",
            bytes = packed, at_most = MAX_JOURNAL, largest, "the state is more than half full"
        );
        return Ok(());
    }
    Err(Fault::Handler(format!(
        "the state has {packed} bytes; the limit is {MAX_JOURNAL} (largest part: {largest:?})"
    )))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entry_size_is_at_least_the_packed_length() {
        let packed = |entries: Vec<Entry>| {
            let meta = CallMeta { id: [7; 16], started: UnixSeconds(0), rounds: 3, hand_overs: 1 };
            let content = CallStateContent::Journal(Journal { entries });
            CallState {
                version: Version::default(),
                meta,
                pending: PendingInputs::default(),
                content,
            }
            .pack()
            .len()
        };
        let empty = packed(Vec::new());
        let digest = QuestionDigest([9; 16]);
        for kind in [
            EntryKind::Decision,
            EntryKind::Answer { digest, read: true },
            EntryKind::OtherWording(digest),
        ] {
            for length in [0, 1, 127, 128, MAX_ENTRY] {
                let key = "k".repeat(length.min(200)).into();
                let entry = Entry { key, kind, value: "v".repeat(length).into(), used: true };
                let (size, packed) = (entry.size(), packed(vec![entry]) - empty);
                assert!((packed..packed + 5).contains(&size), "{size} for {packed}");
            }
        }
    }

    #[test]
    fn unpack_reverses_pack_and_rejects_everything_else() {
        let meta =
            CallMeta { id: [7; 16], started: UnixSeconds(1_785_196_800), rounds: 3, hand_overs: 1 };
        let entry = |key: &str, kind| Entry {
            key: key.into(),
            kind,
            value: "{\"a\":1}".into(),
            used: false,
        };
        let answer = |byte, read| EntryKind::Answer { digest: QuestionDigest([byte; 16]), read };
        let journal = Journal {
            entries: vec![
                entry("hold", EntryKind::Step(StepKind::default())),
                entry("quote", EntryKind::Step(StepKind { skippable: true, failed: false })),
                entry("pay", EntryKind::Step(StepKind { skippable: false, failed: true })),
                entry("try", EntryKind::Step(StepKind { skippable: true, failed: true })),
                entry("seat", answer(9, true)),
                entry("diet", answer(8, false)),
                entry("first", EntryKind::Decision),
                entry("diet", EntryKind::OtherWording(QuestionDigest([7; 16]))),
            ],
        };
        for content in [CallStateContent::Journal(journal), CallStateContent::Manual("[1]".into())]
        {
            let version = Version { number: 300, since: 2 };
            let pending =
                [("seat", 2), ("diet", 1)].map(|(key, n)| (key.into(), QuestionDigest([n; 16])));
            let pending = PendingInputs::from_iter(pending);
            assert_eq!(pending.get("diet"), Some(&("diet".into(), QuestionDigest([1; 16]))));
            assert_eq!((pending.contains("seat"), pending.contains("hold")), (true, false));
            let state = CallState { version, meta, pending, content };
            let bytes = state.pack();
            assert_eq!(CallState::unpack(&bytes).as_ref(), Ok(&state));
            for end in 0..bytes.len() {
                assert!(CallState::unpack(&bytes[..end]).is_err(), "cut to {end}");
            }
            assert!(CallState::unpack(&[&bytes[..], b"x"].concat()).is_err());
        }
        assert!(CallState::unpack(&[2]).is_err(), "another format");
    }

    /// The texts of a journal are checked as one string, in which these bytes are valid.
    #[test]
    fn character_split_between_key_and_value_is_rejected() {
        let meta = CallMeta { id: [7; 16], started: UnixSeconds(0), rounds: 1, hand_overs: 0 };
        let unpacked = |key: &[u8], value: &[u8]| {
            let content = CallStateContent::Journal(Journal::default());
            let pending = PendingInputs::default();
            let mut bytes =
                CallState { version: Version::default(), meta, pending, content }.pack();
            // The number of entries is the last byte.
            *bytes.last_mut().unwrap() = 1;
            let mut entry = Encoder::new();
            entry.byte(EntryKind::Decision.to_byte()).bytes(key).bytes(value);
            CallState::unpack(&[bytes, entry.finish()].concat())
        };
        assert!(unpacked(b"a", "\u{e9}".as_bytes()).is_ok());
        assert_eq!(unpacked(b"a\xc3", b"\xa9"), Err(DecodeError));
        assert_eq!(unpacked(b"a", b"\xc3"), Err(DecodeError));
    }
}
