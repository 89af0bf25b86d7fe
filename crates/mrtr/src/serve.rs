//! The short way to serve a server, with a graceful shutdown.

use std::future::Future;
use std::io::{self, Read as _, Write as _};
use std::pin::{Pin, pin};
use std::time::Duration;

use mrtr_server::Server;
use mrtr_server::development::STDIO_VARIABLE;
use mrtr_transport::http::{Endpoint, Readiness, ServeOptions};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::{TcpListener, ToSocketAddrs};
use tokio::sync::oneshot;

use crate::revisions;

/// A boxed future, which is compiled in this crate. An `async fn` is compiled where it is awaited:
/// each change of an application would compile most of a server again.
type Serving = Pin<Box<dyn Future<Output = io::Result<()>> + Send>>;

/// Longest time that detached work may take after the transport has stopped.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(10);
/// Longest time that a client may take to read the remaining output.
const FLUSH_TIMEOUT: Duration = Duration::from_secs(5);

/// Creates an endpoint for `server`, as [`serve`] uses it.
///
/// With the feature `legacy`, which is on by default, it also serves clients of the revisions
/// 2025-11-25, 2025-06-18 and 2025-03-26, with the same handlers. [`Endpoint::new`] serves the
/// current revision only.
///
/// ```
/// use mrtr::http::HostPolicy;
///
/// # fn example(server: mrtr::Server) -> std::io::Result<axum::Router> {
/// let hosts = HostPolicy::loopback().allow_host("booking.example");
/// let endpoint = mrtr::endpoint(server)?.host_policy(hosts);
/// Ok(axum::Router::new().route_service("/mcp", endpoint))
/// # }
/// ```
///
/// # Errors
///
/// If the operating system has no random numbers.
pub fn endpoint(server: Server) -> io::Result<Endpoint<Server>> {
    revisions::endpoint(server)
}

/// Serves `server` over HTTP at `/mcp` on `address` until the process gets SIGINT or SIGTERM.
///
/// The shutdown is graceful: requests in flight may take 10 s, and detached work another 10 s
/// ([`Server::drained`]). Due tasks are run meanwhile ([`Server::run_tasks`]).
///
/// A request must name this machine in `Host`, and in `Origin` if that header is present
/// ([`HostPolicy::loopback`](crate::http::HostPolicy::loopback)). So web pages from elsewhere
/// cannot call the server through a browser. Bind a loopback address: a client that reaches the
/// port can send any `Host`.
///
/// For other settings, such as other hosts, pass an [`endpoint`] to [`crate::http::serve`] with
/// [`shutdown`], or mount it in your router.
///
/// Under `mrtr dev`, which sets the environment variable `MRTR_DEVELOPMENT_STDIO`, it serves
/// standard input and output instead, as [`serve_stdio`] does.
///
/// # Errors
///
/// Fails if the process cannot listen on `address`.
pub async fn serve(server: Server, address: impl ToSocketAddrs) -> io::Result<()> {
    if std::env::var_os(STDIO_VARIABLE).is_some() {
        return serve_stdio(server).await;
    }
    serve_on(server, TcpListener::bind(address).await?).await
}

fn serve_on(server: Server, listener: TcpListener) -> Serving {
    Box::pin(async move {
        let address = listener.local_addr()?;
        if !address.ip().is_loopback() {
            tracing::warn!(
                target: "mrtr::http",
                %address,
                "listening on a non-loopback address, but only loopback hosts are allowed: \
                 to allow others, serve `mrtr::endpoint(server)?.host_policy(…)`"
            );
        }
        tracing::info!(target: "mrtr::http", %address, "serving MCP at /mcp");
        let (endpoint, options) = (endpoint(server.clone())?, ServeOptions::default());
        let end = shutdown(server.clone(), options.readiness().clone());
        let serving = mrtr_transport::http::serve(listener, endpoint, options, end);
        serve_with_tasks(&server, serving).await
    })
}

/// Waits for SIGINT or SIGTERM, and begins a graceful shutdown of `server`.
///
/// After the signal, it [drains](Readiness::drain) `readiness`: the flag is turned off, and
/// requests are still served during the drain delay. Then it calls [`Server::begin_shutdown`], so
/// that calls continue on other replicas. Pass the future to [`crate::http::serve`], or to another
/// HTTP server that takes a shutdown future.
///
/// ```no_run
/// use std::time::Duration;
///
/// use mrtr::http::{Readiness, ServeOptions};
///
/// # async fn run(server: mrtr::Server, listener: tokio::net::TcpListener) -> std::io::Result<()> {
/// let readiness = Readiness::with_drain_delay(Duration::from_secs(5));
/// let end = mrtr::shutdown(server.clone(), readiness.clone());
/// let options = ServeOptions::default().with_readiness(readiness);
/// mrtr::http::serve(listener, mrtr::endpoint(server.clone())?, options, end).await?;
/// // Waits for single-use requests and other detached work.
/// let _ = tokio::time::timeout(Duration::from_secs(10), server.drained()).await;
/// # Ok(())
/// # }
/// ```
///
/// Dropping the future stops what has not happened yet.
pub async fn shutdown(server: Server, readiness: Readiness) {
    shutdown_signal().await;
    readiness.drain().await;
    server.begin_shutdown();
}

