//! The content of a request state, for developers to read.

use std::fmt;

use mrtr_codec::{Binding, OpenError, Seal, UnixSeconds};

use crate::rounds::{CallState, CallStateContent, Entry, EntryKind};

/// The content of a request state, in clear.
///
/// ```no_run
/// use mrtr_codec::{Binding, Digest, UnixSeconds};
/// use mrtr_server::development::{RequestState, key_ring};
///
/// # type Result = std::result::Result<(), Box<dyn std::error::Error>>;
/// # fn example(keys: &str, token: &str, now: UnixSeconds) -> Result {
/// let binding = Binding {
///     principal: None,
///     proof_key: None,
///     method: "tools/call",
///     target: "book",
///     arguments: Digest::from_json(Some(r#"{"people":2}"#))?,
/// };
/// let state = RequestState::open(&key_ring(keys)?, token, &binding, now)?;
/// for entry in &state.entries {
///     println!("{} {} {}", entry.kind, entry.key, entry.value);
/// }
/// # Ok(()) }
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct RequestState {
    /// The number of rounds that have ended without a result.
    pub rounds: u64,
    /// The version of the handler.
    pub version: u32,
    /// The keys of the open questions, sorted.
    pub open_questions: Vec<String>,
    /// The journal, in the order of recording. Empty for a handler in the [manual
    /// form](crate::manual).
    pub entries: Vec<StateEntry>,
    /// The state of a handler in the manual form, as JSON.
    pub manual: Option<String>,
}

/// One entry of the journal of a call.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct StateEntry {
    /// The key of the question or step.
    pub key: String,
    /// What was recorded.
    pub kind: StateEntryKind,
    /// The recorded value, as JSON.
    pub value: String,
}

/// The kind of a [`StateEntry`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum StateEntryKind {
    /// An answer to a question.
    Answer,
    /// An answer to an earlier wording of a question. It is kept for the handler version that uses
    /// that wording.
    StaleAnswer,
    /// The result of a step.
    Step,
    /// The error of a step.
    FailedStep,
    /// A decision: the winner of a race, a skipped question, a checkpoint, or a demanded scope.
    Decision,
}

impl fmt::Display for StateEntryKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Answer => "answer",
            Self::StaleAnswer => "stale answer",
            Self::Step => "step",
            Self::FailedStep => "failed step",
            Self::Decision => "decision",
        })
    }
}

impl RequestState {
    /// Opens the request state of the request that `binding` describes.
    ///
    /// # Errors
    ///
    /// If the token is malformed, was sealed with another key or for another request, has expired,
    /// or has an unknown format. Single use and handler versions are not checked.
    pub fn open(
        sealer: &dyn Seal,
        token: &str,
        binding: &Binding<'_>,
        now: UnixSeconds,
    ) -> Result<Self, OpenError> {
        let opened = mrtr_codec::open(sealer, token, binding, now)?;
        let state = CallState::unpack(opened.body()).map_err(|_| OpenError::UnknownFormat)?;
        let (entries, manual) = match state.content {
            CallStateContent::Journal(journal) => (journal.entries, None),
            CallStateContent::Manual(json) => (Vec::new(), Some(json)),
        };
        Ok(Self {
            rounds: state.meta.rounds,
            version: state.version.number,
            open_questions: state.pending.keys().map(str::to_owned).collect(),
            entries: entries.iter().map(StateEntry::new).collect(),
            manual,
        })
    }
}

impl StateEntry {
    fn new(entry: &Entry) -> Self {
        let kind = match entry.kind {
            EntryKind::Answer { .. } => StateEntryKind::Answer,
            EntryKind::OtherWording(_) => StateEntryKind::StaleAnswer,
            EntryKind::Step(step) if step.failed => StateEntryKind::FailedStep,
            EntryKind::Step(_) => StateEntryKind::Step,
            EntryKind::Decision => StateEntryKind::Decision,
        };
        Self { key: entry.key.to_string(), kind, value: entry.value.to_string() }
    }
}
