//! The running server, as a connection that reloads it.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use mrtr::client::{OutgoingRequest, Transport, TransportError};
use mrtr::development::{KEYS_VARIABLE, STDIO_VARIABLE};
use mrtr::schema::jsonrpc::Response;
use mrtr::stdio::{ChildConnection, ChildServer};
use tokio::sync::Mutex;

use super::project::{Project, stem};
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
    args: Vec<String>,
    /// The key ring of the server.
    keys: String,
    name: String,
    running: Mutex<Running>,
    /// The time that reloads took since it was read last, in microseconds.
    reload_time: AtomicU64,
}

struct Running {
    project: Project,
    connection: Arc<ChildConnection>,
}

/// What a look at the source has led to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Reload {
    /// The source is the same.
    Unchanged,
    /// The build failed, and the previous server keeps running.
    Failed,
    /// A new server is there. It starts with the next request.
    Replaced,
}

impl DevServer {
    /// Builds the server. It starts with the first request.
    pub(super) fn start(mut project: Project, args: Vec<String>, keys: String) -> Result<Self> {
        let path = build(&mut project)?;
        let (name, connection) = (stem(&path), connect(path, &args, &keys));
        let running = Mutex::new(Running { project, connection });
        let reload_time = AtomicU64::default();
        Ok(Self(Arc::new(Shared { args, keys, name, running, reload_time })))
    }

    /// Returns the name of the binary.
    pub(super) fn name(&self) -> &str {
        &self.0.name
    }

    /// Rebuilds the server if its source has changed, and replaces the running one.
    pub(super) async fn reload(&self) -> Reload {
        self.current().await.1
    }

    /// Returns the time that reloads took since this was called last.
    pub(super) fn take_reload_time(&self) -> Duration {
        // Relaxed: the number guards no other memory.
        Duration::from_micros(self.0.reload_time.swap(0, Ordering::Relaxed))
    }

    pub(super) async fn shutdown(&self) {
        let connection = Arc::clone(&self.0.running.lock().await.connection);
        connection.shutdown(SHUTDOWN_TIMEOUT).await;
    }

    async fn current(&self) -> (Arc<ChildConnection>, Reload) {
        let Shared { args, keys, running, reload_time, .. } = &*self.0;
        let mut running = running.lock().await;
        if !running.project.is_outdated() {
            return (Arc::clone(&running.connection), Reload::Unchanged);
        }
        let started = Instant::now();
        output::note(&format!("{}Source changed: rebuilding.", output::line_break()));
        if cfg!(windows) {
            // The file of a running program cannot be replaced.
            running.connection.shutdown(SHUTDOWN_TIMEOUT).await;
        }
        let reload = match tokio::task::block_in_place(|| build(&mut running.project)) {
            Ok(path) => {
                let connection = connect(path, args, keys);
                let old = std::mem::replace(&mut running.connection, connection);
                old.shutdown(SHUTDOWN_TIMEOUT).await;
                Reload::Replaced
            }
            Err(Failure { message, .. }) => {
                output::note(&format!("{message}; the previous server keeps running."));
                Reload::Failed
            }
        };
        let micros = u64::try_from(started.elapsed().as_micros()).unwrap_or(u64::MAX);
        reload_time.fetch_add(micros, Ordering::Relaxed);
        (Arc::clone(&running.connection), reload)
    }
}

fn build(project: &mut Project) -> Result<PathBuf> {
    let started = Instant::now();
    let path = project.build()?;
    let time = started.elapsed();
    output::note(&output::dim(&format!("built {} in {:.1} s", stem(&path), time.as_secs_f64())));
    Ok(path)
}

fn connect(program: PathBuf, args: &[String], keys: &str) -> Arc<ChildConnection> {
    let child = ChildServer::new(program, args).env(KEYS_VARIABLE, keys).env(STDIO_VARIABLE, "1");
    Arc::new(ChildConnection::new(child))
}

impl Transport for DevServer {
    async fn send(&self, outgoing: OutgoingRequest<'_>) -> Result<Response, TransportError> {
        let (connection, _) = self.current().await;
        connection.send(outgoing).await
    }
}
