//! `mrtr new`.

use std::fs;
use std::process::Command;

/// The program of a new project. Its test runs here, too.
#[expect(
    dead_code,
    clippy::print_stderr,
    clippy::unused_async,
    reason = "a program, compiled as a module"
)]
#[path = "../../template/main.rs"]
mod template;

#[test]
fn new_project_has_the_program_and_a_manifest() {
    let folder = std::env::temp_dir().join(format!("mrtr-new-{}", std::process::id()));
    fs::create_dir_all(&folder).unwrap();
    let new = |name: &str| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_mrtr"));
        command.args(["new", name]).current_dir(&folder).output().unwrap()
    };
    let done = new("my-server");
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    let read = |file: &str| fs::read_to_string(folder.join("my-server").join(file)).unwrap();
    assert_eq!(read("src/main.rs"), include_str!("../../template/main.rs"));
    assert_eq!(read(".gitignore"), "/target\n");
    let manifest = read("Cargo.toml");
    let version = env!("CARGO_PKG_VERSION");
    assert!(manifest.starts_with("[package]\nname = \"my-server\"\n"), "{manifest}");
    assert!(manifest.contains(&format!("mrtr = \"{version}\"")), "{manifest}");
    // Nothing is overwritten.
    fs::write(folder.join("my-server/src/main.rs"), "mine").unwrap();
    fs::remove_file(folder.join("my-server/Cargo.toml")).unwrap();
    assert_eq!(new("my-server").status.code(), Some(2));
    assert_eq!(read("src/main.rs"), "mine");
    assert!(!folder.join("my-server/Cargo.toml").exists());
    let mut with_json = Command::new(env!("CARGO_BIN_EXE_mrtr"));
    let with_json = with_json.args(["new", "other", "--json"]).current_dir(&folder).output();
    let printed: serde_json::Value = serde_json::from_slice(&with_json.unwrap().stdout).unwrap();
    let files = ["Cargo.toml", "src/main.rs", ".gitignore"];
    assert_eq!(printed, serde_json::json!({ "path": "other", "files": files }));
    for name in ["1st", "a b", "..", "ü", "build"] {
        assert_eq!(new(name).status.code(), Some(2), "{name}");
    }
    fs::write(folder.join("Cargo.toml"), "[workspace]\n").unwrap();
    let done = new("member");
    assert!(done.status.success(), "{done:?}");
    assert!(String::from_utf8_lossy(&done.stderr).contains("Cargo.toml is a workspace"));
    fs::remove_dir_all(&folder).unwrap();
}
