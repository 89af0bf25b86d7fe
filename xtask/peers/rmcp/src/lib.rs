//! The README of `mrtr-codec`, which shows it in a tool on rmcp: compiled and run here, where rmcp is.

#[cfg(doctest)]
#[doc = include_str!("../../../../crates/codec/README.md")]
pub struct Readme;
