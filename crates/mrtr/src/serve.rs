//! The paved path of a server.

use std::io;

use mrtr_server::Server;
use mrtr_transport::http::{Endpoint, ServeOptions};
use tokio::net::{TcpListener, ToSocketAddrs};

/// Serves `server` over HTTP at `/mcp` on `address`, until the process is told to end (SIGINT or
/// SIGTERM); then lets requests in flight finish.
///
/// Only this machine may call: requests have to name it in `Host`, and in `Origin` if they have one.
/// For more, build an [`Endpoint`] and pass it to [`crate::http::serve`], or mount it in your router.
///
/// # Errors
///
/// If `address` cannot be listened on.
pub async fn serve(server: Server, address: impl ToSocketAddrs) -> io::Result<()> {
    let listener = TcpListener::bind(address).await?;
    tracing::info!(target: "mrtr::http", address = %listener.local_addr()?, "serving MCP at /mcp");
    mrtr_transport::http::serve(
        listener,
        Endpoint::new(server),
        ServeOptions::default(),
        told_to_end(),
    )
    .await
}

async fn told_to_end() {
    let interrupt = async {
        if tokio::signal::ctrl_c().await.is_err() {
            std::future::pending::<()>().await;
        }
    };
    #[cfg(unix)]
    let terminate = async {
        match tokio::signal::unix::signal(tokio::signal::unix::SignalKind::terminate()) {
            Ok(mut signal) => drop(signal.recv().await),
            Err(_) => std::future::pending().await,
        }
    };
    #[cfg(not(unix))]
    let terminate = std::future::pending::<()>();
    tokio::select! {
        () = interrupt => {}
        () = terminate => {}
    }
}
