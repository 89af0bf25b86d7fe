//! Counters in Redis, with a real server.

use std::sync::Arc;
use std::time::Duration;

use mrtr_middleware::RateLimit;
use mrtr_middleware::rate_limit::{Decision, Quota, RateLimitStore as _, RedisRateLimitStore};
use mrtr_server::Tool;
use mrtr_testkit::servers::{Redis, RedisFailover};
use serde_json::json;

use crate::support::{call, server};

const HOUR: Duration = Duration::from_hours(1);

async fn store(redis: &Redis) -> Arc<RedisRateLimitStore> {
    Arc::new(RedisRateLimitStore::connect(&redis.url()).await.unwrap())
}

#[tokio::test]
async fn replicas_share_counters_which_expire() {
    let redis = Redis::start();
    let mut replicas = Vec::new();
    for _ in 0..2 {
        let limit = RateLimit::new(3, HOUR).store("t", store(&redis).await);
        let tool = Tool::new("t", "", async || "x").layer(limit);
        replicas.push(server(|server| server.tool(tool)));
    }
    let mut allowed = 0;
    for n in 0..10 {
        allowed += usize::from(call(&replicas[n % 2], Some("a"), "t", json!({})).await.is_ok());
    }
    assert_eq!(allowed, 3);
    assert!(call(&replicas[0], Some("b"), "t", json!({})).await.is_ok());
    let ttl = redis.command("PTTL mrtr:rate:t:call:21:https://login.exampleb");
    let ttl: u64 = ttl.strip_prefix(':').unwrap().parse().unwrap();
    assert!((1_100_000..=1_200_000).contains(&ttl), "20 min, until one more is allowed: {ttl} ms");
}

/// After a failover, the old server keeps its connections, and is read-only.
#[tokio::test]
async fn store_connects_again_if_the_server_has_become_a_replica() {
    let servers = RedisFailover::start();
    let (store, quota) =
        (RedisRateLimitStore::connect(&servers.url()).await.unwrap(), Quota::new(7, HOUR));
    store.count("before", quota).await.unwrap();
    servers.demote_old();
    servers.lead_to_new();
    store.count("lost", quota).await.unwrap_err();
    store.count("kept", quota).await.unwrap();
    assert_eq!(servers.new.command("DBSIZE"), ":1");
}

#[tokio::test]
async fn concurrent_requests_are_counted_one_by_one() {
    let redis = Redis::start();
    let (store, quota) = (store(&redis).await, Quota::new(7, HOUR));
    let counting = (0..50).map(|_| {
        let store = Arc::clone(&store);
        tokio::spawn(async move { store.count("k", quota).await.unwrap() })
    });
    let mut decisions = Vec::new();
    for decision in counting.collect::<Vec<_>>() {
        decisions.push(decision.await.unwrap());
    }
    let allowed = decisions.iter().filter(|decision| **decision == Decision::Allowed).count();
    assert_eq!(allowed, 7);
    let waits = decisions.iter().filter_map(|decision| match decision {
        Decision::Denied { retry_after } => Some(*retry_after),
        Decision::Allowed => None,
    });
    let interval = quota.interval();
    for wait in waits {
        assert!(wait <= interval && wait > interval.mul_f64(0.9), "{wait:?} of {interval:?}");
    }
}

#[tokio::test]
async fn extreme_quotas_do_not_fail() {
    let redis = Redis::start();
    let store = store(&redis).await;
    for (n, quota) in [
        Quota::new(0, Duration::ZERO),
        Quota::new(u32::MAX, Duration::from_secs(1)),
        Quota::new(1, Duration::MAX),
        Quota::new(u32::MAX, Duration::MAX),
    ]
    .into_iter()
    .enumerate()
    {
        let key = n.to_string();
        assert_eq!(store.count(&key, quota).await.unwrap(), Decision::Allowed, "{quota:?}");
        store.count(&key, quota).await.unwrap();
    }
}

#[tokio::test]
async fn error_without_redis_does_not_hang_and_names_no_password() {
    let redis = Redis::start();
    let store = store(&redis).await;
    drop(redis);
    let error = store.count("k", Quota::new(1, HOUR)).await.unwrap_err();
    assert_eq!(error.to_string(), "the store of rate limits cannot be reached");
    let refused = RedisRateLimitStore::connect("redis://u:hunter2@127.0.0.1:1/").await;
    let text = format!("{:?}", refused.unwrap_err());
    assert!(!text.contains("hunter2"), "{text}");
}
