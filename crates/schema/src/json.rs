//! JSON processing: a fast scanner, a strict validator, a decoder whose errors carry a path, and a
//! writer.
//!
//! Shared with the sibling crates and not covered by semantic versioning; see `docs/stability.md`.
//! The exception is [`RawJson`], which the crate root re-exports.

use serde_json::Number;

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
pub use validate::{MAX_DEPTH, Validated, nesting_depth, validate};
pub(crate) use writer::push_quoted;
pub use writer::{ObjectWriter, RawJson};

/// Returns the integer that a floating-point number such as `2.0` is, as in JSON Schema. Returns
/// `None` for other numbers, and for those beyond 2⁵³, of which not every integer has a double.
pub fn whole_float(number: &Number) -> Option<i64> {
    let float = number.as_f64().filter(|_| number.is_f64())?;
    let is_whole = float.fract() == 0.0 && float.abs() <= 2f64.powi(53);
    #[expect(clippy::cast_possible_truncation, reason = "the number is whole and within the range")]
    is_whole.then_some(float as i64)
}
