//! A bus between replicas in one process.

use std::sync::{Arc, Mutex, PoisonError};

use mrtr_legacy::{BusError, ReplicaBus};
use tokio::sync::broadcast;

/// How many messages a replica may be behind.
const CAPACITY: usize = 1_024;

/// What several [`MemoryBus`]es are connected to, and the messages that were published.
#[derive(Debug, Clone)]
pub struct BusChannel {
    sender: broadcast::Sender<String>,
    published: Arc<Mutex<Vec<String>>>,
}

impl Default for BusChannel {
    fn default() -> Self {
        Self { sender: broadcast::Sender::new(CAPACITY), published: Arc::default() }
    }
}

impl BusChannel {
    /// Connects a replica.
    pub fn connect(&self) -> MemoryBus {
        let receiver = tokio::sync::Mutex::new(self.sender.subscribe());
        MemoryBus { channel: self.clone(), receiver }
    }

    /// Sends a message that no replica has published.
    pub fn inject(&self, message: &str) {
        // Without a replica, there is nothing to do.
        let _ = self.sender.send(message.to_owned());
    }

    /// Returns the messages that replicas have published.
    pub fn published(&self) -> Vec<String> {
        self.published.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

/// A bus in memory.
#[derive(Debug)]
pub struct MemoryBus {
    channel: BusChannel,
    receiver: tokio::sync::Mutex<broadcast::Receiver<String>>,
}

impl ReplicaBus for MemoryBus {
    async fn publish(&self, message: String) -> Result<(), BusError> {
        let BusChannel { sender, published } = &self.channel;
        published.lock().unwrap_or_else(PoisonError::into_inner).push(message.clone());
        sender.send(message).map(drop).map_err(BusError::new)
    }

    async fn receive(&self) -> String {
        let mut receiver = self.receiver.lock().await;
        loop {
            match receiver.recv().await {
                Ok(message) => return message,
                Err(broadcast::error::RecvError::Lagged(_)) => {}
                Err(broadcast::error::RecvError::Closed) => std::future::pending().await,
            }
        }
    }
}
