//! Servers of the current revision only.

use std::future::Future;
use std::io;

use mrtr_server::Server;
use mrtr_transport::http::Endpoint;
use mrtr_transport::stdio::{self, StreamLimits};
use tokio::io::{AsyncBufRead, AsyncWrite};

#[expect(clippy::unnecessary_wraps, reason = "the same signature as with the feature `legacy`")]
pub(crate) fn endpoint(server: Server) -> io::Result<Endpoint<Server>> {
    Ok(Endpoint::new(server))
}

pub(crate) fn serve_stream<R, W>(
    server: Server,
    reader: R,
    writer: W,
    shutdown: impl Future<Output = ()> + Send,
) -> impl Future<Output = io::Result<()>> + Send
where
    R: AsyncBufRead + Unpin + Send,
    W: AsyncWrite + Unpin + Send + 'static,
{
    stdio::serve_stream(server, reader, writer, StreamLimits::default(), shutdown)
}
