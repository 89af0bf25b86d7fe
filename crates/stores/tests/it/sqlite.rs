//! The store in a SQLite file.

use std::path::PathBuf;
use std::process::Command;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use mrtr_server::tasks::{RunEnd, TaskKey, TaskStore as _, TaskStoreError, TaskWrite};
use mrtr_server::testing::task_store_contract;
use mrtr_stores::SqliteTaskStore;

use crate::support::{KEPT, append, claim, create, task};

/// A file in a folder of its own, which is deleted at the end.
struct Folder(PathBuf);

impl Folder {
    fn create() -> Self {
        static NEXT: AtomicUsize = AtomicUsize::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let name = format!("mrtr-sqlite-{}-{number}", std::process::id());
        let folder = std::env::temp_dir().join(name);
        std::fs::create_dir_all(&folder).unwrap();
        Self(folder)
    }

    fn file(&self) -> PathBuf {
        self.0.join("tasks.db")
    }

    fn open(&self) -> SqliteTaskStore {
        SqliteTaskStore::open(self.file()).unwrap()
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// Two stores on one file behave as two processes.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn sqlite_task_store_keeps_the_contract() {
    let folder = Folder::create();
    task_store_contract(async || folder.open()).await;
}

/// Replicas that start at the same time open a new file.
#[test]
fn sqlite_files_can_be_opened_by_many_at_once() {
    for _ in 0..10 {
        let folder = Folder::create();
        let start = std::sync::Barrier::new(8);
        std::thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(|| {
                    start.wait();
                    folder.open();
                });
            }
        });
    }
}

#[tokio::test]
async fn sqlite_files_are_checked() {
    let folder = Folder::create();
    drop(folder.open());
    drop(folder.open());
    let file = rusqlite::Connection::open(folder.file()).unwrap();
    file.pragma_update(None, "user_version", 2).unwrap();
    let error = SqliteTaskStore::open(folder.file()).unwrap_err();
    assert!(error.to_string().contains("the file has version 2"), "{error}");
    for path in [":memory:".into(), folder.0.clone()] {
        let error = SqliteTaskStore::open(path).unwrap_err();
        assert!(matches!(error, TaskStoreError::Unavailable(_)), "{error}");
    }
}

#[tokio::test]
async fn sqlite_announces_changes_to_all_processes() {
    let folder = Folder::create();
    let (one, other) = (folder.open(), folder.open());
    let (key, lease) = create(&one, task("a")).await;
    one.write(append(key, lease, 0)).await.unwrap();
    one.answer(key, vec![("q".to_owned(), Vec::new())]).await.unwrap();
    let (second, _) = create(&one, task("b")).await;
    one.cancel(second).await.unwrap();
    for expected in [key, second] {
        assert_eq!(other.next_change().await, expected);
        assert_eq!(one.next_change().await, expected);
    }
    // A process that starts later does not hear of old changes, and the log has a limit.
    let late = folder.open();
    for _ in 0..1_500 {
        one.answer(key, Vec::new()).await.unwrap();
    }
    other.cancel(second).await.unwrap();
    let (third, _) = create(&other, task("c")).await;
    other.cancel(third).await.unwrap();
    assert_eq!(late.next_change().await, key);
    while late.next_change().await != third {}
    let file = rusqlite::Connection::open(folder.file()).unwrap();
    let count = |sql: &str| file.query_row(sql, [], |row| row.get::<_, i64>(0)).unwrap();
    assert_eq!(count("SELECT count(*) FROM mrtr_change"), 1_024);
}

/// Its own changes come without a pause.
#[tokio::test]
async fn sqlite_announces_changes_to_a_process_that_is_busy() {
    let folder = Folder::create();
    let (one, busy) = (folder.open(), folder.open());
    let (key, _) = create(&one, task("a")).await;
    let (own, _) = create(&busy, task("b")).await;
    one.cancel(key).await.unwrap();
    for n in 0.. {
        busy.answer(own, vec![(format!("q{n}"), Vec::new())]).await.unwrap();
        if busy.next_change().await == key {
            break;
        }
        assert!(n < 10_000, "the change of another process is not seen");
    }
}

/// A process that is killed loses nothing that was acknowledged.
#[test]
fn sqlite_keeps_acknowledged_writes_when_its_process_is_killed() {
    use std::io::{BufRead as _, BufReader};

    let folder = Folder::create();
    let program = std::env::current_exe().unwrap();
    let mut child = Command::new(program)
        .args(["--exact", "sqlite::writes_until_it_is_killed", "--ignored", "--nocapture"])
        .env("MRTR_SQLITE_FILE", folder.file())
        .stdout(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    let output = BufReader::new(child.stdout.take().unwrap());
    let mut acknowledged = 0;
    for line in output.lines() {
        let line = line.unwrap();
        let Some(number) = line.strip_prefix("acknowledged ") else { continue };
        acknowledged = number.parse().unwrap();
        if acknowledged == 500 {
            child.kill().unwrap();
        }
    }
    child.wait().unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let store = folder.open();
        loop {
            if let Some(task) = store.claim(claim()).await.unwrap().pop() {
                assert!(task.entries.len() >= acknowledged, "an acknowledged write is missing");
                break;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    });
}

#[tokio::test]
#[ignore = "runs in a process that is killed"]
async fn writes_until_it_is_killed() {
    let store = SqliteTaskStore::open(std::env::var_os("MRTR_SQLITE_FILE").unwrap()).unwrap();
    let (key, lease) = create(&store, task("a")).await;
    for position in 0.. {
        let mut write = append(key, lease, position);
        write.renew = Some(Duration::from_secs(1));
        assert_eq!(store.write(write).await.unwrap(), KEPT);
        println!("acknowledged {}", position + 1);
    }
}

#[tokio::test]
async fn sqlite_deletes_what_is_over() {
    let folder = Folder::create();
    let store = folder.open();
    let file = rusqlite::Connection::open(folder.file()).unwrap();
    let rows = || {
        let count = |table| {
            let sql = format!("SELECT count(*) FROM {table}");
            file.query_row(&sql, [], |row| row.get::<_, i64>(0)).unwrap()
        };
        [count("mrtr_task"), count("mrtr_entry"), count("mrtr_answer")]
    };
    let (key, lease) = create(&store, task("waits")).await;
    let end = Some(RunEnd::Waits);
    store.write(TaskWrite { end, ..append(key, lease, 0) }).await.unwrap();
    store.answer(key, vec![("q".to_owned(), Vec::new())]).await.unwrap();
    assert_eq!(rows(), [1, 1, 1]);
    store.cancel(key).await.unwrap();
    assert_eq!(rows(), [1, 0, 0]);
    for n in 0..700 {
        let mut task = task(&n.to_string());
        (task.ttl, task.entries) = (Some(Duration::from_millis(1)), vec![Vec::new()]);
        create(&store, task).await;
    }
    while rows() != [1, 0, 0] {
        assert!(store.claim(claim()).await.unwrap().is_empty());
    }
    assert!(store.read(TaskKey::of("0")).await.unwrap().is_none());
}
