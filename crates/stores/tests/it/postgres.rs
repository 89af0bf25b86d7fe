//! The store in PostgreSQL.

use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;

use mrtr_server::tasks::{
    RunEnd, StoredStatus, TaskKey, TaskStore as _, TaskStoreError, TaskWrite, Verdict,
};
use mrtr_server::testing::task_store_contract;
use mrtr_stores::PostgresTaskStore;
use mrtr_testkit::servers::Postgres;
use tokio::net::{TcpListener, UnixStream};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio_postgres::{Client, Config, NoTls};

use crate::support::{KEPT, append, claim, create, task};

/// A schema of its own in the database that concurrent tests share.
struct Database {
    config: Config,
    client: Client,
    server: Arc<Postgres>,
}

impl Database {
    async fn create() -> Self {
        Self::create_in(shared_server()).await
    }

    async fn create_in(server: Arc<Postgres>) -> Self {
        static NEXT: AtomicUsize = AtomicUsize::new(0);
        let name = format!("test{}", NEXT.fetch_add(1, Ordering::Relaxed));
        let mut config: Config = server.config().parse().unwrap();
        config.options(format!("-c search_path={name}"));
        let (client, connection) = config.connect(NoTls).await.unwrap();
        tokio::spawn(connection);
        client.batch_execute(&format!("CREATE SCHEMA {name}")).await.unwrap();
        Self { config, client, server }
    }

    async fn migrated() -> Self {
        let database = Self::create().await;
        database.migrate().await.unwrap();
        database
    }

    async fn migrate(&self) -> Result<(), TaskStoreError> {
        PostgresTaskStore::migrate(&self.config, NoTls).await
    }

    async fn try_connect(&self) -> Result<PostgresTaskStore, TaskStoreError> {
        PostgresTaskStore::connect(self.config.clone(), NoTls).await
    }

    async fn connect(&self) -> PostgresTaskStore {
        self.try_connect().await.unwrap()
    }

    async fn count(&self, sql: &str) -> i64 {
        self.client.query_one(sql, &[]).await.unwrap().get(0)
    }
}

