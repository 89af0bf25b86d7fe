//! A server on standard streams ends when it is told to, be its standard input closed or not.

#![cfg(unix)]

use std::process::Stdio;
use std::time::Duration;

use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::process::Command;

/// Far more than it takes: what is tested is that it ends at all.
const PATIENCE: Duration = Duration::from_mins(1);

const DISCOVER: &str = r#"{"jsonrpc":"2.0","id":1,"method":"server/discover","params":{"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{}}}}"#;

#[tokio::test]
async fn a_server_that_is_told_to_end_ends_while_its_input_is_open() {
    for told in [true, false] {
        let mut server = Command::new(env!("CARGO_BIN_EXE_interop-server"));
        server.arg("--stdio").stdin(Stdio::piped()).stdout(Stdio::piped()).kill_on_drop(true);
        let mut server = server.spawn().unwrap();
        let mut input = server.stdin.take().unwrap();
        let mut lines = BufReader::new(server.stdout.take().unwrap()).lines();
        input.write_all(format!("{DISCOVER}\n").as_bytes()).await.unwrap();
        assert!(lines.next_line().await.unwrap().unwrap().contains("2026-07-28"));
        let kept = if told {
            let id = server.id().unwrap().to_string();
            assert!(Command::new("kill").args(["-TERM", &id]).status().await.unwrap().success());
            Some(input)
        } else {
            drop(input);
            None
        };
        let status = tokio::time::timeout(PATIENCE, server.wait()).await.unwrap().unwrap();
        assert!(status.success(), "{status}");
        drop(kept);
    }
}