/// Runs due tasks while the server is serving, then begins its shutdown, and waits for detached
/// work up to [`DRAIN_TIMEOUT`].
async fn serve_with_tasks<T>(server: &Server, serving: impl Future<Output = T>) -> T {
    let mut serving = pin!(serving);
    let mut tasks = pin!(server.run_tasks());
    let mut have_tasks_ended = false;
    let outcome = tokio::select! {
        outcome = &mut serving => outcome,
        () = &mut tasks => {
            have_tasks_ended = true;
            serving.await
        }
    };
    // Without a signal, if the input has ended, or if serving has failed.
    server.begin_shutdown();
    let detached_work = async {
        // A claim of tasks may be in progress. They are then released.
        if !have_tasks_ended {
            tasks.await;
        }
        server.drained().await;
    };
    if tokio::time::timeout(DRAIN_TIMEOUT, detached_work).await.is_err() {
        tracing::warn!(
            target: "mrtr::server",
            timeout = ?DRAIN_TIMEOUT,
            "drain timeout: what is in progress is aborted (single-use requests, detached steps, or \
             requests to the task store)"
        );
    }
    outcome
}

/// Serves `server` over standard input and output, to the process that started this one.
///
/// It ends when the input ends, or when this process gets SIGINT or SIGTERM. Due tasks are run
/// meanwhile ([`Server::run_tasks`]). Log to standard error:
/// standard output may contain only messages of the protocol.
///
/// # Errors
///
/// Fails if reading or writing the streams fails.
pub async fn serve_stdio(server: Server) -> io::Result<()> {
    serve_standard_streams(server).await
}

fn serve_standard_streams(server: Server) -> Serving {
    Box::pin(async move {
        let stdin = BufReader::new(standard_input());
        let (stdout, written) = standard_output();
        let end = shutdown(server.clone(), Readiness::default());
        let serving = revisions::serve_stream(server.clone(), stdin, stdout, end);
        let outcome = serve_with_tasks(&server, serving).await;
        // A client that does not read must not keep the process from exiting.
        let _ = tokio::time::timeout(FLUSH_TIMEOUT, written).await;
        outcome
    })
}

/// Returns standard input, read by a detached thread. A thread of the runtime would keep the
/// process from exiting until the next line arrives.
fn standard_input() -> impl tokio::io::AsyncRead {
    let (reader, mut writer) = tokio::io::duplex(64 << 10);
    let runtime = tokio::runtime::Handle::current();
    std::thread::spawn(move || {
        let (mut input, mut bytes) = (io::stdin().lock(), vec![0; 16 << 10]);
        loop {
            let read = match input.read(&mut bytes) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Ok(read) if read > 0 => bytes.get(..read).unwrap_or_default(),
                // A broken stream counts as the end of the input.
                Ok(_) | Err(_) => return,
            };
            if runtime.block_on(writer.write_all(read)).is_err() {
                return;
            }
        }
    });
    reader
}

/// Returns standard output, written by a detached thread, and a signal that everything is written.
fn standard_output() -> (impl tokio::io::AsyncWrite, oneshot::Receiver<()>) {
    let (writer, mut reader) = tokio::io::duplex(16 << 10);
    let (done, written) = oneshot::channel();
    let runtime = tokio::runtime::Handle::current();
    std::thread::spawn(move || {
        // Standard output is not kept locked: a handler that wrongly prints to it would deadlock.
        let (mut output, mut bytes) = (io::stdout(), vec![0; 16 << 10]);
        // The loop ends when the stream is closed, or when standard output is broken.
        while let Ok(read @ 1..) = runtime.block_on(reader.read(&mut bytes))
            && let Some(read) = bytes.get(..read)
            && output.write_all(read).and_then(|()| output.flush()).is_ok()
        {}
        // The receiver is dropped after the flush timeout.
        let _ = done.send(());
    });
    (writer, written)
}

/// Waits for SIGINT or SIGTERM.
async fn shutdown_signal() {
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
