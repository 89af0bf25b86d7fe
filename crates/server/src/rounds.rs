//! Rounds: deterministic replay of handlers over a journal.
//!
//! In each round, the handler runs again from its first line. A [`Round`] holds the journal of the
//! sealed request state, and the answers that arrived with the request. [`drive`] runs the handler
//! over it, until the handler returns or can only wait for answers. The journal then goes into the
//! next request state.

mod at_most_once;
mod checkpoint;
mod commits;
mod executor;
mod fault;
mod input;
mod journal;
mod race;
mod replay;
mod round;
mod round_steps;
mod scope;
mod shared_str;
mod step;
mod step_argument;
mod step_scope;
mod stored;
mod version;

pub use at_most_once::AtMostOnce;
pub(crate) use checkpoint::checkpoint;
pub(crate) use commits::Unsaved;
pub(crate) use executor::{Ending, drive};
pub(crate) use fault::Fault;
pub use input::{ElicitOutcome, InputFuture};
#[cfg(feature = "development")]
pub(crate) use journal::EntryKind;
pub(crate) use journal::{
    CallMeta, CallState, CallStateContent, Entry, Journal, MAX_ENTRY, MAX_STORED_ANSWERS,
    MAX_STORED_ENTRY, PendingInputs, QuestionDigest, check_size, order_independent_digest,
};
pub(crate) use race::race;
pub(crate) use round::{OpenInput, Round, Suspended};
pub(crate) use scope::require_scope;
pub(crate) use shared_str::SharedStr;
pub use step::StepFuture;
pub use step_argument::Step;
pub(crate) use step_argument::hex;
pub(crate) use stored::detach;
pub(crate) use version::{Compatibility, Version};
