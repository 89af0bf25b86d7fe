//! A server that is a process of ours.

use std::fmt;
use std::process::Stdio;
use std::time::Duration;

use mrtr_schema::discover::DiscoverResult;
use mrtr_schema::jsonrpc::{Params, Request, RequestId, Response};
use mrtr_schema::request_head::RequestHead;
use mrtr_schema::{PROTOCOL_VERSION, method};
use serde_json::json;
use tokio::io::BufReader;
use tokio::process::{Child, Command};
use tokio::sync::Mutex;

use super::client::{MAX_MESSAGE, StreamClient};
use crate::error::TransportError;
use crate::traits::{OutgoingRequest, Transport};

/// A server that runs as a child process and is spoken to over its standard streams. It is started with
/// the first request, and again with the next one after it has ended. What it writes to its standard
/// error goes to ours.
///
/// A process that was just started is asked for its versions before anything else (`server/discover`), so
/// that one that speaks only revisions from before 2026-07-28 does nothing that it would misunderstand.
///
/// [`ChildServer::shutdown`] lets the process end by itself. Dropping this does the same, with a patience of
/// 5 s, in a task of the runtime; where there is none, or it ends before, the process is killed.
///
/// Its [`Debug`] form names the program alone: arguments and variables are where secrets are.
pub struct ChildServer {
    recipe: Recipe,
    timeout: Duration,
    max_message: usize,
    running: Mutex<Option<(Child, StreamClient)>>,
}

struct Recipe {
    program: std::ffi::OsString,
    args: Vec<std::ffi::OsString>,
    env: Vec<(std::ffi::OsString, std::ffi::OsString)>,
}

impl fmt::Debug for ChildServer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ChildServer").field("program", &self.recipe.program).finish_non_exhaustive()
    }
}

/// How long a process may take to end after its [`ChildServer`] was dropped.
const PATIENCE: Duration = Duration::from_secs(5);

impl ChildServer {
    /// A server that is started as `program` with `args`.
    pub fn new(
        program: impl Into<std::ffi::OsString>,
        args: impl IntoIterator<Item = impl Into<std::ffi::OsString>>,
    ) -> Self {
        let args = args.into_iter().map(Into::into).collect();
        let recipe = Recipe { program: program.into(), args, env: Vec::new() };
        Self {
            recipe,
            timeout: Duration::from_mins(2),
            max_message: MAX_MESSAGE,
            running: Mutex::new(None),
        }
    }

    /// An environment variable for the process, beside our own.
    pub fn env(
        mut self,
        name: impl Into<std::ffi::OsString>,
        value: impl Into<std::ffi::OsString>,
    ) -> Self {
        self.recipe.env.push((name.into(), value.into()));
        self
    }

    /// How long one request may take, and how long the start before it, together with those that wait for the same start.
    /// Default: 2 min.
    pub fn timeout(mut self, time: Duration) -> Self {
        self.timeout = time;
        self
    }

    /// The longest message that is taken from the server, in bytes. Default: 16 MiB.
    pub fn max_message(mut self, bytes: usize) -> Self {
        self.max_message = bytes;
        self
    }

    /// The running process, started if there is none.
    async fn running(&self, request: &Request) -> Result<StreamClient, TransportError> {
        let mut running = self.running.lock().await;
        if let Some((_, client)) = running.as_ref().filter(|(_, client)| !client.is_closed()) {
            return Ok(client.clone());
        }
        let program = self.recipe.program.to_string_lossy();
        if running.take().is_some() {
            tracing::warn!(target: "mrtr::stdio", %program, "the server has ended; it is started again");
        }
        let mut child = command(&self.recipe)
            .spawn()
            .map_err(|e| TransportError::unsent(format!("{program} cannot be started: {e}")))?;
        let (Some(stdin), Some(stdout)) = (child.stdin.take(), child.stdout.take()) else {
            return Err(TransportError::unsent(format!("{program} has no standard streams")));
        };
        let stdout = BufReader::new(stdout);
        let client = StreamClient::with_max_message(stdout, stdin, self.max_message);
        let client = client.timeout(self.timeout);
        if request.method != method::DISCOVER {
            probe(&client, request).await.map_err(|why| {
                TransportError::unsent(format!(
                    "{program} does not speak MCP {PROTOCOL_VERSION}: {why}"
                ))
            })?;
        }
        *running = Some((child, client.clone()));
        Ok(client)
    }

