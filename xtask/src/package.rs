//! Packages the published crates, then tests a new project against the packaged files.

use std::fmt::Write as _;
use std::fs;
use std::path::Path;
use std::process::Command;

use serde_json::Value;

use crate::Result;
use crate::run::{build, cargo, output, root, run as step, scratch, target};

/// The texts that every package contains besides its sources.
const TEXTS: &[&str] = &["README.md", "LICENSE-MIT", "LICENSE-APACHE"];

/// The name of the project that depends on the packages.
const PROJECT: &str = "project";

/// The limits of crates.io, which cargo does not check before an upload.
const MOST_KEYWORDS: usize = 5;
const LONGEST_KEYWORD: usize = 20;

/// The fields that crates.io requires or shows.
const FIELDS: &[&str] =
    &["description", "license", "repository", "documentation", "readme", "rust_version"];

/// A published crate.
pub struct Published {
    pub name: String,
    pub version: String,
    pub rust_version: String,
    /// True if the crate has a library, and so an API.
    pub library: bool,
}

impl Published {
    /// Returns the name of its directory in the archive.
    fn folder(&self) -> String {
        format!("{}-{}", self.name, self.version)
    }
}

pub fn run(args: &[String]) -> Result {
    let verify = match args {
        [] => false,
        [only] if only == "--verify" => true,
        other => return Err(format!("`package` takes `--verify` only, not {other:?}").into()),
    };
    let crates = published()?;
    // Downloads what the lock file lists and is missing. Everything after it works offline.
    step(&mut cargo(&["fetch", "--quiet", "--locked", "--target", &host()?]))?;
    let home = scratch("package")?;
    let mut package = cargo(&["package", "--quiet", "--offline", "--locked", "--allow-dirty"]);
    package.env("CARGO_TARGET_DIR", &home).env("CARGO_PROFILE_DEV_DEBUG", "0");
    if !verify {
        package.arg("--no-verify");
    }
    for published in &crates {
        package.args(["--package", &published.name]);
    }
    step(&mut package)?;
    let files = home.join("files");
    extract(&crates, &home, &files)?;
    check(&crates, &files)
}

/// Returns the published crates of the workspace.
pub fn published() -> Result<Vec<Published>> {
    let text = output(&mut cargo(&["metadata", "--format-version=1", "--no-deps", "--locked"]))?;
    let metadata: Value = serde_json::from_str(&text)?;
    let packages = metadata["packages"].as_array().into_iter().flatten();
    let is_published =
        |package: &&Value| package["publish"].as_array().is_none_or(|to| !to.is_empty());
    let crates = packages.filter(is_published).map(read).collect::<Result<Vec<_>>>()?;
    if crates.is_empty() {
        return Err("cargo metadata lists no published crate".into());
    }
    Ok(crates)
}

/// Reads the metadata of a package, and checks it against the rules of crates.io.
fn read(package: &Value) -> Result<Published> {
    let text = |key: &str| package[key].as_str().unwrap_or_default().to_owned();
    let list = |key: &str| package[key].as_array().into_iter().flatten();
    let name = text("name");
    if let Some(field) = FIELDS.iter().find(|field| text(field).is_empty()) {
        return Err(format!("the manifest of {name} lacks {field}").into());
    }
    let keywords: Vec<_> = list("keywords").filter_map(Value::as_str).collect();
    if keywords.len() > MOST_KEYWORDS {
        return Err(format!(
            "{name} has {} keywords, the limit is {MOST_KEYWORDS}",
            keywords.len()
        )
        .into());
    }
    if let Some(long) = keywords.iter().find(|keyword| keyword.len() > LONGEST_KEYWORD) {
        return Err(
            format!("the keyword {long:?} of {name} exceeds {LONGEST_KEYWORD} characters").into()
        );
    }
    let is_library = |target: &Value| {
        target["kind"].as_array().is_some_and(|kinds| kinds.contains(&"lib".into()))
    };
    Ok(Published {
        version: text("version"),
        rust_version: text("rust_version"),
        library: list("targets").any(is_library),
        name,
    })
}

