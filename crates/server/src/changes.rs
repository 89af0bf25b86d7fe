//! Notifications about changes, for clients that subscribe to them.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, PoisonError};

use mrtr_codec::Principal;
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
    /// The resources that each caller subscribed to.
    watched: watch::Sender<HashMap<Caller, Watched>>,
}

/// A principal; `None` for all anonymous callers together.
type Caller = Option<Principal>;

/// Resources, each with the number of subscriptions.
type Watched = BTreeMap<String, usize>;

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

    /// Records that a caller watches these resources, until the guard is dropped.
    pub(crate) fn watch(&self, caller: Caller, uris: &[String]) -> WatchGuard {
        self.0.count(&caller, uris, |count| *count += 1);
        WatchGuard { shared: Arc::clone(&self.0), caller, uris: uris.to_vec() }
    }
}

impl Shared {
    /// Changes the counts of these resources. Receivers are notified if the set has changed.
    fn count(&self, caller: &Caller, uris: &[String], change: impl Fn(&mut usize)) {
        if uris.is_empty() {
            return;
        }
        self.watched.send_if_modified(|callers| {
            let mut is_changed = false;
            let watched = callers.entry(caller.clone()).or_default();
            // All clients of a caller share the map, so only what this one watches is visited.
            for uri in uris {
                let count = watched.entry(uri.clone()).or_default();
                is_changed |= *count == 0;
                change(count);
                if *count == 0 {
                    is_changed = true;
                    watched.remove(uri);
                }
            }
            if watched.is_empty() {
                callers.remove(caller);
            }
            is_changed
        });
    }
}

/// Records that a client watches resources.
#[derive(Debug)]
pub(crate) struct WatchGuard {
    shared: Arc<Shared>,
    caller: Caller,
    uris: Vec<String>,
}

impl Drop for WatchGuard {
    fn drop(&mut self) {
        self.shared.count(&self.caller, &self.uris, |count| *count = count.saturating_sub(1));
    }
}

/// The resources that clients subscribed to. Created by [`ChangeNotifier::watched_resources`].
#[derive(Debug, Clone)]
pub struct WatchedResources(watch::Receiver<HashMap<Caller, Watched>>);

impl WatchedResources {
    /// Returns the URIs, each once. The first ones of all callers come first, so that a limit takes
    /// no caller's share for another one.
    pub fn uris(&mut self) -> Vec<String> {
        self.uris_by(|_| Some(())).remove(&()).unwrap_or_default()
    }

    /// Returns the URIs in groups, for limits per group. In each group, the first ones of all
    /// callers come first.
    ///
    /// `group` returns `None` for a URI to leave out. It runs under a lock: it must be quick, and
    /// must not open or drop a subscription, which would deadlock.
    pub fn uris_by<K: Ord + Clone>(
        &mut self,
        group: impl Fn(&str) -> Option<K>,
    ) -> BTreeMap<K, Vec<String>> {
        let mut groups: BTreeMap<K, BTreeMap<String, usize>> = BTreeMap::new();
        for watched in self.0.borrow_and_update().values() {
            let mut next: BTreeMap<K, usize> = BTreeMap::new();
            for uri in watched.keys() {
                let Some(key) = group(uri) else { continue };
                let next = next.entry(key.clone()).or_default();
                let rank = groups.entry(key).or_default().entry(uri.clone()).or_insert(*next);
                *rank = (*rank).min(*next);
                *next += 1;
            }
        }
        let in_order = |ranks: BTreeMap<String, usize>| {
            let mut uris: Vec<_> = ranks.into_iter().collect();
            uris.sort_by_key(|(_, rank)| *rank);
            uris.into_iter().map(|(uri, _)| uri).collect()
        };
        groups.into_iter().map(|(key, ranks)| (key, in_order(ranks))).collect()
    }

    /// Waits until what callers subscribed to differs from what [`uris`](Self::uris) or
    /// [`uris_by`](Self::uris_by) saw last. Dropping the future loses nothing.
    pub async fn changed(&mut self) {
        if self.0.changed().await.is_err() {
            // The server is gone, and with it all subscriptions.
            std::future::pending::<()>().await;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_caller_with_many_resources_does_not_hide_those_of_others() {
        let changes = ChangeNotifier::new();
        let mut watched = changes.watched_resources();
        let caller = |name: &str| Some(Principal::new("https://login.example", name));
        let many: Vec<_> = (0..1_000).map(|n| format!("a:{n:03}")).collect();
        let alice = changes.watch(caller("alice"), &many);
        let again = changes.watch(caller("alice"), &many);
        let bob = changes.watch(caller("bob"), &["z:1".to_owned(), "z:2".to_owned()]);
        let anonymous = changes.watch(None, &["a:999".to_owned()]);
        assert_eq!(watched.uris().len(), 1_002);
        assert_eq!(watched.uris()[..5], ["a:000", "a:999", "z:1", "a:001", "z:2"]);
        let more = changes.watch(caller("alice"), &["z:9".to_owned()]);
        let groups = watched.uris_by(|uri| uri.chars().next().filter(|first| *first != 'a'));
        assert_eq!(
            groups.into_iter().collect::<Vec<_>>(),
            [(
                'z',
                vec![
                    // Not after all of Alice's others.
                    "z:1".to_owned(),
                    "z:9".to_owned(),
                    "z:2".to_owned(),
                ]
            )]
        );
        drop(more);
        drop((again, anonymous));
        watched.changed().await;
        assert_eq!(watched.uris()[..3], ["a:000", "z:1", "a:001"]);
        drop(alice);
        watched.changed().await;
        assert_eq!(watched.uris(), ["z:1", "z:2"]);
        drop(bob);
        watched.changed().await;
        assert!(watched.uris().is_empty() && changes.0.watched.borrow().is_empty());
    }
}
