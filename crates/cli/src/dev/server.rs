//! The running server, as a connection that reloads it.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use mrtr::client::{OutgoingRequest, Transport, TransportError};
use mrtr::development::KEYS_VARIABLE;
use mrtr::schema::jsonrpc::Response;
use mrtr::stdio::{ChildConnection, ChildServer};
use tokio::sync::Mutex;

use super::project::{Program, Project};
use crate::failure::{Failure, Result};
use crate::output;

/// The time that a replaced server has to exit.
const SHUTDOWN_TIMEOUT: Duration = Duration::from_secs(2);

/// The server of a project. Clones share it.
///
/// Before each request, it is rebuilt and restarted if its source has changed. So a call that waits
/// for an answer continues on the new code.
#[derive(Clone)]
pub(super) struct DevServer(Arc<Shared>);

struct Shared {
    project: Project,
    args: Vec<String>,
    /// The key ring of the server.
    keys: String,
    running: Mutex<Running>,
}

struct Running {
    program: Program,
    connection: Arc<ChildConnection>,
}

impl DevServer {
    /// Builds the server. It starts with the first request.
    pub(super) async fn start(project: Project, args: Vec<String>, keys: String) -> Result<Self> {
        let program = build(&project).await?;
        let connection = connect(program.path.clone(), &args, &keys);
        let running = Mutex::new(Running { program, connection });
        Ok(Self(Arc::new(Shared { project, args, keys, running })))
    }

    /// Returns the name of the program.
    pub(super) async fn name(&self) -> String {
        self.0.running.lock().await.program.name()
    }

    /// Builds the server again if its source has changed, and replaces the running one. If the
    /// build fails, the running one stays. Returns true if the source has changed.
    pub(super) async fn reload(&self) -> bool {
        self.current().await.1
    }

    pub(super) async fn shutdown(&self) {
        let connection = Arc::clone(&self.0.running.lock().await.connection);
        connection.shutdown(SHUTDOWN_TIMEOUT).await;
    }

    async fn current(&self) -> (Arc<ChildConnection>, bool) {
        let Shared { project, args, keys, running } = &*self.0;
        let mut running = running.lock().await;
        if !running.program.is_outdated() {
            return (Arc::clone(&running.connection), false);
        }
        // The line may have a prompt.
        output::note(&format!("{}Source changed: rebuilding.", output::line_start()));
        match build(project).await {
            Ok(program) => {
                let connection = connect(program.path.clone(), args, keys);
                let old = std::mem::replace(&mut *running, Running { program, connection });
                old.connection.shutdown(SHUTDOWN_TIMEOUT).await;
            }
            Err(Failure { message, .. }) => {
                output::note(&format!("{message}; the previous server keeps running."));
                running.program.wait_for_another_change();
            }
        }
        (Arc::clone(&running.connection), true)
    }
}

async fn build(project: &Project) -> Result<Program> {
    let (project, started) = (project.clone(), Instant::now());
    let program = tokio::task::spawn_blocking(move || project.build()).await;
    let program = program.map_err(Failure::usage)??;
    let (name, time) = (program.name(), started.elapsed());
    output::note(&output::dim(&format!("built {name} in {:.1} s", time.as_secs_f64())));
    Ok(program)
}

fn connect(program: PathBuf, args: &[String], keys: &str) -> Arc<ChildConnection> {
    let child = ChildServer::new(program, args).env(KEYS_VARIABLE, keys);
    Arc::new(ChildConnection::new(child))
}

impl Transport for DevServer {
    async fn send(&self, outgoing: OutgoingRequest<'_>) -> Result<Response, TransportError> {
        let (connection, _) = self.current().await;
        connection.send(outgoing).await
    }
}
