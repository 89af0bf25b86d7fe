//! Connections, and how they are opened.

use std::error::Error as StdError;
use std::fmt;
use std::future::{Future, poll_fn};
use std::hash::{BuildHasher as _, RandomState};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use mrtr_server::tasks::TaskStoreError;
use tokio::task::JoinHandle;
use tokio::time::{Instant, timeout};
use tokio_postgres::config::{Host, LoadBalanceHosts, TargetSessionAttrs};
use tokio_postgres::error::SqlState;
use tokio_postgres::tls::{MakeTlsConnect, TlsConnect};
use tokio_postgres::{AsyncMessage, Client, Config, Connection, Error, Socket};

/// The timeout of a connection attempt. Each host of a configuration has an equal part of it.
const TIMEOUT: Duration = Duration::from_secs(5);

/// The time after which a host that has not replied counts as one that hangs.
const HANGS: Duration = Duration::from_millis(500);

/// The settings of every session. All statements find their rows by keys: the other plans are those
/// of tables that were empty when they were made. A replica that hangs in a transaction loses it:
/// the locks would keep others from its tasks.
///
/// Statements that were given up end by these timeouts, and are not cancelled: that would also end
/// the wait of a commit for its synchronous standby, and show what a failover can lose.
const SETTINGS: &str = "
SET default_transaction_isolation = 'read committed';
SET statement_timeout = '30s';
SET lock_timeout = '5s';
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
pub(super) struct Connector(Arc<Inner>);

struct Inner {
    /// The configuration, split by host.
    hosts: Vec<Config>,
    /// The index of the host to begin with: the one that accepted the last connection, or the one
    /// after it if it fails or hangs. Others may be standbys.
    first: AtomicUsize,
    /// Begins with any host.
    is_random: bool,
    open: Box<dyn Fn(Config, Option<OnNotice>) -> Opening + Send + Sync>,
}

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
        config.tcp_user_timeout(Duration::from_secs(10));
        config.target_session_attrs(TargetSessionAttrs::ReadWrite);
        if config.get_application_name().is_none() {
            config.application_name("mrtr");
        }
        let is_random = config.get_load_balance_hosts() == LoadBalanceHosts::Random;
        let mut hosts = by_host(config);
        let time = time_per_host(hosts.len());
        for host in &mut hosts {
            // A host name may have two addresses, of which one hangs.
            let given = host.get_connect_timeout().copied().unwrap_or(time);
            host.connect_timeout(given.min(time / 2));
        }
        let open = move |config: Config, on_notice| -> Opening {
            let tls = tls.clone();
            Box::pin(async move {
                let (client, connection) = config.connect(tls).await?;
                let driver = tokio::spawn(drive(connection, on_notice));
                client.batch_execute(SETTINGS).await?;
                Ok((client, driver))
            })
        };
        Self(Arc::new(Inner { hosts, first: AtomicUsize::new(0), is_random, open: Box::new(open) }))
    }

    /// Opens a connection to the first host that accepts writes.
    pub(super) async fn open(&self, on_notice: Option<OnNotice>) -> Result<Opened, TaskStoreError> {
        let Inner { hosts, first: preferred, is_random, open } = &*self.0;
        let first = if *is_random {
            // Each `RandomState` has other keys.
            let random = RandomState::new().hash_one(()) % hosts.len().max(1) as u64;
            usize::try_from(random).unwrap_or_default()
        } else {
            preferred.load(Ordering::Relaxed)
        };
        let time = time_per_host(hosts.len());
        let mut failures = Vec::new();
        for (index, host) in hosts.iter().enumerate().cycle().skip(first).take(hosts.len()) {
            let avoiding = Avoiding { preferred, index, of: hosts.len(), since: Instant::now() };
            let opened = timeout(time, open(host.clone(), on_notice.clone())).await;
            drop(avoiding);
            let error = match opened {
                Ok(Ok(opened)) => {
                    preferred.store(index, Ordering::Relaxed);
                    return Ok(opened);
                }
                Ok(Err(error)) => failed(error),
                Err(_) => {
                    let why = format!("no connection within {time:?}");
                    TaskStoreError::Unavailable(why.into())
                }
            };
            failures.push((index, error));
        }
        if failures.len() == 1
            && let Some((_, error)) = failures.pop()
        {
            return Err(error);
        }
        let failures = failures.iter().map(|(index, error)| format!("host {}: {error}", index + 1));
        Err(TaskStoreError::Unavailable(failures.collect::<Vec<_>>().join("; ").into()))
    }
}

