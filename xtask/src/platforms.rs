//! Checks the published crates for Windows and macOS, and runs tests in WebAssembly.

use std::ffi::OsString;
use std::process::Command;

use crate::Result;
use crate::cross_rust::{CrossRust, SYSTEMS, WASM};
use crate::needs::{Need, node, require};
use crate::run::{cargo, root, run as step, scratch};

/// With all features, they depend on all published crates.
const PUBLISHED: [&str; 2] = ["--package=mrtr", "--package=mrtr-cli"];

pub fn run(args: &[String]) -> Result {
    if let Some(unknown) = args.iter().find(|arg| SYSTEMS.iter().all(|(name, _)| name != arg)) {
        return Err(format!("no such system: {unknown}").into());
    }
    let selected: Vec<_> = SYSTEMS
        .iter()
        .filter(|(name, _)| args.is_empty() || args.iter().any(|arg| arg == name))
        .map(|(_, target)| *target)
        .collect();
    let (wasm, checked): (Vec<_>, Vec<_>) = selected.into_iter().partition(|of| *of == WASM);
    if !wasm.is_empty() {
        test_in_wasm(&compiler_for(&wasm)?)?;
    }
    if !checked.is_empty() {
        check(&compiler_for(&checked)?, &checked)?;
    }
    Ok(())
}

/// Returns a compiler for the targets, and installs one if necessary.
fn compiler_for(targets: &[&str]) -> Result<CrossRust> {
    if CrossRust::find(targets)?.is_none() {
        require(&[Need::CrossRust])?;
    }
    Ok(CrossRust::find(targets)?.ok_or("no compiler for the targets")?)
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

/// Checks that all Rust code compiles, without a warning. C code of dependencies is not compiled:
/// nothing is linked, so a program that does nothing takes the place of the C compiler. The targets
/// are compiled together, because building one standard library keeps only one core busy.
fn check(rust: &CrossRust, targets: &[&str]) -> Result {
    let mut check = cargo(&["check", "--quiet", "--all-features"]);
    rust.apply(&mut check);
    for target in targets {
        check.args(["--target", target]);
        for program in ["CC", "CXX", "AR", "RANLIB"] {
            check.env(format!("{program}_{}", target.replace('-', "_")), "true");
        }
    }
    if let CrossRust::Installed = rust {
        // Debian's compiler may be newer, and have other warnings.
        check.env("RUSTFLAGS", "-Dwarnings");
    }
    step(build_folder(&mut check)?.args(PUBLISHED))
}

/// Sets a separate target directory, so that another compiler does not overwrite the artifacts of
/// the current one.
fn build_folder(command: &mut Command) -> Result<&mut Command> {
    let folder: OsString = scratch("platforms-build")?.into();
    Ok(command.env("CARGO_TARGET_DIR", folder).env("CARGO_PROFILE_DEV_DEBUG", "none"))
}
