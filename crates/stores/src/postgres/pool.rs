//! The connections of a store.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

use mrtr_server::tasks::TaskStoreError;
use tokio::sync::{Semaphore, SemaphorePermit};
use tokio_postgres::types::ToSql;
use tokio_postgres::{Client, Error, Row, Statement};

use super::connect::{Connector, failed};

/// Maximum number of connections.
const MAX_CONNECTIONS: usize = 8;

/// The parameters of a statement.
pub(super) type Params<'a> = [&'a (dyn ToSql + Sync)];

/// The connections of a store, opened when they are needed.
pub(super) struct Pool {
    connector: Connector,
    idle: Mutex<Vec<Session>>,
    permits: Semaphore,
}

/// A connection with its prepared statements.
pub(super) struct Session {
    client: Client,
    statements: HashMap<&'static str, Statement>,
}

/// A session in use. If it is dropped, its connection ends, and with it an open transaction.
pub(super) struct Lent<'a> {
    pool: &'a Pool,
    session: Session,
    _permit: SemaphorePermit<'a>,
}

impl Pool {
    pub(super) fn new(connector: Connector) -> Self {
        let permits = Semaphore::new(MAX_CONNECTIONS);
        Self { connector, idle: Mutex::default(), permits }
    }

    /// Takes a connection.
    pub(super) async fn get(&self) -> Result<Lent<'_>, TaskStoreError> {
        let closed = |error| TaskStoreError::Unavailable(Box::new(error));
        let permit = self.permits.acquire().await.map_err(closed)?;
        let session = match self.idle() {
            Some(session) => session,
            None => {
                let (client, _driver) = self.connector.open(None).await?;
                Session { client, statements: HashMap::new() }
            }
        };
        Ok(Lent { pool: self, session, _permit: permit })
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
        &self.session.client
    }

    /// Prepares a statement, once per connection.
    pub(super) async fn prepare(&mut self, sql: &'static str) -> Result<Statement, Error> {
        if let Some(statement) = self.session.statements.get(sql) {
            return Ok(statement.clone());
        }
        let statement = self.session.client.prepare(sql).await?;
        self.session.statements.insert(sql, statement.clone());
        Ok(statement)
    }

    pub(super) async fn query(
        &mut self,
        sql: &'static str,
        params: &Params<'_>,
    ) -> Result<Vec<Row>, Error> {
        let statement = self.prepare(sql).await?;
        self.session.client.query(&statement, params).await
    }

    /// Returns the connection, between transactions.
    pub(super) fn give_back(self) {
        let mut idle = self.pool.idle.lock().unwrap_or_else(PoisonError::into_inner);
        idle.push(self.session);
    }
}
