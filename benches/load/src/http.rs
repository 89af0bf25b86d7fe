//! A persistent HTTP/1.1 connection with the features that the benchmark needs.

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use crate::Result;
use crate::workload::{self, Answered, Next, Workload};

pub struct Connection {
    stream: TcpStream,
    port: u16,
    out: Vec<u8>,
    body: Vec<u8>,
    read: Vec<u8>,
}

impl Connection {
    pub async fn open(port: u16) -> Result<Self> {
        let stream = TcpStream::connect(("127.0.0.1", port)).await?;
        stream.set_nodelay(true)?;
        Ok(Self { stream, port, out: Vec::new(), body: Vec::new(), read: Vec::new() })
    }

    /// Opens a subscription, and returns once its stream has begun.
    pub async fn listen(port: u16) -> Result<Self> {
        let mut connection = Self::open(port).await?;
        connection.body.extend_from_slice(workload::listen().as_bytes());
        connection.send("subscriptions/listen", "").await?;
        let (_, head) = connection.head().await?;
        if !head.events {
            return Err("the response to a subscription is not a stream".into());
        }
        Ok(connection)
    }

    /// Makes a call of all its rounds. Every request has a new id.
    pub async fn call(&mut self, workload: &Workload, id: &mut u64) -> Result {
        let mut again = None;
        loop {
            *id += 1;
            match self.request(workload, *id, again.as_ref()).await? {
                Next::Done => return Ok(()),
                Next::Again(answered) => again = Some(answered),
            }
        }
    }

    /// Sends a request and checks the response.
    async fn request(
        &mut self,
        workload: &Workload,
        id: u64,
        answered: Option<&Answered>,
    ) -> Result<Next> {
        self.body.clear();
        workload.write(&mut self.body, id, answered);
        self.send(workload.method(), workload.tool()).await?;
        let (start, head) = self.head().await?;
        let round = answered.map_or(0, |answered| answered.round);
        let chunked;
        let body = match head.length {
            Some(length) => {
                self.fill(start + length).await?;
                &self.read[start..start + length]
            }
            None => {
                chunked = self.chunks(start).await?;
                &chunked[..]
            }
        };
        if !head.events {
            return workload.check(body, &[], id, round);
        }
        let data = |line: &str| {
            line.strip_prefix("data:").map(|data| data.trim_start().to_owned().into_bytes())
        };
        let mut messages: Vec<_> = std::str::from_utf8(body)?
            .lines()
            .filter_map(data)
            .filter(|data| !data.is_empty())
            .collect();
        let last = messages.pop().ok_or("a stream without events")?;
        workload.check(&last, &messages, id, round)
    }

    async fn send(&mut self, method: &str, name: &str) -> Result {
        use std::io::Write as _;
        self.out.clear();
        write!(
            self.out,
            "POST /mcp HTTP/1.1\r\nhost: 127.0.0.1:{}\r\ncontent-type: application/json\r\n\
             accept: application/json, text/event-stream\r\nmcp-protocol-version: 2026-07-28\r\nmcp-method: {method}\r\n",
            self.port
        )?;
        if !name.is_empty() {
            write!(self.out, "mcp-name: {name}\r\n")?;
        }
        write!(self.out, "content-length: {}\r\n\r\n", self.body.len())?;
        self.out.extend_from_slice(&self.body);
        self.stream.write_all(&self.out).await?;
        self.read.clear();
        Ok(())
    }

    /// Reads until the buffer has `length` bytes.
    async fn fill(&mut self, length: usize) -> Result {
        while self.read.len() < length {
            self.more().await?;
        }
        Ok(())
    }

    async fn more(&mut self) -> Result {
        self.read.reserve(16 << 10);
        if self.stream.read_buf(&mut self.read).await? == 0 {
            return Err("the server closed the connection".into());
        }
        Ok(())
    }

    /// Reads the head. Returns the position of the body, and the parsed head.
    async fn head(&mut self) -> Result<(usize, Head)> {
        loop {
            if let Some(end) = find(&self.read, b"\r\n\r\n") {
                let head = Head::parse(std::str::from_utf8(&self.read[..end])?)?;
                return Ok((end + 4, head));
            }
            self.more().await?;
        }
    }

    /// Reads a chunked body.
    async fn chunks(&mut self, start: usize) -> Result<Vec<u8>> {
        let (mut at, mut body) = (start, Vec::new());
        while self.chunk(&mut at, &mut body).await? {}
        Ok(body)
    }

    /// Appends the chunk at `at` to `body`. Returns true if more chunks follow.
    async fn chunk(&mut self, at: &mut usize, body: &mut Vec<u8>) -> Result<bool> {
        let line = loop {
            if let Some(end) = find(&self.read[*at..], b"\r\n") {
                break *at + end;
            }
            self.more().await?;
        };
        let length = std::str::from_utf8(&self.read[*at..line])?;
        let length = usize::from_str_radix(length.split(';').next().unwrap_or_default(), 16)?;
        let start = line + 2;
        self.fill(start + length + 2).await?;
        body.extend_from_slice(&self.read[start..start + length]);
        *at = start + length + 2;
        Ok(length > 0)
    }
}

fn find(text: &[u8], what: &[u8]) -> Option<usize> {
    text.windows(what.len()).position(|window| window == what)
}

struct Head {
    /// `None` for a chunked body.
    length: Option<usize>,
    events: bool,
}

impl Head {
    fn parse(head: &str) -> Result<Self> {
        let mut lines = head.split("\r\n");
        let status = lines.next().unwrap_or_default();
        if !status.starts_with("HTTP/1.1 200 ") {
            return Err(format!("the server answered {status:?}").into());
        }
        let mut parsed = Self { length: None, events: false };
        for line in lines {
            let (name, value) = line.split_once(':').ok_or("a header without a colon")?;
            if name.eq_ignore_ascii_case("content-length") {
                parsed.length = Some(value.trim().parse()?);
            } else if name.eq_ignore_ascii_case("content-type") {
                parsed.events = value.trim().starts_with("text/event-stream");
            }
        }
        Ok(parsed)
    }
}
