//! A task store in PostgreSQL.

mod claim;
mod connect;
mod ends;
mod group;
mod journal;
mod notify;
mod operations;
mod pool;
mod rows;
mod schema;
mod sweep;
mod write;

use std::fmt;
use std::sync::Arc;

use mrtr_server::tasks::{
    Claim, Created, HeldTask, Lease, NewTask, TaskKey, TaskRecord, TaskStore, TaskStoreError,
    TaskWrite, Verdict,
};
use tokio_postgres::tls::{MakeTlsConnect, TlsConnect};
use tokio_postgres::{Config, Socket};

use self::connect::Connector;
use self::notify::Notifier;
use self::pool::Pool;
use self::sweep::Sweeper;
use self::write::Writer;

/// A [`TaskStore`] in PostgreSQL 13 or newer.
///
/// ```no_run
/// use mrtr_stores::PostgresTaskStore;
/// use tokio_postgres::{Config, NoTls};
///
/// # async fn connect() -> Result<(), Box<dyn std::error::Error>> {
/// let config: Config = "host=10.0.0.5 user=reports dbname=reports".parse()?;
/// PostgresTaskStore::migrate(&config, NoTls).await?;
/// let store = PostgresTaskStore::connect(config, NoTls).await?;
/// # Ok(()) }
/// ```
///
/// # Connections
///
/// A store opens up to 8 connections when it needs them, and one that listens for changes. Four of
/// the 8 are for the writes of running tasks, so that other operations do not delay them.
///
/// Broken connections are replaced: an operation fails while the server is down, and succeeds again
/// when it is up. A statement that waits for a lock fails after 5 s, and any other after 30 s; a
/// commit waits for as long as the server makes it wait. If the operation was given up before, its
/// connection is one of up to 8 more until then. When these are in use, too, operations fail.
///
/// With several hosts in the configuration, the first one that accepts writes is used, beginning
/// with the one that did last, or with any if `load_balance_hosts` is `random`. They share the 5 s
/// of an attempt equally, so that one that hangs leaves time for the others.
///
/// Prepared statements and `LISTEN` need a session, so connect to the server, or to a pooler in
/// session mode.
///
/// # Durability
///
/// Commits are as durable as the server makes them. `fsync` and `full_page_writes` have to be on:
/// [`connect`](Self::connect) checks them. Where `synchronous_commit` is off, the store turns it on
/// for itself. After a failover to a standby that was behind, tasks and entries of journals are
/// missing, so use synchronous standbys. Stop all replicas before you restore the tables in place
/// (`pg_restore --clean`): a connection relies on what it has committed.
///
/// # Performance
///
/// Writes of concurrent tasks are committed together: what arrives while one commit is under way
/// goes with the next. A step adds a row, and changes no index but the primary key. Changes are
/// announced by `NOTIFY` from a connection of its own, about 10 ms later, since `NOTIFY` makes
/// commits wait for each other.
///
/// # Tables
///
/// `mrtr_task`, `mrtr_entry`, `mrtr_answer` and `mrtr_schema` are in the first schema of the search
/// path, see [`SCHEMA`](Self::SCHEMA). Tasks that have expired are deleted in batches, by claims.
pub struct PostgresTaskStore {
    pool: Arc<Pool>,
    writer: Writer,
    notifier: Notifier,
    sweeper: Sweeper,
}

impl PostgresTaskStore {
    /// The statements that create the tables, for migrations with other tools.
    pub const SCHEMA: &str = schema::SCHEMA;

    /// Connects to a database with the tables of this version. [`tokio_postgres::NoTls`] connects
    /// without TLS.
    ///
    /// Logs a warning if the server may lose commits. Dropping the future cancels the attempt.
    ///
    /// # Errors
    ///
    /// [`TaskStoreError::Unavailable`], if the connection fails or takes longer than 5 s, or if the
    /// tables are missing, or belong to a newer version.
    ///
    /// # Panics
    ///
    /// Outside of a tokio runtime.
    pub async fn connect<T>(config: Config, tls: T) -> Result<Self, TaskStoreError>
    where
        T: MakeTlsConnect<Socket> + Clone + Send + Sync + 'static,
        T::Stream: Send,
        T::TlsConnect: Send,
        <T::TlsConnect as TlsConnect<Socket>>::Future: Send,
    {
        let connector = Connector::new(config, tls);
        let pool = Arc::new(Pool::new(connector.clone()));
        schema::check(&pool).await?;
        let notifier = Notifier::start(connector)?;
        let writer = Writer::new(&pool, notifier.announcer());
        Ok(Self { writer, notifier, sweeper: Sweeper::default(), pool })
    }

    /// Creates the tables, or brings those of an older version up to date. Replicas may do so at
    /// the same time.
    ///
    /// The user needs the right to create tables. [`connect`](Self::connect) does not: it needs to
    /// read and change them.
    ///
    /// # Errors
    ///
    /// [`TaskStoreError::Unavailable`], if the connection or a statement fails, or if the tables
    /// belong to a newer version.
    pub async fn migrate<T>(config: &Config, tls: T) -> Result<(), TaskStoreError>
    where
        T: MakeTlsConnect<Socket> + Clone + Send + Sync + 'static,
        T::Stream: Send,
        T::TlsConnect: Send,
        <T::TlsConnect as TlsConnect<Socket>>::Future: Send,
    {
        schema::migrate(&Pool::new(Connector::new(config.clone(), tls))).await
    }
}

impl TaskStore for PostgresTaskStore {
    async fn create(&self, task: NewTask, lease: Lease) -> Result<Created, TaskStoreError> {
        // There may be no claims while all permits for runs are taken.
        self.sweeper.begin(&self.pool);
        operations::create(&self.pool, task, lease).await
    }

    async fn read(&self, key: TaskKey) -> Result<Option<TaskRecord>, TaskStoreError> {
        Ok(operations::read(&self.pool, key).await?.map(|(record, _)| record))
    }

    async fn answer(
        &self,
        key: TaskKey,
        answers: Vec<(String, Vec<u8>)>,
    ) -> Result<(), TaskStoreError> {
        if operations::answer(&self.pool, key, answers).await? {
            self.notifier.announce(key);
        }
        Ok(())
    }

    async fn cancel(&self, key: TaskKey) -> Result<(), TaskStoreError> {
        if operations::cancel(&self.pool, key).await? {
            self.notifier.announce(key);
        }
        Ok(())
    }

    async fn claim(&self, claim: Claim) -> Result<Vec<HeldTask>, TaskStoreError> {
        self.sweeper.begin(&self.pool);
        let (held, cancelled) = claim::claim(&self.pool, claim).await?;
        for key in cancelled {
            self.notifier.announce(key);
        }
        Ok(held)
    }

    async fn write(&self, write: TaskWrite) -> Result<Verdict, TaskStoreError> {
        self.writer.write(write).await
    }

    async fn next_change(&self) -> TaskKey {
        self.notifier.next().await
    }
}

impl fmt::Debug for PostgresTaskStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PostgresTaskStore").finish_non_exhaustive()
    }
}
