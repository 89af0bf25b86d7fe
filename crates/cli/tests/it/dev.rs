//! `mrtr dev`, with a script in place of cargo. The server is a gateway to a server of the test.

use std::fs;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::process::{Child, Command, Output, Stdio};
use std::time::Duration;

use mrtr::{Context, Error, Tool};
use mrtr_testkit::TempFolder;
use serde_json::json;

use crate::{Guest, serve_tool};

/// Prints what cargo prints. Fails if there is a file `broken` and it is not the first build.
const CARGO: &str = r#"#!/bin/sh
if test "$1" = metadata; then
    if test -f default; then echo '{"packages":[{"id":"path+file:///a#0.1.0","default_run":"server"}]}'; fi
    exit
fi
echo "$@" >> builds
if test -f broken && test "$(wc -l < builds)" -gt 1; then exit 101; fi
echo '{"reason":"build-script-executed"}'
package='"package_id":"path+file:///a#0.1.0"'
printf '{"executable":"%s/target/debug/server","manifest_path":"%s/Cargo.toml",%s}\n' "$PWD" "$PWD" "$package"
if test -f several; then
    printf '{"executable":"%s/target/debug/other","manifest_path":"%s/Cargo.toml",%s}\n' "$PWD" "$PWD" "$package"
fi
"#;

/// The folder of a project.
pub(crate) struct Project(pub(crate) TempFolder);

