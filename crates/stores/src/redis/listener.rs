//! Listens for changes.

use std::time::Duration;

use futures_util::StreamExt as _;
use mrtr_server::tasks::TaskKey;
use redis::aio::PubSub;
use redis::{Client, RedisResult, Value, cmd};
use tokio::sync::{Mutex, Notify};
use tokio::time::{sleep, timeout};

use super::reply;

/// The timeout of a subscription, and of a reply.
const TIMEOUT: Duration = Duration::from_secs(2);

/// The time without a message after which the connection is checked.
const IDLE: Duration = Duration::from_secs(15);

/// The pause between two attempts to restore the connection.
const PAUSE: Duration = Duration::from_secs(1);

/// A subscription to changes, on a connection of its own.
pub(super) struct Listener {
    client: Client,
    /// `None` while the connection is broken.
    subscription: Mutex<Option<PubSub>>,
    /// Notified when the server has become a replica.
    moved: Notify,
}

impl Listener {
    pub(super) fn new(client: Client) -> Self {
        Self { client, subscription: Mutex::default(), moved: Notify::new() }
    }

    /// Leaves the server of the subscription, and subscribes at the one that follows it.
    pub(super) fn subscribe_again(&self) {
        self.moved.notify_one();
    }

    /// Waits for the next change.
    pub(super) async fn next(&self, channel: &str) -> TaskKey {
        let mut subscription = self.subscription.lock().await;
        loop {
            while let Some(open) = subscription.as_mut() {
                let change = tokio::select! {
                    change = next(open) => change,
                    () = self.moved.notified() => None,
                };
                match change {
                    Some(id) => {
                        if let Some(key) = reply::key(&id) {
                            return key;
                        }
                    }
                    None => *subscription = None,
                }
            }
            match subscribe(&self.client, channel).await {
                Ok(open) => *subscription = Some(open),
                Err(error) => {
                    tracing::warn!(target: "mrtr::tasks", %error, "listening for changes failed");
                    sleep(PAUSE).await;
                }
            }
        }
    }
}

/// Subscribes at the server that has the address, unless it is a replica: after a failover, the
/// address may lead to the old server for some time, and the changes are announced at the new one.
async fn subscribe(client: &Client, channel: &str) -> RedisResult<PubSub> {
    let subscribed = async {
        // A connection with a subscription accepts no other commands.
        let mut connection = client.get_multiplexed_async_connection().await?;
        let role: RedisResult<Vec<Value>> = cmd("ROLE").query_async(&mut connection).await;
        // Where the command is forbidden, the role is unknown.
        if role.is_ok_and(|role| role.first() == Some(&Value::BulkString(b"slave".to_vec()))) {
            return Err(std::io::Error::other("the server is a replica").into());
        }
        let mut subscription = client.get_async_pubsub().await?;
        subscription.subscribe(channel).await?;
        Ok(subscription)
    };
    timeout(TIMEOUT, subscribed)
        .await
        .unwrap_or_else(|elapsed| Err(std::io::Error::from(elapsed).into()))
}

/// Returns the next message; `None` if the connection is broken.
async fn next(subscription: &mut PubSub) -> Option<Vec<u8>> {
    loop {
        let received = timeout(IDLE, subscription.on_message().next()).await;
        match received {
            Ok(message) => return message?.get_payload().ok(),
            Err(_) => timeout(TIMEOUT, subscription.ping::<()>()).await.ok()?.ok()?,
        }
    }
}
