//! JSON processing: a fast scanner, a strict validator, a decoder whose errors carry a path, and a
//! writer.
//!
//! Shared with the sibling crates and not covered by semantic versioning; see `docs/stability.md`.
//! The exception is [`RawJson`], which the crate root re-exports.

mod cow_str;
mod decode;
mod pairs;
pub(crate) mod scan;
pub(crate) mod validate;
mod writer;

pub use cow_str::CowStr;
pub(crate) use decode::take_member;
pub use decode::{DecodeError, from_str, from_value, present};
pub use pairs::{read_pairs, write_pairs};
pub use validate::{MAX_DEPTH, nesting_depth};
pub use writer::{ObjectWriter, RawJson};