/// An attempt to connect to a host. If it is dropped after it has hung for a while, later attempts
/// begin with the next host, unless another one was found in the meantime.
struct Avoiding<'a> {
    preferred: &'a AtomicUsize,
    index: usize,
    of: usize,
    since: Instant,
}

impl Drop for Avoiding<'_> {
    fn drop(&mut self) {
        if self.since.elapsed() >= HANGS {
            let next = (self.index + 1) % self.of;
            let (same, order) = (self.index, Ordering::Relaxed);
            let _ = self.preferred.compare_exchange(same, next, order, order);
        }
    }
}

/// Returns the timeout of a connection attempt to one of several hosts.
fn time_per_host(hosts: usize) -> Duration {
    TIMEOUT / u32::try_from(hosts).unwrap_or(u32::MAX).max(1)
}

/// Splits a configuration into one per host. `tokio_postgres` tries hosts in their order, and waits
/// for one that hangs.
fn by_host(config: Config) -> Vec<Config> {
    let (names, addresses, ports) =
        (config.get_hosts(), config.get_hostaddrs(), config.get_ports());
    let count = names.len().max(addresses.len());
    let has_one_per_host = |length: usize| length <= 1 || length == count;
    let is_consistent =
        (names.is_empty() || addresses.is_empty() || names.len() == addresses.len())
            && has_one_per_host(ports.len());
    if count <= 1 || !is_consistent {
        // `tokio_postgres` explains what is wrong with it.
        return vec![config];
    }
    let one = |index| {
        let mut one = without_hosts(&config);
        match names.get(index) {
            Some(Host::Tcp(name)) => drop(one.host(name)),
            #[cfg(unix)]
            Some(Host::Unix(path)) => drop(one.host_path(path)),
            None => {}
        }
        if let Some(address) = addresses.get(index) {
            one.hostaddr(*address);
        }
        if let Some(port) = ports.get(index).or(ports.first()) {
            one.port(*port);
        }
        one
    };
    (0..count).map(one).collect()
}

/// Copies a configuration, except its hosts and ports.
fn without_hosts(config: &Config) -> Config {
    let mut copy = Config::new();
    if let Some(user) = config.get_user() {
        copy.user(user);
    }
    if let Some(password) = config.get_password() {
        copy.password(password);
    }
    if let Some(name) = config.get_dbname() {
        copy.dbname(name);
    }
    if let Some(options) = config.get_options() {
        copy.options(options);
    }
    if let Some(name) = config.get_application_name() {
        copy.application_name(name);
    }
    if let Some(timeout) = config.get_connect_timeout() {
        copy.connect_timeout(*timeout);
    }
    if let Some(timeout) = config.get_tcp_user_timeout() {
        copy.tcp_user_timeout(*timeout);
    }
    if let Some(interval) = config.get_keepalives_interval() {
        copy.keepalives_interval(interval);
    }
    if let Some(retries) = config.get_keepalives_retries() {
        copy.keepalives_retries(retries);
    }
    copy.keepalives(config.get_keepalives())
        .keepalives_idle(config.get_keepalives_idle())
        .ssl_mode(config.get_ssl_mode())
        .ssl_negotiation(config.get_ssl_negotiation())
        .target_session_attrs(config.get_target_session_attrs())
        .channel_binding(config.get_channel_binding())
        .load_balance_hosts(config.get_load_balance_hosts());
    copy
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
                let error = DatabaseError(error);
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
    TaskStoreError::Unavailable(Box::new(DatabaseError(error)))
}

/// An error whose text has its cause, unlike that of [`Error`]. It has no row of a table, which
/// PostgreSQL names in the details.
#[derive(Debug)]
pub(super) struct DatabaseError(Error);

impl DatabaseError {
    /// Returns true if the database has rejected a statement.
    pub(super) fn is_refusal(&self) -> bool {
        self.0.as_db_error().is_some()
    }
}

