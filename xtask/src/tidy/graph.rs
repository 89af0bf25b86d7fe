//! The crate graph: the allowed dependencies between crates.

use std::collections::{BTreeMap, BTreeSet};
use std::process::Stdio;

use serde_json::Value;

use crate::Result;
use crate::run::{cargo, output};

/// The published crates, each with the workspace crates that it may depend on.
pub(super) const ARROWS: &[(&str, &[&str])] = &[
    ("mrtr-schema", &[]),
    ("mrtr-codec", &[]),
    ("mrtr-macros", &[]),
    ("mrtr-transport", &["mrtr-schema"]),
    ("mrtr-server", &["mrtr-schema", "mrtr-codec", "mrtr-transport"]),
    ("mrtr-client", &["mrtr-schema", "mrtr-transport"]),
    ("mrtr-legacy", &["mrtr-schema", "mrtr-codec", "mrtr-transport"]),
    ("mrtr-dialects", &["mrtr-schema", "mrtr-codec", "mrtr-transport"]),
    ("mrtr-auth", &["mrtr-codec", "mrtr-transport", "mrtr-server"]),
    ("mrtr-stores", &["mrtr-server"]),
    ("mrtr-gateway", &["mrtr-schema", "mrtr-server", "mrtr-client"]),
    ("mrtr-middleware", &["mrtr-schema", "mrtr-server", "mrtr-transport"]),
    ("mrtr-openapi", &["mrtr-schema", "mrtr-server"]),
    (
        "mrtr",
        &[
            "mrtr-schema",
            "mrtr-transport",
            "mrtr-server",
            "mrtr-client",
            "mrtr-legacy",
            "mrtr-dialects",
            "mrtr-auth",
            "mrtr-macros",
            "mrtr-stores",
            "mrtr-gateway",
            "mrtr-middleware",
            "mrtr-openapi",
        ],
    ),
    ("mrtr-cli", &["mrtr", "mrtr-codec"]),
];

/// Unpublished members, which may depend on any crate.
const FREE: &[&str] =
    &["mrtr-chaos", "mrtr-model", "mrtr-testkit", "mrtr-conformance", "mrtr-examples", "xtask"];

/// Crates that must not be dependencies of another crate, direct or indirect.
const NEVER: &[(&str, &[&str])] = &[
    ("mrtr-schema", &["tokio", "hyper", "getrandom", "aes"]),
    ("mrtr-codec", &["tokio", "hyper", "serde"]),
    ("mrtr-client", &["aes", "aes-gcm", "mrtr-codec", "reqwest", "hyper"]),
    ("mrtr-server", &["reqwest", "rustls", "hyper", "axum", "tokio-postgres", "redis", "rusqlite"]),
    ("mrtr-stores", &["reqwest", "rustls", "hyper", "axum", "tokio-postgres", "redis", "rusqlite"]),
    ("mrtr-auth", &["reqwest", "aws-lc-rs", "jsonwebtoken", "tokio"]),
    ("mrtr-legacy", &["reqwest", "rustls", "hyper", "axum", "mrtr-server"]),
    ("mrtr-dialects", &["reqwest", "rustls", "hyper", "axum", "mrtr-server", "mrtr-legacy"]),
    ("mrtr-gateway", &["reqwest", "rustls", "hyper", "axum", "mrtr-legacy"]),
    ("mrtr-middleware", &["reqwest", "rustls", "hyper", "axum", "redis"]),
    ("mrtr-openapi", &["reqwest", "rustls", "hyper", "axum"]),
    // Dialects reach no build that does not ask for them.
    ("mrtr", &["mrtr-dialects"]),
    ("mrtr-cli", &["mrtr-dialects"]),
];

pub fn check(problems: &mut Vec<String>) -> Result {
    let metadata = ["metadata", "--format-version=1", "--locked", "--all-features"];
    let metadata = output(cargo(&metadata).stdin(Stdio::null()))?;
    check_arrows(&serde_json::from_str(&metadata)?, problems);
    check_never(problems);
    Ok(())
}

fn text<'a>(value: &'a Value, key: &str) -> &'a str {
    value[key].as_str().unwrap_or_default()
}

fn list<'a>(value: &'a Value, key: &str) -> impl Iterator<Item = &'a Value> {
    value[key].as_array().into_iter().flatten()
}

fn check_arrows(metadata: &Value, problems: &mut Vec<String>) {
    let members: BTreeSet<&str> =
        list(metadata, "workspace_members").filter_map(Value::as_str).collect();
    let packages: BTreeMap<&str, &Value> = list(metadata, "packages")
        .filter(|package| members.contains(text(package, "id")))
        .map(|package| (text(package, "name"), package))
        .collect();
    for (name, package) in &packages {
        let Some((_, allowed)) = ARROWS.iter().find(|(known, _)| known == name) else {
            if !FREE.contains(name) {
                problems.push(format!(
                    "{name} is a new crate: list its dependencies in xtask/src/tidy/graph.rs"
                ));
            }
            continue;
        };
        for dependency in list(package, "dependencies").filter(|d| d["kind"].is_null()) {
            let on = text(dependency, "name");
            if packages.contains_key(on) && !allowed.contains(&on) {
                problems.push(format!("{name} must not depend on {on}"));
            }
        }
    }
}

/// Checks the resolved graph of normal dependencies with default features, crate by crate.
fn check_never(problems: &mut Vec<String>) {
    for (name, forbidden) in NEVER {
        let tree = ["tree", "--locked", "--edges=normal", "--prefix=none", "--format={p}"];
        let Ok(tree) = output(cargo(&tree).args(["--package", name])) else {
            problems.push(format!("cargo tree --package {name} failed"));
            continue;
        };
        let inside: BTreeSet<_> = tree.lines().filter_map(|line| line.split(' ').next()).collect();
        for one in forbidden.iter().filter(|one| inside.contains(**one)) {
            problems.push(format!("{name} must not depend on {one}, directly or indirectly"));
        }
    }
}
