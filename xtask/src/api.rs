//! The public API of each published crate, compared with a text in `api/`.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::Result;
use crate::package::{Published, compiler, is_release, published};
use crate::run::{cargo, output, root, run as step, scratch, target};

/// Maximum number of differences that are printed for one crate.
const MOST_SHOWN: usize = 40;

pub fn run(args: &[String]) -> Result {
    let write = match args {
        [] => false,
        [only] if only == "--write" => true,
        other => return Err(format!("`api` takes `--write` only, not {other:?}").into()),
    };
    let libraries: Vec<_> = published()?.into_iter().filter(|one| one.library).collect();
    let stated = &libraries.first().ok_or("no published crate has a library")?.rust_version;
    let (compiler, _) = compiler()?;
    if !is_release(&compiler, stated) {
        // Another release has another format, and names items of the standard library differently.
        let left_out =
            format!("the API texts are those of rustc {stated}, this is rustc {compiler}");
        return Err(left_out.into());
    }
    let home = scratch("api")?;
    document(&home)?;
    let program = printer(&home)?;
    let mut differing = Vec::new();
    for library in &libraries {
        let json = home.join("doc").join(format!("{}.json", library.name.replace('-', "_")));
        let now = output(Command::new(&program).arg(json))?;
        let text = root().join("api").join(format!("{}.txt", library.name));
        if write {
            fs::create_dir_all(root().join("api"))?;
            fs::write(&text, &now)?;
            println!("{}: {} items", library.name, now.lines().count());
        } else if !compare(library, &text, &now)? {
            differing.push(library.name.as_str());
        }
    }
    if differing.is_empty() {
        return Ok(());
    }
    let crates = differing.join(", ");
    Err(format!(
        "the public API of {crates} differs from api/; if that is intended, run `cargo xtask api --write` \
         and list the change in CHANGELOG.md"
    )
    .into())
}

/// Writes rustdoc's JSON for all libraries of the workspace.
fn document(home: &Path) -> Result {
    // The JSON is unstable, so rustdoc needs RUSTC_BOOTSTRAP. Cargo must not see the variable: it
    // would recompile all dependencies.
    let rustdoc = home.join("rustdoc");
    fs::write(&rustdoc, "#!/bin/sh\nRUSTC_BOOTSTRAP=1 exec rustdoc \"$@\"\n")?;
    output(Command::new("chmod").arg("+x").arg(&rustdoc))?;
    let mut doc = cargo(&[
        "doc",
        "--workspace",
        "--no-deps",
        "--all-features",
        "--lib",
        "--quiet",
        "--locked",
    ]);
    doc.env("RUSTDOC", &rustdoc)
        .env("RUSTDOCFLAGS", "-Z unstable-options --output-format json --cap-lints allow")
        .env("CARGO_BUILD_BUILD_DIR", target())
        .env("CARGO_TARGET_DIR", home);
    step(&mut doc)
}

/// Returns the path of the program that converts the JSON to text, after building it.
fn printer(home: &Path) -> Result<PathBuf> {
    let manifest = "--manifest-path=xtask/public-api/Cargo.toml";
    let mut build = cargo(&["build", "--quiet", "--locked", manifest]);
    step(build.env("CARGO_TARGET_DIR", home))?;
    Ok(home.join("debug/print-public-api"))
}

/// Prints the lines that only one of two texts has. Returns true if the texts are equal.
fn compare(library: &Published, text: &Path, now: &str) -> Result<bool> {
    let before = fs::read_to_string(text).map_err(|error| {
        format!("{}: {error}; `cargo xtask api --write` writes it", text.display())
    })?;
    if before == now {
        return Ok(true);
    }
    let differences = differences(&before, now);
    println!("\n{}:", library.name);
    for line in differences.iter().take(MOST_SHOWN) {
        println!("  {line}");
    }
    Ok(false)
}

fn differences(before: &str, now: &str) -> Vec<String> {
    let (old, new): (BTreeSet<_>, BTreeSet<_>) = (before.lines().collect(), now.lines().collect());
    let removed = before.lines().filter(|line| !new.contains(line)).map(|line| format!("- {line}"));
    let added = now.lines().filter(|line| !old.contains(line)).map(|line| format!("+ {line}"));
    removed.chain(added).collect()
}

#[cfg(test)]
mod tests {
    use super::differences;

    #[test]
    fn differences_name_removed_and_added_lines() {
        assert_eq!(differences("a\nb\n", "b\nc\n"), ["- a", "+ c"]);
        assert!(differences("a\n", "a\n").is_empty());
    }
}
