//! The law as a program: who may depend on whom, how long files may be, what may not be said.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;
use std::process::Command;

use serde_json::Value;

use crate::Result;
use crate::requirements;
use crate::run::{cargo, output, root};

/// Who may depend on whom inside the workspace: every arrow, and no other.
const ARROWS: &[(&str, &[&str])] = &[
    ("mrtr-schema", &[]),
    ("mrtr-codec", &[]),
    ("mrtr-transport", &["mrtr-schema"]),
    ("mrtr-server", &["mrtr-schema", "mrtr-codec", "mrtr-transport"]),
    ("mrtr-client", &["mrtr-schema", "mrtr-transport"]),
    ("mrtr-macros", &[]),
    ("mrtr", &["mrtr-schema", "mrtr-transport", "mrtr-server", "mrtr-client", "mrtr-macros"]),
    ("mrtr-cli", &["mrtr", "mrtr-codec"]),
];

/// Unpublished members, which may depend on any other.
const FREE: &[&str] = &["mrtr-chaos", "mrtr-testkit", "mrtr-conformance", "mrtr-examples", "xtask"];

/// What must never be in a crate's dependencies, however far down.
const NEVER: &[(&str, &[&str])] = &[
    ("mrtr-schema", &["tokio", "hyper", "getrandom", "aes"]),
    ("mrtr-codec", &["tokio", "hyper", "serde"]),
    ("mrtr-client", &["aes", "aes-gcm", "mrtr-codec", "reqwest", "hyper"]),
    ("mrtr-server", &["reqwest", "rustls", "hyper", "axum"]),
];

/// The most lines that a file has before its tests.
const MOST_LINES: usize = 500;

/// Words that have no business in the repository.
const WORDS: &[&str] = &["todo!(", "FIXME", "/work/", "dbg!("];

pub fn run(_: &[String]) -> Result {
    let mut wrong = Vec::new();
    let text = output(
        cargo(&["metadata", "--format-version=1", "--locked", "--all-features"])
            .stdin(std::process::Stdio::null()),
    )?;
    let metadata: Value = serde_json::from_str(&text)?;
    arrows(&metadata, &mut wrong);
    never(&mut wrong);
    licenses(&metadata, &mut wrong)?;
    files(&mut wrong)?;
    patches(&mut wrong);
    if wrong.is_empty() {
        println!("tidy: the graph, the licenses, the files and the words are as they should be");
        return Ok(());
    }
    Err(format!("\n  {}", wrong.join("\n  ")).into())
}

/// What is broken on purpose is to be found where it is looked for.
fn patches(wrong: &mut Vec<String>) {
    for patch in crate::chaos::patches() {
        let mut check = Command::new("git");
        check.args(["apply", "--check"]).arg(&patch).current_dir(root());
        if !check.status().is_ok_and(|status| status.success()) {
            wrong.push(format!("{} does not fit any more", patch.display()));
        }
    }
}

fn text<'a>(value: &'a Value, key: &str) -> &'a str {
    value[key].as_str().unwrap_or_default()
}

fn list<'a>(value: &'a Value, key: &str) -> impl Iterator<Item = &'a Value> {
    value[key].as_array().into_iter().flatten()
}

fn arrows(metadata: &Value, wrong: &mut Vec<String>) {
    let members: BTreeSet<&str> =
        list(metadata, "workspace_members").filter_map(Value::as_str).collect();
    let allowed: BTreeMap<_, _> = ARROWS.iter().copied().collect();
    let names: BTreeSet<&str> = list(metadata, "packages")
        .filter(|p| members.contains(text(p, "id")))
        .map(|p| text(p, "name"))
        .collect();
    for package in list(metadata, "packages")
        .filter(|p| names.contains(text(p, "name")) && members.contains(text(p, "id")))
    {
        let name = text(package, "name");
        let Some(allowed) = allowed.get(name) else {
            if !FREE.contains(&name) {
                wrong.push(format!(
                    "{name} is a new crate: say in xtask/src/tidy.rs what it may depend on"
                ));
            }
            continue;
        };
        for dependency in list(package, "dependencies").filter(|d| d["kind"].is_null()) {
            let on = text(dependency, "name");
            if names.contains(on) && !allowed.contains(&on) {
                wrong.push(format!("{name} must not depend on {on}"));
            }
        }
    }
}

