//! What travels in the sealed state: the flow, what was asked, and what was learned.

use std::sync::Arc;

use mrtr_codec::encoding::{DecodeError, Decoder, Encoder};
use mrtr_codec::{Digest, UnixSeconds};

use super::fault::Fault;
use super::shared_str::SharedStr;
use super::version::Version;

/// The version of the journal's format. A replica refuses what it does not know.
const FORMAT: u8 = 1;

/// The longest value of one entry in bytes.
pub(crate) const MAX_ENTRY: usize = 8 * 1024;
/// The longest journal in bytes.
pub(crate) const MAX_JOURNAL: usize = 64 * 1024;

/// What identifies a flow over all its rounds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct CallMeta {
    pub(crate) id: [u8; 16],
    pub(crate) started: UnixSeconds,
    /// How many rounds have ended without a result.
    pub(crate) rounds: u64,
    /// How many of them because a replica had better not go on.
    pub(crate) hand_overs: u8,
}

/// The digest of a question as a person reads it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Pin(pub(crate) [u8; 16]);

impl Pin {
    pub(crate) fn of(parts: &[&[u8]]) -> Self {
        let mut pin = [0; 16];
        for (to, from) in pin.iter_mut().zip(*Digest::from_parts(parts).as_bytes()) {
            *to = from;
        }
        Self(pin)
    }
}

/// The digest of what stands under keys, whatever its order: which of two joined things came first is chance.
pub(crate) fn unordered(mut parts: Vec<(&[u8], Digest)>) -> Digest {
    parts.sort_unstable_by_key(|(key, value)| (*key, *value.as_bytes()));
    let flat: Vec<&[u8]> = parts.iter().flat_map(|(key, value)| [*key, value.as_bytes()]).collect();
    Digest::from_parts(&flat)
}

/// One thing that was learned, under the author's key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Entry {
    pub(crate) key: SharedStr,
    pub(crate) kind: EntryKind,
    /// JSON.
    pub(crate) value: SharedStr,
    /// Whether this pass has come to it.
    pub(crate) used: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum EntryKind {
    /// An answer to the question with this pin.
    Answer {
        pin: Pin,
        /// Whether a pass has come to its question.
        read: bool,
    },
    /// A step's result.
    Step(StepKind),
    /// An answer to another wording of a question: for the version of the handler that asks so.
    Aside(Pin),
    /// What was decided for the handler: [`SKIPPED`], which of the [`SIDES`] won a race, or [`CHECKPOINT`].
    Choice,
}

/// The client could not be asked.
pub(super) const SKIPPED: &str = "null";
/// The round was ended here.
pub(super) const CHECKPOINT: &str = "true";
/// The first or the second side of a race won it.
pub(super) const SIDES: [&str; 2] = ["0", "1"];

/// What is special about a step.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct StepKind {
    /// A pass need not come to it.
    pub(crate) skippable: bool,
    /// It failed, and the value is its error.
    pub(crate) failed: bool,
}

impl EntryKind {
    /// Whether an earlier pass has come to it, and this one should too.
    pub(super) fn is_behind(self) -> bool {
        !matches!(self, Self::Answer { read: false, .. } | Self::Aside(_))
    }

    /// Of the question that it answers.
    pub(super) fn pin(self) -> Option<Pin> {
        match self {
            Self::Answer { pin, .. } | Self::Aside(pin) => Some(pin),
            Self::Step(_) | Self::Choice => None,
        }
    }

    fn to_byte(self) -> u8 {
        match self {
            Self::Answer { read: true, .. } => 0,
            Self::Answer { read: false, .. } => 4,
            Self::Aside(_) => 6,
            Self::Choice => 2,
            Self::Step(StepKind { skippable: false, failed: false }) => 1,
            Self::Step(StepKind { skippable: true, failed: false }) => 3,
            Self::Step(StepKind { skippable: false, failed: true }) => 5,
            Self::Step(StepKind { skippable: true, failed: true }) => 7,
        }
    }

    fn unpack(input: &mut Decoder<'_>) -> Result<Self, DecodeError> {
        Ok(match input.byte()? {
            kind @ (0 | 4) => Self::Answer { pin: Pin(input.array()?), read: kind == 0 },
            6 => Self::Aside(Pin(input.array()?)),
            2 => Self::Choice,
            kind @ (1 | 3 | 5 | 7) => {
                Self::Step(StepKind { skippable: kind & 2 != 0, failed: kind & 4 != 0 })
            }
            _ => return Err(DecodeError),
        })
    }
}

