//! Lines of bounded length.

use std::io;

use mrtr_schema::json::RawJson;
use tokio::io::{AsyncBufRead, AsyncBufReadExt};

use super::oversized::Beginning;
use crate::json_line::one_line;

/// How much is kept of a line that is too long, in bytes.
const BEGINNING: usize = 1 << 10;

/// A line, or the beginning of one that is too long.
pub(super) enum Line {
    Whole(Vec<u8>),
    TooLong(Beginning),
}

/// Reads lines. What was read of a line is kept when the wait for the rest is cut off.
pub(super) struct Lines<R> {
    reader: R,
    pub(super) limit: usize,
    line: Vec<u8>,
    /// The line has grown too long, and is thrown away up to its end.
    skipping: bool,
}

impl<R: AsyncBufRead + Unpin> Lines<R> {
    pub(super) fn new(reader: R, limit: usize) -> Self {
        Self { reader, limit, line: Vec::new(), skipping: false }
    }

    /// The next line, without its end; `None` at the end of the stream.
    pub(super) async fn next(&mut self) -> io::Result<Option<Line>> {
        loop {
            let buffer = self.reader.fill_buf().await?;
            if buffer.is_empty() {
                // The last line of a stream need not have an end.
                let nothing = self.line.is_empty() && !self.skipping;
                return Ok(if nothing { None } else { Some(self.finish()) });
            }
            let end = buffer.iter().position(|byte| *byte == b'\n');
            let part = buffer.get(..end.unwrap_or(buffer.len())).unwrap_or_default();
            self.skipping |= self.line.len() + part.len() > self.limit;
            let kept = if self.skipping { BEGINNING } else { self.limit };
            let room = kept.saturating_sub(self.line.len());
            self.line.extend_from_slice(part.get(..room).unwrap_or(part));
            self.line.truncate(kept);
            let used = part.len() + usize::from(end.is_some());
            self.reader.consume(used);
            if end.is_some() {
                return Ok(Some(self.finish()));
            }
        }
    }

    fn finish(&mut self) -> Line {
        let line = std::mem::take(&mut self.line);
        if std::mem::take(&mut self.skipping) {
            Line::TooLong(Beginning::of(&line))
        } else {
            Line::Whole(line)
        }
    }
}

/// A message as a line.
pub(super) fn write(message: &impl serde::Serialize) -> Vec<u8> {
    // Plain data with raw JSON in it is always JSON.
    RawJson::new(message).map(line).unwrap_or_default()
}

/// JSON as a line.
pub(super) fn line(json: RawJson) -> Vec<u8> {
    let mut line = one_line(json);
    line.push('\n');
    line.into_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::io::{AsyncWriteExt, BufReader};

    fn text(line: Option<Line>) -> String {
        match line {
            Some(Line::Whole(line)) => String::from_utf8(line).unwrap(),
            Some(Line::TooLong(_)) => "too long".to_owned(),
            None => "end".to_owned(),
        }
    }

    #[tokio::test]
    async fn long_lines_are_passed_over_and_the_next_one_is_read() {
        let input = format!("short\n{}\nnext\n\nlast", "x".repeat(100));
        let mut lines = Lines::new(BufReader::with_capacity(7, input.as_bytes()), 10);
        for expected in ["short", "too long", "next", "", "last", "end"] {
            assert_eq!(text(lines.next().await.unwrap()), expected);
        }
    }

    #[tokio::test]
    async fn a_wait_that_is_cut_off_loses_nothing() {
        let (mut writer, reader) = tokio::io::duplex(64);
        let mut lines = Lines::new(BufReader::new(reader), 100);
        writer.write_all(b"one ").await.unwrap();
        tokio::select! {
            biased;
            _ = lines.next() => unreachable!("the line has no end yet"),
            () = tokio::task::yield_now() => {}
        }
        writer.write_all(b"line\n").await.unwrap();
        assert_eq!(text(lines.next().await.unwrap()), "one line");
    }
}
