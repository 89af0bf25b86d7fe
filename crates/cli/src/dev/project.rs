//! A cargo project: its program, and whether its source has changed.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::SystemTime;

use serde_json::Value;

use crate::failure::{Failure, Result};
use crate::options::Dev;

/// The arguments of cargo that select the program.
#[derive(Clone)]
pub(super) struct Project(Vec<String>);

/// A program that cargo has built.
pub(super) struct Program {
    pub(super) path: PathBuf,
    /// The files that it was built from.
    sources: Vec<Source>,
}

struct Source {
    path: PathBuf,
    /// The time of its last change when the program was built; `None` if it was changed meanwhile.
    changed: Option<SystemTime>,
}

impl Project {
    pub(super) fn new(options: &Dev) -> Self {
        let named = [
            ("--package", &options.package),
            ("--bin", &options.bin),
            ("--example", &options.example),
            ("--features", &options.features),
        ];
        let named = named.into_iter().filter_map(|(name, value)| Some((name, value.as_ref()?)));
        Self(named.flat_map(|(name, value)| [name.to_owned(), value.clone()]).collect())
    }

    /// Builds the program. Cargo's messages go to standard error.
    pub(super) fn build(&self) -> Result<Program> {
        let started = SystemTime::now();
        let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
        let mut build = Command::new(cargo);
        build.args(["build", "--message-format=json-render-diagnostics"]).args(&self.0);
        let output = build.stdin(Stdio::null()).stderr(Stdio::inherit()).output();
        let output = output.map_err(|error| Failure::usage(format!("cargo: {error}")))?;
        if !output.status.success() {
            return Err(Failure { code: 1, message: "the build failed".to_owned() });
        }
        let messages = String::from_utf8_lossy(&output.stdout);
        let mut programs: Vec<_> = messages.lines().filter_map(program).collect();
        let Some((path, manifest)) = programs.pop() else {
            return Err(Failure::usage(
                "cargo built no binary: select one with --package, --bin or --example",
            ));
        };
        if let Some((other, _)) = programs.pop() {
            return Err(Failure::usage(format!(
                "cargo built several binaries, such as {} and {}: select one with --package or --bin",
                shown(&other),
                shown(&path),
            )));
        }
        let sources = sources(&path)?.into_iter().chain([manifest]);
        let sources = sources.map(|path| {
            let changed = last_change(&path).filter(|changed| *changed < started);
            Source { path, changed }
        });
        Ok(Program { sources: sources.collect(), path })
    }
}

impl Program {
    pub(super) fn name(&self) -> String {
        shown(&self.path)
    }

    /// Returns true if a file that it was built from has changed since.
    pub(super) fn is_outdated(&self) -> bool {
        let is_changed = |source: &Source| {
            source.changed.is_none() || last_change(&source.path) != source.changed
        };
        self.sources.iter().any(is_changed)
    }

    /// Takes the files as they are now for those that it was built from, after a build that failed.
    pub(super) fn wait_for_another_change(&mut self) {
        for source in &mut self.sources {
            source.changed = last_change(&source.path);
        }
    }
}

fn shown(program: &Path) -> String {
    program.file_stem().unwrap_or_default().to_string_lossy().into_owned()
}

fn last_change(file: &Path) -> Option<SystemTime> {
    fs::metadata(file).and_then(|file| file.modified()).ok()
}

/// Returns the program of one of cargo's messages, and the manifest of its package.
fn program(message: &str) -> Option<(PathBuf, PathBuf)> {
    let message: Value = serde_json::from_str(message).ok()?;
    let path = |name: &str| message.get(name).and_then(Value::as_str).map(PathBuf::from);
    Some((path("executable")?, path("manifest_path")?))
}

/// Reads the list of files that cargo writes beside a program: `program: file file`, where a space
/// in a name follows a backslash.
fn sources(program: &Path) -> Result<Vec<PathBuf>> {
    let list = program.with_extension("d");
    let text = fs::read_to_string(&list)
        .map_err(|error| Failure::usage(format!("{}: {error}", list.display())))?;
    let (_, files) = text.lines().next().and_then(|line| line.split_once(": ")).unwrap_or_default();
    let files = files.replace("\\ ", "\0");
    Ok(files.split(' ').map(|file| file.replace('\0', " ").into()).collect())
}
