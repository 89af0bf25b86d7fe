//! Tests that data and pages refer to.

use std::collections::BTreeMap;

/// The Rust sources of the repository, by their paths.
pub struct Sources<'a>(BTreeMap<&'a str, &'a str>);

impl<'a> Sources<'a> {
    pub fn new(sources: &'a [(String, String)]) -> Self {
        Self(sources.iter().map(|(name, text)| (name.as_str(), text.as_str())).collect())
    }

    /// Returns true if a test exists, given as `crate/file.rs::function` below `crates/`.
    pub fn have(&self, test: &str) -> bool {
        test.split_once(".rs::").is_some_and(|(file, function)| {
            let source = self.0.get(format!("crates/{file}.rs").as_str());
            source.is_some_and(|source| source.contains(&format!("fn {function}(")))
        })
    }
}
