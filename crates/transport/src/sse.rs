//! A decoder for server-sent events in bounded memory.

use std::time::Duration;

/// Splits a byte stream into the data of its server-sent events. It ignores event names, ids and
/// comments, which the protocol does not use.
///
/// ```
/// use mrtr_transport::sse::Decoder;
///
/// let mut decoder = Decoder::new(1024);
/// let mut events = Vec::new();
/// decoder.push(b": keep-alive\n\ndata: {\"a\":1}\n", |data| events.push(data))?;
/// assert!(events.is_empty(), "an empty line ends an event");
/// decoder.push(b"\n", |data| events.push(data))?;
/// assert_eq!(events, [br#"{"a":1}"#]);
/// # Ok::<(), mrtr_transport::sse::TooLong>(())
/// ```
#[derive(Debug)]
pub struct Decoder {
    limit: usize,
    /// The current line, without its end.
    line: Vec<u8>,
    /// The `data` lines of the current event.
    data: Vec<u8>,
    has_data: bool,
    /// The last byte was a carriage return: a line feed that follows belongs to the same line end.
    after_cr: bool,
    is_first_line: bool,
    /// The id of the current event, and that of the last complete one.
    next_id: Option<String>,
    last_id: Option<String>,
    retry: Option<Duration>,
}

/// The error of an event that is longer than the limit, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("a server-sent event is longer than {0} bytes")]
pub struct TooLong(usize);

impl Decoder {
    /// Creates a decoder for events of at most `limit` bytes.
    pub fn new(limit: usize) -> Self {
        Self {
            limit,
            line: Vec::new(),
            data: Vec::new(),
            has_data: false,
            after_cr: false,
            is_first_line: true,
            next_id: None,
            last_id: None,
            retry: None,
        }
    }

    /// Returns the id of the last complete event that has one.
    pub fn last_event_id(&self) -> Option<&str> {
        self.last_id.as_deref()
    }

    /// Returns the delay before the stream may be resumed, if the server has set one.
    pub fn retry(&self) -> Option<Duration> {
        self.retry
    }

    /// Decodes more bytes and passes the data of each event that they complete to `on_event`.
    ///
    /// # Errors
    ///
    /// If an event is longer than the limit. The decoder cannot be used after that.
    pub fn push(&mut self, bytes: &[u8], mut on_event: impl FnMut(Vec<u8>)) -> Result<(), TooLong> {
        let mut rest = bytes;
        loop {
            if !rest.is_empty() && std::mem::take(&mut self.after_cr) {
                rest = rest.strip_prefix(b"\n").unwrap_or(rest);
            }
            let end = rest.iter().position(|byte| matches!(byte, b'\n' | b'\r'));
            let (piece, after) = rest.split_at(end.unwrap_or(rest.len()));
            if self.line.len() + self.data.len() + piece.len() > self.limit {
                return Err(TooLong(self.limit));
            }
            self.line.extend_from_slice(piece);
            let Some((end, after)) = after.split_first() else { return Ok(()) };
            self.after_cr = *end == b'\r';
            if let Some(data) = self.end_line() {
                on_event(data);
            }
            rest = after;
        }
    }

    /// Processes the current line. An empty line ends the event and returns its data.
    fn end_line(&mut self) -> Option<Vec<u8>> {
        let mut line = std::mem::take(&mut self.line);
        // A stream may begin with a byte order mark.
        if std::mem::take(&mut self.is_first_line) && line.starts_with(b"\xef\xbb\xbf") {
            line.drain(..3);
        }
        if line.is_empty() {
            if let Some(id) = self.next_id.take() {
                self.last_id = Some(id);
            }
            let data = std::mem::take(&mut self.data);
            return std::mem::take(&mut self.has_data).then_some(data);
        }
        let (field, value) = match line.iter().position(|b| *b == b':') {
            Some(at) => line.split_at(at),
            None => (line.as_slice(), &b":"[..]),
        };
        let value = value.strip_prefix(b":").unwrap_or_default();
        let value = value.strip_prefix(b" ").unwrap_or(value);
        match field {
            // Most events have one line of data: it is not copied.
            b"data" if !self.has_data => {
                self.has_data = true;
                line.drain(..line.len() - value.len());
                self.data = line;
                return None;
            }
            b"data" => {
                self.data.push(b'\n');
                self.data.extend_from_slice(value);
            }
            // An id with a null character is ignored, by the standard.
            b"id" if !value.contains(&0) => {
                self.next_id = str::from_utf8(value).ok().map(str::to_owned);
            }
            b"retry" => {
                let millis = str::from_utf8(value).ok().and_then(|text| text.parse().ok());
                self.retry = millis.map(Duration::from_millis).or(self.retry);
            }
            _ => {}
        }
        // The next line reuses the buffer.
        line.clear();
        self.line = line;
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn events(chunks: &[&[u8]]) -> Vec<String> {
        let mut decoder = Decoder::new(1000);
        let mut out = Vec::new();
        for chunk in chunks {
            decoder.push(chunk, |data| out.push(String::from_utf8(data).unwrap())).unwrap();
        }
        out
    }

    #[test]
    fn decoder_accepts_all_line_endings_at_any_chunk_boundary() {
        for end in ["\n", "\r", "\r\n"] {
            let text = [
                "\u{feff}: hello",
                "event: message",
                "id: 1",
                "data: {\"a\":",
                "data:  1}",
                "",
                "",
                "retry: 5",
                "",
                "data",
                "",
                "data:x",
                "",
                "data: cut",
            ]
            .join(end);
            let expected = ["{\"a\":\n 1}", "", "x"];
            assert_eq!(events(&[text.as_bytes()]), expected, "{end:?}");
            let single: Vec<&[u8]> = text.as_bytes().chunks(1).collect();
            assert_eq!(events(&single), expected, "{end:?}, byte by byte");
        }
    }

    #[test]
    fn decoder_rejects_events_over_the_limit() {
        let mut decoder = Decoder::new(100);
        assert_eq!(decoder.push(&[b'x'; 101], |_| ()), Err(TooLong(100)));
        let mut decoder = Decoder::new(100);
        assert_eq!(
            decoder.push("data: 123456789\n".repeat(20).as_bytes(), |_| ()),
            Err(TooLong(100))
        );
    }

    #[test]
    fn decoder_keeps_the_id_of_complete_events_and_the_retry_delay() {
        let mut decoder = Decoder::new(100);
        let mut push = |text: &str| {
            decoder.push(text.as_bytes(), |_| ()).unwrap();
            (decoder.last_event_id().map(str::to_owned), decoder.retry())
        };
        assert_eq!(push("id: 1\nretry: 50\ndata: \n"), (None, Some(Duration::from_millis(50))));
        assert_eq!(push("\n").0.as_deref(), Some("1"));
        assert_eq!(push("data: x\n\nid: 2\n").0.as_deref(), Some("1"));
        assert_eq!(push("retry: soon\n\n"), (Some("2".into()), Some(Duration::from_millis(50))));
        assert_eq!(push("id: a\0b\n\n").0.as_deref(), Some("2"));
    }
}
