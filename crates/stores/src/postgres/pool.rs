//! The connections of a store.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use mrtr_server::tasks::TaskStoreError;
use tokio::runtime::Handle;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::task::JoinHandle;
use tokio::time::timeout;
use tokio_postgres::types::ToSql;
use tokio_postgres::{Client, Error, Row, Statement};

use super::connect::{Connector, failed};
use super::ends::Ends;

/// Maximum number of connections in use for the writes of running tasks, for which leases do not
/// wait, and for everything else.
const FOR_WRITES: usize = 4;
const FOR_OTHERS: usize = 4;

/// Maximum number of connections that end: a connection that is given up may be dead, or the server
/// may still execute its statements.
const MAX_ENDING: usize = 8;

/// The time after which a connection whose statements have not ended is closed. Long, because the
/// server does not notice: a commit waits for its synchronous standby without a limit.
const END: Duration = Duration::from_mins(10);

/// The parameters of a statement.
pub(super) type Params<'a> = [&'a (dyn ToSql + Sync)];

/// The connections of a store, opened when they are needed.
pub(super) struct Pool {
    connector: Connector,
    idle: Mutex<Vec<Session>>,
    for_writes: Arc<Semaphore>,
    for_others: Arc<Semaphore>,
    ending: Arc<Semaphore>,
    ends: Arc<Mutex<Ends>>,
}

/// A connection with its prepared statements.
struct Session {
    client: Client,
    driver: JoinHandle<()>,
    statements: HashMap<&'static str, Statement>,
    /// The time at which the server was started.
    server: Arc<str>,
}

/// A session in use. If it is dropped, its connection ends, and with it an open transaction.
pub(super) struct Lent<'a> {
    pool: &'a Pool,
    client: Client,
    statements: HashMap<&'static str, Statement>,
    server: Arc<str>,
    // Dropped after the client.
    end: End,
}

/// Ends a connection when it is dropped, unless the driver was taken out.
struct End {
    driver: Option<JoinHandle<()>>,
    permit: Option<OwnedSemaphorePermit>,
    ending: Arc<Semaphore>,
    ends: Arc<Mutex<Ends>>,
}

impl Pool {
    pub(super) fn new(connector: Connector) -> Self {
        let [for_writes, for_others, ending] =
            [FOR_WRITES, FOR_OTHERS, MAX_ENDING].map(|permits| Arc::new(Semaphore::new(permits)));
        let (idle, ends) = (Mutex::default(), Arc::default());
        Self { connector, idle, for_writes, for_others, ending, ends }
    }

    /// Takes a connection for writes of running tasks.
    pub(super) async fn get_for_writes(&self) -> Result<Lent<'_>, TaskStoreError> {
        self.lend(&self.for_writes).await
    }

    /// Takes a connection for anything else.
    pub(super) async fn get(&self) -> Result<Lent<'_>, TaskStoreError> {
        self.lend(&self.for_others).await
    }

    async fn lend(&self, permits: &Arc<Semaphore>) -> Result<Lent<'_>, TaskStoreError> {
        let closed = |error| TaskStoreError::Unavailable(Box::new(error));
        let permit = Arc::clone(permits).acquire_owned().await.map_err(closed)?;
        let session = match self.idle() {
            Some(session) => session,
            None => self.open().await?,
        };
        let Session { client, driver, statements, server } = session;
        let (ending, ends) = (Arc::clone(&self.ending), Arc::clone(&self.ends));
        let end = End { driver: Some(driver), permit: Some(permit), ending, ends };
        Ok(Lent { pool: self, client, statements, server, end })
    }

    async fn open(&self) -> Result<Session, TaskStoreError> {
        let (client, driver) = self.connector.open(None).await?;
        let start = "SELECT pg_postmaster_start_time()::text";
        let server = client.query_one(start, &[]).await.map_err(failed)?.get::<_, &str>(0).into();
        // Perhaps the server was reset to an earlier state, and the others hang.
        lock(&self.ends).clear();
        Ok(Session { client, driver, statements: HashMap::new(), server })
    }

    fn idle(&self) -> Option<Session> {
        let mut idle = lock(&self.idle);
        let before = idle.len();
        idle.retain(|session| !session.client.is_closed());
        if idle.len() < before {
            lock(&self.ends).clear();
        }
        idle.pop()
    }

    /// Executes one statement, which is a transaction.
    pub(super) async fn query(
        &self,
        sql: &'static str,
        params: &Params<'_>,
    ) -> Result<Vec<Row>, TaskStoreError> {
        let mut lent = self.get().await?;
        let rows = lent.query(sql, params).await.map_err(failed)?;
        lent.give_back();
        Ok(rows)
    }
}

