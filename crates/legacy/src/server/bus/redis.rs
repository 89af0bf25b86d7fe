//! A bus in Redis.

use std::fmt;
use std::time::Duration;

use futures_util::StreamExt as _;
use redis::aio::{ConnectionManager, ConnectionManagerConfig, PubSub};
use redis::io::tcp::TcpSettings;
use redis::io::tcp::socket2::TcpKeepalive;
use redis::{Client, IntoConnectionInfo as _, RedisResult, cmd};
use tokio::sync::Mutex;
use tokio::time::{sleep, timeout};

use super::{BusError, ReplicaBus};

/// The timeout of a connection attempt, and of a reply.
const TIMEOUT: Duration = Duration::from_secs(2);

/// After how long without a message the connection is checked.
const IDLE: Duration = Duration::from_secs(15);

/// The pause between two attempts to restore the connection.
const PAUSE: Duration = Duration::from_secs(1);

/// A [`ReplicaBus`] in Redis or Valkey, by `PUBLISH` and `SUBSCRIBE`.
///
/// Redis keeps no messages: what is published while the connection of a replica is broken does not
/// reach it. Broken connections are restored within about 25 s.
///
/// A server that becomes a replica in a failover must close its connections, as Redis Sentinel
/// makes it do: Redis publishes on a replica without an error, and only to the subscribers there.
pub struct RedisBus {
    client: Client,
    publisher: ConnectionManager,
    channel: String,
    /// `None` while the connection is broken.
    subscription: Mutex<Option<PubSub>>,
}

impl RedisBus {
    /// Connects to `redis://[user:password@]host[:port][/database]`, or to `redis+unix:///path`.
    /// Replicas of a service have the same `channel`, and other services another one.
    ///
    /// Dropping the future cancels the attempt.
    ///
    /// # Errors
    ///
    /// If the URL is invalid or the server does not reply within a few seconds. The error does not
    /// contain the password.
    pub async fn connect(url: &str, channel: impl Into<String>) -> Result<Self, BusError> {
        // A connection that broke silently is noticed within about 25 s.
        let keepalive = TcpKeepalive::new().with_time(IDLE).with_interval(Duration::from_secs(5));
        let settings = TcpSettings::default().set_keepalive(keepalive);
        #[cfg(target_os = "linux")]
        let settings = settings.set_user_timeout(Duration::from_secs(10));
        let info = url.into_connection_info().map_err(BusError::new)?.set_tcp_settings(settings);
        let client = Client::open(info).map_err(BusError::new)?;
        let config = ConnectionManagerConfig::new()
            .set_connection_timeout(Some(TIMEOUT))
            .set_response_timeout(Some(TIMEOUT))
            .set_number_of_retries(1);
        let publisher = client.get_connection_manager_with_config(config).await;
        let publisher = publisher.map_err(BusError::new)?;
        let channel = channel.into();
        let subscription = subscribe(&client, &channel).await?;
        Ok(Self { client, publisher, channel, subscription: Mutex::new(Some(subscription)) })
    }
}

async fn subscribe(client: &Client, channel: &str) -> Result<PubSub, BusError> {
    let subscribed = async {
        let mut subscription = client.get_async_pubsub().await?;
        subscription.subscribe(channel).await?;
        RedisResult::Ok(subscription)
    };
    timeout(TIMEOUT, subscribed).await.map_err(BusError::new)?.map_err(BusError::new)
}

/// Returns the next message; `None` if the connection is broken.
async fn next(subscription: &mut PubSub) -> Option<String> {
    loop {
        let received = timeout(IDLE, subscription.on_message().next()).await;
        match received {
            Ok(message) => return message?.get_payload().ok(),
            Err(_) => timeout(TIMEOUT, subscription.ping::<()>()).await.ok()?.ok()?,
        }
    }
}

impl ReplicaBus for RedisBus {
    async fn publish(&self, message: String) -> Result<(), BusError> {
        let mut publish = cmd("PUBLISH");
        publish.arg(&self.channel).arg(message);
        publish.query_async(&mut self.publisher.clone()).await.map_err(BusError::new)
    }

    async fn receive(&self) -> String {
        let mut subscription = self.subscription.lock().await;
        loop {
            if let Some(open) = subscription.as_mut()
                && let Some(message) = next(open).await
            {
                return message;
            }
            *subscription = match subscribe(&self.client, &self.channel).await {
                Ok(open) => Some(open),
                Err(error) => {
                    tracing::warn!(target: "mrtr::legacy", %error, "subscribing failed");
                    sleep(PAUSE).await;
                    None
                }
            };
        }
    }
}

impl fmt::Debug for RedisBus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RedisBus").field("channel", &self.channel).finish_non_exhaustive()
    }
}
