//! Servers of the current revision and of legacy ones.

use std::future::Future;
use std::io;

use mrtr_legacy::{LegacyOptions, LegacyServer};
use mrtr_server::Server;
use mrtr_transport::http::Endpoint;
use mrtr_transport::stdio::StreamLimits;
use tokio::io::{AsyncBufRead, AsyncWrite};

pub(crate) fn endpoint(server: Server) -> io::Result<Endpoint<Server>> {
    let legacy = LegacyServer::new(server.clone(), server.sealer(), LegacyOptions::default())?;
    Ok(Endpoint::new(server).legacy(legacy))
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
    let (options, limits) = (LegacyOptions::default(), StreamLimits::default());
    mrtr_legacy::serve_stream(server, options, reader, writer, limits, shutdown)
}
