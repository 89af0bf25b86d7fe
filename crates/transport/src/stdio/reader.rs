//! Reading lines of bounded length.

use std::io;

use tokio::io::{AsyncBufRead, AsyncBufReadExt};

use super::oversized::MessagePrefix;

/// The number of bytes that are kept of a line that is too long: enough to find its id.
const KEPT_PREFIX: usize = 1 << 10;

/// A line, or the prefix of one that is too long.
pub enum Line {
    /// A line without its end.
    Complete(Vec<u8>),
    /// The beginning of a line that is too long.
    TooLong(MessagePrefix),
}

/// Reads lines of bounded length. A partially read line is kept if the future of
/// [`LineReader::next`] is dropped.
pub struct LineReader<R> {
    reader: R,
    max_length: usize,
    line: Vec<u8>,
    /// The line is too long: the rest of it is discarded.
    is_skipping: bool,
}

impl<R: AsyncBufRead + Unpin> LineReader<R> {
    /// Creates a reader of lines of at most `max_length` bytes.
    pub fn new(reader: R, max_length: usize) -> Self {
        Self { reader, max_length, line: Vec::new(), is_skipping: false }
    }

    /// The longest line in bytes.
    pub(super) fn max_length(&self) -> usize {
        self.max_length
    }

    /// Returns the next line without its end; `None` at the end of the stream.
    ///
    /// # Errors
    ///
    /// If reading the stream fails.
    pub async fn next(&mut self) -> io::Result<Option<Line>> {
        loop {
            let buffer = self.reader.fill_buf().await?;
            if buffer.is_empty() {
                // The last line of a stream need not have an end.
                let is_end = self.line.is_empty() && !self.is_skipping;
                return Ok(if is_end { None } else { Some(self.finish()) });
            }
            let end = buffer.iter().position(|byte| *byte == b'\n');
            let part = buffer.get(..end.unwrap_or(buffer.len())).unwrap_or_default();
            self.is_skipping |= self.line.len() + part.len() > self.max_length;
            let max_kept = if self.is_skipping { KEPT_PREFIX } else { self.max_length };
            let room = max_kept.saturating_sub(self.line.len());
            self.line.extend_from_slice(part.get(..room).unwrap_or(part));
            self.line.truncate(max_kept);
            let used = part.len() + usize::from(end.is_some());
            self.reader.consume(used);
            if end.is_some() {
                return Ok(Some(self.finish()));
            }
        }
    }

    fn finish(&mut self) -> Line {
        let line = std::mem::take(&mut self.line);
        if std::mem::take(&mut self.is_skipping) {
            Line::TooLong(MessagePrefix::parse(&line))
        } else {
            Line::Complete(line)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::io::{AsyncWriteExt, BufReader};

    fn text(line: Option<Line>) -> String {
        match line {
            Some(Line::Complete(line)) => String::from_utf8(line).unwrap(),
            Some(Line::TooLong(_)) => "too long".to_owned(),
            None => "end".to_owned(),
        }
    }

    #[tokio::test]
    async fn reader_skips_long_lines_and_reads_the_next() {
        let input = format!("short\n{}\nnext\n\nlast", "x".repeat(100));
        let mut lines = LineReader::new(BufReader::with_capacity(7, input.as_bytes()), 10);
        for expected in ["short", "too long", "next", "", "last", "end"] {
            assert_eq!(text(lines.next().await.unwrap()), expected);
        }
    }

    #[tokio::test]
    async fn dropped_read_loses_nothing() {
        let (mut writer, reader) = tokio::io::duplex(64);
        let mut lines = LineReader::new(BufReader::new(reader), 100);
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
