//! What has changed, for those who listen.

use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::broadcast::{self, Receiver, Sender};

/// Something that has changed.
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

/// Carries changes to the clients that listen to this process. Cheap to clone.
///
/// On a fleet, a change has to reach all replicas: publish it to a broker of yours, and on every replica
/// hand what comes from the broker to [`ChangeNotifier::publish`].
#[derive(Debug, Clone)]
pub struct ChangeNotifier(Arc<Mutex<Option<Sender<Change>>>>);

impl Default for ChangeNotifier {
    fn default() -> Self {
        Self(Arc::new(Mutex::new(Some(broadcast::channel(Self::CAPACITY).0))))
    }
}

impl ChangeNotifier {
    /// How many changes wait for a client that reads slowly. One that falls further behind is told of
    /// everything it listens to.
    const CAPACITY: usize = 256;

    /// A way for changes.
    pub fn new() -> Self {
        Self::default()
    }

    /// Tells those who listen.
    pub fn publish(&self, change: Change) {
        let sender = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        // Nobody listening is no error.
        let _ = sender.as_ref().map(|sender| sender.send(change));
    }

    /// How many clients listen now.
    pub fn listeners(&self) -> usize {
        let bus = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        bus.as_ref().map_or(0, Sender::receiver_count)
    }

    /// Ends all subscriptions, as a server does before it shuts down. New ones end at once.
    pub fn close(&self) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).take();
    }

    pub(crate) fn subscribe(&self) -> Option<Receiver<Change>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).as_ref().map(Sender::subscribe)
    }
}
