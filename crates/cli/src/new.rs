//! Creates the project of a server.

use std::fs::{self, OpenOptions};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use crate::failure::{Failure, Result};
use crate::output;

/// Compiled as a module of the tests, and tested as a project by `cargo xtask package`.
const MAIN: &str = include_str!("../template/main.rs");

/// The names of folders that cargo creates beside programs.
const RESERVED: [&str; 4] = ["build", "deps", "examples", "incremental"];

pub(crate) fn run(path: &Path, json: bool) -> Result<ExitCode> {
    let shown = mrtr::terminal::sanitize_line(&path.display().to_string());
    let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
    let is_allowed = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
    if !name.starts_with(|c: char| c.is_ascii_alphabetic()) || !name.chars().all(is_allowed) {
        return Err(Failure::usage(format!(
            "{shown} does not end with the name of a package: a letter, then letters, digits, `-` and `_`"
        )));
    }
    if RESERVED.contains(&name) {
        return Err(Failure::usage(format!("cargo allows no program with the name {name:?}")));
    }
    if fs::read_dir(path).is_ok_and(|mut entries| entries.next().is_some()) {
        return Err(Failure::usage(format!("{shown} is not empty")));
    }
    let failed = |error: io::Error| Failure::usage(format!("{shown}: {error}"));
    fs::create_dir_all(path.join("src")).map_err(failed)?;
    let files =
        [("Cargo.toml", &*manifest(name)), ("src/main.rs", MAIN), (".gitignore", "/target\n")];
    for (file, text) in files {
        write_new(&path.join(file), text)
            .map_err(|error| Failure::usage(format!("{shown}/{file}: {error}")))?;
    }
    if let Some(workspace) = workspace(path) {
        let workspace = mrtr::terminal::sanitize_line(&workspace.display().to_string());
        output::note(&format!(
            "{workspace} is a workspace: cargo builds the package if its `members` include the folder"
        ));
    }
    if json {
        let files = files.map(|(file, _)| file);
        output::json(&serde_json::json!({ "path": path, "files": files }));
        return Ok(ExitCode::SUCCESS);
    }
    output::line(&format!("{shown} has a server with the tool `book`. To try it:"));
    output::line(&format!("  cd {shown}"));
    output::line("  cargo test");
    output::line("  mrtr dev");
    output::line("  cargo run -- 127.0.0.1:3000");
    output::line("  mrtr call http://127.0.0.1:3000/mcp book --arg people=4");
    Ok(ExitCode::SUCCESS)
}

/// Returns the manifest of the workspace that a new package is in, whose folder exists.
fn workspace(package: &Path) -> Option<PathBuf> {
    let package = package.canonicalize().ok()?;
    let manifests = package.ancestors().skip(1).map(|folder| folder.join("Cargo.toml"));
    let has_workspace = |manifest: &PathBuf| {
        let text = fs::read_to_string(manifest).unwrap_or_default();
        text.lines().any(|line| line.trim_start().starts_with("[workspace"))
    };
    manifests.into_iter().find(has_workspace)
}

fn manifest(name: &str) -> String {
    let version = env!("CARGO_PKG_VERSION");
    format!(
        r#"[package]
name = "{name}"
version = "0.1.0"
edition = "2024"

[dependencies]
mrtr = "{version}"
schemars = "1"
serde = {{ version = "1", features = ["derive"] }}
tokio = {{ version = "1", features = ["macros", "rt-multi-thread"] }}
tracing-subscriber = {{ version = "0.3", default-features = false, features = ["ansi", "fmt"] }}

[dev-dependencies]
mrtr = {{ version = "{version}", features = ["testing"] }}
serde_json = "1"
"#
    )
}

/// Writes a file that does not exist yet.
fn write_new(path: &Path, text: &str) -> io::Result<()> {
    OpenOptions::new().write(true).create_new(true).open(path)?.write_all(text.as_bytes())
}
