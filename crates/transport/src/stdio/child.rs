//! A server that is a process of ours.

use std::process::Stdio;
use std::time::Duration;

use mrtr_schema::jsonrpc::Response;
use tokio::io::BufReader;
use tokio::process::{Child, Command};
use tokio::sync::Mutex;

use super::client::StreamClient;
use crate::error::TransportError;
use crate::seam::{Exchange, Outgoing};

/// A server that runs as a child process and is spoken to over its standard streams. It is started with
/// the first request, and again with the next one after it has ended. What it writes to its standard
/// error goes to ours.
///
/// Dropping it kills the process; [`ChildServer::shutdown`] lets it end by itself.
#[derive(Debug)]
pub struct ChildServer {
    recipe: Recipe,
    running: Mutex<Option<(Child, StreamClient)>>,
}

#[derive(Debug)]
struct Recipe {
    program: std::ffi::OsString,
    args: Vec<std::ffi::OsString>,
    env: Vec<(std::ffi::OsString, std::ffi::OsString)>,
}

impl ChildServer {
    /// A server that is started as `program` with `args`.
    pub fn new(
        program: impl Into<std::ffi::OsString>,
        args: impl IntoIterator<Item = impl Into<std::ffi::OsString>>,
    ) -> Self {
        let args = args.into_iter().map(Into::into).collect();
        let recipe = Recipe { program: program.into(), args, env: Vec::new() };
        Self { recipe, running: Mutex::new(None) }
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

    /// The running process, started if there is none.
    async fn running(&self) -> Result<StreamClient, TransportError> {
        let mut running = self.running.lock().await;
        if let Some((_, client)) = running.as_ref().filter(|(_, client)| !client.is_closed()) {
            return Ok(client.clone());
        }
        if running.take().is_some() {
            tracing::warn!(target: "mrtr::stdio", program = ?self.recipe.program, "the server has ended; it is started again");
        }
        let program = || self.recipe.program.to_string_lossy().into_owned();
        let mut child = command(&self.recipe)
            .spawn()
            .map_err(|e| TransportError::unsent(format!("{} cannot be started: {e}", program())))?;
        let (Some(stdin), Some(stdout)) = (child.stdin.take(), child.stdout.take()) else {
            return Err(TransportError::unsent(format!("{} has no standard streams", program())));
        };
        let client = StreamClient::new(BufReader::new(stdout), stdin);
        *running = Some((child, client.clone()));
        Ok(client)
    }

    /// Closes the server's standard input and waits up to `patience` for it to end. One that does not is
    /// told to (`SIGTERM`, where there are signals), and after `patience` once more, it is killed
    /// (specification: stdio, "Shutdown"). Dropping the future kills it at once.
    pub async fn shutdown(self, patience: Duration) {
        let Some((mut child, client)) = self.running.into_inner() else { return };
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

impl Exchange for ChildServer {
    async fn exchange(&self, outgoing: Outgoing<'_>) -> Result<Response, TransportError> {
        self.running().await?.exchange(outgoing).await
    }
}
