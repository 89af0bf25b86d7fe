//! Notifications about changes, for clients that subscribe to them.

use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::broadcast::{self, Receiver, Sender};

/// A change that clients can subscribe to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Change {
    /// The list of tools.
    Tools,
    /// The list of prompts.
    Prompts,
    /// The list of resources.
    Resources,
    /// The resource with this URI.
    Resource(String),
}

/// Publishes changes to the clients that subscribed on this replica. Cheap to clone.
///
/// With several replicas, every change must reach all of them: send it to a message broker, and
/// let each replica call [`ChangeNotifier::publish`] with the changes that it receives.
///
/// ```
/// use mrtr_server::{Change, ChangeNotifier, Context, Resource, Result, Server};
///
/// async fn menu(_: Context) -> Result<String> {
///     Ok("Soup".to_owned())
/// }
///
/// let changes = ChangeNotifier::new();
/// let server = Server::builder("restaurant", "1.0.0")
///     .resource(Resource::new("menu://today", "menu", menu))
///     .changes(changes.clone())
///     .allow_anonymous()
///     .ephemeral_key()
///     .build()?;
///
/// changes.publish(Change::Resource("menu://today".to_owned()));
/// # Ok::<(), mrtr_server::BuildError>(())
/// ```
#[derive(Debug, Clone)]
pub struct ChangeNotifier(Arc<Mutex<Option<Sender<Change>>>>);

impl Default for ChangeNotifier {
    fn default() -> Self {
        Self(Arc::new(Mutex::new(Some(broadcast::channel(Self::CAPACITY).0))))
    }
}

impl ChangeNotifier {
    /// Maximum number of changes that wait for one slow client. A client that falls further behind
    /// is notified of everything it subscribed to.
    const CAPACITY: usize = 256;

    /// Creates a change notifier.
    pub fn new() -> Self {
        Self::default()
    }

    /// Publishes a change to the clients that subscribed to it. After [`close`](Self::close), it
    /// does nothing.
    pub fn publish(&self, change: Change) {
        let sender = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        // Sending fails if there are no subscriptions, which is not an error.
        let _ = sender.as_ref().map(|sender| sender.send(change));
    }

    /// Returns the number of open subscriptions.
    pub fn listeners(&self) -> usize {
        let sender = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        sender.as_ref().map_or(0, Sender::receiver_count)
    }

    /// Ends all subscriptions, as [`Server::begin_shutdown`](crate::Server::begin_shutdown) does.
    /// New subscriptions end at once.
    pub fn close(&self) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).take();
    }

    pub(crate) fn subscribe(&self) -> Option<Receiver<Change>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).as_ref().map(Sender::subscribe)
    }
}
