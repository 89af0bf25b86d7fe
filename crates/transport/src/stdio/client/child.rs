//! A server that runs as a child process.

use std::ffi::OsString;
use std::fmt;
use std::io;
use std::path::PathBuf;
use std::process::Stdio;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use mrtr_schema::discover::DiscoverResult;
use mrtr_schema::jsonrpc::{Params, Request, RequestId, Response};
use mrtr_schema::request_head::RequestHead;
use mrtr_schema::{PROTOCOL_VERSION, method};
use serde_json::json;
use tokio::io::BufReader;
use tokio::process::{Child, Command};
use tokio::sync::Mutex as AsyncMutex;
use tokio::time::Instant;

use super::stream_client::{DEFAULT_MAX_MESSAGE, StreamClient};
use crate::error::TransportError;
use crate::traits::{OutgoingRequest, Transport};

/// Longest time that a process may take to exit after its [`ChildServer`] was dropped, and again
/// after `SIGTERM`.
const DROP_TIMEOUT: Duration = Duration::from_secs(5);

/// How long what a process has written is read after it has exited.
const LAST_OUTPUT: Duration = Duration::from_secs(1);

/// A server that runs as a child process and communicates over its standard streams.
///
/// The process is started by the first request, and again by the next one after it has exited. Its
/// standard error is inherited.
///
/// The first request to a new process is `server/discover`. So a server that supports only older
/// revisions does not act on a request that it would misunderstand.
///
/// [`ChildServer::shutdown`] lets the process exit by itself. Dropping the value does the same in a
/// task of the current tokio runtime, with a timeout of 5 s. Without a runtime, or if the runtime
/// ends before, the process is killed.
///
/// Its [`Debug`] form contains only the program, since arguments and environment variables may be
/// secret.
///
/// ```no_run
/// use std::time::Duration;
///
/// use mrtr_schema::jsonrpc::Request;
/// use mrtr_transport::stdio::ChildServer;
/// use mrtr_transport::{OutgoingRequest, Transport};
///
/// # async fn example(request: Request) -> Result<(), Box<dyn std::error::Error>> {
/// let server = ChildServer::new("file-server", ["--root", "/srv"])
///     .env("RUST_LOG", "warn")
///     .timeout(Duration::from_secs(30));
/// let response = server.send(OutgoingRequest::new(request)).await?;
/// server.shutdown(Duration::from_secs(5)).await;
/// # Ok(())
/// # }
/// ```
pub struct ChildServer {
    spec: ProcessSpec,
    timeout: Duration,
    start_timeout: Duration,
    max_message: usize,
    running: Mutex<Option<Running>>,
    /// Held while a process is asked for its versions.
    checking: AsyncMutex<()>,
    /// How often it was shut down.
    shutdowns: AtomicU64,
}

/// A process that was started.
struct Running {
    child: Child,
    client: StreamClient,
    /// The server has said that it speaks our version.
    is_checked: bool,
    started: Instant,
    /// How often it was asked for its versions.
    probes: u64,
}

impl Running {
    /// Returns true if no request can be sent: it has exited, or hangs since its start.
    fn is_useless(&self, start_timeout: Duration) -> bool {
        let hangs = || !self.client.has_received() && self.started.elapsed() >= start_timeout;
        self.client.is_closed() || hangs()
    }
}

/// The program of the process, with its arguments and environment.
struct ProcessSpec {
    program: OsString,
    args: Vec<OsString>,
    env: Vec<(OsString, OsString)>,
    folder: Option<PathBuf>,
}

impl ProcessSpec {
    fn command(&self) -> Command {
        let mut command = Command::new(&self.program);
        command.args(&self.args).envs(self.env.iter().map(|(name, value)| (name, value)));
        if let Some(folder) = &self.folder {
            command.current_dir(folder);
        }
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).kill_on_drop(true);
        command
    }
}

impl fmt::Debug for ChildServer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ChildServer").field("program", &self.spec.program).finish_non_exhaustive()
    }
}

impl ChildServer {
    /// Creates a server that is started as `program` with `args`. Nothing is started yet.
    pub fn new(
        program: impl Into<OsString>,
        args: impl IntoIterator<Item = impl Into<OsString>>,
    ) -> Self {
        let args = args.into_iter().map(Into::into).collect();
        Self {
            spec: ProcessSpec { program: program.into(), args, env: Vec::new(), folder: None },
            timeout: Duration::from_mins(2),
            start_timeout: Duration::from_mins(5),
            max_message: DEFAULT_MAX_MESSAGE,
            running: Mutex::default(),
            checking: AsyncMutex::default(),
            shutdowns: AtomicU64::new(0),
        }
    }

