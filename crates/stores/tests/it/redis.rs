//! The store in Redis.

use std::time::Duration;

use mrtr_server::tasks::{
    Created, RunEnd, StoredStatus, TaskKey, TaskStore as _, TaskStoreError, TaskWrite,
};
use mrtr_server::testing::task_store_contract;
use mrtr_stores::RedisTaskStore;
use mrtr_testkit::servers::{Redis, RedisFailover};
use tokio::time::timeout;

use crate::support::{KEPT, append, claim, create, lease, task};

/// The longest time for what should happen soon.
const LONG: Duration = Duration::from_secs(30);

async fn store(redis: &Redis) -> RedisTaskStore {
    RedisTaskStore::connect(&redis.url()).await.unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn redis_task_store_keeps_the_contract() {
    let redis = Redis::start();
    task_store_contract(async || store(&redis).await).await;
}

#[tokio::test]
async fn redis_announces_changes_to_all_replicas() {
    let redis = Redis::start();
    let (one, other) = (store(&redis).await, store(&redis).await);
    let (key, lease) = create(&one, task("a")).await;
    // The first call subscribes.
    hears_of(&other, key).await;
    one.write(append(key, lease, 0)).await.unwrap();
    let (last, _) = create(&one, task("last")).await;
    one.cancel(last).await.unwrap();
    while other.next_change().await != last {}
    let end = Some(RunEnd::Released(Duration::ZERO));
    one.write(TaskWrite { end, ..TaskWrite::new(key, lease) }).await.unwrap();
    assert_eq!(other.next_change().await, key);
}

/// Nothing is left of tasks that have expired.
#[tokio::test]
async fn redis_deletes_what_is_over() {
    let redis = Redis::start();
    let store = store(&redis).await;
    let (waits, lease) = create(&store, task("waits")).await;
    let end = Some(RunEnd::Waits);
    store.write(TaskWrite { end, ..append(waits, lease, 0) }).await.unwrap();
    store.answer(waits, vec![("q".to_owned(), Vec::new())]).await.unwrap();
    store.cancel(waits).await.unwrap();
    assert_eq!(redis.command("DBSIZE"), ":1", "a journal, answers or an index were kept");
    for n in 0..50 {
        let mut task = task(&n.to_string());
        (task.ttl, task.entries) = (Some(Duration::from_millis(50)), vec![Vec::new()]);
        let (key, lease) = create(&store, task).await;
        store.answer(key, vec![("q".to_owned(), Vec::new())]).await.unwrap();
        let end = Some(RunEnd::Waits);
        store.write(TaskWrite { end, ..append(key, lease, 1) }).await.unwrap();
    }
    while redis.command("DBSIZE") != ":1" {
        store.claim(claim()).await.unwrap();
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

/// After a failover, the old server keeps its connections, and is read-only.
#[tokio::test]
async fn redis_connects_again_if_the_server_has_become_a_replica() {
    let servers = RedisFailover::start();
    let store = RedisTaskStore::connect(&servers.url()).await.unwrap();
    let (before, _) = create(&store, task("before")).await;
    hears_of(&store, before).await;
    servers.demote_old();
    let refused = store.create(task("a"), lease()).await;
    assert!(matches!(refused, Err(TaskStoreError::Unavailable(_))), "{refused:?}");
    // The address still leads to the old server when the store listens again.
    assert!(changed(&store).await.is_none());
    servers.lead_to_new();
    let created = async {
        loop {
            if let Ok(Created::New(_)) = store.create(task("a"), lease()).await {
                break;
            }
        }
    };
    timeout(LONG, created).await.unwrap();
    assert_ne!(servers.new.command("DBSIZE"), ":0");
    // It listens at the new server, too.
    hears_of(&store, TaskKey::of("a")).await;
}

/// Answers a task until the store reports the change.
async fn hears_of(store: &RedisTaskStore, key: TaskKey) {
    let heard = async {
        while changed(store).await != Some(key) {
            store.answer(key, vec![("q".to_owned(), Vec::new())]).await.unwrap();
        }
    };
    timeout(LONG, heard).await.unwrap();
}

/// Returns the next change, if there is one soon.
async fn changed(store: &RedisTaskStore) -> Option<TaskKey> {
    timeout(Duration::from_millis(200), store.next_change()).await.ok()
}

#[tokio::test]
async fn redis_reports_a_full_server() {
    let redis = Redis::start();
    let store = store(&redis).await;
    let (key, held) = create(&store, task("held")).await;
    let (cancelled, _) = create(&store, task("cancelled")).await;
    assert_eq!(redis.command("CONFIG SET maxmemory 1"), "+OK");
    let full = store.create(task("a"), lease()).await;
    assert!(matches!(full, Err(TaskStoreError::Full)), "{full:?}");
    let full = store.answer(key, vec![("q".to_owned(), b"a".to_vec())]).await;
    assert!(matches!(full, Err(TaskStoreError::Full)), "{full:?}");
    // The others come to an end.
    store.cancel(cancelled).await.unwrap();
    assert_eq!(store.write(append(key, held, 0)).await.unwrap(), KEPT);
    let end = Some(RunEnd::Ended(StoredStatus::Completed));
    let ended = store.write(TaskWrite { end, ..TaskWrite::new(key, held) }).await;
    assert_eq!(ended.unwrap(), KEPT);
    assert_eq!(redis.command("CONFIG SET maxmemory 0"), "+OK");
    create(&store, task("a")).await;
}

/// Operations fail while Redis is down, and work again on the same connection.
#[tokio::test]
async fn redis_store_reconnects() {
    let mut redis = Redis::start();
    let store = store(&redis).await;
    let (key, lease) = create(&store, task("a")).await;
    assert_eq!(store.write(append(key, lease, 0)).await.unwrap(), KEPT);
    redis.stop();
    let error = store.read(key).await.unwrap_err();
    assert!(matches!(error, TaskStoreError::Unavailable(_)), "{error}");
    redis.restart();
    // The first commands may still find the broken connection.
    while store.read(TaskKey::of("b")).await.is_err() {}
}

#[tokio::test]
async fn redis_errors_hide_the_password() {
    for url in ["", "http://x", "redis://u:hunter2@127.0.0.1:1"] {
        let error = RedisTaskStore::connect(url).await.unwrap_err();
        assert!(matches!(error, TaskStoreError::Unavailable(_)), "{url}: {error}");
        assert!(!format!("{error} {error:?}").contains("hunter2"), "{error:?}");
    }
}
