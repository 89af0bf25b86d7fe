//! A server on standard streams exits on SIGTERM, and at the end of its standard input.

#![cfg(unix)]

use std::process::Stdio;
use std::time::Duration;

use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::process::Command;

/// Much longer than an exit takes: a server that does not exit fails the test.
const PATIENCE: Duration = Duration::from_mins(1);

const DISCOVER: &str = r#"{"jsonrpc":"2.0","id":1,"method":"server/discover","params":{"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{}}}}"#;

#[tokio::test]
async fn server_exits_on_sigterm_and_at_the_end_of_its_input() {
    for with_signal in [true, false] {
        let mut server = Command::new(env!("CARGO_BIN_EXE_interop-server"));
        server.arg("--stdio").stdin(Stdio::piped()).stdout(Stdio::piped()).kill_on_drop(true);
        let mut server = server.spawn().unwrap();
        let mut input = server.stdin.take().unwrap();
        let mut lines = BufReader::new(server.stdout.take().unwrap()).lines();
        input.write_all(format!("{DISCOVER}\n").as_bytes()).await.unwrap();
        assert!(lines.next_line().await.unwrap().unwrap().contains("2026-07-28"));
        let open_input = if with_signal {
            let id = server.id().unwrap().to_string();
            assert!(Command::new("kill").args(["-TERM", &id]).status().await.unwrap().success());
            Some(input)
        } else {
            drop(input);
            None
        };
        let status = tokio::time::timeout(PATIENCE, server.wait()).await.unwrap().unwrap();
        assert!(status.success(), "{status}");
        drop(open_input);
    }
}