    /// Sets an environment variable of the process, in addition to the inherited ones.
    pub fn env(mut self, name: impl Into<OsString>, value: impl Into<OsString>) -> Self {
        self.spec.env.push((name.into(), value.into()));
        self
    }

    /// Sets the folder in which the process starts. Default: that of this process.
    ///
    /// It is not defined whether a relative path of the program refers to this folder.
    pub fn current_dir(mut self, folder: impl Into<PathBuf>) -> Self {
        self.spec.folder = Some(folder.into());
        self
    }

    /// Sets the timeout of one request, and the timeout of the start of the process before it.
    /// Requests that wait for the same start share its time. Default: 2 min. Of a subscription, it
    /// covers the time until the first message from the server, which acknowledges it.
    pub fn timeout(mut self, time: Duration) -> Self {
        self.timeout = time;
        self
    }

    /// Sets the time after which a process that has sent no message since its start is replaced, by
    /// the next request. Default: 5 min. It is at least the [`timeout`](Self::timeout) of a
    /// request, so that none is interrupted. A legacy server has as long to answer `initialize`.
    pub fn start_timeout(mut self, time: Duration) -> Self {
        self.start_timeout = time;
        self
    }

    /// Sets the longest message from the server, in bytes. Default: 16 MiB.
    pub fn max_message(mut self, bytes: usize) -> Self {
        self.max_message = bytes;
        self
    }

    /// Returns true if no process is running: it was not started, or it has exited. The next
    /// request starts one.
    pub fn has_exited(&self) -> bool {
        self.lock().as_ref().is_none_or(|running| running.client.is_closed())
    }

    /// Shuts the process down (specification: stdio, "Shutdown"): closes its standard input and
    /// waits up to `timeout` for it to exit; then sends `SIGTERM`, where signals exist, and waits
    /// once more; then kills it.
    ///
    /// Dropping the future kills the process at once. The next request starts it again.
    pub async fn shutdown(&self, timeout: Duration) {
        self.shutdowns.fetch_add(1, Ordering::SeqCst);
        let running = self.lock().take();
        if let Some(running) = running {
            shut_down(running, timeout).await;
        }
    }

    /// Returns the client of the running process, and starts the process if there is none. Unlike
    /// [`Transport::send`], it sends nothing to a new process.
    ///
    /// For the workspace's own crates. Not covered by semantic versioning.
    ///
    /// # Errors
    ///
    /// If the process cannot be started.
    #[doc(hidden)]
    pub fn start(&self) -> Result<StreamClient, TransportError> {
        let mut running = self.lock();
        Ok(self.current(&mut running)?.client.clone())
    }

    /// Like [`ChildServer::start`], after a process was started. Fails if it was shut down since:
    /// `shutdowns` is how often that had happened before.
    #[doc(hidden)]
    pub fn restart(&self, shutdowns: u64) -> Result<StreamClient, TransportError> {
        let mut running = self.lock();
        if running.is_none() || self.shutdowns() != shutdowns {
            return Err(TransportError::not_sent("the server was shut down"));
        }
        Ok(self.current(&mut running)?.client.clone())
    }

    /// Replaces the process of this stream, and returns the client of the one that runs then.
    #[doc(hidden)]
    pub fn replace(&self, stream: &StreamClient) -> Result<StreamClient, TransportError> {
        let mut running = self.lock();
        let former = running.take_if(|own| own.client.is_same_stream(stream));
        if former.is_some() {
            *running = Some(self.spawn(former)?);
        }
        drop(running);
        self.restart(self.shutdowns())
    }

    /// Returns the time after which a process that has not started is replaced.
    #[doc(hidden)]
    pub fn start_limit(&self) -> Duration {
        self.start_timeout.max(self.timeout)
    }

    /// Returns how often [`ChildServer::shutdown`] was called.
    #[doc(hidden)]
    pub fn shutdowns(&self) -> u64 {
        self.shutdowns.load(Ordering::SeqCst)
    }