/// Follows the resolved graph of normal dependencies, with default features, crate by crate.
fn never(wrong: &mut Vec<String>) {
    for (name, forbidden) in NEVER {
        let mut tree = cargo(&[
            "tree",
            "--locked",
            "--edges=normal",
            "--prefix=none",
            "--format={p}",
            "--package",
            name,
        ]);
        let Ok(tree) = output(&mut tree) else {
            wrong.push(format!("cargo tree --package {name} failed"));
            continue;
        };
        let inside: BTreeSet<_> = tree.lines().filter_map(|line| line.split(' ').next()).collect();
        for one in forbidden.iter().filter(|one| inside.contains(**one)) {
            wrong.push(format!("{name} must not pull in {one}"));
        }
    }
}

/// Every dependency has a license that `deny.toml` allows.
fn licenses(metadata: &Value, wrong: &mut Vec<String>) -> Result {
    let rules = fs::read_to_string(root().join("deny.toml"))?;
    let list_of = rules
        .split("allow = [")
        .nth(1)
        .and_then(|rest| rest.split(']').next())
        .ok_or("deny.toml lacks `allow`")?;
    let allowed: BTreeSet<&str> = list_of.split('"').skip(1).step_by(2).collect();
    for package in list(metadata, "packages") {
        let license = text(package, "license");
        if !satisfied(&license.replace('/', " OR "), &allowed) {
            wrong.push(format!(
                "{} has the license {license:?}, which deny.toml does not allow",
                text(package, "name")
            ));
        }
    }
    Ok(())
}

/// Whether an SPDX expression can be met: `AND` binds tighter than `OR`, and there may be one level of
/// parentheses.
fn satisfied(expression: &str, allowed: &BTreeSet<&str>) -> bool {
    if let Some((before, rest)) = expression.split_once('(') {
        let Some((inner, after)) = rest.split_once(')') else {
            return false;
        };
        // What is in parentheses counts as one license, which is allowed or not.
        let verdict = if satisfied(inner, allowed) { "yes" } else { "no" };
        let mut with: BTreeSet<&str> = allowed.clone();
        with.insert("yes");
        return satisfied(&format!("{before}{verdict}{after}"), &with);
    }
    expression
        .split(" OR ")
        .any(|either| either.split(" AND ").all(|one| allowed.contains(one.trim())))
}

fn files(wrong: &mut Vec<String>) -> Result {
    let tracked = output(
        Command::new("git")
            .args(["ls-files", "--cached", "--others", "--exclude-standard"])
            .current_dir(root()),
    )?;
    let mut sources = Vec::new();
    for name in tracked.lines() {
        let Ok(text) = fs::read_to_string(root().join(name)) else {
            continue;
        };
        let is_rust = Path::new(name).extension().is_some_and(|ending| ending == "rs");
        let before_tests =
            text.lines().take_while(|line| !line.starts_with("#[cfg(test)]")).count();
        if is_rust && before_tests > MOST_LINES {
            wrong.push(format!(
                "{name} has {before_tests} lines before its tests; it is probably two things"
            ));
        }
        if is_rust
            && !text.starts_with("//!")
            && !text.starts_with("#![doc")
            && !name.contains("tests")
        {
            wrong.push(format!("{name} does not say in its first line what it is"));
        }
        if name.ends_with("tidy.rs") {
            continue;
        }
        for word in WORDS.iter().filter(|word| text.contains(**word)) {
            wrong.push(format!("{name} contains {word:?}"));
        }
        if is_rust {
            sources.push((name.to_owned(), text));
        }
    }
    requirements::check(&sources, wrong)?;
    requirements::check_attacks(&sources, wrong)
}

#[cfg(test)]
mod tests {
    use super::satisfied;

    #[test]
    fn licenses_are_read_as_spdx_has_it() {
        let allowed = ["MIT", "Apache-2.0", "Unicode-3.0"].into();
        for (expression, verdict) in [
            ("MIT", true),
            ("GPL-3.0", false),
            ("GPL-3.0 OR MIT", true),
            ("MIT AND GPL-3.0", false),
            ("(MIT OR GPL-3.0) AND Unicode-3.0", true),
            ("(MIT OR Apache-2.0) AND OpenSSL", false),
            ("", false),
        ] {
            assert_eq!(satisfied(expression, &allowed), verdict, "{expression}");
        }
    }
}