/// Returns the server of the tests that run now.
fn shared_server() -> Arc<Postgres> {
    static SERVER: Mutex<Weak<Postgres>> = Mutex::new(Weak::new());
    let mut shared = SERVER.lock().unwrap();
    shared.upgrade().unwrap_or_else(|| {
        let server = Arc::new(Postgres::start());
        *shared = Arc::downgrade(&server);
        server
    })
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn postgres_task_store_keeps_the_contract() {
    let database = Database::migrated().await;
    task_store_contract(async || database.connect().await).await;
}

#[tokio::test]
async fn postgres_tables_are_checked() {
    let database = Database::create().await;
    let error = database.try_connect().await.unwrap_err();
    assert!(error.to_string().contains("`PostgresTaskStore::migrate`"), "{error}");
    let mut replicas = JoinSet::new();
    for _ in 0..8 {
        let config = database.config.clone();
        replicas.spawn(async move { PostgresTaskStore::migrate(&config, NoTls).await.unwrap() });
    }
    replicas.join_all().await;
    database.migrate().await.unwrap();
    assert_eq!(database.count("SELECT count(*) FROM mrtr_schema").await, 1);
    database.connect().await;

    database.client.execute("UPDATE mrtr_schema SET version = 2", &[]).await.unwrap();
    for refused in [database.migrate().await, database.try_connect().await.map(drop)] {
        let error = refused.unwrap_err();
        assert!(error.to_string().contains("the tables have version 2"), "{error}");
    }
}

#[tokio::test]
async fn postgres_schema_can_be_applied_by_hand() {
    let database = Database::create().await;
    database.client.batch_execute(PostgresTaskStore::SCHEMA).await.unwrap();
    let store = database.connect().await;
    create(&store, task("a")).await;
}

#[tokio::test]
async fn postgres_announces_changes_to_all_replicas() {
    let database = Database::migrated().await;
    let (one, other) = (database.connect().await, database.connect().await);
    let (key, lease) = create(&one, task("a")).await;
    // The connection that listens may not be there yet.
    loop {
        one.answer(key, vec![("q".to_owned(), Vec::new())]).await.unwrap();
        let heard = tokio::time::timeout(Duration::from_millis(200), other.next_change()).await;
        if let Ok(heard) = heard {
            assert_eq!(heard, key);
            break;
        }
    }
    assert_eq!(one.next_change().await, key, "a replica hears of its own changes");
    assert_eq!(one.write(append(key, lease, 0)).await.unwrap(), KEPT);
    let (last, _) = create(&one, task("last")).await;
    one.cancel(last).await.unwrap();
    while other.next_change().await != last {}
    one.write(TaskWrite { view: Some(Vec::new()), ..TaskWrite::new(key, lease) }).await.unwrap();
    assert_eq!(other.next_change().await, key);
    let end = Some(RunEnd::Released(Duration::ZERO));
    one.write(TaskWrite { end, ..TaskWrite::new(key, lease) }).await.unwrap();
    assert_eq!(other.next_change().await, key);
}

/// The connection that announces changes may be gone before it has announced a release.
#[tokio::test]
async fn postgres_replica_announces_what_it_releases_before_it_ends() {
    let database = Database::migrated().await;
    let (one, other) = (database.connect().await, database.connect().await);
    let (key, lease) = create(&one, task("a")).await;
    let (first, _) = create(&other, task("first")).await;
    // The connection of the other replica may not be there yet.
    loop {
        one.answer(first, vec![("q".to_owned(), Vec::new())]).await.unwrap();
        let heard = tokio::time::timeout(Duration::from_millis(200), other.next_change()).await;
        if heard.is_ok() {
            break;
        }
    }
    let end = Some(RunEnd::Released(Duration::ZERO));
    one.write(TaskWrite { end, ..TaskWrite::new(key, lease) }).await.unwrap();
    drop(one);
    let heard = async { while other.next_change().await != key {} };
    tokio::time::timeout(Duration::from_secs(30), heard).await.unwrap();
}

/// A step adds rows to the journal and does not touch the task, and steps of concurrent tasks share
/// their transactions.
#[tokio::test(flavor = "multi_thread")]
async fn postgres_steps_are_grouped() {
    const TASKS: usize = 64;
    const STEPS: usize = 20;
    let database = Database::migrated().await;
    let store = Arc::new(database.connect().await);
    let mut runs = JoinSet::new();
    let mut created = Vec::new();
    for n in 0..TASKS {
        created.push(create(&*store, task(&n.to_string())).await);
    }
    let versions = "SELECT sum(xmin::text::int8)::int8 FROM mrtr_task";
    let before = database.count(versions).await;
    for (key, lease) in created {
        let store = Arc::clone(&store);
        runs.spawn(async move {
            for position in 0..STEPS {
                assert_eq!(store.write(append(key, lease, position)).await.unwrap(), KEPT);
            }
        });
    }
    runs.join_all().await;
    assert_eq!(database.count(versions).await, before, "a step has changed its task");
    let steps = database.count("SELECT count(*) FROM mrtr_entry").await;
    assert_eq!(steps, i64::try_from(TASKS * STEPS).unwrap());
    let commits = database.count("SELECT count(DISTINCT xmin::text) FROM mrtr_entry").await;
    assert!(commits * 4 < steps, "{steps} steps took {commits} commits");
}

#[tokio::test]
async fn postgres_deletes_what_is_over() {
    let database = Database::migrated().await;
    let store = database.connect().await;
    let rows = "SELECT (SELECT count(*) FROM mrtr_task) * 10000
        + (SELECT count(*) FROM mrtr_entry) * 100 + (SELECT count(*) FROM mrtr_answer)";
    let answer = async |key| store.answer(key, vec![("q".to_owned(), Vec::new())]).await.unwrap();
    for status in [StoredStatus::Completed, StoredStatus::Cancelled] {
        let (key, lease) = create(&store, task(&format!("{status:?}"))).await;
        store.write(append(key, lease, 0)).await.unwrap();
        answer(key).await;
        let end = Some(RunEnd::Ended(status));
        store.write(TaskWrite { end, ..append(key, lease, 1) }).await.unwrap();
    }
    let (key, lease) = create(&store, task("waits")).await;
    let end = Some(RunEnd::Waits);
    store.write(TaskWrite { end, ..append(key, lease, 0) }).await.unwrap();
    answer(key).await;
    store.cancel(key).await.unwrap();
    assert_eq!(database.count(rows).await, 3_00_00, "journals or answers were kept");

    // More than are deleted at once.
    let mut tasks = JoinSet::new();
    let store = Arc::new(store);
    for n in 0..700 {
        let store = Arc::clone(&store);
        tasks.spawn(async move {
            let mut task = task(&format!("short {n}"));
            (task.ttl, task.entries) = (Some(Duration::from_millis(1)), vec![Vec::new()]);
            create(&*store, task).await;
        });
    }
    tasks.join_all().await;
    while database.count(rows).await != 3_00_00 {
        assert!(store.claim(claim()).await.unwrap().is_empty());
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// What was acknowledged is there after the server was killed, and the store reconnects.
#[tokio::test(flavor = "multi_thread")]
async fn postgres_keeps_acknowledged_writes_when_it_is_killed() {
    let mut server = Postgres::start_durable();
    let mut config: Config = server.config().parse().unwrap();
    config.options("-c search_path=public");
    PostgresTaskStore::migrate(&config, NoTls).await.unwrap();
    let store = Arc::new(PostgresTaskStore::connect(config, NoTls).await.unwrap());
    let started = Arc::new(AtomicUsize::new(0));
    let mut runs = JoinSet::new();
    for n in 0..32 {
        let (store, started) = (Arc::clone(&store), Arc::clone(&started));
        runs.spawn(async move {
            let (key, lease) = create(&*store, task(&n.to_string())).await;
            let mut acknowledged = 0;
            while let Ok(verdict) = store.write(append(key, lease, acknowledged)).await {
                assert_eq!(verdict, KEPT);
                acknowledged += 1;
                started.fetch_add(1, Ordering::Relaxed);
            }
            (key, lease, acknowledged)
        });
    }
    while started.load(Ordering::Relaxed) < 1_000 {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    server.kill();
    let runs = runs.join_all().await;
    let error = store.read(TaskKey::of("0")).await.unwrap_err();
    assert!(matches!(error, TaskStoreError::Unavailable(_)), "{error}");
    server.restart();

    for (key, lease, acknowledged) in &runs {
        // The last write may or may not have been performed, and can be repeated.
        let again = store.write(append(*key, *lease, *acknowledged)).await.unwrap();
        assert_eq!(again, KEPT, "a write that was acknowledged is missing");
        let end = Some(RunEnd::Released(Duration::ZERO));
        let write = TaskWrite { end, ..TaskWrite::new(*key, *lease) };
        assert_eq!(store.write(write).await.unwrap(), KEPT);
    }
    let held = store.claim(claim()).await.unwrap();
    assert_eq!(held.len(), runs.len());
    for task in held {
        let (_, _, acknowledged) = runs.iter().find(|(key, ..)| *key == task.key).unwrap();
        let expected: Vec<_> = (0..=*acknowledged).map(|n| n.to_string().into_bytes()).collect();
        assert_eq!(task.entries, expected);
    }
}

/// A write that the database refuses does not fail the others in its group.
#[tokio::test(flavor = "multi_thread")]
async fn postgres_refuses_one_write_of_a_group() {
    let database = Database::migrated().await;
    let store = Arc::new(database.connect().await);
    let check = "ALTER TABLE mrtr_entry ADD CHECK (body <> 'bad')";
    database.client.batch_execute(check).await.unwrap();
    let mut writes = JoinSet::new();
    for n in 0..64 {
        let store = Arc::clone(&store);
        let (key, lease) = create(&*store, task(&n.to_string())).await;
        writes.spawn(async move {
            let mut write = append(key, lease, 0);
            if n % 8 == 0 {
                write.entries = vec![b"bad".to_vec()];
            }
            (n, store.write(write).await)
        });
    }
    for (n, written) in writes.join_all().await {
        assert_eq!(written.is_err(), n % 8 == 0, "{n}: {written:?}");
        assert!(written.is_err() || matches!(written, Ok(Verdict::Kept { .. })));
    }
}

/// Operations that were given up do not gather at the server.
#[tokio::test(flavor = "multi_thread")]
async fn postgres_statements_that_are_given_up_are_bounded_and_end() {
    let database = Database::migrated().await;
    let store = database.connect().await;
    let (key, _) = create(&store, task("a")).await;
    database.client.batch_execute("BEGIN; SELECT FROM mrtr_task FOR UPDATE").await.unwrap();
    let waiting = "SELECT count(*) FROM pg_stat_activity
        WHERE pg_backend_pid() = ANY (pg_blocking_pids(pid))";
    let mut most = 0;
    for _ in 0..24 {
        let cancelled = tokio::time::timeout(Duration::from_millis(150), store.cancel(key)).await;
        assert!(cancelled.is_err(), "{cancelled:?}");
        most = most.max(database.count(waiting).await);
    }
    assert!((1..=16).contains(&most), "{most}");
    for _ in 0..1_000 {
        if database.count(waiting).await == 0 {
            database.client.batch_execute("ROLLBACK").await.unwrap();
            store.cancel(key).await.unwrap();
            return;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    unreachable!("statements still wait");
}

/// Forwards connections to the server. Those that exist when `silence` changes are read from, and
/// nothing more is forwarded: they look alive to both sides.
async fn forward(listener: TcpListener, socket: PathBuf, silence: watch::Sender<()>) {
    loop {
        let (mut near, _) = listener.accept().await.unwrap();
        let mut far = UnixStream::connect(&socket).await.unwrap();
        let mut silence = silence.subscribe();
        tokio::spawn(async move {
            tokio::select! {
                _ = tokio::io::copy_bidirectional(&mut near, &mut far) => return,
                _ = silence.changed() => {}
            }
            drop(tokio::io::copy(&mut near, &mut tokio::io::sink()).await);
        });
    }
}

/// A firewall forgets connections without a message to either side, and new ones work.
#[tokio::test(flavor = "multi_thread")]
async fn postgres_writes_that_are_repeated_leave_dead_connections() {
    let mut database = Database::migrated().await;
    let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let (silence, _) = watch::channel(());
    let socket = database.server.folder().join(".s.PGSQL.5432");
    tokio::spawn(forward(listener, socket, silence.clone()));
    let options = database.config.get_options().unwrap().to_owned();
    database.config = Config::new();
    database.config.host("127.0.0.1").port(port).user("postgres").dbname("postgres");
    database.config.options(options);
    let store = Arc::new(database.connect().await);
    let mut creations = JoinSet::new();
    for n in 0..8 {
        let store = Arc::clone(&store);
        creations.spawn(async move { create(&*store, task(&n.to_string())).await });
    }
    let tasks = creations.join_all().await;
    silence.send_replace(());
    let mut writes = JoinSet::new();
    for (key, lease) in tasks {
        let store = Arc::clone(&store);
        writes.spawn(async move {
            for _ in 0..100 {
                let write = store.write(append(key, lease, 0));
                let time = Duration::from_millis(300);
                if let Ok(written) = tokio::time::timeout(time, write).await {
                    return written.unwrap();
                }
            }
            unreachable!("the writes use dead connections");
        });
    }
    for verdict in writes.join_all().await {
        assert_eq!(verdict, KEPT);
    }
}

/// Waits until a statement waits for the transaction of this connection, or `task` has ended.
async fn wait_for_lock<T>(database: &Database, task: &tokio::task::JoinHandle<T>) {
    let waiting = "SELECT count(*) FROM pg_stat_activity WHERE $1 = ANY (pg_blocking_pids(pid))";
    let pid = "SELECT pg_backend_pid()";
    let pid: i32 = database.client.query_one(pid, &[]).await.unwrap().get(0);
    while !task.is_finished() {
        let rows = database.client.query_one(waiting, &[&pid]).await.unwrap();
        if rows.get::<_, i64>(0) > 0 {
            return;
        }
        tokio::task::yield_now().await;
    }
}

/// A write that meets a claim waits for it, and then has lost.
#[tokio::test(flavor = "multi_thread")]
async fn postgres_writes_wait_for_claims() {
    let database = Database::migrated().await;
    let store = Arc::new(database.connect().await);
    let (key, lease) = create(&*store, task("a")).await;
    let with_view = TaskWrite { view: Some(Vec::new()), ..append(key, lease, 0) };
    for write in [append(key, lease, 0), with_view] {
        // The statement of a claim that has not been committed yet.
        let claim = "BEGIN; UPDATE mrtr_task SET lease = 'another'";
        database.client.batch_execute(claim).await.unwrap();
        let store = Arc::clone(&store);
        let written = tokio::spawn(async move { store.write(write).await.unwrap() });
        wait_for_lock(&database, &written).await;
        database.client.batch_execute("COMMIT").await.unwrap();
        assert_eq!(written.await.unwrap(), Verdict::Lost);
        let back = "UPDATE mrtr_task SET lease = $1";
        database.client.execute(back, &[&&lease.0[..]]).await.unwrap();
    }
    assert_eq!(database.count("SELECT count(*) FROM mrtr_entry").await, 0);
    assert_eq!(store.write(append(key, lease, 0)).await.unwrap(), KEPT);
}

/// A claim that meets a write leaves the task for later.
#[tokio::test(flavor = "multi_thread")]
async fn postgres_claims_pass_writes() {
    let database = Database::migrated().await;
    let store = database.connect().await;
    let (key, lease) = create(&store, task("a")).await;
    let end = Some(RunEnd::Released(Duration::ZERO));
    store.write(TaskWrite { end, ..TaskWrite::new(key, lease) }).await.unwrap();
    let write = "BEGIN; SELECT FROM mrtr_task FOR SHARE";
    database.client.batch_execute(write).await.unwrap();
    assert!(store.claim(claim()).await.unwrap().is_empty());
    database.client.batch_execute("COMMIT").await.unwrap();
    assert_eq!(store.claim(claim()).await.unwrap().len(), 1);
}

/// An answer that meets the end of a run makes the task due.
#[tokio::test(flavor = "multi_thread")]
async fn postgres_answers_wait_for_the_end_of_a_run() {
    let database = Database::migrated().await;
    let store = Arc::new(database.connect().await);
    let (key, _) = create(&*store, task("a")).await;
    let end = "BEGIN; UPDATE mrtr_task SET lease = NULL, wake = NULL, is_mid_epoch = false";
    database.client.batch_execute(end).await.unwrap();
    let answers = vec![("q".to_owned(), b"a".to_vec())];
    let answered = {
        let store = Arc::clone(&store);
        tokio::spawn(async move { store.answer(key, answers).await.unwrap() })
    };
    wait_for_lock(&database, &answered).await;
    database.client.batch_execute("COMMIT").await.unwrap();
    answered.await.unwrap();
    let held = store.claim(claim()).await.unwrap();
    assert_eq!(held[0].answers.len(), 1);
}
