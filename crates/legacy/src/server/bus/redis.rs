//! A bus in Redis.

use std::collections::VecDeque;
use std::fmt;
use std::sync::{Mutex as SyncMutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures_util::{FutureExt as _, StreamExt as _};
use redis::aio::{ConnectionManager, ConnectionManagerConfig, PubSub};
use redis::io::tcp::TcpSettings;
use redis::io::tcp::socket2::TcpKeepalive;
use redis::{Client, ErrorKind, IntoConnectionInfo as _, RedisResult, Value, cmd};
use tokio::sync::{Mutex, Notify};
use tokio::time::{Instant, sleep, timeout};

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
/// The URL must lead to the primary. After a failover, the old server may keep its connections.
/// What is published there does not reach the subscribers of the new one, so every message is sent
/// with `ROLE`: if the server has become a replica, the message is published again on a new
/// connection. Without the permission for `ROLE`, the old server must close its connections, as
/// Redis Sentinel makes it do.
pub struct RedisBus {
    client: Client,
    publisher: SyncMutex<Publisher>,
    channel: String,
    subscription: Mutex<Subscription>,
    /// Notified when the server has become a replica.
    moved: Notify,
}

struct Subscription {
    /// `None` while the connection is broken.
    open: Option<PubSub>,
    /// What had arrived at the one before.
    held: VecDeque<String>,
}

/// The connection for `PUBLISH`.
#[derive(Clone)]
struct Publisher {
    connection: ConnectionManager,
    /// When it replaced another one.
    since: Option<Instant>,
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
        let connection = client.get_connection_manager_with_config(config()).await;
        let connection = connection.map_err(BusError::new)?;
        let channel = channel.into();
        let open = subscribe(&client, &channel).await?;
        Ok(Self {
            client,
            publisher: SyncMutex::new(Publisher { connection, since: None }),
            channel,
            subscription: Mutex::new(Subscription { open: Some(open), held: VecDeque::new() }),
            moved: Notify::new(),
        })
    }

    /// Publishes a message. Returns false if the server is a replica; then the connection is
    /// replaced, since the address leads to the new primary sooner or later.
    async fn publish_at_primary(&self, message: &str) -> Result<bool, BusError> {
        let Publisher { mut connection, since } = self.publisher().clone();
        let mut connection_for_role = connection.clone();
        let (mut publish, role) = (cmd("PUBLISH"), cmd("ROLE"));
        publish.arg(&self.channel).arg(message);
        // Both are written at once.
        let (sent, role) = tokio::join!(
            publish.query_async::<()>(&mut connection),
            role.query_async::<Vec<Value>>(&mut connection_for_role),
        );
        if let Err(error) = sent {
            // The manager keeps a connection that leads nowhere, and the error of a refused login.
            if error.is_timeout() || error.kind() == ErrorKind::AuthenticationFailed {
                self.replace(since)?;
            }
            return Err(BusError::new(error));
        }
        // Where the command is forbidden, the role is unknown.
        if !role.is_ok_and(|role| role.first() == Some(&Value::BulkString(b"slave".to_vec()))) {
            return Ok(true);
        }
        if self.replace(since)? {
            self.moved.notify_one();
        }
        Ok(false)
    }

    /// Replaces the connection that is in use `since` then, but not sooner than [`PAUSE`] after the
    /// last time. The next message connects. Returns false if it is not replaced.
    fn replace(&self, since: Option<Instant>) -> Result<bool, BusError> {
        let mut publisher = self.publisher();
        // Another message may have replaced it at the same time.
        if publisher.since != since || since.is_some_and(|since| since.elapsed() < PAUSE) {
            return Ok(false);
        }
        tracing::warn!(target: "mrtr::redis", "connecting to Redis again");
        let connection = self.client.get_connection_manager_lazy(config());
        let connection = connection.map_err(BusError::new)?;
        *publisher = Publisher { connection, since: Some(Instant::now()) };
        Ok(true)
    }

    fn publisher(&self) -> MutexGuard<'_, Publisher> {
        self.publisher.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn config() -> ConnectionManagerConfig {
    ConnectionManagerConfig::new()
        .set_connection_timeout(Some(TIMEOUT))
        .set_response_timeout(Some(TIMEOUT))
        .set_number_of_retries(1)
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
            Ok(message) => match message?.get_payload() {
                Ok(message) => return Some(message),
                // It is not of a replica.
                Err(error) => {
                    tracing::warn!(target: "mrtr::redis", %error, "a message is not text");
                }
            },
            Err(_) => timeout(TIMEOUT, subscription.ping::<()>()).await.ok()?.ok()?,
        }
    }
}

impl ReplicaBus for RedisBus {
    async fn publish(&self, message: String) -> Result<(), BusError> {
        if self.publish_at_primary(&message).await? || self.publish_at_primary(&message).await? {
            return Ok(());
        }
        Err(BusError::new("Redis is a replica"))
    }

    async fn receive(&self) -> String {
        let Subscription { open, held } = &mut *self.subscription.lock().await;
        loop {
            if let Some(message) = held.pop_front() {
                return message;
            }
            if let Some(subscription) = open.as_mut() {
                tokio::select! {
                    biased;
                    message = next(subscription) => match message {
                        Some(message) => return message,
                        None => *open = None,
                    },
                    // Until there is another one, the old one is better than none: messages of the
                    // primary reach its replicas.
                    () = self.moved.notified() => {}
                }
            }
            match subscribe(&self.client, &self.channel).await {
                Ok(subscription) => {
                    let former = open.replace(subscription);
                    if let Some(mut former) = former {
                        while let Some(Some(message)) = next(&mut former).now_or_never() {
                            held.push_back(message);
                        }
                    }
                }
                Err(error) => {
                    tracing::warn!(target: "mrtr::legacy", %error, "subscribing failed");
                    sleep(PAUSE).await;
                }
            }
        }
    }
}

impl fmt::Debug for RedisBus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RedisBus").field("channel", &self.channel).finish_non_exhaustive()
    }
}
