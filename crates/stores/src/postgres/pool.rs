//! The connections of a store.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
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

/// Maximum number of connections in use, and as many that end: a connection that is given up may be
/// dead, or the server may still execute its statements.
const MAX_CONNECTIONS: usize = 8;

/// The time after which a connection whose statements have not ended is closed. Long, because the
/// server does not notice: a commit waits for its synchronous standby without a limit.
const END: Duration = Duration::from_mins(10);

/// The parameters of a statement.
pub(super) type Params<'a> = [&'a (dyn ToSql + Sync)];

/// The connections of a store, opened when they are needed.
pub(super) struct Pool {
    connector: Connector,
    idle: Mutex<Vec<Session>>,
    permits: Arc<Semaphore>,
    ending: Arc<Semaphore>,
}

/// A connection with its prepared statements.
struct Session {
    client: Client,
    driver: JoinHandle<()>,
    statements: HashMap<&'static str, Statement>,
    ends: Ends,
}

/// A session in use. If it is dropped, its connection ends, and with it an open transaction.
pub(super) struct Lent<'a> {
    pool: &'a Pool,
    client: Client,
    statements: HashMap<&'static str, Statement>,
    pub(super) ends: Ends,
    // Dropped after the client.
    end: End,
}

/// Ends a connection when it is dropped, unless the driver was taken out.
struct End {
    driver: Option<JoinHandle<()>>,
    permit: Option<OwnedSemaphorePermit>,
    ending: Arc<Semaphore>,
}

impl Pool {
    pub(super) fn new(connector: Connector) -> Self {
        let [permits, ending] = [(); 2].map(|()| Arc::new(Semaphore::new(MAX_CONNECTIONS)));
        Self { connector, idle: Mutex::default(), permits, ending }
    }

    /// Takes a connection.
    pub(super) async fn get(&self) -> Result<Lent<'_>, TaskStoreError> {
        let closed = |error| TaskStoreError::Unavailable(Box::new(error));
        let permit = Arc::clone(&self.permits).acquire_owned().await.map_err(closed)?;
        let session = match self.idle() {
            Some(session) => session,
            None => {
                let (client, driver) = self.connector.open(None).await?;
                Session { client, driver, statements: HashMap::new(), ends: Ends::default() }
            }
        };
        let Session { client, driver, statements, ends } = session;
        let ending = Arc::clone(&self.ending);
        let end = End { driver: Some(driver), permit: Some(permit), ending };
        Ok(Lent { pool: self, client, statements, ends, end })
    }

    fn idle(&self) -> Option<Session> {
        let mut idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner);
        idle.retain(|session| !session.client.is_closed());
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

impl Lent<'_> {
    pub(super) fn client(&self) -> &Client {
        &self.client
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

    /// Returns the connection, between transactions.
    pub(super) fn give_back(self) {
        let Self { pool, client, statements, ends, mut end } = self;
        if let Some(driver) = end.driver.take() {
            let mut idle = pool.idle.lock().unwrap_or_else(PoisonError::into_inner);
            idle.push(Session { client, driver, statements, ends });
        }
    }
}

impl Drop for End {
    fn drop(&mut self) {
        let (Some(mut driver), Ok(runtime)) = (self.driver.take(), Handle::try_current()) else {
            return;
        };
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
