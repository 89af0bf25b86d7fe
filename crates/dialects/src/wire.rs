//! Translations between each wire format and the requests and results of revision 2026-07-28.
//!
//! Pure functions: text and values in, text and values out.

pub mod call;
pub mod envelope;
pub(crate) mod members;
pub mod sse;
pub mod tasks;
pub mod turn;