impl fmt::Display for DatabaseError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(error) = self.0.as_db_error() {
            return write!(f, "{} (SQLSTATE {})", error.message(), error.code().code());
        }
        self.0.fmt(f)?;
        match self.0.source() {
            Some(source) => write!(f, ": {source}"),
            None => Ok(()),
        }
    }
}

impl StdError for DatabaseError {}

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

    /// The first host accepts connections, and says nothing.
    #[tokio::test]
    async fn postgres_host_that_hangs_does_not_keep_the_store_from_the_next_one() {
        let server = Postgres::start();
        let silent = std::net::TcpListener::bind(("127.0.0.1", 0)).unwrap();
        let port = silent.local_addr().unwrap().port();
        let mut config = Config::new();
        config.user("postgres").dbname("postgres").host("127.0.0.1").host_path(server.folder());
        config.port(port).port(5432);
        let connector = Connector::new(config, NoTls);
        connector.open(None).await.unwrap();
        // The first host is not tried again.
        drop(silent);
        let silent = std::net::TcpListener::bind(("127.0.0.1", port)).unwrap();
        silent.set_nonblocking(true).unwrap();
        connector.open(None).await.unwrap();
        assert!(silent.accept().is_err());
    }

    #[tokio::test]
    async fn postgres_hosts_that_fail_are_all_named() {
        let closed = |port: u16| format!("host=127.0.0.1,127.0.0.2 port={port},{port} user=u");
        let config: Config = closed(1).parse().unwrap();
        let error = Connector::new(config, NoTls).open(None).await.unwrap_err().to_string();
        assert!(error.contains("host 1: ") && error.contains("; host 2: "), "{error}");
    }

    #[tokio::test]
    async fn postgres_errors_name_their_cause() {
        let server = Postgres::start();
        let mut config: Config = server.config().parse().unwrap();
        config.dbname("missing");
        let error = Connector::new(config.clone(), NoTls).open(None).await.unwrap_err();
        let cause = "database \"missing\" does not exist (SQLSTATE 3D000)";
        assert_eq!(error.to_string(), format!("the task store is unavailable: {cause}"));
        drop(server);
        let error = Connector::new(config, NoTls).open(None).await.unwrap_err().to_string();
        assert!(error.contains("No such file"), "{error}");
    }

    #[test]
    fn configurations_of_single_hosts_have_all_other_settings() {
        let one = "host=a hostaddr=10.0.0.1 port=1 user=u password=p dbname=d options='-c a=b' \
            application_name=n sslmode=require sslnegotiation=direct connect_timeout=3 \
            tcp_user_timeout=4 keepalives=0 keepalives_idle=5 keepalives_interval=6 \
            keepalives_retries=7 target_session_attrs=read-write channel_binding=require \
            load_balance_hosts=random";
        let two = one.replace(
            "host=a hostaddr=10.0.0.1 port=1",
            "host=b,a hostaddr=10.0.0.2,10.0.0.1 port=2,1",
        );
        let (one, two): (Config, Config) = (one.parse().unwrap(), two.parse().unwrap());
        assert_eq!(by_host(two).last(), Some(&one));
        assert_eq!(by_host(one.clone()), [one]);
        let wrong: Config = "host=a,b port=1,2,3".parse().unwrap();
        assert_eq!(by_host(wrong.clone()), [wrong]);
    }

    /// The deadline of a write is shorter than that of a connection attempt.
    #[tokio::test]
    async fn postgres_attempt_that_is_given_up_is_followed_by_one_at_the_next_host() {
        let server = Postgres::start();
        let silent = std::net::TcpListener::bind(("127.0.0.1", 0)).unwrap();
        let mut config = Config::new();
        config.user("postgres").dbname("postgres").host("127.0.0.1").host_path(server.folder());
        config.port(silent.local_addr().unwrap().port()).port(5432);
        let connector = Connector::new(config, NoTls);
        let first = timeout(2 * HANGS, connector.open(None)).await;
        assert!(first.is_err());
        silent.set_nonblocking(true).unwrap();
        silent.accept().unwrap();
        connector.open(None).await.unwrap();
        assert!(silent.accept().is_err(), "the host that hangs was tried again");
    }
}
