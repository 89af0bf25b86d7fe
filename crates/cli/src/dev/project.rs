//! A Cargo project: its binary, and whether its source has changed.

mod watched;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::SystemTime;

use serde_json::Value;

use self::watched::Watched;
use crate::failure::{Failure, Result};
use crate::options::Dev;

/// The project, with the files that its binary was built from.
pub(super) struct Project {
    /// The options of `cargo build` that select the binary.
    selection: Vec<String>,
    watched: Watched,
}

/// The outputs of a build: the binary, and the manifests of all packages with a path.
struct Built {
    binary: PathBuf,
    manifests: Vec<PathBuf>,
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
        let selection = named.flat_map(|(name, value)| [name.to_owned(), value.clone()]).collect();
        Self { selection, watched: Watched::default() }
    }

    /// Returns true if a file that the binary was built from has changed since.
    pub(super) fn is_outdated(&self) -> bool {
        self.watched.have_changed()
    }

    /// Builds the binary, and returns its path. Cargo's messages go to standard error.
    pub(super) fn build(&mut self) -> Result<PathBuf> {
        let started = SystemTime::now();
        let folders = self.watched.look();
        let built = self.run_cargo().and_then(|built| {
            self.watched.replace(sources(&built)?, started);
            Ok(built.binary)
        });
        if built.is_err() {
            self.watched.keep(folders, started);
        }
        built
    }

    fn run_cargo(&self) -> Result<Built> {
        let mut build = cargo("build");
        build.arg("--message-format=json-render-diagnostics").args(&self.selection);
        let output = build.stderr(Stdio::inherit()).output();
        let output = output.map_err(|error| Failure::usage(format!("cargo: {error}")))?;
        if !output.status.success() {
            return Err(Failure { code: 1, message: "the build failed".to_owned() });
        }
        let messages = String::from_utf8_lossy(&output.stdout);
        let messages = messages.lines().filter_map(|line| serde_json::from_str(line).ok());
        let messages: Vec<Value> = messages.collect();
        let manifests = messages.iter().filter(|message| has_path(message));
        let manifests = manifests.filter_map(|message| path(message, "manifest_path")).collect();
        Ok(Built { binary: binary(&messages)?, manifests })
    }
}

fn cargo(command: &str) -> Command {
    let mut cargo = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    cargo.arg(command).stdin(Stdio::null());
    cargo
}

fn path(message: &Value, name: &str) -> Option<PathBuf> {
    message.get(name).and_then(Value::as_str).map(PathBuf::from)
}

/// Returns true if a message is about a package on this computer, not in a registry.
fn has_path(message: &Value) -> bool {
    let id = message.get("package_id").and_then(Value::as_str);
    id.is_some_and(|id| id.starts_with("path+"))
}

/// Returns the one binary of these messages. Of several, it is the one that `cargo run` runs.
fn binary(messages: &[Value]) -> Result<PathBuf> {
    let binary = |message: &Value| Some((path(message, "executable")?, id(message, "package_id")));
    let binaries: Vec<_> = messages.iter().filter_map(binary).collect();
    match binaries.as_slice() {
        [] => Err(Failure::usage(
            "cargo built no binary: select one with --package, --bin or --example",
        )),
        [(binary, _)] => Ok(binary.clone()),
        [(one, _), .., (other, _)] => {
            let defaults = default_runs();
            let is_default = |(binary, package): &&(PathBuf, String)| {
                defaults.contains(&(package.clone(), stem(binary)))
            };
            let mut found = binaries.iter().filter(is_default);
            match (found.next(), found.next()) {
                (Some((binary, _)), None) => Ok(binary.clone()),
                _ => Err(Failure::usage(format!(
                    "cargo built several binaries, such as {} and {}: select one with --package or --bin",
                    stem(one),
                    stem(other),
                ))),
            }
        }
    }
}

fn id(of: &Value, name: &str) -> String {
    of.get(name).and_then(Value::as_str).unwrap_or_default().to_owned()
}

/// Returns the packages of the workspace that have a `default-run`, and its name.
fn default_runs() -> Vec<(String, String)> {
    let mut metadata = cargo("metadata");
    let output = metadata.args(["--no-deps", "--format-version=1"]).stderr(Stdio::null()).output();
    let metadata = output.ok().and_then(|output| serde_json::from_slice(&output.stdout).ok());
    let metadata: Value = metadata.unwrap_or_default();
    let packages = metadata.get("packages").and_then(Value::as_array).into_iter().flatten();
    let default_run = |package: &Value| {
        let name = package.get("default_run")?.as_str()?;
        Some((id(package, "id"), name.to_owned()))
    };
    packages.filter_map(default_run).collect()
}

/// Returns the name of a program without its folder and extension.
pub(super) fn stem(program: &Path) -> String {
    program.file_stem().unwrap_or_default().to_string_lossy().into_owned()
}

/// Returns the files that a binary was built from, without those that the build has made.
///
/// Cargo lists them beside the binary, as `binary: file file`, where a space in a name follows a
/// backslash.
fn sources(Built { binary, manifests }: &Built) -> Result<Vec<PathBuf>> {
    let list = binary.with_extension("d");
    let text = fs::read_to_string(&list)
        .map_err(|error| Failure::usage(format!("{}: {error}", list.display())))?;
    let (_, files) = text.lines().next().and_then(|line| line.split_once(": ")).unwrap_or_default();
    let files = files.replace("\\ ", "\0");
    let files = files.split(' ').map(|file| PathBuf::from(file.replace('\0', " ")));
    let mut output = binary.parent().unwrap_or(binary);
    if output.ends_with("examples") {
        output = output.parent().unwrap_or(output);
    }
    let mut sources: Vec<PathBuf> = files.filter(|file| !file.starts_with(output)).collect();
    let folders = manifests.iter().flat_map(|manifest| manifest.ancestors().skip(1));
    let workspaces = folders.filter(|folder| folder.join("Cargo.lock").is_file());
    let files = ["Cargo.toml", "Cargo.lock"];
    sources.extend(workspaces.flat_map(|folder| files.map(|file| folder.join(file))));
    sources.extend_from_slice(manifests);
    sources.sort_unstable();
    sources.dedup();
    Ok(sources)
}
