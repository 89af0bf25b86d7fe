//! A task store in Redis.

mod listener;
mod reply;

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use mrtr_server::redis_connection::RedisConnection;
use mrtr_server::tasks::{
    Claim, Created, HeldTask, Lease, NewTask, RunEnd, TaskKey, TaskRecord, TaskStore,
    TaskStoreError, TaskWrite, Verdict,
};
use redis::aio::ConnectionManager;
use redis::{FromRedisValue, RedisError, Script, ScriptInvocation, cmd};

use self::listener::Listener;
use crate::millis::millis;

/// The timeout of a connection attempt, and of a reply.
const TIMEOUT: Duration = Duration::from_secs(2);

/// The longest duration in milliseconds: numbers in Lua are exact up to 2^53.
const MAX_MILLIS: i64 = 1 << 51;

/// A script, after the functions that all share.
macro_rules! script {
    ($name:literal) => {
        Script::new(concat!(include_str!("redis/prelude.lua"), include_str!($name)))
    };
    // Also while Redis is full: tasks that go on come to an end, which makes room.
    ($name:literal, if full) => {
        Script::new(concat!(
            "#!lua flags=allow-oom\n",
            include_str!("redis/prelude.lua"),
            include_str!($name)
        ))
    };
}

/// A [`TaskStore`] in Redis 7 or newer, or in Valkey.
///
/// # Durability
///
/// By default, Redis acknowledges writes before they are on the disk. If entries of a journal are
/// lost, their steps run again, with the same idempotency keys. If a task is lost, its id is
/// unknown. So configure:
///
/// - `appendonly yes` and `appendfsync always`. Otherwise a restart loses the last second, or all.
/// - `maxmemory-policy noeviction`. When Redis is full, it then refuses new tasks and answers, and
///   the other tasks go on.
///
/// [`connect`](Self::connect) logs a warning if these settings differ. A failover to a replica of
/// Redis that lags behind loses writes in any case: replication is asynchronous. For tasks that
/// must not be lost, use PostgreSQL.
///
/// # Operations
///
/// Each operation is one script. All share a connection, which is restored when it breaks; another
/// one listens for changes. If a failover has made the server a replica, operations that write fail
/// until the address leads to the new server, and both connections are replaced. Tasks that have
/// expired are deleted by Redis. The keys of a script are in several slots, so a Redis cluster
/// cannot be used.
pub struct RedisTaskStore {
    connection: RedisConnection,
    listener: Listener,
    prefix: String,
    scripts: Scripts,
}

struct Scripts {
    create: Script,
    read: Script,
    answer: Script,
    cancel: Script,
    claim: Script,
    write: Script,
}

impl RedisTaskStore {
    /// Connects to `redis://[user:password@]host[:port][/database]`, or to `redis+unix:///path`.
    ///
    /// Dropping the future cancels the attempt.
    ///
    /// # Errors
    ///
    /// [`TaskStoreError::Unavailable`], if the URL is invalid or the server does not reply within a
    /// few seconds. The error does not contain the password.
    pub async fn connect(url: &str) -> Result<Self, TaskStoreError> {
        let connection = RedisConnection::connect(url, TIMEOUT).await.map_err(failed)?;
        check(&mut connection.get().0).await;
        let scripts = Scripts {
            create: script!("redis/create.lua"),
            read: script!("redis/read.lua"),
            answer: script!("redis/answer.lua"),
            cancel: script!("redis/cancel.lua", if full),
            claim: script!("redis/claim.lua", if full),
            write: script!("redis/write.lua", if full),
        };
        let listener = Listener::new(connection.client().clone());
        Ok(Self { connection, listener, prefix: "mrtr:".to_owned(), scripts })
    }

    /// Sets the prefix of all keys. Default: `mrtr:`. Services that share a Redis do not need
    /// different prefixes: their keys differ.
    pub fn prefix(mut self, prefix: impl Into<String>) -> Self {
        self.prefix = prefix.into();
        self
    }

    /// Begins the call of a script, with the parameters that all have.
    fn call<'a>(&self, script: &'a Script, first: &[u8]) -> ScriptInvocation<'a> {
        let mut call = script.prepare_invoke();
        call.arg(&self.prefix).arg(first);
        call
    }

    async fn invoke<T: FromRedisValue>(
        &self,
        call: &ScriptInvocation<'_>,
    ) -> Result<T, TaskStoreError> {
        let (mut connection, number) = self.connection.get();
        let result = call.invoke_async(&mut connection).await;
        if self.connection.settle(number, &result) {
            self.listener.subscribe_again();
        }
        result.map_err(failed)
    }
}

/// Warns of settings that lose tasks. Where the command is forbidden, they cannot be read.
async fn check(connection: &mut ConnectionManager) {
    for (setting, expected) in
        [("appendonly", "yes"), ("appendfsync", "always"), ("maxmemory-policy", "noeviction")]
    {
        let mut get = cmd("CONFIG");
        get.arg("GET").arg(setting);
        let values: Result<Vec<String>, _> = get.query_async(connection).await;
        if let Some(value) = values.ok().and_then(|values| values.into_iter().nth(1))
            && value != expected
        {
            tracing::warn!(target: "mrtr::tasks", setting, value, "Redis may lose tasks");
        }
    }
}

