//! Checks the published crates for Windows and macOS, and runs tests in WebAssembly.

use std::env::join_paths;
use std::ffi::OsString;
use std::process::Command;

use crate::Result;
use crate::cross_rust::CrossRust;
use crate::needs::{Need, node, require};
use crate::run::{cargo, root, run as step, scratch};
use crate::tools::python;

const WASM: &str = "wasm32-unknown-unknown";

/// The systems, and the target of each.
const SYSTEMS: [(&str, &str); 3] =
    [("wasm", WASM), ("windows", "x86_64-pc-windows-gnu"), ("macos", "aarch64-apple-darwin")];

/// With all features, they depend on all published crates.
const PUBLISHED: [&str; 2] = ["--package=mrtr", "--package=mrtr-cli"];

pub fn run(args: &[String]) -> Result {
    if let Some(unknown) = args.iter().find(|arg| SYSTEMS.iter().all(|(name, _)| name != arg)) {
        return Err(format!("no such system: {unknown}").into());
    }
    for (name, target) in SYSTEMS {
        if args.is_empty() || args.iter().any(|arg| arg == name) {
            if CrossRust::find(target)?.is_none() {
                require(&[Need::CrossRust])?;
            }
            let rust = CrossRust::find(target)?.ok_or("no compiler for the target")?;
            if target == WASM { test_in_wasm(&rust)? } else { check(&rust, target)? }
        }
    }
    Ok(())
}

/// Runs the tests of what has no I/O: wire types, tokens, and the client's state machine.
fn test_in_wasm(rust: &CrossRust) -> Result {
    require(&[Need::Node])?;
    let node = node().ok_or("Node.js is missing")?;
    let script = root().join("interop/platforms/run-wasm.mjs");
    let runner = [node.as_os_str(), "--stack-trace-limit=100".as_ref(), script.as_os_str()]
        .map(|arg| format!("{:?}", arg.to_string_lossy()))
        .join(", ");
    // The runner provides the random numbers.
    let flags = r#""--cfg=getrandom_backend=\"custom\"", "-Clink-arg=--allow-undefined""#;
    let mut config = vec![format!("runner = [{runner}]"), format!("rustflags = [{flags}]")];
    if let Some(linker) = rust.wasm_linker()? {
        config.push(format!("linker = {:?}", linker.to_string_lossy()));
    }
    let test = |packages: &[&str]| {
        let mut command = cargo(&["test", "--quiet", "--target", WASM]);
        rust.apply(&mut command);
        for line in &config {
            command.arg("--config").arg(format!("target.{WASM}.{line}"));
        }
        step(build_folder(&mut command)?.args(packages))
    };
    test(&["--package=mrtr-schema", "--package=mrtr-codec", "--lib", "--test=it"])?;
    // Its other tests need a runtime.
    test(&["--package=mrtr-client", "--lib"])
}

/// Checks that everything compiles, without a warning. Zig compiles the C code of dependencies.
fn check(rust: &CrossRust, target: &str) -> Result {
    require(&[Need::PythonPackages("platforms")])?;
    let programs = python("platforms")?.parent().ok_or("no folder of programs")?.to_owned();
    let mut check = Command::new(programs.join("cargo-zigbuild"));
    check.args(["check", "--quiet", "--target", target, "--all-features"]).args(PUBLISHED);
    rust.apply(&mut check);
    let path = std::env::var_os("PATH").unwrap_or_default();
    let path = join_paths([programs].into_iter().chain(std::env::split_paths(&path)))?;
    let caches = scratch("zig")?;
    check.env("PATH", path).env("RUSTFLAGS", "-Dwarnings").current_dir(root());
    check.env("ZIG_GLOBAL_CACHE_DIR", &caches).env("CARGO_ZIGBUILD_CACHE_DIR", &caches);
    step(build_folder(&mut check)?)
}

/// Sets a separate target directory, so that another compiler does not overwrite the artifacts of
/// the current one.
fn build_folder(command: &mut Command) -> Result<&mut Command> {
    let folder: OsString = scratch("platforms-build")?.into();
    Ok(command.env("CARGO_TARGET_DIR", folder).env("CARGO_PROFILE_DEV_DEBUG", "none"))
}
