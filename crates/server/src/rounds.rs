//! Rounds: how a handler that runs again from the top on every leg behaves as if it ran once.
//!
//! Each leg gets a fresh [`Round`]: the journal that came in the sealed state, and the answers that
//! came with the request. The handler runs against it ([`drive`]) until it returns, or until all that
//! it can do is wait for an answer. What was learned goes into the next state.

mod executor;
mod fault;
mod input;
mod journal;
mod race;
mod replay;
mod round;
mod shared_str;
mod step;
mod step_scope;
mod version;

pub(crate) use executor::{Ending, drive};
pub(crate) use fault::Fault;
pub use input::{ElicitOutcome, InputFuture};
pub(crate) use journal::{
    CallState, CallStateContent, Entry, MAX_ENTRY, Pin, check_size, unordered,
};
pub(crate) use race::race;
pub(crate) use round::{OpenInput, Round};

pub use step::{Step, StepFuture};
pub(crate) use step::{checkpoint, hex};
pub(crate) use version::{Compatibility, Version};