/// Returns the version of the compiler in use, such as `1.95.0`, and its target.
pub fn compiler() -> Result<(String, String)> {
    let text = output(Command::new("rustc").arg("-vV"))?;
    let field = |name: &str| text.lines().find_map(|line| line.strip_prefix(name));
    match (field("release: "), field("host: ")) {
        (Some(release), Some(host)) => Ok((release.to_owned(), host.to_owned())),
        _ => Err(format!("rustc -vV printed no release and host: {text}").into()),
    }
}

fn host() -> Result<String> {
    Ok(compiler()?.1)
}

/// Unpacks the archives into a fresh directory and checks the texts in them.
fn extract(crates: &[Published], home: &Path, files: &Path) -> Result {
    if files.exists() {
        fs::remove_dir_all(files)?;
    }
    fs::create_dir_all(files)?;
    for published in crates {
        let archive = home.join("package").join(format!("{}.crate", published.folder()));
        // `-m` ignores the times in archives: they are all equal, so cargo would not notice changed
        // files.
        output(Command::new("tar").arg("-xzmf").arg(&archive).arg("-C").arg(files))?;
        for text in TEXTS {
            let path = files.join(published.folder()).join(text);
            let packed = fs::read(&path)
                .map_err(|error| format!("the package {} lacks {text}: {error}", published.name))?;
            if text.starts_with("LICENSE") && packed != fs::read(root().join(text))? {
                return Err(format!("{text} in the package {} differs", published.name).into());
            }
        }
    }
    Ok(())
}

/// Compiles all packages with all features, and tests a project that `mrtr new` creates. The
/// packages and the project form a workspace of their own, in which every published crate is
/// replaced by its packaged files.
fn check(crates: &[Published], files: &Path) -> Result {
    let mut members = String::new();
    let mut patches = String::new();
    for published in crates {
        let (name, folder) = (&published.name, published.folder());
        write!(members, "{folder:?}, ")?;
        writeln!(patches, "{name} = {{ path = {folder:?} }}")?;
    }
    let workspace = format!(
        "[workspace]\nresolver = \"3\"\nmembers = [{members}{PROJECT:?}]\n\n\
         [profile.dev]\ndebug = false\nincremental = false\n\n[patch.crates-io]\n{patches}"
    );
    fs::write(files.join("Cargo.toml"), workspace)?;
    fs::copy(root().join("Cargo.lock"), files.join("Cargo.lock"))?;
    step(Command::new(build()?.join("mrtr")).arg("new").arg(files.join(PROJECT)))?;
    let cargo = |args: &[&str]| {
        let mut command = cargo(args);
        command.arg("--quiet").arg("--offline").current_dir(files);
        // Dependencies are compiled already.
        command.env("CARGO_TARGET_DIR", target());
        command
    };
    step(&mut cargo(&["test", "--package", PROJECT]))?;
    step(&mut cargo(&["check", "--workspace", "--all-features"]))?;
    // Some chapters are included only in the documentation.
    step(&mut cargo(&["doc", "--package", "mrtr", "--no-deps", "--all-features"]))?;
    minimum(crates)
}

/// Prints whether this run tested the oldest compiler that the packages support.
fn minimum(crates: &[Published]) -> Result {
    let (compiler, _) = compiler()?;
    let stated = &crates.first().ok_or("no crate is published")?.rust_version;
    if let Some(other) = crates.iter().find(|published| published.rust_version != *stated) {
        return Err(format!("{} states another rust-version than {stated}", other.name).into());
    }
    if is_release(&compiler, stated) {
        println!("\nthe packages were built with rustc {compiler}, the oldest they support");
    } else {
        println!("\nnot tested: rustc {stated}, the oldest supported; this is rustc {compiler}");
    }
    Ok(())
}

/// Returns true if a compiler belongs to a release such as `1.95`, at any patch level.
pub fn is_release(compiler: &str, release: &str) -> bool {
    compiler.strip_prefix(release).is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
}

#[cfg(test)]
mod tests {
    use super::is_release;

    #[test]
    fn a_release_includes_its_patch_levels_only() {
        assert!(is_release("1.95.0", "1.95") && is_release("1.95.0", "1.95.0"));
        assert!(!is_release("1.950.0", "1.95") && !is_release("1.96.0", "1.95"));
    }
}