    /// Returns the timeout of one request.
    #[doc(hidden)]
    pub fn request_timeout(&self) -> Duration {
        self.timeout
    }

    fn lock(&self) -> MutexGuard<'_, Option<Running>> {
        self.running.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the running process, and starts one if there is none.
    fn current<'r>(
        &self,
        running: &'r mut Option<Running>,
    ) -> Result<&'r mut Running, TransportError> {
        let current = match running.take() {
            Some(current) if !current.is_useless(self.start_limit()) => current,
            useless => self.spawn(useless)?,
        };
        Ok(running.insert(current))
    }

    /// Returns the client of a process that speaks our version.
    async fn client(&self, request: &Request) -> Result<StreamClient, TransportError> {
        if let Some(client) = self.usable(request)? {
            return Ok(client);
        }
        let shutdowns = self.shutdowns();
        let _checking = self.checking.lock().await;
        if self.shutdowns() != shutdowns {
            return Err(TransportError::not_sent("the server was shut down"));
        }
        // Another request may have checked it meanwhile.
        if let Some(client) = self.usable(request)? {
            return Ok(client);
        }
        let (client, probe) = {
            let mut running = self.lock();
            let current = self.current(&mut running)?;
            current.probes += 1;
            (current.client.clone(), current.probes)
        };
        let program = self.spec.program.to_string_lossy();
        // The process is kept if this request is cancelled, or if it is slow to start.
        let checked = check_version(&program, &client, request, probe).await;
        let mut running = self.lock();
        if let Some(own) = running.as_mut().filter(|own| own.client.is_same_stream(&client)) {
            own.is_checked |= checked.is_ok();
            if checked.as_ref().is_err_and(|error| !error.is_transient())
                && let Some(other) = running.take()
            {
                tokio::spawn(shut_down(other, DROP_TIMEOUT));
            }
        }
        checked.map(|()| client)
    }

    /// Returns the client of the running process if a request can be sent to it as it is.
    fn usable(&self, request: &Request) -> Result<Option<StreamClient>, TransportError> {
        let mut running = self.lock();
        let current = self.current(&mut running)?;
        let is_usable = current.is_checked || request.method == method::DISCOVER;
        Ok(is_usable.then(|| current.client.clone()))
    }

    /// Starts the process, in place of one that has exited, closed a stream, or hangs.
    fn spawn(&self, former: Option<Running>) -> Result<Running, TransportError> {
        let program = self.spec.program.to_string_lossy();
        if let Some(former) = former {
            let reason = if former.client.is_closed() {
                "it has exited or closed a stream"
            } else {
                "it does not answer"
            };
            tracing::warn!(target: "mrtr::stdio", %program, reason, "restarting the server");
            // The process may still run. It is shut down meanwhile.
            tokio::spawn(shut_down(former, DROP_TIMEOUT));
        }
        let mut child = self.spec.command().spawn().map_err(|error| {
            let folder =
                self.spec.folder.as_deref().map(|folder| format!(" in {}", folder.display()));
            let why = format!("{program} cannot be started{}: {error}", folder.unwrap_or_default());
            match error.kind() {
                io::ErrorKind::NotFound | io::ErrorKind::PermissionDenied => {
                    TransportError::invalid_request(why)
                }
                _ => TransportError::not_sent(why),
            }
        })?;
        let (Some(stdin), Some(stdout)) = (child.stdin.take(), child.stdout.take()) else {
            return Err(TransportError::not_sent(format!("{program} has no standard streams")));
        };
        let stdout = BufReader::new(stdout);
        let client =
            StreamClient::with_max_message(stdout, stdin, self.max_message).timeout(self.timeout);
        Ok(Running { child, client, is_checked: false, started: Instant::now(), probes: 0 })
    }
}

impl Drop for ChildServer {
    fn drop(&mut self) {
        if let (Some(running), Ok(runtime)) =
            (self.lock().take(), tokio::runtime::Handle::try_current())
        {
            runtime.spawn(shut_down(running, DROP_TIMEOUT));
        }
    }
}

impl Transport for ChildServer {
    async fn send(&self, outgoing: OutgoingRequest<'_>) -> Result<Response, TransportError> {
        let shutdowns = self.shutdowns();
        let sent = self.send_once(outgoing).await;
        sent.map_err(|error| self.unless_shut_down(shutdowns, error))
    }
}

