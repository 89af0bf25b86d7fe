//! `mrtr install`.

use std::fs;
use std::process::{Command, Output, Stdio};

use mrtr_testkit::TempFolder;
use serde_json::{Value, json};

struct Folder(TempFolder);

impl Folder {
    fn new(name: &str) -> Self {
        Self(TempFolder::new(name))
    }

    /// Runs `mrtr install` in this folder, which is also the user's.
    fn install(&self, args: &[&str]) -> Output {
        let mut command = Command::new(env!("CARGO_BIN_EXE_mrtr"));
        command.arg("install").args(args).current_dir(&*self.0).env("HOME", &*self.0);
        command.env_remove("XDG_CONFIG_HOME").stdin(Stdio::null()).output().unwrap()
    }

    #[cfg(target_os = "linux")]
    fn read(&self, file: &str) -> Value {
        serde_json::from_str(&fs::read_to_string(self.0.join(file)).unwrap()).unwrap()
    }
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[test]
#[cfg(target_os = "linux")]
fn each_host_gets_its_own_file_and_entry() {
    let folder = Folder::new("hosts");
    let url = json!("https://shop.example/mcp");
    for (host, file, of_url, of_command) in [
        (
            "claude-code",
            ".mcp.json",
            json!({ "mcpServers": { "shop": { "type": "http", "url": url } } }),
            json!({ "mcpServers": { "shop": { "type": "stdio", "command": "shop", "args": ["-v"], "env": { "A": "b=c" } } } }),
        ),
        (
            "cursor",
            ".cursor/mcp.json",
            json!({ "mcpServers": { "shop": { "url": url } } }),
            json!({ "mcpServers": { "shop": { "command": "shop", "args": ["-v"], "env": { "A": "b=c" } } } }),
        ),
        (
            "gemini",
            ".gemini/settings.json",
            json!({ "mcpServers": { "shop": { "httpUrl": url } } }),
            json!({ "mcpServers": { "shop": { "command": "shop", "args": ["-v"], "env": { "A": "b=c" } } } }),
        ),
        (
            "vscode",
            ".vscode/mcp.json",
            json!({ "servers": { "shop": { "type": "http", "url": url } } }),
            json!({ "servers": { "shop": { "type": "stdio", "command": "shop", "args": ["-v"], "env": { "A": "b=c" } } } }),
        ),
        (
            "claude-desktop",
            ".config/Claude/claude_desktop_config.json",
            Value::Null,
            json!({ "mcpServers": { "shop": { "command": "shop", "args": ["-v"], "env": { "A": "b=c" } } } }),
        ),
    ] {
        let with_url =
            folder.install(&[host, "shop", "--yes", "--url", "https://shop.example/mcp"]);
        if of_url.is_null() {
            assert_eq!(with_url.status.code(), Some(2), "{}", text(&with_url.stderr));
            assert!(!folder.0.join(file).exists());
        } else {
            assert!(with_url.status.success(), "{}", text(&with_url.stderr));
            assert_eq!(folder.read(file), of_url, "{host}");
        }
        let done = folder.install(&[host, "shop", "--yes", "--env", "A=b=c", "--", "shop", "-v"]);
        assert!(done.status.success(), "{}", text(&done.stderr));
        assert_eq!(folder.read(file), of_command, "{host}");
    }
}

#[test]
fn change_is_shown_and_the_rest_stays() {
    let folder = Folder::new("shown");
    let file = folder.0.join("config.json");
    let before = "{\n    \"theme\":\"dark\",\n    \"mcpServers\": {}\n}\n";
    fs::write(&file, before).unwrap();
    let args = ["cursor", "s", "--file", "config.json", "--url", "http://127.0.0.1:3000/mcp"];
    let shown = "config.json, \"mcpServers\":\n\
                 + \"s\": {\n+   \"url\": \"http://127.0.0.1:3000/mcp\"\n+ }\n";
    let dry = folder.install(&[&args[..], &["--dry-run"]].concat());
    assert_eq!((dry.status.code(), text(&dry.stderr)), (Some(0), shown.to_owned()));
    assert_eq!(fs::read_to_string(&file).unwrap(), before);
    // Without a terminal, there is no one to ask.
    let asked = folder.install(&args);
    assert_eq!(asked.status.code(), Some(2));
    assert!(text(&asked.stderr).ends_with("use --yes to write without a terminal\n"));
    assert_eq!(fs::read_to_string(&file).unwrap(), before);
    let done = folder.install(&[&args[..], &["--yes"]].concat());
    assert_eq!(text(&done.stdout), "config.json was changed\n");
    let after = fs::read_to_string(&file).unwrap();
    assert!(after.starts_with("{\n    \"theme\":\"dark\",\n    \"mcpServers\": {\n        \"s\""));
    let again = folder.install(&[&args[..], &["--yes"]].concat());
    assert_eq!(text(&again.stdout), "config.json has this entry already\n");
    let json = folder.install(&[&args[..], &["--yes", "--json"]].concat());
    let printed: Value = serde_json::from_slice(&json.stdout).unwrap();
    let expected = json!({ "file": "config.json", "needed": false, "written": false });
    assert_eq!(printed, expected);
    // What was there before is shown, without secrets.
    let env = ["cursor", "s", "--file", "config.json", "--yes", "--env", "KEY=secret", "--", "s"];
    folder.install(&env);
    let replaced = folder.install(&[&args[..], &["--dry-run"]].concat());
    let shown = text(&replaced.stderr);
    assert!(shown.contains("-     \"KEY\": \"…\"\n") && !shown.contains("secret"), "{shown}");
    let old = r#"{ "mcpServers": { "s": {
        "httpUrl": "https://a.example/?key=secret", "args": ["--header", "Bearer secret"],
        "oauth": { "clientSecret": "secret" }, "timeout": 5
    } } }"#;
    fs::write(&file, old).unwrap();
    let shown = text(&folder.install(&[&args[..], &["--dry-run"]].concat()).stderr);
    assert!(shown.contains("-     \"clientSecret\": \"…\"\n"), "{shown}");
    assert!(shown.contains("-   \"timeout\": \"…\"") && !shown.contains("secret\""), "{shown}");
    fs::write(&file, "// A comment\n{}").unwrap();
    let shown = text(&folder.install(&env).stderr);
    assert!(shown.contains("Add this by hand") && !shown.contains("secret"), "{shown}");
    // Nothing else is left.
    assert_eq!(fs::read_dir(&*folder.0).unwrap().count(), 1);
}

