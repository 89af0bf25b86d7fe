//! Writing lines, some of which may be withdrawn while they wait.

use std::borrow::Cow;
use std::collections::VecDeque;
use std::future::poll_fn;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use mrtr_schema::RawJson;
use tokio::io::{AsyncWrite, AsyncWriteExt};

use crate::json_line::remove_line_breaks;

/// Maximum number of bytes of several lines that are written at once: `PIPE_BUF` on Linux, up to
/// which a write to a pipe is atomic.
const MAX_JOINED: usize = 4 << 10;

/// The state of the message in a line, which may be withdrawn until it is written.
pub trait LineState {
    /// Called before a line is written. Returns false if it was withdrawn.
    fn begin_write(&self) -> bool;

    /// Called if nothing of the line was written after all.
    fn undo_write(&self) {}
}

/// A line without a state is always written.
impl<T: LineState> LineState for Option<Arc<T>> {
    fn begin_write(&self) -> bool {
        self.as_ref().is_none_or(|state| state.begin_write())
    }

    fn undo_write(&self) {
        if let Some(state) = self {
            state.undo_write();
        }
    }
}

/// Returns JSON as a line.
pub fn json_line(json: RawJson) -> Vec<u8> {
    let mut line = String::from(json);
    remove_line_breaks(&mut line, 0);
    line.push('\n');
    line.into_bytes()
}

/// Serializes a message as a line.
pub(super) fn serialized_line(message: &impl serde::Serialize) -> Vec<u8> {
    // Serialization cannot fail for the types of messages: plain data with raw JSON in it.
    RawJson::new(message).map(json_line).unwrap_or_default()
}

/// Writes the lines from `poll_line` until it returns `None`.
///
/// Several lines are written at once if they are available, since each write may go through another
/// thread. A line that is withdrawn is not written, unless its write has begun.
///
/// # Errors
///
/// If writing fails.
pub async fn write_lines<S: LineState>(
    mut writer: impl AsyncWrite + Unpin,
    mut poll_line: impl FnMut(&mut Context<'_>) -> Poll<Option<(Vec<u8>, S)>>,
) -> io::Result<()> {
    let mut queue = LineQueue { lines: VecDeque::new(), written: 0 };
    let mut open = true;
    while open {
        poll_fn(|cx| {
            while queue.length() < MAX_JOINED {
                match poll_line(cx) {
                    Poll::Ready(Some(line)) => queue.lines.push_back(line),
                    Poll::Ready(None) => {
                        open = false;
                        break;
                    }
                    Poll::Pending if queue.lines.is_empty() => return Poll::Pending,
                    Poll::Pending => break,
                }
            }
            Poll::Ready(())
        })
        .await;
        // Lines that are not accepted are joined again for the next attempt, since some may be
        // withdrawn by then.
        poll_fn(|cx| {
            loop {
                queue.begin_write();
                if queue.lines.is_empty() {
                    return Poll::Ready(Ok(()));
                }
                let written = Pin::new(&mut writer).poll_write(cx, &queue.next_chunk());
                if !matches!(written, Poll::Ready(Ok(_))) {
                    queue.undo_write();
                }
                match ready!(written)? {
                    0 => return Poll::Ready(Err(io::Error::from(io::ErrorKind::WriteZero))),
                    written => queue.advance(written),
                }
            }
        })
        .await?;
        writer.flush().await?;
    }
    Ok(())
}

/// The lines that wait to be written.
struct LineQueue<S> {
    lines: VecDeque<(Vec<u8>, S)>,
    /// The number of bytes of the first line that are written.
    written: usize,
}

impl<S: LineState> LineQueue<S> {
    fn length(&self) -> usize {
        self.lines.iter().map(|(line, _)| line.len()).sum()
    }

    /// Returns the number of lines at the front that cannot be withdrawn: the one whose write has
    /// begun.
    fn fixed(&self) -> usize {
        usize::from(self.written > 0)
    }

    /// Removes the lines that were withdrawn, and marks the others as being written.
    fn begin_write(&mut self) {
        let mut fixed = self.fixed();
        self.lines.retain(|(_, state)| {
            if fixed > 0 {
                fixed -= 1;
                return true;
            }
            state.begin_write()
        });
    }

    fn undo_write(&self) {
        self.lines.iter().skip(self.fixed()).for_each(|(_, state)| state.undo_write());
    }

    /// Returns the bytes to write next: the rest of the first line, with others if they are short.
    fn next_chunk(&self) -> Cow<'_, [u8]> {
        let mut lines = self.lines.iter().map(|(line, _)| line.as_slice());
        let first = lines.next().and_then(|first| first.get(self.written..)).unwrap_or_default();
        let mut chunk = Cow::Borrowed(first);
        for line in lines {
            if chunk.len() + line.len() > MAX_JOINED {
                break;
            }
            chunk.to_mut().extend_from_slice(line);
        }
        chunk
    }

    fn advance(&mut self, written: usize) {
        self.written += written;
        while let Some((line, _)) = self.lines.front()
            && line.len() <= self.written
        {
            self.written -= line.len();
            self.lines.pop_front();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::future::Future;
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::task::Waker;

    use super::*;
    use tokio::io::{AsyncReadExt, duplex};

    #[derive(Default)]
    struct TestState {
        withdrawn: AtomicBool,
        writing: AtomicBool,
    }

    impl LineState for TestState {
        fn begin_write(&self) -> bool {
            self.writing.store(true, Ordering::Relaxed);
            !self.withdrawn.load(Ordering::Relaxed)
        }

        fn undo_write(&self) {
            self.writing.store(false, Ordering::Relaxed);
        }
    }

    #[tokio::test]
    async fn lines_withdrawn_while_the_pipe_is_full_are_not_written() {
        let (writer, mut reader) = duplex(8);
        let states: Vec<_> = (0..10).map(|_| Arc::<TestState>::default()).collect();
        let text = |n: usize| format!("line {n} is\n").into_bytes();
        let mut lines =
            states.iter().enumerate().map(|(n, state)| (text(n), Some(Arc::clone(state))));
        let mut writing = Box::pin(write_lines(writer, |_| Poll::Ready(lines.next())));
        let polled = writing.as_mut().poll(&mut Context::from_waker(Waker::noop()));
        assert!(polled.is_pending());
        let begun = states.iter().filter(|state| state.writing.load(Ordering::Relaxed));
        assert_eq!(begun.count(), 1, "only one write has begun");
        for state in &states {
            state.withdrawn.store(true, Ordering::Relaxed);
        }
        let mut read = String::new();
        let (written, ended) = tokio::join!(writing, reader.read_to_string(&mut read));
        written.unwrap();
        ended.unwrap();
        assert_eq!(read, "line 0 is\n", "a write that has begun is completed");
    }
}
