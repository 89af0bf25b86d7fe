//! Rules for single files: their length, their first line, text that must not be committed, and the
//! features that a README lists.

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
    check_features(files, problems);
    check_patches(problems);
    requirements::check(&sources, problems)?;
    requirements::check_attacks(&sources, problems)
}

/// Checks that the README of a crate names its documented features.
fn check_features(files: &[TrackedFile], problems: &mut Vec<String>) {
    let text_of = |path: &str| Some(&*files.iter().find(|file| file.path == path)?.text);
    for folder in super::published() {
        let (manifest, readme) =
            (format!("crates/{folder}/Cargo.toml"), format!("crates/{folder}/README.md"));
        let (Some(manifest), Some(text)) = (text_of(&manifest), text_of(&readme)) else {
            problems.push(format!("crates/{folder} has no manifest or no README"));
            continue;
        };
        for (comment, feature) in manifest.lines().zip(manifest.lines().skip(1)) {
            let name = feature.split(" = ").next().unwrap_or_default();
            if comment.starts_with("## ") && !text.contains(&format!("`{name}`")) {
                problems.push(format!("{readme} does not name the feature `{name}`"));
            }
        }
    }
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
