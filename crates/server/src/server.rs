//! The server handle.

use std::fmt;
use std::future::Future;
use std::sync::{Arc, Mutex};

use arc_swap::ArcSwap;
use mrtr_codec::Seal;

use crate::registry::{Registry, ServerParts};

/// A Model Context Protocol server: handlers, and the keys that seal request states.
///
/// It keeps no state of calls between requests. Clones are cheap, and share all parts. A transport
/// calls it through [`mrtr_transport::RequestHandler`]. [`update`](Self::update) changes what it
/// offers.
///
/// ```
/// use mrtr_server::{Context, Result, Server, Tool};
///
/// async fn ping(_: Context) -> Result<String> {
///     Ok("pong".to_owned())
/// }
///
/// let server = Server::builder("ping", "1.0.0")
///     .tool(Tool::new("ping", "Answers with pong", ping))
///     .allow_anonymous()
///     .ephemeral_key()
///     .build()?;
/// # Ok::<(), mrtr_server::BuildError>(())
/// ```
#[derive(Clone)]
pub struct Server {
    pub(crate) parts: Arc<ServerParts>,
}

impl Server {
    pub(crate) fn new(registry: Registry) -> Self {
        let constants = Arc::clone(&registry.constants);
        let current = ArcSwap::from_pointee(registry);
        let parts = Arc::new(ServerParts { current, updating: Mutex::default() });
        constants.server.get_or_init(|| Arc::downgrade(&parts));
        Self { parts }
    }

    /// Returns what the server is made of now.
    pub(crate) fn registry(&self) -> Arc<Registry> {
        self.parts.current.load_full()
    }

    /// Begins a graceful shutdown: closes subscriptions, and hands calls over to other replicas
    /// between steps.
    ///
    /// Requests in flight continue. `mrtr::serve` calls this on SIGTERM.
    pub fn begin_shutdown(&self) {
        let registry = self.registry();
        registry.runtime.hand_over.close();
        registry.changes.close();
    }

    /// Runs due tasks: those that were answered, and those whose replica has died. Completes after
    /// [`begin_shutdown`](Self::begin_shutdown), when a request to the store in progress has ended,
    /// or at once if the server has no [task store](crate::ServerBuilder::task_store).
    ///
    /// `mrtr::serve` runs it. Call it once per process, in a task of its own; it may also run in
    /// processes that serve no requests. Runs continue if the future is dropped:
    /// [`drained`](Self::drained) waits for them.
    pub async fn run_tasks(&self) {
        let registry = self.registry();
        if let Some(functions) = registry.task_functions {
            (functions.run)(registry).await;
        }
    }

    /// Returns the URI of the resource, or the URI template of the resource template, that serves
    /// `uri`. `None` if there is none. Visibility rules are not applied.
    pub fn resource_for(&self, uri: &str) -> Option<String> {
        let registry = self.registry();
        let resource = registry.resource(uri).map(|resource| resource.wire.uri.clone());
        let template = || Some(registry.matching_template(uri)?.1.wire.uri_template.clone());
        resource.or_else(template)
    }

    /// Returns what seals the request states of this server: the key ring, or the sealer that was
    /// given to the builder.
    pub fn sealer(&self) -> Arc<dyn Seal> {
        Arc::clone(&self.registry().sealer)
    }

    /// Waits for detached work: [single-use](crate::Tool::single_use) requests, and steps marked
    /// [`finish_on_disconnect`](crate::StepFuture::finish_on_disconnect).
    ///
    /// Call it with a timeout, after the transport has stopped and before the process ends.
    /// `mrtr::serve` and `mrtr::serve_stdio` wait up to 10 s. A single-use request that is aborted
    /// leaves its request state used, with an unknown outcome. Dropping the future stops waiting
    /// and aborts nothing.
    pub fn drained(&self) -> impl Future<Output = ()> + Send + use<> {
        self.registry().runtime.tasks.wait_idle()
    }
}

impl fmt::Debug for Server {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let registry = self.registry();
        f.debug_struct("Server")
            .field("meta", &registry.meta)
            .field("tools", &registry.tools)
            .field("prompts", &registry.prompts)
            .finish_non_exhaustive()
    }
}
