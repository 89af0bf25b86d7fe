//! Rules about the repository that neither the compiler nor clippy checks.

mod files;
mod graph;
pub mod licenses;
mod modules;
mod prose;
mod words;

use std::fs;
use std::path::Path;
use std::process::Command;

use crate::Result;
use crate::run::{output, root};

/// Returns the folders of the published crates, below `crates`.
fn published() -> impl Iterator<Item = &'static str> {
    graph::ARROWS.iter().map(|(name, _)| name.strip_prefix("mrtr-").unwrap_or(name))
}

/// A part that can be run alone: its name and its check.
type Part = (&'static str, fn(&[TrackedFile], &mut Vec<String>) -> Result);

const PARTS: &[Part] = &[
    ("graph", |_, problems| graph::check(problems)),
    ("files", files::check),
    ("cycles", modules::check),
    ("words", |files, problems| {
        words::check(files, problems);
        Ok(())
    }),
    ("prose", |files, problems| {
        prose::check(files, problems);
        Ok(())
    }),
];

/// Runs the given parts, or all of them. `licenses` runs only by name, because it needs a tool that
/// takes long to build.
pub fn run(args: &[String]) -> Result {
    let is_known = |name: &String| name == "licenses" || PARTS.iter().any(|(part, _)| part == name);
    if let Some(other) = args.iter().find(|name| !is_known(name)) {
        let names: Vec<_> = PARTS.iter().map(|(name, _)| *name).collect();
        return Err(
            format!("unknown part {other:?}; known parts: {}, licenses", names.join(", ")).into()
        );
    }
    let files = tracked_files()?;
    let mut problems = Vec::new();
    for (name, check) in PARTS {
        if args.is_empty() || args.iter().any(|arg| arg == name) {
            check(&files, &mut problems)?;
        }
    }
    if !problems.is_empty() {
        return Err(format!("{} problems\n  {}", problems.len(), problems.join("\n  ")).into());
    }
    if args.iter().any(|arg| arg == "licenses") {
        licenses::check()?;
    }
    println!("tidy: no problems");
    Ok(())
}

/// A text file of the repository.
struct TrackedFile {
    path: String,
    text: String,
}

impl TrackedFile {
    fn has_extension(&self, extension: &str) -> bool {
        Path::new(&self.path).extension().is_some_and(|own| own == extension)
    }

    fn is_rust(&self) -> bool {
        self.has_extension("rs")
    }
}

/// Returns all text files that git tracks or would add.
fn tracked_files() -> Result<Vec<TrackedFile>> {
    let list = ["ls-files", "--cached", "--others", "--exclude-standard"];
    let list = output(Command::new("git").args(list).current_dir(root()))?;
    let read = |path: &str| {
        let text = fs::read_to_string(root().join(path)).ok()?;
        Some(TrackedFile { path: path.to_owned(), text })
    };
    Ok(list.lines().filter_map(read).collect())
}
