//! The cost of building a minimal program.

use std::collections::BTreeSet;
use std::fs;
use std::time::Instant;

use super::{Extent, Part, Sheet, Target};
use crate::Result;
use crate::run::{cargo, output, run, scratch};

/// The programs: ours, and rmcp's.
const PAIRS: [(&str, [&str; 2]); 2] = [
    ("server, HTTP and stdio", ["mrtr-server", "rmcp-server"]),
    ("client, HTTPS and stdio", ["mrtr-client", "rmcp-client"]),
];

/// Crates that only clients need.
const OF_CLIENTS: [&str; 3] = ["reqwest", "rustls", "hyper-rustls"];

struct Build {
    crates: BTreeSet<String>,
    seconds: f64,
    bytes: f64,
}

#[expect(clippy::cast_precision_loss, reason = "small numbers")]
pub fn measure(_: &Extent) -> Result<Part> {
    let mut sheet = Sheet::new(&[
        "program",
        "crates",
        "crates ratio",
        "clean release build, s",
        "build ratio",
        "stripped, MB",
        "size ratio",
    ]);
    let mut targets = Vec::new();
    let mut target = |what: &str, wanted, measured, unit| {
        let what = format!("a minimal server: {what}");
        targets.push(Target { what, wanted, measured, spread: None, at_least: false, unit });
    };
    for (title, names) in PAIRS {
        let [ours, theirs] = names.map(build);
        let (ours, theirs) = (ours?, theirs?);
        let count = |build: &Build| build.crates.len() as f64;
        let (crates, seconds, bytes) = (
            count(&ours) / count(&theirs),
            ours.seconds / theirs.seconds,
            ours.bytes / theirs.bytes,
        );
        for (name, build, ratios) in
            [("mrtr", &ours, Some((crates, seconds, bytes))), ("rmcp 3.11.0", &theirs, None)]
        {
            let (crates, seconds, bytes) = ratios.unwrap_or((1.0, 1.0, 1.0));
            sheet.push(vec![
                format!("{title}: {name}"),
                build.crates.len().to_string(),
                format!("{crates:.2}"),
                format!("{:.0}", build.seconds),
                format!("{seconds:.2}"),
                format!("{:.2}", build.bytes / 1e6),
                format!("{bytes:.2}"),
            ]);
        }
        if names.contains(&"mrtr-server") {
            target("crates", 90.0, count(&ours), "");
            target("build, to rmcp's", 0.5, seconds, "×");
            target("size, to rmcp's", 0.5, bytes, "×");
            let of_clients = OF_CLIENTS.iter().filter(|name| ours.crates.contains(**name)).count();
            target("crates that only clients need", 0.0, of_clients as f64, "");
        }
    }
    Ok(Part { sheet, targets })
}

/// Builds a program from scratch. Its dependencies are downloaded before.
#[expect(clippy::cast_precision_loss, reason = "a file's length")]
fn build(name: &str) -> Result<Build> {
    let manifest = format!("--manifest-path=benches/minimal/{name}/Cargo.toml");
    run(&mut cargo(&["fetch", "--quiet", "--locked", &manifest]))?;
    let tree = ["tree", "--locked", "--edges", "normal,build", "--prefix", "none", &manifest];
    let tree = output(&mut cargo(&tree))?;
    let crates = tree.lines().filter_map(|line| Some(line.split(' ').next()?.to_owned())).collect();
    let home = scratch("bench-builds")?.join(name);
    if home.exists() {
        fs::remove_dir_all(&home)?;
    }
    let started = Instant::now();
    let mut build = cargo(&["build", "--quiet", "--locked", "--release", &manifest]);
    run(build.env("CARGO_TARGET_DIR", &home))?;
    let seconds = started.elapsed().as_secs_f64();
    let bytes = fs::metadata(home.join("release").join(format!("minimal-{name}")))?.len() as f64;
    Ok(Build { crates, seconds, bytes })
}
