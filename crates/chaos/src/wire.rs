//! A minimal HTTP client for the load: fast, and able to send malformed requests.

use std::fmt::Write as _;
use std::io;
use std::time::Duration;

use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use crate::Result;

/// Longest time that a response may take.
const PATIENCE: Duration = Duration::from_mins(1);

/// The headers of a request.
#[derive(Debug, Clone)]
pub(crate) struct Head(pub(crate) Vec<(&'static str, String)>);

impl Head {
    pub(crate) fn new(caller: &str, method: &str, name: Option<&str>) -> Self {
        let mut all = vec![
            ("Host", "localhost".to_owned()),
            ("Authorization", format!("Bearer {caller}")),
            ("Content-Type", "application/json".to_owned()),
            ("Accept", "application/json, text/event-stream".to_owned()),
            ("MCP-Protocol-Version", "2026-07-28".to_owned()),
            ("Mcp-Method", method.to_owned()),
        ];
        all.extend(name.map(|name| ("Mcp-Name", name.to_owned())));
        Self(all)
    }

    /// Sets a header.
    pub(crate) fn with(mut self, name: &'static str, value: &str) -> Self {
        self.0.retain(|(other, _)| *other != name);
        self.0.push((name, value.to_owned()));
        self
    }

    pub(crate) fn text(&self, verb: &str) -> String {
        let mut text = format!("{verb} /mcp HTTP/1.1\r\n");
        for (name, value) in &self.0 {
            let _ = write!(text, "{name}: {value}\r\n");
        }
        text
    }
}

/// Returns the body of a request.
pub(crate) fn body(method: &str, params: Value) -> Vec<u8> {
    let mut params = params;
    params["_meta"] = json!({
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientCapabilities": { "elicitation": { "form": {} } },
    });
    json!({ "jsonrpc": "2.0", "id": 1, "method": method, "params": params }).to_string().into()
}

#[derive(Debug)]
pub(crate) struct Connection {
    pub(crate) stream: TcpStream,
    read: Vec<u8>,
}

impl Connection {
    pub(crate) async fn open(port: u16) -> Result<Self> {
        let stream = TcpStream::connect(("127.0.0.1", port)).await?;
        stream.set_nodelay(true)?;
        Ok(Self { stream, read: Vec::with_capacity(4096) })
    }

    /// Sends a request. Returns the status and the body of its response.
    pub(crate) async fn send(
        &mut self,
        verb: &str,
        head: &Head,
        body: &[u8],
    ) -> Result<(u16, Vec<u8>)> {
        let mut request = head.text(verb).into_bytes();
        request.extend_from_slice(format!("Content-Length: {}\r\n\r\n", body.len()).as_bytes());
        request.extend_from_slice(body);
        // All of it is written before anything is read.
        self.stream.write_all(&request).await?;
        self.response().await
    }

    pub(crate) async fn response(&mut self) -> Result<(u16, Vec<u8>)> {
        Ok(tokio::time::timeout(PATIENCE, self.read_response()).await??)
    }

    async fn read_response(&mut self) -> io::Result<(u16, Vec<u8>)> {
        self.read.clear();
        let end = loop {
            if let Some(at) = self.read.windows(4).position(|four| four == b"\r\n\r\n") {
                break at + 4;
            }
            self.more().await?;
        };
        let head = String::from_utf8_lossy(self.read.get(..end).unwrap_or_default()).to_lowercase();
        let length = head.lines().find_map(|line| line.strip_prefix("content-length: "));
        let length: usize = length.and_then(|length| length.trim().parse().ok()).unwrap_or(0);
        while self.read.len() < end + length {
            self.more().await?;
        }
        let status = head.split(' ').nth(1).and_then(|status| status.parse().ok());
        let status = status.ok_or(io::ErrorKind::InvalidData)?;
        Ok((status, self.read.get(end..).unwrap_or_default().to_vec()))
    }

    async fn more(&mut self) -> io::Result<()> {
        match self.stream.read_buf(&mut self.read).await? {
            0 => Err(io::ErrorKind::UnexpectedEof.into()),
            _ => Ok(()),
        }
    }

    /// Returns true if the server closes the connection in time, with or without a response.
    pub(crate) async fn is_closed(&mut self) -> bool {
        let closed = async { while self.more().await.is_ok() {} };
        tokio::time::timeout(PATIENCE, closed).await.is_ok()
    }
}
