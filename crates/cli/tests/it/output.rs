//! Standard output that cannot be written.

use std::process::Command;

use crate::{serve, text};

/// A result that could not be written is not a success.
#[cfg(target_os = "linux")]
#[test]
fn full_disk_is_a_failure() {
    let url = serve();
    for args in [&["keygen"][..], &["keygen", "--json"], &["tools", &url]] {
        let mut command = Command::new(env!("CARGO_BIN_EXE_mrtr"));
        let full = std::fs::File::options().write(true).open("/dev/full").unwrap();
        let done = command.args(args).stdout(full).output().unwrap();
        let why = text(&done.stderr);
        assert_eq!(done.status.code(), Some(1), "{args:?}: {why}");
        assert!(why.contains("mrtr: standard output: "), "{why}");
    }
}
