//! The licenses and sources of all dependencies, and duplicates among them: `cargo deny` with
//! `deny.toml`.

use std::process::Command;

use crate::Result;
use crate::needs::CARGO_DENY;
use crate::run::{root, run};
use crate::tools::installed;

/// Checks licenses, sources and duplicates. Advisories are not checked, because their database is
/// downloaded from GitHub, and tests use package registries only.
pub fn check() -> Result {
    let mut deny = Command::new(installed(CARGO_DENY)?);
    deny.args(["--locked", "--all-features", "--log-level=error", "check"]);
    run(deny.args(["licenses", "bans", "sources"]).current_dir(root()))
}
