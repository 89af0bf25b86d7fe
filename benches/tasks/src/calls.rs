//! Requests, in this process and over HTTP.

use mrtr::Server;
use mrtr::schema::jsonrpc::{Params, Request, RequestId};
use mrtr_transport::{InProcess, OutgoingRequest, Transport as _};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use crate::Result;

/// Returns the parameters of a call.
pub fn call(tool: &str, arguments: Value) -> Value {
    json!({ "name": tool, "arguments": arguments })
}

/// Sends a request within this process, and returns its result.
pub async fn in_process(server: &InProcess<Server>, method: &str, params: Value) -> Result<Value> {
    let params = Params::new(&with_meta(params))?;
    let request = Request::new(RequestId::Number(1), method, Some(params));
    let response = server.send(OutgoingRequest::new(request)).await?;
    match response.outcome {
        Ok(result) => Ok(serde_json::from_str(result.get())?),
        Err(error) => Err(format!("{method}: {}", error.message).into()),
    }
}

/// Adds the `_meta` of a client that supports forms and tasks.
fn with_meta(mut params: Value) -> Value {
    params["_meta"] = json!({
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientCapabilities": {
            "elicitation": { "form": {} },
            "extensions": { "io.modelcontextprotocol/tasks": {} },
        },
    });
    params
}

/// Returns the id of a task that was created.
pub fn task_id(created: &Value) -> Result<String> {
    let id = created["taskId"].as_str().ok_or_else(|| format!("no task: {created}"))?;
    Ok(id.to_owned())
}

/// A persistent connection to a server.
pub struct Connection {
    stream: TcpStream,
    read: Vec<u8>,
}

impl Connection {
    pub async fn open(port: u16) -> Result<Self> {
        let stream = TcpStream::connect(("127.0.0.1", port)).await?;
        stream.set_nodelay(true)?;
        Ok(Self { stream, read: Vec::new() })
    }

    /// Sends a request, and returns its result.
    pub async fn send(&mut self, method: &str, params: Value) -> Result<Value> {
        let name = ["name", "taskId"].iter().find_map(|key| params[key].as_str());
        let name = name.map_or_else(String::new, |name| format!("mcp-name: {name}\r\n"));
        let params = with_meta(params);
        let body = json!({ "jsonrpc": "2.0", "id": 1, "method": method, "params": params });
        let body = body.to_string();
        let request = format!(
            "POST /mcp HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-type: application/json\r\n\
             accept: application/json, text/event-stream\r\nmcp-protocol-version: 2026-07-28\r\n\
             mcp-method: {method}\r\n{name}content-length: {}\r\n\r\n{body}",
            body.len()
        );
        self.stream.write_all(request.as_bytes()).await?;
        let response: Value = serde_json::from_slice(&self.response().await?)?;
        match response.get("result") {
            Some(result) => Ok(result.clone()),
            None => Err(format!("{method}: {response}").into()),
        }
    }

    async fn response(&mut self) -> Result<Vec<u8>> {
        self.read.clear();
        loop {
            let head = self.read.windows(4).position(|four| four == b"\r\n\r\n");
            if let Some(end) = head.map(|at| at + 4) {
                let head = String::from_utf8_lossy(&self.read[..end]).to_lowercase();
                let length = head.lines().find_map(|line| line.strip_prefix("content-length: "));
                let length: usize = length.ok_or("a response without a length")?.trim().parse()?;
                if let Some(body) = self.read.get(end..end + length) {
                    return Ok(body.to_vec());
                }
            }
            if self.stream.read_buf(&mut self.read).await? == 0 {
                return Err("the server closed the connection".into());
            }
        }
    }
}