fn failed(error: RedisError) -> TaskStoreError {
    // The reply of a full Redis: `-OOM command not allowed when used memory > 'maxmemory'`.
    if error.code() == Some("OOM") {
        return TaskStoreError::Full;
    }
    TaskStoreError::Unavailable(Box::new(error))
}

/// Converts a duration to milliseconds.
fn time(duration: Duration) -> i64 {
    millis(duration).min(MAX_MILLIS)
}

/// Writes an optional number: the empty string if it is missing.
fn optional(number: Option<i64>) -> String {
    number.map(|number| number.to_string()).unwrap_or_default()
}

impl TaskStore for RedisTaskStore {
    async fn create(&self, task: NewTask, lease: Lease) -> Result<Created, TaskStoreError> {
        let mut call = self.call(&self.scripts.create, reply::id(task.key).as_bytes());
        call.arg(task.service).arg(task.handler.tool).arg(task.handler.version);
        call.arg(task.handler.min_version).arg(&lease.id.0[..]).arg(time(lease.time));
        call.arg(optional(task.ttl.map(time))).arg(time(task.retention));
        call.arg(task.call).arg(task.view);
        for entry in task.entries {
            call.arg(entry);
        }
        let fields: Vec<Vec<u8>> = self.invoke(&call).await?;
        let mut fields = fields.into_iter();
        let is_new = fields.next().is_some_and(|flag| flag == b"1");
        let record = reply::record(fields)?.ok_or_else(|| reply::malformed("create"))?;
        Ok(if is_new { Created::New(record) } else { Created::Exists(record) })
    }

    async fn read(&self, key: TaskKey) -> Result<Option<TaskRecord>, TaskStoreError> {
        let call = self.call(&self.scripts.read, reply::id(key).as_bytes());
        let fields: Vec<Vec<u8>> = self.invoke(&call).await?;
        reply::record(fields.into_iter())
    }

    async fn answer(
        &self,
        key: TaskKey,
        answers: Vec<(String, Vec<u8>)>,
    ) -> Result<(), TaskStoreError> {
        let mut call = self.call(&self.scripts.answer, reply::id(key).as_bytes());
        for (question, answer) in answers {
            call.arg(question).arg(answer);
        }
        self.invoke(&call).await
    }

    async fn cancel(&self, key: TaskKey) -> Result<(), TaskStoreError> {
        let call = self.call(&self.scripts.cancel, reply::id(key).as_bytes());
        self.invoke(&call).await
    }

    async fn claim(&self, claim: Claim) -> Result<Vec<HeldTask>, TaskStoreError> {
        let mut call = self.call(&self.scripts.claim, claim.service.as_bytes());
        call.arg(&claim.lease.id.0[..]).arg(time(claim.lease.time)).arg(claim.limit);
        for handler in &*claim.handlers {
            call.arg(&handler.tool).arg(handler.version);
        }
        let tasks: Vec<Vec<Vec<u8>>> = self.invoke(&call).await?;
        tasks.into_iter().map(reply::held_task).collect()
    }

    async fn write(&self, write: TaskWrite) -> Result<Verdict, TaskStoreError> {
        static SEQ: AtomicU64 = AtomicU64::new(1);
        let TaskWrite { key, lease, renew, position, entries, handler, view, end } = write;
        let mut call = self.call(&self.scripts.write, reply::id(key).as_bytes());
        call.arg(&lease.0[..]).arg(SEQ.fetch_add(1, Ordering::Relaxed));
        call.arg(optional(renew.map(time)));
        call.arg(position.map(|position| position.to_string()).unwrap_or_default());
        match handler {
            Some(handler) => call.arg(handler.tool).arg(handler.version).arg(handler.min_version),
            None => call.arg("").arg(0).arg(0),
        };
        call.arg(u8::from(view.is_some())).arg(view.unwrap_or_default());
        let (end, pause, status) = match end {
            None => (0, Duration::ZERO, 0),
            Some(RunEnd::Waits) => (1, Duration::ZERO, 0),
            Some(RunEnd::Released(pause)) => (2, pause, 0),
            Some(RunEnd::Ended(status)) => (3, Duration::ZERO, status as u8),
        };
        call.arg(end).arg(time(pause)).arg(status);
        for entry in entries {
            call.arg(entry);
        }
        match self.invoke::<u8>(&call).await? {
            0 => Ok(Verdict::Lost),
            kept => Ok(Verdict::Kept { cancel: kept == 2 }),
        }
    }

    async fn next_change(&self) -> TaskKey {
        self.listener.next(&format!("{}changed", self.prefix)).await
    }
}

impl fmt::Debug for RedisTaskStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RedisTaskStore").field("prefix", &self.prefix).finish_non_exhaustive()
    }
}