impl ChildServer {
    /// Marks the error of a request as permanent if the process was shut down since: no retry is to
    /// start it again. `shutdowns` is how often that had happened before.
    #[doc(hidden)]
    pub fn unless_shut_down(&self, shutdowns: u64, error: TransportError) -> TransportError {
        if self.shutdowns() == shutdowns { error } else { error.permanent() }
    }

    async fn send_once(&self, outgoing: OutgoingRequest<'_>) -> Result<Response, TransportError> {
        let client = tokio::time::timeout(self.timeout, self.client(&outgoing.request)).await;
        let client = client.map_err(|_| {
            let program = self.spec.program.to_string_lossy();
            TransportError::not_sent(format!("{program} did not start within {:?}", self.timeout))
        })??;
        let is_discover = outgoing.request.method == method::DISCOVER;
        let response = client.exchange(outgoing).await?;
        let program = self.spec.program.to_string_lossy();
        if is_discover && check_discovered(&program, &response).is_ok() {
            let mut running = self.lock();
            if let Some(running) = running.as_mut().filter(|own| own.client.is_same_stream(&client))
            {
                running.is_checked = true;
            }
        }
        Ok(response)
    }
}

/// Checks that a server that was just started speaks our version (specification: stdio, "Backward
/// Compatibility"). Fails with the reason.
async fn check_version(
    program: &str,
    client: &StreamClient,
    request: &Request,
    probes: u64,
) -> Result<(), TransportError> {
    let invalid = |error: &dyn fmt::Display| {
        TransportError::invalid_request(format!("invalid request: {error}"))
    };
    let RequestHead { meta, .. } = RequestHead::from_request(request).map_err(|e| invalid(&e))?;
    let params = Params::new(&json!({ "_meta": meta.as_deref() })).map_err(|e| invalid(&e))?;
    // Ids of calls are numbers or chosen by the caller; this one is answered before they are sent.
    // It is another one each time: an error for a cancelled request may arrive late.
    let id = RequestId::String(format!("probe-{probes}"));
    let discover = Request::new(id, method::DISCOVER, Some(params));
    // It may be slow to start, or may have crashed.
    let response = client.exchange(OutgoingRequest::new(discover)).await.map_err(|error| {
        TransportError::not_sent(format!("{program} did not answer `server/discover`: {error}"))
    })?;
    check_discovered(program, &response)
}

/// Checks that a response to `server/discover` names our version. Fails with the reason.
fn check_discovered(program: &str, response: &Response) -> Result<(), TransportError> {
    let other = |reason: &dyn fmt::Display| {
        let why = format!("{program} does not speak MCP {PROTOCOL_VERSION}: {reason}");
        TransportError::invalid_request(why)
    };
    let result = response.outcome.as_ref().map_err(|error| {
        other(&format_args!("it answered `server/discover` with an error: {error}"))
    })?;
    let discovered: DiscoverResult = serde_json::from_str(result.get()).map_err(|error| {
        other(&format_args!("its `server/discover` result is malformed: {error}"))
    })?;
    let versions = discovered.supported_versions;
    if versions.iter().any(|version| version == PROTOCOL_VERSION) {
        return Ok(());
    }
    Err(other(&format_args!("it speaks {}", versions.join(", "))))
}

/// Waits for a process to exit, and kills it if it does not.
async fn shut_down(running: Running, timeout: Duration) {
    let Running { mut child, client, .. } = running;
    client.close();
    if tokio::time::timeout(timeout, child.wait()).await.is_err()
        && !(terminate(&child) && tokio::time::timeout(timeout, child.wait()).await.is_ok())
    {
        tracing::warn!(target: "mrtr::stdio", "server does not exit: killing it");
        let _ = child.kill().await;
    }
    // Another process may have inherited its output.
    client.stop_reading(LAST_OUTPUT).await;
}

/// Sends `SIGTERM` to a process. Returns false if that is not possible.
#[cfg(unix)]
fn terminate(child: &Child) -> bool {
    use rustix::process::{Pid, Signal, kill_process};

    // Tokio returns no id once the process was waited for, so the id cannot belong to another
    // process.
    let pid = child.id().and_then(|id| Pid::from_raw(id.try_into().ok()?));
    pid.is_some_and(|pid| kill_process(pid, Signal::TERM).is_ok())
}

#[cfg(not(unix))]
fn terminate(_: &Child) -> bool {
    false
}