impl Project {
    /// Creates a project whose source changes while a call is open.
    pub(crate) fn new(name: &str) -> Self {
        let path = TempFolder::new(name);
        fs::create_dir_all(path.join("target/debug")).unwrap();
        let project = Self(path);
        let file = |name: &str| project.0.join(name);
        fs::write(file("cargo"), CARGO).unwrap();
        fs::set_permissions(file("cargo"), fs::Permissions::from_mode(0o755)).unwrap();
        symlink(env!("CARGO_BIN_EXE_mrtr"), file("target/debug/server")).unwrap();
        let source = file("the source.rs");
        fs::write(&source, "1").unwrap();
        fs::write(file("Cargo.toml"), "").unwrap();
        let escaped = source.to_str().unwrap().replace(' ', "\\ ");
        fs::write(file("target/debug/server.d"), format!("server: {escaped}\n")).unwrap();
        let url = serve_tool(move || {
            Tool::new("greet", "Greets", move |cx: Context| {
                let source = source.clone();
                async move {
                    cx.step("change", async |_| Ok(fs::write(&source, "2").is_ok())).await?;
                    let Guest { name } = cx.elicit("guest", "Who?").await?;
                    Ok::<_, Error>(format!("Hello, {name}."))
                }
            })
        });
        let servers = json!({ "mcpServers": { "shop": { "url": url } } });
        fs::write(file("servers.json"), servers.to_string()).unwrap();
        fs::write(file("answers.json"), r#"{ "guest": { "name": "Ada" } }"#).unwrap();
        project
    }

    fn start(&self) -> Child {
        Command::new(env!("CARGO_BIN_EXE_mrtr"))
            .args(["dev", "--example", "shop", "--answers", "answers.json"])
            .args(["--", "gateway", "servers.json"])
            .env("CARGO", self.0.join("cargo"))
            .current_dir(&*self.0)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap()
    }

    fn run(&self, lines: &str) -> Output {
        let mut dev = self.start();
        // A program that ends early reads nothing.
        let _ = dev.stdin.take().unwrap().write_all(lines.as_bytes());
        dev.wait_with_output().unwrap()
    }

    fn builds(&self) -> Vec<String> {
        let builds = fs::read_to_string(self.0.join("builds")).unwrap();
        builds.lines().map(str::to_owned).collect()
    }
}

/// A process that ends when this is dropped.
struct Dev(Child);

impl Drop for Dev {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[test]
fn open_call_continues_on_the_changed_server() {
    let project = Project::new("dev");
    let done = project.run("tools\nshop__greet\nshop__greet x\nshop__greet {\"a\"\nshop__none\n\n");
    let (out, err) = (text(&done.stdout), text(&done.stderr));
    // That of the first command that failed.
    assert_eq!(done.status.code(), Some(2), "{err}");
    assert_eq!(out, "shop__greet\n  Greets\nHello, Ada.\n", "{err}");
    let lines = [
        "mrtr-gateway ",
        "round 1 · input required after ",
        "  open          guest",
        "Source changed: rebuilding.",
        "round 2 · complete after ",
        "argument \"x\": expected NAME=VALUE",
        "arguments: EOF while parsing",
        "the server has no tool \"shop__none\"",
    ];
    let mut rest = &*err;
    for line in lines {
        let (_, after) = rest.split_once(line).unwrap_or_else(|| panic!("no {line:?} in {err}"));
        rest = after;
    }
    let build = "build --message-format=json-render-diagnostics --example shop";
    assert_eq!(project.builds(), [build, build]);
}

#[test]
fn previous_server_keeps_running_if_the_build_fails() {
    let project = Project::new("dev-broken");
    fs::write(project.0.join("broken"), "").unwrap();
    let done = project.run("shop__greet\ntools\nquit\n");
    let (out, err) = (text(&done.stdout), text(&done.stderr));
    assert_eq!(
        (done.status.code(), &*out),
        (Some(0), "Hello, Ada.\nshop__greet\n  Greets\n"),
        "{err}"
    );
    assert!(err.contains("the build failed; the previous server keeps running."), "{err}");
    // It is not built again before another change.
    assert_eq!(project.builds().len(), 2);
}

#[test]
fn program_must_be_built_and_the_only_one() {
    let project = Project::new("dev-none");
    fs::write(project.0.join("several"), "").unwrap();
    let several = project.run("");
    assert_eq!(several.status.code(), Some(2));
    let err = text(&several.stderr);
    assert!(
        err.contains("cargo built several binaries, such as server and other: select one with --package or --bin"),
        "{err}"
    );

    fs::write(project.0.join("default"), "").unwrap();
    let default = project.run("quit\n");
    assert_eq!(default.status.code(), Some(0), "{}", text(&default.stderr));

    fs::write(project.0.join("cargo"), "#!/bin/sh\nexit 101\n").unwrap();
    let failed = project.run("");
    assert_eq!(failed.status.code(), Some(1));
    assert!(text(&failed.stderr).contains("mrtr: the build failed"));

    fs::remove_file(project.0.join("cargo")).unwrap();
    let missing = project.run("");
    assert_eq!(missing.status.code(), Some(2));
    assert!(text(&missing.stderr).contains("mrtr: cargo: "));
}

/// Nothing is typed while the source changes, is deleted, and is there again.
#[test]
fn server_is_reloaded_at_the_prompt() {
    let project = Project::new("dev-prompt");
    fs::write(project.0.join("Cargo.lock"), "").unwrap();
    let Dev(dev) = &mut Dev(project.start());
    let stderr = BufReader::new(dev.stderr.take().unwrap());
    let (send, lines) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        stderr.lines().map_while(Result::ok).try_for_each(|line| send.send(line))
    });
    // The program waits for input: without a line, the test would never end.
    let wait_for = |text: &str| loop {
        let line = lines.recv_timeout(Duration::from_mins(1));
        if line.unwrap_or_else(|error| panic!("no {text:?}: {error}")).contains(text) {
            break;
        }
    };
    wait_for("mrtr-gateway ");
    let (source, manifest) = (project.0.join("the source.rs"), project.0.join("Cargo.toml"));
    fs::write(&source, "longer").unwrap();
    wait_for("Source changed: rebuilding.");
    wait_for("mrtr-gateway ");
    fs::write(&manifest, "changed").unwrap();
    wait_for("mrtr-gateway ");
    fs::write(project.0.join("broken"), "").unwrap();
    fs::remove_file(&source).unwrap();
    wait_for("the build failed; the previous server keeps running.");
    fs::remove_file(project.0.join("broken")).unwrap();
    // The folder has changed.
    fs::write(&source, "again").unwrap();
    wait_for("mrtr-gateway ");
    let mut stdin = dev.stdin.take().unwrap();
    stdin.write_all(b"\xff\nshop__greet\n").unwrap();
    drop(stdin);
    let mut out = String::new();
    dev.stdout.take().unwrap().read_to_string(&mut out).unwrap();
    assert_eq!(out, "Hello, Ada.\n");
}
