//! Connections, and how they are opened.

use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use mrtr_server::tasks::TaskStoreError;
use tokio::task::JoinHandle;
use tokio::time::timeout;
use tokio_postgres::config::TargetSessionAttrs;
use tokio_postgres::error::SqlState;
use tokio_postgres::tls::{MakeTlsConnect, TlsConnect};
use tokio_postgres::{AsyncMessage, Client, Config, Connection, Error, Socket};

/// The timeout of a connection attempt.
const TIMEOUT: Duration = Duration::from_secs(5);

/// The settings of every session. All statements find their rows by keys: the other plans are those
/// of tables that were empty when they were made. A replica that hangs in a transaction loses it:
/// the locks would keep others from its tasks.
const SETTINGS: &str = "
SET default_transaction_isolation = 'read committed';
SET statement_timeout = '30s';
SET idle_in_transaction_session_timeout = '5s';
SET enable_seqscan = off;
SET enable_mergejoin = off;
SET plan_cache_mode = force_generic_plan;
SET jit = off;
SELECT set_config('synchronous_commit', 'on', false)
    WHERE current_setting('synchronous_commit') = 'off';
";

/// A function that gets the payloads of notifications.
pub(super) type OnNotice = Arc<dyn Fn(&str) + Send + Sync>;

type Opening = Pin<Box<dyn Future<Output = Result<Opened, Error>> + Send>>;

/// A connection, and the task that drives it, which ends when the connection does.
pub(super) type Opened = (Client, JoinHandle<()>);

/// Opens connections with one configuration.
#[derive(Clone)]
pub(super) struct Connector(Arc<dyn Fn(Option<OnNotice>) -> Opening + Send + Sync>);

impl Connector {
    pub(super) fn new<T>(mut config: Config, tls: T) -> Self
    where
        T: MakeTlsConnect<Socket> + Clone + Send + Sync + 'static,
        T::Stream: Send,
        T::TlsConnect: Send,
        <T::TlsConnect as TlsConnect<Socket>>::Future: Send,
    {
        // A connection that broke silently is noticed within about 25 s.
        config.keepalives_idle(Duration::from_secs(15));
        config.keepalives_interval(Duration::from_secs(5)).keepalives_retries(2);
        config.tcp_user_timeout(Duration::from_secs(10)).connect_timeout(TIMEOUT);
        config.target_session_attrs(TargetSessionAttrs::ReadWrite);
        if config.get_application_name().is_none() {
            config.application_name("mrtr");
        }
        Self(Arc::new(move |on_notice| {
            let (config, tls) = (config.clone(), tls.clone());
            Box::pin(async move {
                let (client, connection) = config.connect(tls).await?;
                Ok((client, tokio::spawn(drive(connection, on_notice))))
            })
        }))
    }

    /// Opens a connection.
    pub(super) async fn open(&self, on_notice: Option<OnNotice>) -> Result<Opened, TaskStoreError> {
        let opening = async {
            let (client, driver) = (self.0)(on_notice).await?;
            client.batch_execute(SETTINGS).await?;
            Ok((client, driver))
        };
        match timeout(TIMEOUT, opening).await {
            Ok(opened) => opened.map_err(failed),
            Err(_) => {
                let why = format!("no connection within {TIMEOUT:?}");
                Err(TaskStoreError::Unavailable(why.into()))
            }
        }
    }
}

/// Drives a connection to its end: when it breaks, or its client is dropped.
async fn drive<S, T>(mut connection: Connection<S, T>, on_notice: Option<OnNotice>)
where
    S: tokio::io::AsyncRead + tokio::io::AsyncWrite + Unpin,
    T: tokio::io::AsyncRead + tokio::io::AsyncWrite + Unpin,
{
    while let Some(message) = poll_fn(|cx| connection.poll_message(cx)).await {
        match (message, &on_notice) {
            (Ok(AsyncMessage::Notification(notice)), Some(on_notice)) => {
                on_notice(notice.payload());
            }
            (Ok(_), _) => {}
            (Err(error), _) => {
                tracing::warn!(target: "mrtr::tasks", %error, "a connection to PostgreSQL broke");
                return;
            }
        }
    }
}

/// Converts an error of the database.
pub(super) fn failed(error: Error) -> TaskStoreError {
    if error.code() == Some(&SqlState::DISK_FULL) {
        return TaskStoreError::Full;
    }
    TaskStoreError::Unavailable(Box::new(error))
}

#[cfg(all(test, unix))]
mod tests {
    use mrtr_testkit::servers::Postgres;
    use tokio_postgres::NoTls;

    use super::*;

    #[tokio::test]
    async fn postgres_sessions_override_unsafe_settings() {
        let server = Postgres::start();
        for (given, expected) in
            [("off", "on"), ("local", "local"), ("remote_apply", "remote_apply")]
        {
            let mut config: Config = server.config().parse().unwrap();
            config.options(format!(
                "-c synchronous_commit={given} -c default_transaction_isolation=serializable"
            ));
            let (client, _) = Connector::new(config, NoTls).open(None).await.unwrap();
            let show = async |setting| -> String {
                client.query_one(&format!("SHOW {setting}"), &[]).await.unwrap().get(0)
            };
            assert_eq!(show("synchronous_commit").await, expected);
            assert_eq!(show("transaction_isolation").await, "read committed");
        }
    }
}