impl Entry {
    /// How long it is when it is packed, or a little more.
    pub(super) fn size(&self) -> usize {
        let pin = self.kind.pin().map_or(0, |pin| size_of_val(&pin));
        7 + pin + self.key.len() + self.value.len()
    }
}

/// What was learned, in the order in which it was learned.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Journal {
    pub(crate) entries: Vec<Entry>,
}

impl Journal {
    /// The first step that was recorded after the answer at `position`.
    pub(crate) fn step_after(&self, position: usize) -> Option<&Entry> {
        self.entries.iter().skip(position).find(|entry| matches!(entry.kind, EntryKind::Step(_)))
    }

    /// A recorded step that this pass has not come to.
    pub(crate) fn lost_step(&self) -> Option<&Entry> {
        let lost = |entry: &&Entry| match entry.kind {
            EntryKind::Step(kind) => !entry.used && !kind.skippable,
            EntryKind::Answer { .. } | EntryKind::Aside(_) | EntryKind::Choice => false,
        };
        self.entries.iter().find(lost)
    }

    /// The longest entry.
    pub(crate) fn largest(&self) -> Option<&Entry> {
        self.entries.iter().max_by_key(|entry| entry.value.len())
    }
}

/// Questions that went out, in the order of their keys.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct PendingInputs(Vec<(Arc<str>, Pin)>);

impl PendingInputs {
    /// A question's key and what it asks, if it is one of them.
    pub(super) fn get(&self, key: &str) -> Option<&(Arc<str>, Pin)> {
        let at = self.0.binary_search_by(|(pending, _)| (**pending).cmp(key)).ok()?;
        self.0.get(at)
    }

    pub(crate) fn has(&self, key: &str) -> bool {
        self.get(key).is_some()
    }
}

impl FromIterator<(Arc<str>, Pin)> for PendingInputs {
    fn from_iter<I: IntoIterator<Item = (Arc<str>, Pin)>>(questions: I) -> Self {
        let mut questions = Vec::from_iter(questions);
        questions.sort_unstable_by(|(one, _), (other, _)| one.cmp(other));
        Self(questions)
    }
}

/// The body of a sealed state.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct CallState {
    pub(crate) version: Version,
    pub(crate) meta: CallMeta,
    /// The questions that went out with this state.
    pub(crate) pending: PendingInputs,
    pub(crate) content: CallStateContent,
}

#[derive(Debug, PartialEq, Eq)]
pub(crate) enum CallStateContent {
    /// Of a handler that asks in line.
    Journal(Journal),
    /// Of a handler that keeps its state itself: JSON of its own.
    Manual(String),
}

