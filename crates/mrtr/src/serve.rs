//! The paved path of a server.

use std::future::Future;
use std::io::{self, Read as _, Write as _};
use std::pin::Pin;
use std::time::Duration;

use mrtr_server::Server;
use mrtr_transport::http::{Endpoint, Readiness, ServeOptions};
use mrtr_transport::stdio::{StreamLimits, serve_stream};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::{TcpListener, ToSocketAddrs};
use tokio::sync::oneshot;

/// A future that is compiled here: an `async fn` is compiled where it is awaited, and with it all that it awaits, which would be
/// most of a server, anew with every change of an application.
type Serving = Pin<Box<dyn Future<Output = io::Result<()>> + Send>>;

/// How long legs may take that go on without their clients when all else has ended.
const LAST_LEGS: Duration = Duration::from_secs(10);
/// How long a client may take to read what was written before the end.
const LAST_WORDS: Duration = Duration::from_secs(5);

/// Serves `server` over HTTP at `/mcp` on `address`, until the process is told to end (SIGINT or
/// SIGTERM); then lets requests in flight finish.
///
/// Requests have to name this machine in `Host`, and in `Origin` if they have one, so that no web page
/// elsewhere can call through a browser. Bind a loopback address: whoever reaches the port can claim any
/// host. For more, build an [`Endpoint`] and pass it to [`crate::http::serve`] with [`shutdown`], or mount it in your router.
///
/// # Errors
///
/// If `address` cannot be listened on.
pub async fn serve(server: Server, address: impl ToSocketAddrs) -> io::Result<()> {
    serve_on(server, TcpListener::bind(address).await?).await
}

fn serve_on(server: Server, listener: TcpListener) -> Serving {
    Box::pin(async move {
        let address = listener.local_addr()?;
        if !address.ip().is_loopback() {
            tracing::warn!(
                target: "mrtr::http",
                %address,
                "listening beyond this machine, for requests that name it as their host: to be reached by a \
                 name, build an `Endpoint` with `access`"
            );
        }
        tracing::info!(target: "mrtr::http", %address, "serving MCP at /mcp");
        let (endpoint, options) = (Endpoint::new(server.clone()), ServeOptions::default());
        let end = shutdown(server.clone(), options.ready.clone());
        let outcome = mrtr_transport::http::serve(listener, endpoint, options, end).await;
        finish(&server).await;
        outcome
    })
}

/// Waits until the process is told to end (SIGINT or SIGTERM), turns `ready` off and gives its notice, in which requests are served as
/// before, and then [closes](Server::close) `server`, so that flows go on elsewhere: the shutdown that
/// [`crate::http::serve`] and those of other HTTP servers take as an argument.
///
/// ```no_run
/// use std::time::Duration;
///
/// use mrtr::http::{Endpoint, Readiness, ServeOptions};
///
/// # async fn run(server: mrtr::Server, listener: tokio::net::TcpListener) -> std::io::Result<()> {
/// let ready = Readiness::with_notice(Duration::from_secs(5));
/// let end = mrtr::shutdown(server.clone(), ready.clone());
/// let options = ServeOptions { ready, ..ServeOptions::default() };
/// mrtr::http::serve(listener, Endpoint::new(server.clone()), options, end).await?;
/// // What may not be cut off has some time to end.
/// let _ = tokio::time::timeout(Duration::from_secs(10), server.drained()).await;
/// # Ok(())
/// # }
/// ```
///
/// When the future is dropped, nothing of it happens any more.
pub async fn shutdown(server: Server, ready: Readiness) {
    told_to_end().await;
    ready.leave().await;
    server.begin_shutdown();
}

/// What may not be cut off has some time to end.
async fn finish(server: &Server) {
    if tokio::time::timeout(LAST_LEGS, server.drained()).await.is_err() {
        tracing::warn!(target: "mrtr::server", "shutdown cut off what is for single use");
    }
}

/// Serves `server` over standard input and output, to the process that started this one, until the input
/// ends or the process is told to end (SIGINT or SIGTERM). Log to standard error: nothing else may be written to standard output.
///
/// # Errors
///
/// If the streams are broken.
pub async fn serve_stdio(server: Server) -> io::Result<()> {
    serve_standard_streams(server).await
}

fn serve_standard_streams(server: Server) -> Serving {
    Box::pin(async move {
        let stdin = BufReader::new(standard_input());
        let (stdout, written) = standard_output();
        let end = shutdown(server.clone(), Readiness::default());
        let outcome =
            serve_stream(server.clone(), stdin, stdout, StreamLimits::default(), end).await;
        // Who reads nothing does not keep the process from ending.
        let _ = tokio::time::timeout(LAST_WORDS, written).await;
        finish(&server).await;
        outcome
    })
}

/// Standard input, read by a thread that nothing waits for: the runtime's own would keep the process from ending
/// until there is another line.
fn standard_input() -> impl tokio::io::AsyncRead {
    let (reader, mut writer) = tokio::io::duplex(64 << 10);
    let runtime = tokio::runtime::Handle::current();
    std::thread::spawn(move || {
        let (mut input, mut bytes) = (io::stdin().lock(), vec![0; 16 << 10]);
        loop {
            let read = match input.read(&mut bytes) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Ok(read) if read > 0 => bytes.get(..read).unwrap_or_default(),
                // The end; a stream that is broken is one, too.
                Ok(_) | Err(_) => return,
            };
            if runtime.block_on(writer.write_all(read)).is_err() {
                return;
            }
        }
    });
    reader
}

/// Standard output, written by such a thread as well, and when all of it is.
fn standard_output() -> (impl tokio::io::AsyncWrite, oneshot::Receiver<()>) {
    let (writer, mut reader) = tokio::io::duplex(16 << 10);
    let (done, written) = oneshot::channel();
    let runtime = tokio::runtime::Handle::current();
    std::thread::spawn(move || {
        // It is not kept locked: a handler that prints, as it should not, would never come back.
        let (mut output, mut bytes) = (io::stdout(), vec![0; 16 << 10]);
        // Without a reader, the other end is broken.
        while let Ok(read @ 1..) = runtime.block_on(reader.read(&mut bytes))
            && let Some(read) = bytes.get(..read)
            && output.write_all(read).and_then(|()| output.flush()).is_ok()
        {}
        // Nobody may be waiting any more.
        let _ = done.send(());
    });
    (writer, written)
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
