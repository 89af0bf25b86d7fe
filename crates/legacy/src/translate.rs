//! The translation of messages between the current revision and legacy ones. Pure functions.

mod input;
mod result;

pub(crate) use input::{legacy_input, url_elicitation_required};
pub(crate) use result::{is_input_required, legacy_error, legacy_result};
