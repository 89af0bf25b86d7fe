//! The single-use store in Redis, with a real server.

use std::sync::Arc;
use std::time::Duration;

use mrtr_server::single_use::{RedisStore, SingleUseStore as _, StoreError};
use mrtr_testkit::servers::{Redis, RedisFailover};
use mrtr_testkit::{Replicas, TestClock};
use serde_json::json;

use crate::support::single_use::{answered, first_state, guess, text, used};
use crate::support::{Counter, alice, call_tool, replica};

const MINUTE: Duration = Duration::from_mins(1);

async fn store(redis: &Redis) -> RedisStore {
    RedisStore::connect(&redis.url()).await.unwrap()
}

/// Each replica has its own connection.
#[tokio::test]
async fn redis_store_makes_a_state_work_once_across_replicas() {
    let (redis, ran, clock) = (Redis::start(), Counter::default(), TestClock::default());
    let mut replicas = Vec::new();
    for _ in 0..3 {
        let replica = replica(&clock).tool(guess(&ran)).single_use_store(store(&redis).await);
        replicas.push(replica.build().unwrap());
    }
    let fleet = Replicas::new(replicas).as_principal(alice());
    let state = first_state(&fleet).await;
    assert_eq!(redis.command("DBSIZE"), ":0");
    let first = call_tool(&fleet, "t", json!({}), answered(&state, "a")).await;
    assert_eq!(text(&first), "a 1");
    for _ in 0..3 {
        assert_eq!(call_tool(&fleet, "t", json!({}), answered(&state, "a")).await, first);
        assert_eq!(call_tool(&fleet, "t", json!({}), answered(&state, "b")).await, used());
    }
    assert_eq!(ran.get(), 1);

    // Concurrent requests.
    let (other, fleet) = (first_state(&fleet).await, Arc::new(fleet));
    let rounds = (0..20).map(|n| {
        let (fleet, more) =
            (Arc::clone(&fleet), answered(&other, if n % 2 == 0 { "a" } else { "b" }));
        tokio::spawn(async move { call_tool(&fleet, "t", json!({}), more).await })
    });
    let mut outcomes = Vec::new();
    for round in rounds.collect::<Vec<_>>() {
        outcomes.push(round.await.unwrap());
    }
    let refused = outcomes.iter().filter(|outcome| **outcome == used()).count();
    assert_eq!((ran.get(), refused), (2, 10));
    assert_eq!(redis.command("DBSIZE"), ":2");

    let keys = redis.command("KEYS *");
    let key = keys.lines().find(|line| line.starts_with("mrtr:")).unwrap();
    let left = redis.command(&format!("PTTL {key}"));
    let left: u64 = left.strip_prefix(':').unwrap().parse().unwrap();
    assert!(
        (660_000..=722_000).contains(&left),
        "expected the answer timeout and a little more, not {left} ms"
    );
}

/// After a failover, the old server keeps its connections, and is read-only.
#[tokio::test]
async fn redis_store_connects_again_if_the_server_has_become_a_replica() {
    let servers = RedisFailover::start();
    let store = RedisStore::connect(&servers.url()).await.unwrap();
    store.claim("before", b"x", MINUTE).await.unwrap();
    servers.demote_old();
    servers.lead_to_new();
    store.claim("lost", b"x", MINUTE).await.unwrap_err();
    store.claim("kept", b"x", MINUTE).await.unwrap();
    assert_eq!(servers.new.command("DBSIZE"), ":1");
}

/// Such as while a new server does not know the user yet.
#[tokio::test]
async fn redis_store_logs_in_again_after_a_refusal() {
    let redis = Redis::start();
    assert_eq!(redis.command("ACL SETUSER app on >secret ~* &* +@all"), "+OK");
    let url = format!("{}?user=app&pass=secret", redis.url());
    let store = RedisStore::connect(&url).await.unwrap();
    store.claim("before", b"x", MINUTE).await.unwrap();
    assert_eq!(redis.command("ACL SETUSER app off"), "+OK");
    redis.command("CLIENT KILL USER app");
    for n in 0..5 {
        store.claim(&format!("refused {n}"), b"x", MINUTE).await.unwrap_err();
    }
    assert_eq!(redis.command("ACL SETUSER app on"), "+OK");
    let accepted = async {
        while store.claim("after", b"x", MINUTE).await.is_err() {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    };
    tokio::time::timeout(MINUTE, accepted).await.unwrap();
}

/// One of many concurrent claims wins.
#[tokio::test]
async fn redis_store_lets_one_concurrent_claim_win() {
    let redis = Redis::start();
    let (one, other) = (store(&redis).await, store(&redis).await.prefix("mrtr:"));
    let claims = (0..50_u8).map(|n| {
        let store = if n % 2 == 0 { one.clone() } else { other.clone() };
        tokio::spawn(async move { store.claim("k", &[n, 0, 0xff], MINUTE).await.unwrap() })
    });
    let mut firsts = 0;
    let mut seen = Vec::new();
    for claim in claims.collect::<Vec<_>>() {
        match claim.await.unwrap() {
            None => firsts += 1,
            Some(value) => seen.push(value),
        }
    }
    seen.dedup();
    assert_eq!((firsts, seen.len()), (1, 1));
    one.settle("k", b"done", MINUTE).await.unwrap();
    assert_eq!(other.claim("k", b"", MINUTE).await.unwrap().as_deref(), Some(&b"done"[..]));
    one.settle("nothing", b"done", MINUTE).await.unwrap();
    assert_eq!(other.claim("nothing", b"x", Duration::ZERO).await.unwrap(), None);
    let prefixed = store(&redis).await.prefix("b:");
    assert_eq!(prefixed.claim("k", b"", Duration::MAX).await.unwrap(), None);
}

#[tokio::test]
async fn redis_store_reports_a_full_server() {
    let redis = Redis::start();
    let store = store(&redis).await;
    assert_eq!(redis.command("CONFIG SET maxmemory 1"), "+OK");
    assert!(matches!(store.claim("k", b"", MINUTE).await, Err(StoreError::Full)));
    assert_eq!(redis.command("CONFIG SET maxmemory 0"), "+OK");
    assert_eq!(store.claim("k", b"", MINUTE).await.unwrap(), None);
}

/// Claims fail while Redis is down, and work again on the same connection.
#[tokio::test]
async fn redis_store_reconnects() {
    let mut redis = Redis::start();
    let store = store(&redis).await;
    assert_eq!(store.claim("k", b"", MINUTE).await.unwrap(), None);
    redis.stop();
    let error = store.claim("k", b"", MINUTE).await.unwrap_err();
    assert!(matches!(error, StoreError::Unavailable(_)), "{error}");
    redis.restart();
    // The first commands may still find the broken connection.
    let mut claimed = Err(error);
    for _ in 0..100 {
        claimed = store.claim("l", b"", MINUTE).await;
        if claimed.is_ok() {
            break;
        }
    }
    assert_eq!(claimed.unwrap(), None);
}

#[tokio::test]
async fn redis_store_errors_hide_the_password() {
    for url in ["", "http://x", "redis+unix:///no/such/socket"] {
        let error = RedisStore::connect(url).await.unwrap_err();
        assert!(matches!(error, StoreError::Unavailable(_)), "{url}: {error}");
    }
    let error = RedisStore::connect("redis://u:hunter2@127.0.0.1:1").await.unwrap_err();
    assert!(!format!("{error} {error:?}").contains("hunter2"), "{error:?}");
}