#[cfg(all(test, unix))]
#[expect(clippy::unwrap_used, reason = "a test fails by panicking")]
impl Pool {
    /// Returns once a statement waits for a lock.
    pub(super) async fn wait_for_lock(&self) {
        let waiting = "SELECT FROM pg_stat_activity WHERE wait_event_type = 'Lock'";
        // Not in a transaction, which sees the activity of its beginning.
        while self.query(waiting, &[]).await.unwrap().is_empty() {
            tokio::task::yield_now().await;
        }
    }
}

impl Lent<'_> {
    pub(super) fn client(&self) -> &Client {
        &self.client
    }

    /// Calls `f` with what is known of the journals at the server of this connection.
    pub(super) fn use_ends(&self, f: impl FnOnce(&mut Ends)) {
        f(lock(&self.pool.ends).of(&self.server));
    }

    /// Prepares a statement, once per connection.
    pub(super) async fn prepare(&mut self, sql: &'static str) -> Result<Statement, Error> {
        if let Some(statement) = self.statements.get(sql) {
            return Ok(statement.clone());
        }
        let statement = self.client.prepare(sql).await?;
        self.statements.insert(sql, statement.clone());
        Ok(statement)
    }

    pub(super) async fn query(
        &mut self,
        sql: &'static str,
        params: &Params<'_>,
    ) -> Result<Vec<Row>, Error> {
        let statement = self.prepare(sql).await?;
        self.client.query(&statement, params).await
    }

    /// Returns the number of rows that were changed.
    pub(super) async fn execute(
        &mut self,
        sql: &'static str,
        params: &Params<'_>,
    ) -> Result<u64, Error> {
        let statement = self.prepare(sql).await?;
        self.client.execute(&statement, params).await
    }

    /// Returns the connection, between transactions.
    pub(super) fn give_back(self) {
        let Self { pool, client, statements, server, mut end } = self;
        if let Some(driver) = end.driver.take() {
            lock(&pool.idle).push(Session { client, driver, statements, server });
        }
    }
}

impl Drop for End {
    fn drop(&mut self) {
        let Some(mut driver) = self.driver.take() else { return };
        // Perhaps the server was reset to an earlier state.
        lock(&self.ends).clear();
        let Ok(runtime) = Handle::try_current() else { return };
        let ending = Arc::clone(&self.ending).try_acquire_owned();
        // Without a place among those that end, it counts as one in use.
        let permit = ending.ok().or(self.permit.take());
        runtime.spawn(async move {
            if timeout(END, &mut driver).await.is_err() {
                driver.abort();
            }
            drop(permit);
        });
    }
}

/// Locks a mutex, also after a panic: no value here is left half changed.
pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(all(test, unix))]
mod tests {
    use std::pin::pin;
    use std::task::{Context, Waker};

    use mrtr_testkit::servers::Postgres;
    use tokio_postgres::NoTls;

    use super::*;

    #[tokio::test]
    async fn postgres_has_connections_for_writes_while_reads_wait() {
        let server = Postgres::start();
        let pool = Pool::new(Connector::new(server.config().parse().unwrap(), NoTls));
        let mut reads = Vec::new();
        for _ in 0..FOR_OTHERS {
            reads.push(pool.get().await.unwrap());
        }
        let mut next = pin!(pool.get());
        assert!(next.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
        pool.get_for_writes().await.unwrap().give_back();
        reads.pop().unwrap().give_back();
        next.await.unwrap().give_back();
    }

    #[tokio::test]
    async fn postgres_servers_are_told_apart_by_their_start() {
        let mut server = Postgres::start();
        let pool = Pool::new(Connector::new(server.config().parse().unwrap(), NoTls));
        let [one, same] = [pool.get().await.unwrap(), pool.get().await.unwrap()];
        assert_eq!(one.server, same.server);
        server.stop();
        server.restart();
        assert_ne!(pool.get().await.unwrap().server, one.server);
    }
}
