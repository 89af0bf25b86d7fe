//! Programs that show how to use mrtr: see `README.md`. This library is empty; it compiles the code of the repository's README.

#[cfg(doctest)]
#[doc = include_str!("../../README.md")]
pub mod readme {}
