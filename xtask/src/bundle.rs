//! Checks the bundle and the `server.json` that `mrtr` makes of an example, with programs of other
//! projects: the official tool for bundles, and a linter with the schema of the registry.

use std::fs;
use std::path::Path;
use std::process::Command;

use crate::Result;
use crate::needs::{Need, require};
use crate::run::{build, output, run as step, scratch};
use crate::tools::{npm_programs, python};

const URL: &str = "https://github.com/mrtr-rs/mrtr/releases/download/v0.1.0/words.mcpb";

pub fn run(_: &[String]) -> Result {
    require(&[Need::NpmPackages("bundle"), Need::PythonPackages("registry")])?;
    let (node, packages) = npm_programs("bundle")?;
    let mcpb = packages.join("node_modules/.bin/mcpb");
    let bin = build()?;
    let home = scratch("bundle-made")?;
    fs::remove_dir_all(&home)?;
    fs::create_dir_all(&home)?;
    let (bundle, again, unpacked) =
        (home.join("words.mcpb"), home.join("again.mcpb"), home.join("unpacked"));
    let make = |file: &Path, program: &Path| {
        let mut command = Command::new(bin.join("mrtr"));
        command.arg("bundle").arg(file).args(["--author", "The authors of mrtr"]);
        command.args(["--description", "Counts words", "--user-config", "KEY=The key of the API"]);
        command.arg("--").arg(program).arg("-v");
        command
    };
    step(&mut make(&bundle, &bin.join("examples/stdio")))?;
    step(Command::new(&node).arg(&mcpb).arg("unpack").arg(&bundle).arg(&unpacked))?;
    step(Command::new(&node).arg(&mcpb).arg("validate").arg(unpacked.join("manifest.json")))?;
    // The unpacked server runs, and the same input gives the same bundle.
    step(&mut make(&again, &unpacked.join("server/stdio")))?;
    if fs::read(&bundle)? != fs::read(&again)? {
        return Err("the bundle of the unpacked server differs".into());
    }
    let mut describe = Command::new(bin.join("mrtr"));
    describe.args(["server-json", "io.github.mrtr-rs/words", "--bundle"]).arg(&bundle);
    describe.args(["--bundle-url", URL, "--repository", "https://github.com/mrtr-rs/mrtr"]);
    let registry = home.join("registry");
    fs::create_dir_all(&registry)?;
    let document = output(&mut describe)?;
    fs::write(registry.join("server.json"), &document)?;
    let lint = || {
        let mut lint = Command::new(python("registry")?.with_file_name("skillsaw"));
        lint.args(["lint", "--strict"]).arg(&registry);
        Result::Ok(lint)
    };
    step(&mut lint()?)?;
    // The linter finds a mistake.
    fs::write(registry.join("server.json"), document.replace("\"stdio\"", "\"pipe\""))?;
    match output(&mut lint()?) {
        Ok(_) => Err("the linter accepts an unknown transport".into()),
        Err(_) => Ok(()),
    }
}
