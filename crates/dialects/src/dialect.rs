//! The names of the dialects.

use std::fmt;

/// A wire format of a proposal.
///
/// ```
/// use mrtr_dialects::Dialect;
///
/// assert_eq!(Dialect::from_name("multi-turn-sse"), Some(Dialect::MultiTurnSse));
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Dialect {
    /// `incomplete`: the draft of February 2026. An incomplete response has `input_requests` and
    /// `request_state` beside `id`, and a retry has `input_responses`. With tasks.
    Incomplete,
    /// `dependent`: the sketch of December 2025. As `incomplete`, with `dependent_requests` and
    /// `dependent_responses`, and without a state.
    Dependent,
    /// `multi-turn-sse`: SEP-1858. The events `buffer_input` and `input_required` divide a stream
    /// into turns.
    MultiTurnSse,
    /// `tasks-2322`: the first version of SEP-2322, with `tasks/result` and
    /// `tasks/input_response`.
    Tasks2322,
}

impl Dialect {
    /// All dialects.
    pub const ALL: &[Self] =
        &[Self::Incomplete, Self::Dependent, Self::MultiTurnSse, Self::Tasks2322];

    /// Returns the name, as in paths and documents.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Incomplete => "incomplete",
            Self::Dependent => "dependent",
            Self::MultiTurnSse => "multi-turn-sse",
            Self::Tasks2322 => "tasks-2322",
        }
    }

    /// Returns the dialect with this name.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.iter().copied().find(|dialect| dialect.name() == name)
    }

    /// Returns the protocol version that `initialize` negotiates. SEP-1858 leaves its own open.
    pub const fn protocol_version(self) -> &'static str {
        match self {
            Self::MultiTurnSse => "DRAFT-SEP-1858",
            _ => "2025-11-25",
        }
    }
}

impl fmt::Display for Dialect {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}