impl CallState {
    /// Starts the flow over: it stays the same flow, and nothing was learned.
    pub(crate) fn forget(&mut self, manual: bool, method: &str, target: &str) {
        tracing::info!(target: "mrtr::rounds", method, target, version = self.version.number, "a call of an earlier version starts over");
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
            self.pending.0.iter().map(|(key, pin)| key.len() + size_of_val(pin)).sum();
        let mut out = Encoder::with_capacity(64 + pending + entries);
        out.byte(FORMAT).number(self.version.number.into()).number(self.version.since.into());
        out.raw(&self.meta.id).number(self.meta.started.0).number(self.meta.rounds);
        out.byte(self.meta.hand_overs);
        out.number(self.pending.0.len() as u64);
        for (key, pin) in &self.pending.0 {
            out.bytes(key.as_bytes()).raw(&pin.0);
        }
        match &self.content {
            CallStateContent::Manual(state) => drop(out.byte(0).bytes(state.as_bytes())),
            CallStateContent::Journal(journal) => {
                out.byte(1).number(journal.entries.len() as u64);
                for entry in &journal.entries {
                    out.byte(entry.kind.to_byte());
                    if let Some(pin) = entry.kind.pin() {
                        out.raw(&pin.0);
                    }
                    out.bytes(entry.key.as_bytes()).bytes(entry.value.as_bytes());
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
        // Lists grow as they are read: a count is no reason to allocate.
        let mut pending = Vec::new();
        for _ in 0..input.number()? {
            pending.push((input.text()?.into(), Pin(input.array()?)));
        }
        let pending = pending.into_iter().collect();
        let content = match input.byte()? {
            0 => CallStateContent::Manual(input.text()?.to_owned()),
            1 => {
                let count = input.number()?;
                let (mut texts, mut pieces) =
                    (String::with_capacity(input.rest().len()), Vec::new());
                let mut piece = |text: &str| {
                    texts.push_str(text);
                    texts.len() - text.len()..texts.len()
                };
                for _ in 0..count {
                    let kind = EntryKind::unpack(&mut input)?;
                    pieces.push((kind, piece(input.text()?), piece(input.text()?)));
                }
                let texts = Arc::from(texts);
                let entry = |(kind, key, value)| Entry {
                    key: SharedStr::piece(&texts, key),
                    kind,
                    value: SharedStr::piece(&texts, value),
                    used: false,
                };
                let journal = Journal { entries: pieces.into_iter().map(entry).collect() };
                CallStateContent::Journal(journal)
            }
            _ => return Err(DecodeError),
        };
        input.end()?;
        Ok(Self { version, meta, pending, content })
    }
}

/// Whether a packed state is too long to seal; the fault names its longest entry, and so does the warning on the way.
pub(crate) fn check_size(packed: usize, saved: &CallState) -> Result<(), Fault> {
    if packed <= MAX_JOURNAL / 2 {
        return Ok(());
    }
    let largest = match &saved.content {
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
        "the state has {packed} bytes; at most {MAX_JOURNAL} are kept (the longest part is {largest:?})"
    )))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What there is room for is worked out without packing it.
    #[test]
    fn a_size_is_that_of_what_is_packed_or_a_little_more() {
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
        let none = packed(Vec::new());
        let pin = Pin([9; 16]);
        for kind in
            [EntryKind::Choice, EntryKind::Answer { pin, read: true }, EntryKind::Aside(pin)]
        {
            for length in [0, 1, 127, 128, MAX_ENTRY] {
                let key = "k".repeat(length.min(200)).into();
                let entry = Entry { key, kind, value: "v".repeat(length).into(), used: true };
                let (size, packed) = (entry.size(), packed(vec![entry]) - none);
                assert!((packed..packed + 5).contains(&size), "{size} for {packed}");
            }
        }
    }

    #[test]
    fn what_is_saved_comes_back() {
        let meta =
            CallMeta { id: [7; 16], started: UnixSeconds(1_785_196_800), rounds: 3, hand_overs: 1 };
        let entry = |key: &str, kind| Entry {
            key: key.into(),
            kind,
            value: "{\"a\":1}".into(),
            used: false,
        };
        let journal = Journal {
            entries: vec![
                entry("hold", EntryKind::Step(StepKind::default())),
                entry("quote", EntryKind::Step(StepKind { skippable: true, failed: false })),
                entry("pay", EntryKind::Step(StepKind { skippable: false, failed: true })),
                entry("try", EntryKind::Step(StepKind { skippable: true, failed: true })),
                entry("seat", EntryKind::Answer { pin: Pin([9; 16]), read: true }),
                entry("diet", EntryKind::Answer { pin: Pin([8; 16]), read: false }),
                entry("first", EntryKind::Choice),
                entry("diet", EntryKind::Aside(Pin([7; 16]))),
            ],
        };
        for content in [CallStateContent::Journal(journal), CallStateContent::Manual("[1]".into())]
        {
            let version = Version { number: 300, since: 2 };
            let pending = [("seat", 2), ("diet", 1)].map(|(key, n)| (key.into(), Pin([n; 16])));
            let pending = PendingInputs::from_iter(pending);
            assert_eq!(pending.get("diet"), Some(&("diet".into(), Pin([1; 16]))));
            assert_eq!((pending.has("seat"), pending.has("hold")), (true, false));
            let saved = CallState { version, meta, pending, content };
            let bytes = saved.pack();
            assert_eq!(CallState::unpack(&bytes).as_ref(), Ok(&saved));
            for end in 0..bytes.len() {
                assert!(CallState::unpack(&bytes[..end]).is_err(), "cut to {end}");
            }
            assert!(CallState::unpack(&[&bytes[..], b"x"].concat()).is_err());
        }
        assert!(CallState::unpack(&[2]).is_err(), "another format");
    }
}
