//! Rules for single files: their length, their first line, and text that must not be committed.

use std::process::Command;

use super::TrackedFile;
use crate::Result;
use crate::requirements;
use crate::run::root;

/// Maximum number of lines before the tests of a file.
const MAX_LINES: usize = 500;

/// Text that must not be committed.
const FORBIDDEN: &[&str] = &["todo!(", "FIXME", "/work/", "dbg!("];

pub fn check(files: &[TrackedFile], problems: &mut Vec<String>) -> Result {
    let mut sources = Vec::new();
    for file @ TrackedFile { path, text } in files {
        for word in FORBIDDEN.iter().filter(|word| text.contains(**word)) {
            // The list itself.
            if !path.ends_with("tidy/files.rs") {
                problems.push(format!("{path} contains {word:?}"));
            }
        }
        if !file.is_rust() {
            continue;
        }
        let lines = text.lines().take_while(|line| !line.starts_with("#[cfg(test)]")).count();
        if lines > MAX_LINES {
            problems.push(format!(
                "{path} has {lines} lines before its tests, more than {MAX_LINES}: split it"
            ));
        }
        let says_what_it_is = text.starts_with("//!") || text.starts_with("#![doc");
        if !says_what_it_is && !path.contains("tests") {
            problems.push(format!("{path} does not begin with a `//!` comment"));
        }
        sources.push((path.clone(), text.clone()));
    }
    check_patches(problems);
    requirements::check(&sources, problems)?;
    requirements::check_attacks(&sources, problems)
}

/// Checks that the patches of `chaos --break` apply to the sources.
fn check_patches(problems: &mut Vec<String>) {
    for patch in crate::chaos::patches() {
        let mut check = Command::new("git");
        check.args(["apply", "--check"]).arg(&patch).current_dir(root());
        if !check.status().is_ok_and(|status| status.success()) {
            problems.push(format!("{} does not apply", patch.display()));
        }
    }
}
