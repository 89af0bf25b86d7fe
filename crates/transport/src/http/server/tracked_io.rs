//! The stream of a connection.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use hyper::rt::{Read, ReadBufCursor, Write};

use super::connections::Connection;

/// How many bytes of several parts are put together before they are written. To the system, one part is less work than two; more
/// than these are more work to copy.
const TOGETHER: usize = 4 << 10;

/// A stream that notes when something is written or cannot be: only who takes nothing is waited for.
pub(super) struct TrackedIo<I> {
    pub(super) stream: I,
    pub(super) connection: Arc<Connection>,
}

impl<I: Read + Unpin> Read for TrackedIo<I> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        into: ReadBufCursor<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(cx, into)
    }
}

impl<I: Write + Unpin> Write for TrackedIo<I> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write(cx, bytes);
        self.connection.wrote(written.is_ready());
        written
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        if let [part] = bytes {
            return self.poll_write(cx, part);
        }
        let length: usize = bytes.iter().map(|part| part.len()).sum();
        if length <= TOGETHER {
            let mut whole = Vec::with_capacity(length);
            for part in bytes {
                whole.extend_from_slice(part);
            }
            return self.poll_write(cx, &whole);
        }
        let written = Pin::new(&mut self.stream).poll_write_vectored(cx, bytes);
        self.connection.wrote(written.is_ready());
        written
    }
}

#[cfg(test)]
mod tests {
    use std::future::{pending, poll_fn};

    use super::*;
    use crate::http::server::connections::Connections;
    use crate::http::server::serve::ServeOptions;

    /// It takes up to so many bytes at once, and remembers how many parts they came in.
    #[derive(Default)]
    struct Taken {
        bytes: Vec<u8>,
        parts: Vec<usize>,
    }

    const AT_ONCE: usize = 5_000;

    impl Write for Taken {
        fn poll_write(
            self: Pin<&mut Self>,
            cx: &mut Context<'_>,
            bytes: &[u8],
        ) -> Poll<io::Result<usize>> {
            self.poll_write_vectored(cx, &[IoSlice::new(bytes)])
        }

        fn poll_write_vectored(
            mut self: Pin<&mut Self>,
            _: &mut Context<'_>,
            bytes: &[IoSlice<'_>],
        ) -> Poll<io::Result<usize>> {
            self.parts.push(bytes.len());
            let before = self.bytes.len();
            for part in bytes {
                self.bytes.extend_from_slice(part);
            }
            self.bytes.truncate(before + AT_ONCE);
            Poll::Ready(Ok(self.bytes.len() - before))
        }

        fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
            Poll::Ready(Ok(()))
        }

        fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
            Poll::Ready(Ok(()))
        }
    }

    /// A head and a body, as they are written.
    async fn write(head: &[u8], body: &[u8]) -> (usize, Taken) {
        let mut connection = None;
        Connections::new(ServeOptions::default()).add((), |added| {
            connection = Some(Arc::clone(added));
            pending()
        });
        let connection = connection.unwrap();
        let mut stream = TrackedIo { stream: Taken::default(), connection };
        let parts = [IoSlice::new(head), IoSlice::new(body)];
        let written = poll_fn(|cx| Pin::new(&mut stream).poll_write_vectored(cx, &parts)).await;
        (written.unwrap(), stream.stream)
    }

    #[tokio::test]
    async fn what_is_short_is_written_as_one_part() {
        let (written, taken) = write(b"head, ", b"body").await;
        assert_eq!((written, taken.bytes.as_slice()), (10, b"head, body".as_slice()));
        assert_eq!(taken.parts, [1]);
    }

    #[tokio::test]
    async fn what_is_long_is_not_copied() {
        let (written, taken) = write(b"head, ", &[b'x'; 2 * AT_ONCE]).await;
        assert_eq!((written, taken.bytes.len()), (AT_ONCE, AT_ONCE));
        assert!(taken.bytes.starts_with(b"head, x"));
        assert_eq!(taken.parts, [2]);
    }
}