    /// Whether there is no running process: the next request starts one.
    pub async fn has_ended(&self) -> bool {
        self.running.lock().await.as_ref().is_none_or(|(_, client)| client.is_closed())
    }

    /// Closes the server's standard input and waits up to `patience` for it to end. One that does not is
    /// told to (`SIGTERM`, where there are signals), and after `patience` once more, it is killed
    /// (specification: stdio, "Shutdown"). Dropping the future kills it at once. The next request would
    /// start it again.
    pub async fn shutdown(&self, patience: Duration) {
        let running = self.running.lock().await.take();
        if let Some((child, client)) = running {
            end(child, client, patience).await;
        }
    }
}

impl Drop for ChildServer {
    fn drop(&mut self) {
        if let (Some((child, client)), Ok(runtime)) =
            (self.running.get_mut().take(), tokio::runtime::Handle::try_current())
        {
            runtime.spawn(end(child, client, PATIENCE));
        }
    }
}

/// Asks a server that was just started which versions it speaks (specification: stdio, "Backward
/// Compatibility").
async fn probe(client: &StreamClient, request: &Request) -> Result<(), String> {
    let RequestHead { meta, .. } = RequestHead::from_request(request).map_err(|e| e.to_string())?;
    let meta = Params::new(&json!({ "_meta": meta.as_deref() })).map_err(|e| e.to_string())?;
    let id = RequestId::String("probe".to_owned());
    let discover = Request::new(id, method::DISCOVER, Some(meta));
    let response = client.send(OutgoingRequest::new(discover)).await.map_err(|e| e.to_string())?;
    let supported = match &response.outcome {
        Ok(result) => {
            serde_json::from_str::<DiscoverResult>(result.get())
                .map_err(|e| format!("its `server/discover` is malformed: {e}"))?
                .supported_versions
        }
        Err(error) => return Err(format!("it answered `server/discover` with {error}")),
    };
    if supported.iter().any(|version| version == PROTOCOL_VERSION) {
        return Ok(());
    }
    Err(format!("it speaks {}", supported.join(", ")))
}

/// Lets a process end.
async fn end(mut child: Child, client: StreamClient, patience: Duration) {
    client.close();
    if tokio::time::timeout(patience, child.wait()).await.is_ok() {
        return;
    }
    if terminate(&child) && tokio::time::timeout(patience, child.wait()).await.is_ok() {
        return;
    }
    tracing::warn!(target: "mrtr::stdio", "the server does not end by itself; it is killed");
    let _ = child.kill().await;
}

/// Tells a process to end. Says whether it could be told.
#[cfg(unix)]
fn terminate(child: &Child) -> bool {
    use rustix::process::{Pid, Signal, kill_process};

    // The id is there as long as the process was not waited for, and so is nobody else's.
    let pid = child.id().and_then(|id| Pid::from_raw(id.try_into().ok()?));
    pid.is_some_and(|pid| kill_process(pid, Signal::TERM).is_ok())
}

#[cfg(not(unix))]
fn terminate(_: &Child) -> bool {
    false
}

fn command(recipe: &Recipe) -> Command {
    let mut command = Command::new(&recipe.program);
    command.args(&recipe.args).envs(recipe.env.iter().map(|(name, value)| (name, value)));
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).kill_on_drop(true);
    command
}

impl Transport for ChildServer {
    async fn send(&self, outgoing: OutgoingRequest<'_>) -> Result<Response, TransportError> {
        let started = tokio::time::timeout(self.timeout, self.running(&outgoing.request)).await;
        let client = started.map_err(|_| {
            let program = self.recipe.program.to_string_lossy();
            TransportError::unsent(format!("{program} did not start within {:?}", self.timeout))
        })??;
        client.send(outgoing).await
    }
}
