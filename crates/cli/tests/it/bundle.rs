//! `mrtr bundle` and `mrtr server-json`.

use std::fs;
use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use mrtr_testkit::TempFolder;
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};

/// A folder with an empty configuration, whose gateway is the server of the bundles.
struct Folder(TempFolder);

impl Folder {
    fn new(name: &str) -> Self {
        let path = TempFolder::new(name);
        fs::write(path.join("servers.json"), r#"{ "mcpServers": {} }"#).unwrap();
        Self(path)
    }

    fn mrtr(&self, args: &[&str]) -> Output {
        let mut command = Command::new(env!("CARGO_BIN_EXE_mrtr"));
        command.args(args).current_dir(&*self.0).stdin(Stdio::null()).output().unwrap()
    }

    /// Makes `gateway.mcpb` with these options.
    fn bundle(&self, options: &[&str]) -> Output {
        let server = ["--", env!("CARGO_BIN_EXE_mrtr"), "gateway", "servers.json"];
        self.mrtr(&[&["bundle", "gateway.mcpb", "--author", "Ada"], options, &server].concat())
    }

    fn file(&self) -> PathBuf {
        self.0.join("gateway.mcpb")
    }
}

fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

fn unpack(file: &Path, name: &str) -> (Vec<u8>, Option<u32>) {
    let mut archive = zip::ZipArchive::new(fs::File::open(file).unwrap()).unwrap();
    let mut entry = archive.by_name(name).unwrap();
    let mut bytes = Vec::new();
    entry.read_to_end(&mut bytes).unwrap();
    (bytes, entry.unix_mode())
}

#[test]
fn bundle_has_the_program_and_what_it_says_about_itself() {
    let folder = Folder::new("bundle");
    let packed = folder.bundle(&["--description", "A gateway", "--user-config", "API_KEY=The key"]);
    assert!(packed.status.success(), "{}", stderr(&packed));
    let (manifest, _) = unpack(&folder.file(), "manifest.json");
    let manifest: Value = serde_json::from_slice(&manifest).unwrap();
    let program = Path::new(env!("CARGO_BIN_EXE_mrtr"));
    let entry = format!("server/{}", program.file_name().unwrap().to_str().unwrap());
    assert_eq!(
        manifest["server"],
        json!({
            "type": "binary",
            "entry_point": entry,
            "mcp_config": {
                "command": format!("${{__dirname}}/{entry}"),
                "args": ["gateway", "servers.json"],
                "env": { "API_KEY": "${user_config.api_key}" },
            },
        })
    );
    let asked = json!({ "type": "string", "title": "API_KEY", "description": "The key",
        "required": true, "sensitive": true });
    assert_eq!(manifest["user_config"], json!({ "api_key": asked }));
    for (key, expected) in [
        ("manifest_version", json!("0.3")),
        ("name", json!("mrtr-gateway")),
        ("version", json!(env!("CARGO_PKG_VERSION"))),
        ("description", json!("A gateway")),
        ("author", json!({ "name": "Ada" })),
        ("tools", json!([])),
        ("tools_generated", json!(true)),
        ("prompts_generated", json!(true)),
    ] {
        assert_eq!(manifest[key], expected, "{key}");
    }
    let (binary, mode) = unpack(&folder.file(), &entry);
    assert!(binary == fs::read(program).unwrap());
    if cfg!(unix) {
        assert_eq!(mode.unwrap() & 0o777, 0o755);
    }

    let url = "https://github.com/mrtr-rs/mrtr/releases/download/v1/gateway.mcpb";
    let described = folder.mrtr(&[
        "server-json",
        "io.github.mrtr-rs/gateway",
        "--bundle",
        "gateway.mcpb",
        "--bundle-url",
        url,
        "--repository",
        "https://github.com/mrtr-rs/mrtr",
    ]);
    assert!(described.status.success(), "{}", stderr(&described));
    let document: Value = serde_json::from_slice(&described.stdout).unwrap();
    let digest = Sha256::digest(fs::read(folder.file()).unwrap());
    let sha256 = digest.iter().map(|byte| format!("{byte:02x}")).collect::<Vec<_>>().concat();
    assert!(String::from_utf8_lossy(&packed.stdout).contains(&sha256));
    assert_eq!(
        document["packages"],
        json!([{ "registryType": "mcpb", "identifier": url, "fileSha256": sha256,
            "transport": { "type": "stdio" } }])
    );
    assert_eq!(document["version"], env!("CARGO_PKG_VERSION"));
    assert_eq!(document["description"], "A gateway");
    assert_eq!(document["repository"]["source"], "github");
}

/// The program that is asked is the one that is packed.
#[test]
#[cfg(unix)]
fn program_is_a_file_and_not_a_name_in_the_path() {
    let folder = Folder::new("bundle-path");
    // A program named `sh` is in the path, too.
    std::os::unix::fs::symlink(env!("CARGO_BIN_EXE_mrtr"), folder.0.join("sh")).unwrap();
    let bundle = ["bundle", "x.mcpb", "--author", "Ada", "--description", "x", "--"];
    let made = folder.mrtr(&[&bundle[..], &["sh", "gateway", "servers.json"]].concat());
    assert!(made.status.success(), "{}", stderr(&made));
    let (binary, _) = unpack(&folder.0.join("x.mcpb"), "server/sh");
    assert!(binary == fs::read(env!("CARGO_BIN_EXE_mrtr")).unwrap());
}

#[test]
fn failures_leave_files_as_they_were() {
    const BEFORE: &str = "PK\x03\x04";
    let folder = Folder::new("bundle-failures");
    fs::write(folder.file(), BEFORE).unwrap();
    fs::write(folder.0.join("notes.mcpb"), "no bundle").unwrap();
    let fails = |output: Output, code: i32, why: &str| {
        assert_eq!(output.status.code(), Some(code), "{}", stderr(&output));
        assert!(stderr(&output).contains(why), "{}", stderr(&output));
        assert_eq!(fs::read_to_string(folder.file()).unwrap(), BEFORE);
        assert_eq!(fs::read_to_string(folder.0.join("notes.mcpb")).unwrap(), "no bundle");
        assert_eq!(fs::read_dir(&*folder.0).unwrap().count(), 3, "no temporary file is left");
    };
    fails(folder.bundle(&[]), 2, "use --description");
    let twice = ["--description", "x", "--user-config", "A=x", "--user-config", "a=y"];
    fails(folder.bundle(&twice), 2, "differ in case alone");
    fails(folder.bundle(&["--description", "x", "--user-config", "A"]), 2, "NAME=DESCRIPTION");
    let bundle = |file: &'static str, program: &'static str| {
        folder.mrtr(&["bundle", file, "--author", "Ada", "--", program])
    };
    fails(bundle("gateway.mcpb", "./missing"), 2, "./missing");
    // It is no program.
    fails(bundle("gateway.mcpb", "servers.json"), 4, "servers.json cannot be started");
    // A forgotten file: the program would be replaced.
    fails(bundle("servers.json", "servers.json"), 2, "ends with .mcpb");
    fails(bundle("notes.mcpb", "servers.json"), 2, "is no bundle");
    fails(bundle("no/folder.mcpb", "servers.json"), 2, "no/folder.mcpb");
    let of_bundle = ["server-json", "ab/cd", "--bundle", "gateway.mcpb", "--bundle-url"];
    fails(folder.mrtr(&[&of_bundle[..], &["https://x.example"]].concat()), 2, "gateway.mcpb");
    fails(folder.mrtr(&["server-json", "ab/cd"]), 2, "nothing to publish");
    fails(folder.mrtr(&["server-json", "cd", "--url", "https://x.example"]), 2, "is not a name");
    fails(
        folder.mrtr(&["server-json", "ab/cd", "--url", "ftp://x.example"]),
        2,
        "begin with https",
    );
}
