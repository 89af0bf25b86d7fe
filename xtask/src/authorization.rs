//! Runs `mrtr-auth` against an authorization server of another project, with a browser and with
//! other SDKs.

use std::process::Command;

use crate::Result;
use crate::interop::{outcomes, report};
use crate::needs::{CHROMIUM, find_program, require};
use crate::run::build;
use crate::tools::{npm_programs, python, script};

/// The row that needs a browser.
const LOGIN: &str = "login";

/// The rows without a browser, in the order of `interop/README.md`.
const ROWS: [&str; 11] = [
    "refresh",
    "client credentials, basic",
    "client credentials, jwt",
    "dpop",
    "wrong audience",
    "revocation",
    "introspection",
    "step-up",
    "step-up in a call",
    "no login",
    // Last, because resource servers fetch new keys at most every 30 seconds.
    "key rotation",
];

const PYTHON: [&str; 3] = ["python client", "python step-up", "python server"];
const TYPESCRIPT: [&str; 3] = ["typescript client", "typescript step-up", "typescript server"];

/// Runs the given rows, or all of them. Without a browser, the login is left out.
pub fn run(args: &[String]) -> Result {
    let all = || [LOGIN].into_iter().chain(PYTHON).chain(TYPESCRIPT).chain(ROWS);
    if let Some(other) = args.iter().find(|name| !all().any(|row| row == name.as_str())) {
        let names = all().collect::<Vec<_>>().join("; ");
        return Err(format!("unknown row {other:?}; known rows: {names}").into());
    }
    let is_wanted = |row: &&str| args.is_empty() || args.iter().any(|name| name == row);
    let rows: Vec<_> = all().filter(is_wanted).collect();
    if rows.contains(&LOGIN)
        && let Err(error) = require(&[CHROMIUM])
    {
        println!("{error}");
    }
    check(&rows)
}

/// Runs the rows that need no browser.
pub fn without_browser() -> Result {
    check(&ROWS)
}

/// Runs the row that needs a browser.
pub fn with_browser() -> Result {
    require(&[CHROMIUM])?;
    check(&[LOGIN])
}

/// Runs the rows with the Python SDK.
pub fn with_python() -> Result {
    check(&PYTHON)
}

/// Runs the rows with the TypeScript SDK.
pub fn with_typescript() -> Result {
    check(&TYPESCRIPT)
}

/// Prints the outcome of each row, and fails if one failed.
fn check(rows: &[&str]) -> Result {
    let (node, folder) = npm_programs("authorization")?;
    let bin = build()?;
    let mut program = Command::new(bin.join("authorization"));
    program.args([node, folder]);
    if let Some(browser) = find_program("chromium") {
        program.arg("--browser").arg(browser);
    }
    if rows.iter().any(|row| PYTHON.contains(row)) {
        let scripts = ["authorization_client.py", "authorization_server.py"];
        program.args(["--peer", "python"]).arg(python("python")?);
        program.args(scripts.map(|file| script("python", file)));
    }
    if rows.iter().any(|row| TYPESCRIPT.contains(row)) {
        let (node, home) = npm_programs("typescript")?;
        let scripts = ["authorization-client.mjs", "authorization-server.mjs"];
        program.args(["--peer", "typescript"]).arg(node);
        program.args(scripts.map(|file| home.join(file)));
    }
    let outcomes = outcomes(program.args(rows), rows)?;
    report("authorization", rows, &outcomes, passed)
}

/// Returns true if a row did not fail: it passed, or was left out for a reason.
fn passed(outcome: &str) -> bool {
    outcome == "ok" || outcome.starts_with("left out")
}
