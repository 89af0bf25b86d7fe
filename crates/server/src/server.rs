//! The server handle.

use std::fmt;
use std::future::Future;
use std::sync::Arc;

use mrtr_codec::Seal;

use crate::registry::Registry;

/// A Model Context Protocol server: handlers, and the keys that seal request states.
///
/// It keeps no state of calls between requests. Clones are cheap, and share all parts. A transport
/// calls it through [`mrtr_transport::RequestHandler`].
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
    pub(crate) registry: Arc<Registry>,
}

impl Server {
    /// Begins a graceful shutdown: closes subscriptions, and hands calls over to other replicas
    /// between steps.
    ///
    /// Requests in flight continue. `mrtr::serve` calls this on SIGTERM.
    pub fn begin_shutdown(&self) {
        self.registry.runtime.hand_over.close();
        self.registry.changes.close();
    }

    /// Returns what seals the request states of this server: the key ring, or the sealer that was
    /// given to the builder.
    pub fn sealer(&self) -> Arc<dyn Seal> {
        Arc::clone(&self.registry.sealer)
    }

    /// Waits for detached work: [single-use](crate::Tool::single_use) requests, and steps marked
    /// [`finish_on_disconnect`](crate::StepFuture::finish_on_disconnect).
    ///
    /// Call it with a timeout, after the transport has stopped and before the process ends.
    /// `mrtr::serve` and `mrtr::serve_stdio` wait up to 10 s. A single-use request that is aborted
    /// leaves its request state used, with an unknown outcome. Dropping the future stops waiting
    /// and aborts nothing.
    pub fn drained(&self) -> impl Future<Output = ()> + Send + use<> {
        self.registry.runtime.tasks.wait_idle()
    }
}

impl fmt::Debug for Server {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Server")
            .field("meta", &self.registry.meta)
            .field("tools", &self.registry.tools)
            .field("prompts", &self.registry.prompts)
            .finish_non_exhaustive()
    }
}
