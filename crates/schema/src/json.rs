//! JSON as this protocol needs it: scanned, validated, decoded with the path of a mistake, and written.
//!
//! Shared with the sibling crates, and not covered by semantic versioning; see `docs/stability.md`.

mod cow_str;
pub(crate) mod decode;
pub(crate) mod scan;
pub(crate) mod validate;
mod writer;

pub use cow_str::CowStr;
pub use decode::{DecodeError, read, read_value};
pub use writer::{ObjectWriter, RawJson};