#[test]
fn file_that_is_no_json_is_not_changed() {
    let folder = Folder::new("refused");
    let file = folder.0.join("config.json");
    let before = "{\n  // my servers\n  \"mcpServers\": {}\n}\n";
    fs::write(&file, before).unwrap();
    let args = ["cursor", "s", "--yes", "--file", "config.json", "--", "s"];
    let refused = folder.install(&args);
    assert_eq!(refused.status.code(), Some(2));
    let why = text(&refused.stderr);
    assert!(why.contains("line 2") && why.contains("by hand:\n{\n  \"mcpServers\""), "{why}");
    assert_eq!(fs::read_to_string(&file).unwrap(), before);
    let missing = folder.install(&["cursor", "s", "--yes", "--", "./target/none"]);
    assert_eq!(missing.status.code(), Some(2));
    for wrong in [&["a b", "--url", "http://h/mcp"][..], &["s", "--url", "h/mcp"]] {
        let refused = folder.install(&[&["cursor", "--yes"], wrong].concat());
        assert_eq!(refused.status.code(), Some(2), "{}", text(&refused.stderr));
    }
    assert!(!folder.0.join(".cursor").exists());
}

#[cfg(unix)]
#[test]
fn links_and_permissions_stay() {
    use std::os::unix::fs::{PermissionsExt as _, symlink};

    let folder = Folder::new("links");
    let file = folder.0.join("dotfiles.json");
    fs::write(&file, "{}").unwrap();
    fs::set_permissions(&file, fs::Permissions::from_mode(0o640)).unwrap();
    symlink(&file, folder.0.join("config.json")).unwrap();
    let done = folder.install(&["cursor", "s", "--yes", "--file", "config.json", "--", "s"]);
    assert!(done.status.success(), "{}", text(&done.stderr));
    assert!(folder.0.join("config.json").is_symlink());
    assert_eq!(folder.read("dotfiles.json")["mcpServers"]["s"]["command"], "s");
    assert_eq!(fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o640);
    let new = folder.install(&["cursor", "s", "--yes", "--file", "new.json", "--", "s"]);
    assert!(new.status.success(), "{}", text(&new.stderr));
    // It may have secrets.
    let mode = fs::metadata(folder.0.join("new.json")).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    symlink(folder.0.join("none"), folder.0.join("dangling.json")).unwrap();
    let refused = folder.install(&["cursor", "s", "--yes", "--file", "dangling.json", "--", "s"]);
    assert!(text(&refused.stderr).contains("a link to a file that does not exist"));
    assert!(folder.0.join("dangling.json").is_symlink());
    fs::set_permissions(&file, fs::Permissions::from_mode(0o440)).unwrap();
    let refused = folder.install(&["cursor", "t", "--yes", "--file", "config.json", "--", "t"]);
    assert!(text(&refused.stderr).contains("read-only"), "{}", text(&refused.stderr));
}
