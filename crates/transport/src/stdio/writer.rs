//! Writing lines, of which some may be called off while they wait.

use std::borrow::Cow;
use std::collections::VecDeque;
use std::future::poll_fn;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncWrite, AsyncWriteExt};

/// How many bytes of several lines are written at once. A pipe takes so many whole or not at all.
const TOGETHER: usize = 4 << 10;

/// What a line is about.
pub(super) trait About {
    /// The line is about to be written, unless this says that nobody wants it any more.
    fn take(&self) -> bool;

    /// It was not, and waits.
    fn give_back(&self) {}
}

/// What is about nothing in particular is always wanted.
impl<T: About> About for Option<Arc<T>> {
    fn take(&self) -> bool {
        self.as_ref().is_none_or(|about| about.take())
    }

    fn give_back(&self) {
        if let Some(about) = self {
            about.give_back();
        }
    }
}

/// Writes the lines that `poll_next` gives, to its end; several at once if they are there, since each write may be a way to another
/// thread and back. Of a line that is not wanted any more, nothing is written once it is known, unless it has begun.
pub(super) async fn write_lines<S: About>(
    mut writer: impl AsyncWrite + Unpin,
    mut poll_next: impl FnMut(&mut Context<'_>) -> Poll<Option<(Vec<u8>, S)>>,
) -> io::Result<()> {
    let mut waiting = Waiting { lines: VecDeque::new(), begun: 0 };
    let mut open = true;
    while open {
        poll_fn(|cx| {
            while waiting.length() < TOGETHER {
                match poll_next(cx) {
                    Poll::Ready(Some(line)) => waiting.lines.push_back(line),
                    Poll::Ready(None) => {
                        open = false;
                        break;
                    }
                    Poll::Pending if waiting.lines.is_empty() => return Poll::Pending,
                    Poll::Pending => break,
                }
            }
            Poll::Ready(())
        })
        .await;
        // What is not taken is put together anew, since some of it may not be wanted by then.
        poll_fn(|cx| {
            loop {
                waiting.take();
                if waiting.lines.is_empty() {
                    return Poll::Ready(Ok(()));
                }
                let written = Pin::new(&mut writer).poll_write(cx, &waiting.next());
                if !matches!(written, Poll::Ready(Ok(_))) {
                    waiting.give_back();
                }
                match ready!(written)? {
                    0 => return Poll::Ready(Err(io::Error::from(io::ErrorKind::WriteZero))),
                    written => waiting.advance(written),
                }
            }
        })
        .await?;
        writer.flush().await?;
    }
    Ok(())
}

struct Waiting<S> {
    lines: VecDeque<(Vec<u8>, S)>,
    /// How much of the first line is written.
    begun: usize,
}

impl<S: About> Waiting<S> {
    fn length(&self) -> usize {
        self.lines.iter().map(|(line, _)| line.len()).sum()
    }

    fn take(&mut self) {
        let mut begun = self.begun > 0;
        self.lines.retain(|(_, about)| std::mem::take(&mut begun) || about.take());
    }

    fn give_back(&self) {
        let begun = usize::from(self.begun > 0);
        self.lines.iter().skip(begun).for_each(|(_, about)| about.give_back());
    }

    /// What is to be written at once: what is left of a line, with others if they are short.
    fn next(&self) -> Cow<'_, [u8]> {
        let mut lines = self.lines.iter().map(|(line, _)| line.as_slice());
        let first = lines.next().and_then(|first| first.get(self.begun..)).unwrap_or_default();
        let mut together = Cow::Borrowed(first);
        for line in lines {
            if together.len() + line.len() > TOGETHER {
                break;
            }
            together.to_mut().extend_from_slice(line);
        }
        together
    }

    fn advance(&mut self, written: usize) {
        self.begun += written;
        while let Some((line, _)) = self.lines.front()
            && line.len() <= self.begun
        {
            self.begun -= line.len();
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
    struct One {
        unwanted: AtomicBool,
        taken: AtomicBool,
    }

    impl About for One {
        fn take(&self) -> bool {
            self.taken.store(true, Ordering::Relaxed);
            !self.unwanted.load(Ordering::Relaxed)
        }

        fn give_back(&self) {
            self.taken.store(false, Ordering::Relaxed);
        }
    }

    /// While the pipe is full, it may become so that nobody wants the rest.
    #[tokio::test]
    async fn what_is_called_off_while_the_pipe_is_full_is_not_written() {
        let (writer, mut reader) = duplex(8);
        let all: Vec<_> = (0..10).map(|_| Arc::<One>::default()).collect();
        let of = |one: usize| format!("line {one} is\n").into_bytes();
        let mut lines = all.iter().enumerate().map(|(at, one)| (of(at), Some(Arc::clone(one))));
        let mut writing = Box::pin(write_lines(writer, |_| Poll::Ready(lines.next())));
        let begun = writing.as_mut().poll(&mut Context::from_waker(Waker::noop()));
        assert!(begun.is_pending());
        let taken = all.iter().filter(|one| one.taken.load(Ordering::Relaxed));
        assert_eq!(taken.count(), 1, "only one has begun");
        for one in &all {
            one.unwanted.store(true, Ordering::Relaxed);
        }
        let mut read = String::new();
        let (written, ended) = tokio::join!(writing, reader.read_to_string(&mut read));
        written.unwrap();
        ended.unwrap();
        assert_eq!(read, "line 0 is\n", "it had begun");
    }
}
