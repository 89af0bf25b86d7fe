//! A stream that records each write attempt, and whether the client accepted any of it.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use hyper::rt::{Read, ReadBufCursor, Write};

use super::connection::Connection;

/// Maximum number of bytes in several parts that are copied into one buffer before they are
/// written. A vectored write costs the system more than a plain one; for longer parts the copy
/// costs more than that.
const MAX_COPIED: usize = 4 << 10;

/// A stream that reports each attempt to write to its connection.
pub(super) struct TrackedIo<I> {
    pub(super) stream: I,
    pub(super) connection: Arc<Connection>,
}

impl<I: Read + Unpin> Read for TrackedIo<I> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: ReadBufCursor<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(cx, buffer)
    }
}

impl<I: Write + Unpin> Write for TrackedIo<I> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write(cx, bytes);
        self.connection.record_write(written.is_ready());
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
        if length <= MAX_COPIED {
            let mut joined = Vec::with_capacity(length);
            for part in bytes {
                joined.extend_from_slice(part);
            }
            return self.poll_write(cx, &joined);
        }
        let written = Pin::new(&mut self.stream).poll_write_vectored(cx, bytes);
        self.connection.record_write(written.is_ready());
        written
    }
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;

    use super::super::connection::ServerState;
    use super::super::options::ServeOptions;
    use super::*;

    const MAX_WRITE: usize = 5_000;

    /// Accepts up to `MAX_WRITE` bytes at once, and records the number of parts they were in.
    #[derive(Default)]
    struct Sink {
        bytes: Vec<u8>,
        parts: Vec<usize>,
    }

    impl Write for Sink {
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
            self.bytes.truncate(before + MAX_WRITE);
            Poll::Ready(Ok(self.bytes.len() - before))
        }

        fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
            Poll::Ready(Ok(()))
        }

        fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
            Poll::Ready(Ok(()))
        }
    }

    /// Writes a head and a body in one vectored write.
    async fn write(head: &[u8], body: &[u8]) -> (usize, Sink) {
        let server = ServerState::new(ServeOptions::default());
        let connection = Arc::new(Connection::new(&server));
        let mut stream = TrackedIo { stream: Sink::default(), connection };
        let parts = [IoSlice::new(head), IoSlice::new(body)];
        let written = poll_fn(|cx| Pin::new(&mut stream).poll_write_vectored(cx, &parts)).await;
        (written.unwrap(), stream.stream)
    }

    #[tokio::test]
    async fn short_vectored_writes_are_joined() {
        let (written, sink) = write(b"head, ", b"body").await;
        assert_eq!((written, sink.bytes.as_slice()), (10, b"head, body".as_slice()));
        assert_eq!(sink.parts, [1]);
    }

    #[tokio::test]
    async fn long_vectored_writes_are_not_copied() {
        let (written, sink) = write(b"head, ", &[b'x'; 2 * MAX_WRITE]).await;
        assert_eq!((written, sink.bytes.len()), (MAX_WRITE, MAX_WRITE));
        assert!(sink.bytes.starts_with(b"head, x"));
        assert_eq!(sink.parts, [2]);
    }
}
