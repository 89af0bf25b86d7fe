//! One end of a byte stream, on which a test reads and writes raw messages.

use serde_json::{Value, json};
use tokio::io::{
    AsyncBufReadExt, AsyncWriteExt, BufReader, DuplexStream, ReadHalf, WriteHalf, split,
};

use crate::http_wire::params;

/// One end of a byte stream.
pub(crate) struct RawPeer {
    pub(crate) reader: BufReader<ReadHalf<DuplexStream>>,
    pub(crate) writer: WriteHalf<DuplexStream>,
}

impl RawPeer {
    pub(crate) fn new(stream: DuplexStream) -> Self {
        let (reader, writer) = split(stream);
        Self { reader: BufReader::new(reader), writer }
    }

    pub(crate) async fn write(&mut self, message: Value) {
        self.write_line(&message.to_string()).await;
    }

    pub(crate) async fn write_line(&mut self, line: &str) {
        self.writer.write_all(format!("{line}\n").as_bytes()).await.unwrap();
    }

    pub(crate) async fn call(&mut self, id: impl Into<Value>, method: &str, more: Value) {
        let id: Value = id.into();
        let params = params(more);
        self.write(json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params })).await;
    }

    pub(crate) async fn notify(&mut self, method: &str, params: Value) {
        self.write(json!({ "jsonrpc": "2.0", "method": method, "params": params })).await;
    }

    pub(crate) async fn answer(&mut self, id: Value, result: Value) {
        self.write(json!({ "jsonrpc": "2.0", "id": id, "result": result })).await;
    }

    /// Reads the next message; `Null` at the end of the stream.
    pub(crate) async fn read(&mut self) -> Value {
        let mut line = String::new();
        self.reader.read_line(&mut line).await.unwrap();
        if line.is_empty() {
            return Value::Null;
        }
        let message: Value = serde_json::from_str(&line).unwrap();
        // No message is both a request or notification and a response.
        assert!(message.get("method").is_none() || message.get("result").is_none(), "{message}");
        message
    }
}
