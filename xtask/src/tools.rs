//! Programs of other projects that commands run. Each function installs missing programs first.

use std::fs;
use std::path::PathBuf;

use crate::Result;
use crate::needs::{Need, node, require};
use crate::run::{cargo, root, run, scratch};

/// Returns a Node.js and the script of the official conformance suite.
pub fn conformance_suite() -> Result<(PathBuf, PathBuf)> {
    let (node, home) = npm_packages("suite")?;
    Ok((node, home.join("node_modules/@modelcontextprotocol/conformance/dist/index.js")))
}

/// Returns a Node.js and a folder with the programs of `interop/{name}` and their packages.
pub fn npm_programs(name: &'static str) -> Result<(PathBuf, PathBuf)> {
    let (node, home) = npm_packages(name)?;
    // Scripts find packages relative to their own location.
    for file in fs::read_dir(root().join("interop").join(name))? {
        let file = file?;
        fs::copy(file.path(), home.join(file.file_name()))?;
    }
    Ok((node, home))
}

/// Returns a Node.js and the script of the MCP Inspector.
pub fn inspector() -> Result<(PathBuf, PathBuf)> {
    let (node, home) = npm_packages("inspector")?;
    Ok((node, home.join("node_modules/.bin/mcp-inspector")))
}

/// Returns a Node.js and the folder with the installed packages of `interop/{name}`.
fn npm_packages(name: &'static str) -> Result<(PathBuf, PathBuf)> {
    require(&[Need::Node, Need::NpmPackages(name)])?;
    Ok((node().ok_or("Node.js is missing")?, scratch(name)?))
}

/// Returns a Python with the packages of `interop/{name}/requirements.txt`.
pub fn python(name: &'static str) -> Result<PathBuf> {
    require(&[Need::PythonPackages(name)])?;
    Ok(scratch(name)?.join("bin/python"))
}

/// Returns the path of a script in `interop/{folder}`.
pub fn script(folder: &str, name: &str) -> PathBuf {
    root().join("interop").join(folder).join(name)
}

/// Builds the client and the server on rmcp, the official Rust SDK, and returns their folder.
pub fn rmcp() -> Result<PathBuf> {
    let home = scratch("rmcp")?;
    let manifest = "--manifest-path=interop/rmcp/Cargo.toml";
    let mut build = cargo(&["build", "--quiet", "--locked", "--bins", manifest]);
    run(build.env("CARGO_TARGET_DIR", &home))?;
    // The README of the codec shows a tool on rmcp as its example.
    let mut readme = cargo(&["test", "--quiet", "--locked", "--lib", manifest]);
    run(readme.env("CARGO_TARGET_DIR", &home))?;
    Ok(home.join("debug"))
}

/// Builds the client and the server on rmcp 0.12, and returns their folder.
pub fn rmcp_0() -> Result<PathBuf> {
    let home = scratch("rmcp-0")?;
    let mut build = cargo(&["build", "--quiet", "--locked", "--bins"]);
    build.arg("--manifest-path=interop/rmcp-0/Cargo.toml");
    run(build.env("CARGO_TARGET_DIR", &home))?;
    Ok(home.join("debug"))
}

/// Returns the path of a program from crates.io, which is built once.
pub fn installed(need: Need) -> Result<PathBuf> {
    require(&[need])?;
    match need {
        Need::Tool(name, version) => Ok(crate::needs::tool(name, version)),
        _ => Err(format!("{} is not from crates.io", need.name()).into()),
    }
}
