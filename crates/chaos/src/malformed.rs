//! Malformed requests, and the expected responses.

use std::time::Duration;

use serde_json::{Value, json};
use tokio::io::AsyncWriteExt as _;

use crate::Result;
use crate::wire::{Connection, Head, body};

/// A mistake, with the status and the error code of the expected response. Without a code, the
/// response has a result that describes the error.
pub(crate) struct Mistake {
    pub(crate) name: &'static str,
    verb: &'static str,
    head: Head,
    body: Vec<u8>,
    status: u16,
    code: Option<i64>,
}

/// Number of kinds of mistakes.
pub(crate) const MISTAKES: u64 = 13;

/// Returns one of [`MISTAKES`]. `foreign` is a call of another caller, with its state.
pub(crate) fn mistake(which: u64, caller: &str, foreign: &Value) -> Mistake {
    let head = Head::new(caller, "tools/call", Some("echo"));
    let good = body("tools/call", json!({ "name": "echo", "arguments": { "text": "x" } }));
    // A code of 0 means that the response has no error.
    let wrong = |name, head, body: Vec<u8>, status, code| Mistake {
        name,
        verb: "POST",
        head,
        body,
        status,
        code: (code != 0).then_some(code),
    };
    match which {
        0 => wrong("half of a message", head, good[20..].to_vec(), 400, -32700),
        1 => wrong(
            "JSON nested 10,000 deep",
            head,
            format!("{}{}", "[".repeat(10_000), "]".repeat(10_000)).into(),
            400,
            -32700,
        ),
        2 => wrong("not a request", head, b"{}".to_vec(), 400, -32600),
        3 => wrong(
            "an unknown method",
            Head::new(caller, "no/such", None),
            body("no/such", json!({})),
            404,
            -32601,
        ),
        4 => wrong(
            "an unknown tool",
            head.with("Mcp-Name", "none"),
            body("tools/call", json!({ "name": "none" })),
            400,
            -32602,
        ),
        5 => wrong(
            "arguments of another type",
            head,
            body("tools/call", json!({ "name": "echo", "arguments": { "text": 5 } })),
            200,
            0,
        ),
        6 => wrong(
            "a header that contradicts the body",
            head.with("Mcp-Name", "order"),
            good,
            400,
            -32020,
        ),
        7 => wrong("another host", head.with("Host", "evil.example"), good, 403, -32600),
        8 => wrong("another origin", head.with("Origin", "http://evil.example"), good, 403, -32600),
        9 => wrong(
            "a compressed body",
            head.with("Content-Encoding", "gzip"),
            vec![0x1f; 512],
            415,
            -32600,
        ),
        10 => {
            wrong("10 MB, written before anything is read", head, vec![b' '; 10 << 20], 413, -32600)
        }
        11 => wrong(
            "the state of another caller",
            Head::new("thief", "tools/call", Some("order")),
            body("tools/call", foreign.clone()),
            400,
            -32602,
        ),
        _ => Mistake { verb: "GET", ..wrong("a GET", head, Vec::new(), 405, -32600) },
    }
}

impl Mistake {
    /// Makes the mistake on a new connection. The error describes an unexpected response.
    pub(crate) async fn make(&self, port: u16) -> Result {
        let mut connection = Connection::open(port).await?;
        let (status, body) = connection.send(self.verb, &self.head, &self.body).await?;
        let answer: Value = serde_json::from_slice(&body)?;
        let (code, is_error) = (answer["error"]["code"].as_i64(), &answer["result"]["isError"]);
        if (status, code) == (self.status, self.code) && (code.is_some() || *is_error == true) {
            return Ok(());
        }
        Err(format!(
            "status {status} and code {code:?}, expected {} and {:?}",
            self.status, self.code
        )
        .into())
    }
}

/// Slow connections. The server closes or answers each.
pub(crate) const SLOW: [&str; 4] =
    ["a head that never ends", "a head of 1 MiB", "chunks that never end", "half of a request"];

pub(crate) async fn slow(which: usize, port: u16) -> Result {
    let mut connection = Connection::open(port).await?;
    let head = Head::new("slow", "tools/call", Some("echo")).text("POST");
    match which {
        0 => {
            let drip = async {
                while connection.stream.write_all(b"X").await.is_ok() {
                    tokio::time::sleep(Duration::from_millis(200)).await;
                }
            };
            let within = Duration::from_mins(1);
            Ok(tokio::time::timeout(within, drip)
                .await
                .map_err(|_| "the server did not close the connection")?)
        }
        1 => {
            let long = format!("{head}X-Long: {}\r\n\r\n", "x".repeat(1 << 20));
            // The server may close the connection before everything is written.
            let _ = connection.stream.write_all(long.as_bytes()).await;
            match connection.response().await {
                Ok((431, _)) => Ok(()),
                Ok((status, _)) => Err(format!("status {status}, expected 431").into()),
                // The response is lost if the server closes the connection while much is unread.
                Err(_) if connection.is_closed().await => Ok(()),
                Err(_) => Err("the server neither answered nor closed the connection".into()),
            }
        }
        2 => {
            let chunked = format!("{head}Transfer-Encoding: chunked\r\n\r\n1\r\n{{\r\n");
            connection.stream.write_all(chunked.as_bytes()).await?;
            match connection.response().await? {
                (408, _) => Ok(()),
                (status, _) => Err(format!("status {status}, expected 408").into()),
            }
        }
        _ => {
            connection.stream.write_all(head.as_bytes()).await?;
            if connection.is_closed().await {
                Ok(())
            } else {
                Err("the server did not close the connection".into())
            }
        }
    }
}
