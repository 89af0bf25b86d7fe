//! Foreign tools: fetched once, pinned, kept under `target/xtask`.

use std::env::consts::{ARCH, OS};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::Result;
use crate::run::{cargo, output, root, run, scratch, there};

/// The Node.js that is fetched where there is none, or one that is too old for the suite.
const NODE: &str = "24.21.0";
const OLDEST_NODE: u32 = 22;

/// The official conformance suite: how to run it.
pub fn conformance_suite() -> Result<(PathBuf, PathBuf)> {
    let home = npm_packages("suite")?;
    let suite = home.join("node_modules/@modelcontextprotocol/conformance/dist/index.js");
    Ok((node()?, suite))
}

/// The TypeScript SDK: a Node.js, and where our scripts for it are.
pub fn typescript() -> Result<(PathBuf, PathBuf)> {
    let home = npm_packages("typescript")?;
    Ok((node()?, home))
}

/// The MCP Inspector: how to run it.
pub fn inspector() -> Result<(PathBuf, PathBuf)> {
    let home = npm_packages("inspector")?;
    Ok((node()?, home.join("node_modules/.bin/mcp-inspector")))
}

/// A copy of `interop/{name}`, with the packages of its lock file.
fn npm_packages(name: &str) -> Result<PathBuf> {
    if !there("npm") {
        return Err(
            "this needs npm (with or without a recent Node.js): install it, for example by \
                    `apt-get install npm`"
                .into(),
        );
    }
    let home = scratch(name)?;
    let own = root().join("interop").join(name);
    for file in fs::read_dir(&own)? {
        let file = file?;
        fs::copy(file.path(), home.join(file.file_name()))?;
    }
    let lock = fs::read(own.join("package-lock.json"))?;
    if fs::read(home.join("installed")).ok().as_ref() != Some(&lock) {
        run(npm().args(["ci", "--ignore-scripts", "--loglevel=error"]).current_dir(&home))?;
        fs::write(home.join("installed"), &lock)?;
    }
    Ok(home)
}

fn npm() -> Command {
    let mut npm = Command::new("npm");
    // Ours to pin: an update of npm itself is no news here.
    npm.env("NPM_CONFIG_UPDATE_NOTIFIER", "false")
        .env("NPM_CONFIG_FUND", "false")
        .env("NPM_CONFIG_AUDIT", "false");
    npm
}

/// A Node.js that is recent enough.
fn node() -> Result<PathBuf> {
    let version = output(Command::new("node").arg("--version")).unwrap_or_default();
    let major =
        version.trim_start_matches('v').split('.').next().and_then(|major| major.parse().ok());
    if major >= Some(OLDEST_NODE) {
        return Ok("node".into());
    }
    let os = match OS {
        "macos" => "darwin",
        "windows" => "win",
        other => other,
    };
    let arch = if ARCH == "aarch64" { "arm64" } else { "x64" };
    let package = format!("node-{os}-{arch}");
    let home = scratch(&format!("node-{NODE}"))?;
    let node = home.join("node_modules").join(&package).join("bin/node");
    if !node.exists() {
        let spec = format!("{package}@{NODE}");
        println!("\nthis needs Node.js {OLDEST_NODE}, here is {:?}", version.trim());
        run(npm().args(["install", "--prefix"]).arg(&home).args([
            "--no-save",
            "--loglevel=error",
            &spec,
        ]))?;
    }
    Ok(node)
}

/// A Python with the packages of `interop/python/requirements.txt`.
pub fn python() -> Result<PathBuf> {
    if !there("python3") {
        return Err("interop with Python needs python3, 3.10 or newer: install it".into());
    }
    let home = scratch("python")?;
    let list = root().join("interop/python/requirements.txt");
    let wanted = fs::read(&list)?;
    let python = home.join("bin/python");
    if fs::read(home.join("installed")).ok().as_ref() != Some(&wanted) {
        run(Command::new("python3").args(["-m", "venv", "--clear"]).arg(&home))?;
        let pip = ["-m", "pip", "install", "--quiet", "--disable-pip-version-check", "-r"];
        run(Command::new(&python).args(pip).arg(&list))?;
        fs::write(home.join("installed"), &wanted)?;
    }
    Ok(python)
}

/// The client and the server on rmcp, the official Rust SDK: where they were built. They are a workspace
/// of their own, so that what rmcp needs stays out of our lock file.
pub fn rmcp() -> Result<PathBuf> {
    let home = scratch("rmcp")?;
    let manifest = "--manifest-path=interop/rmcp/Cargo.toml";
    let mut build = cargo(&["build", "--quiet", "--locked", "--bins", manifest]);
    run(build.env("CARGO_TARGET_DIR", &home))?;
    // The README of the codec, whose example is a tool on rmcp.
    let mut readme = cargo(&["test", "--quiet", "--locked", "--lib", manifest]);
    run(readme.env("CARGO_TARGET_DIR", &home))?;
    Ok(home.join("debug"))
}

/// A tool from crates.io: where it is, built once.
pub fn installed(name: &str, version: &str) -> Result<PathBuf> {
    let home = scratch("tools")?.join(format!("{name}-{version}"));
    let program = home.join("bin").join(name);
    if !program.exists() {
        let mut install = cargo(&["install", "--quiet", "--locked", name, "--version", version]);
        run(install.arg("--root").arg(&home))?;
    }
    Ok(program)
}

/// A script of ours.
pub fn script(name: &str) -> PathBuf {
    root().join(Path::new("interop/python")).join(name)
}

/// A program of the system, by the name of its Debian package; installed if it is not there and may be.
pub fn debian(program: &str) -> Result {
    let is_there = || {
        let found = Command::new("sh").args(["-c", "command -v \"$0\"", program]).output();
        found.is_ok_and(|output| output.status.success())
    };
    if is_there() {
        return Ok(());
    }
    let how = format!("apt-get install -y {program}");
    if there("apt-get") && output(Command::new("id").arg("-u"))?.trim() == "0" {
        let install =
            format!("apt-get update -qq && DEBIAN_FRONTEND=noninteractive {how} -qq >/dev/null");
        run(Command::new("sh").args(["-c", &install]))?;
    }
    if is_there() {
        Ok(())
    } else {
        Err(format!("this needs {program}: install it, for example by `{how}`").into())
    }
}
