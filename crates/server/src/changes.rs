//! Notifications about changes, for clients that subscribe to them.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::broadcast::{self, Receiver, Sender};
use tokio::sync::watch;

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
#[derive(Debug, Clone, Default)]
pub struct ChangeNotifier(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    /// `None` after [`ChangeNotifier::close`].
    sender: Mutex<Option<Sender<Change>>>,
    /// The resources that clients subscribed to, each with the number of subscriptions.
    watched: watch::Sender<BTreeMap<String, usize>>,
}

impl Default for Shared {
    fn default() -> Self {
        let sender = broadcast::channel(ChangeNotifier::CAPACITY).0;
        Self { sender: Mutex::new(Some(sender)), watched: watch::Sender::default() }
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
        let sender = self.0.sender.lock().unwrap_or_else(PoisonError::into_inner);
        // Sending fails if there are no subscriptions, which is not an error.
        let _ = sender.as_ref().map(|sender| sender.send(change));
    }

    /// Returns the number of open subscriptions.
    pub fn listeners(&self) -> usize {
        let sender = self.0.sender.lock().unwrap_or_else(PoisonError::into_inner);
        sender.as_ref().map_or(0, Sender::receiver_count)
    }

    /// Ends all subscriptions, as [`Server::begin_shutdown`](crate::Server::begin_shutdown) does.
    /// New subscriptions end at once.
    pub fn close(&self) {
        self.0.sender.lock().unwrap_or_else(PoisonError::into_inner).take();
    }

    pub(crate) fn subscribe(&self) -> Option<Receiver<Change>> {
        self.0.sender.lock().unwrap_or_else(PoisonError::into_inner).as_ref().map(Sender::subscribe)
    }

    /// Returns the resources that clients subscribed to on this replica. For servers that must ask
    /// others to learn of changes.
    pub fn watched_resources(&self) -> WatchedResources {
        WatchedResources(self.0.watched.subscribe())
    }

    /// Records that a client watches these resources, until the guard is dropped.
    pub(crate) fn watch(&self, uris: &[String]) -> WatchGuard {
        self.0.count(uris, |count| *count += 1);
        WatchGuard { shared: Arc::clone(&self.0), uris: uris.to_vec() }
    }
}

impl Shared {
    /// Changes the counts of these resources. Receivers are notified if the set has changed.
    fn count(&self, uris: &[String], change: impl Fn(&mut usize)) {
        self.watched.send_if_modified(|watched| {
            let mut is_changed = false;
            for uri in uris {
                let count = watched.entry(uri.clone()).or_default();
                is_changed |= *count == 0;
                change(count);
                is_changed |= *count == 0;
            }
            watched.retain(|_, count| *count > 0);
            is_changed
        });
    }
}

/// Records that a client watches resources.
#[derive(Debug)]
pub(crate) struct WatchGuard {
    shared: Arc<Shared>,
    uris: Vec<String>,
}

impl Drop for WatchGuard {
    fn drop(&mut self) {
        self.shared.count(&self.uris, |count| *count = count.saturating_sub(1));
    }
}

/// The resources that clients subscribed to. Created by [`ChangeNotifier::watched_resources`].
#[derive(Debug, Clone)]
pub struct WatchedResources(watch::Receiver<BTreeMap<String, usize>>);

impl WatchedResources {
    /// Returns the URIs.
    pub fn uris(&mut self) -> Vec<String> {
        self.0.borrow_and_update().keys().cloned().collect()
    }

    /// Waits until the URIs differ from those that [`uris`](Self::uris) returned last. Dropping the
    /// future loses nothing.
    pub async fn changed(&mut self) {
        if self.0.changed().await.is_err() {
            // The server is gone, and with it all subscriptions.
            std::future::pending::<()>().await;
        }
    }
}
