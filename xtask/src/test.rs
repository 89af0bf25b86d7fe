//! All that must hold.

use crate::Result;
use crate::run::{cargo, run as step, scratch};
use crate::{chaos, conformance, instructions, interop, rivals, simulate, tidy, vectors};

pub fn run(args: &[String]) -> Result {
    if let Some(other) = args.first() {
        return Err(format!("`test` takes no arguments, not {other:?}").into());
    }
    step(&mut cargo(&["fmt", "--all", "--check"]))?;
    let clippy = [
        "clippy",
        "--workspace",
        "--all-targets",
        "--all-features",
        "--quiet",
        "--",
        "-D",
        "warnings",
    ];
    step(&mut cargo(&clippy))?;
    tidy::run(&[])?;
    tidy::licenses::check()?;
    step(&mut cargo(&["test", "--workspace", "--all-features"]))?;
    // Without `aws-lc` another library does the sealing.
    step(&mut cargo(&["test", "--package", "mrtr-codec"]))?;
    let aside = scratch("benches")?;
    let benches =
        ["check", "--quiet", "--locked", "--benches", "--manifest-path=benches/Cargo.toml"];
    step(cargo(&benches).env("CARGO_TARGET_DIR", &aside).env("RUSTFLAGS", "-D warnings"))?;
    for peer in ["load", "floors", "mrtr", "minimal/mrtr-server", "minimal/mrtr-client"] {
        let manifest = format!("--manifest-path=benches/{peer}/Cargo.toml");
        let check = ["check", "--quiet", "--locked", &manifest];
        step(cargo(&check).env("CARGO_TARGET_DIR", &aside).env("RUSTFLAGS", "-D warnings"))?;
    }
    // What people take one by one must build one by one.
    for alone in [
        &["--package", "mrtr-schema"][..],
        &["--package", "mrtr-codec", "--no-default-features"],
        &["--package", "mrtr-transport"],
        &["--package", "mrtr", "--no-default-features", "--features", "server"],
        &["--package", "mrtr", "--no-default-features", "--features", "client"],
        &["--package", "mrtr", "--no-default-features", "--features", "aws-lc"],
    ] {
        step(cargo(&["check", "--quiet"]).args(alone).env("RUSTFLAGS", "-D warnings"))?;
    }
    step(
        cargo(&["doc", "--workspace", "--no-deps", "--all-features", "--quiet"])
            .env("RUSTDOCFLAGS", "-D warnings"),
    )?;
    step(&mut cargo(&["run", "--quiet", "--example", "quickstart", "--", "--auto"]))?;
    for example in ["upgrades", "authentication"] {
        step(&mut cargo(&["run", "--quiet", "--example", example]))?;
    }
    for example in ["worker", "otlp"] {
        let manifest = format!("--manifest-path=examples/{example}/Cargo.toml");
        let run = ["run", "--quiet", "--locked", &manifest];
        step(cargo(&run).env("CARGO_TARGET_DIR", scratch(example)?))?;
    }
    instructions::run(&[])?;
    simulate::run(&[])?;
    for short in [
        "--minutes 0.5 --balancer nginx",
        "--minutes 0.5 --balancer haproxy",
        // That it finds something when there is something to find.
        "--minutes 0.4 --break retire",
        "--minutes 0.4 --break drain",
    ] {
        chaos::run(&short.split(' ').map(str::to_owned).collect::<Vec<_>>())?;
    }
    chaos::load(&["--minutes", "0.75"].map(str::to_owned))?;
    conformance::run(&[])?;
    vectors::run(&[])?;
    interop::run(&[])?;
    rivals::run(&[])?;
    println!("\nall of it holds");
    Ok(())
}
