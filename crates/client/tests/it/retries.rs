//! Delays before reconnections of a subscription and before retries of a call.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures_util::StreamExt;
use mrtr_client::{Client, OutgoingRequest, Transport, TransportError, UserTime};
use mrtr_schema::jsonrpc::{Notification, Response};
use mrtr_schema::subscription::{SubscriptionFilter, name};
use serde_json::json;
use serde_json::value::RawValue;
use tokio::time::{Instant, sleep};

/// A transport that acknowledges each subscription and disconnects after the next lifetime.
struct Disconnects {
    lifetimes: Vec<Duration>,
    /// The start and the end of each connection.
    connections: Arc<Mutex<Vec<(Instant, Instant)>>>,
}

impl Transport for Disconnects {
    async fn send(&self, outgoing: OutgoingRequest<'_>) -> Result<Response, TransportError> {
        let start = Instant::now();
        let count = self.connections.lock().unwrap().len();
        let Some(lifetime) = self.lifetimes.get(count) else {
            return Err(TransportError::subscription_ended("no lifetimes left"));
        };
        let acknowledged = json!({ "notifications": {} });
        (outgoing.on_notification)(Notification::new(name::ACKNOWLEDGED, &acknowledged).unwrap());
        sleep(*lifetime).await;
        self.connections.lock().unwrap().push((start, Instant::now()));
        Err(TransportError::interrupted("disconnected"))
    }
}

/// A server that acknowledges and disconnects is not called four times a second for ever. After a
/// connection that lasted, the first delay applies again.
#[tokio::test(start_paused = true)]
async fn reconnection_delay_doubles_until_a_connection_is_stable() {
    let mut lifetimes = vec![Duration::ZERO; 10];
    lifetimes.extend([Duration::from_mins(1), Duration::ZERO]);
    let connections = Arc::default();
    let transport = Disconnects { lifetimes, connections: Arc::clone(&connections) };
    let client = Client::builder(transport).build();
    let events: Vec<_> = client.listen(&SubscriptionFilter::default()).unwrap().collect().await;
    assert_eq!(events.len(), 12, "each connection is acknowledged");
    let connections = connections.lock().unwrap().clone();
    let delays = connections.windows(2).map(|two| two[1].0 - two[0].1);
    for (count, delay) in (0_u32..).zip(delays) {
        let longest = match count {
            0..10 => Duration::from_secs(30).min(Duration::from_millis(250) * 2_u32.pow(count)),
            // After the stable connection.
            _ => Duration::from_millis(250),
        };
        // Timers have a resolution of 1 ms.
        let allowed = longest / 2..=longest + Duration::from_millis(1);
        assert!(allowed.contains(&delay), "{count}: {delay:?}, not within {allowed:?}");
    }
}

/// A transport that fails the first request with this `Retry-After`.
struct Overloaded {
    retry_after: Duration,
    requests: AtomicUsize,
}

impl Overloaded {
    fn client(retry_after: Duration) -> Client<Self> {
        Client::builder(Self { retry_after, requests: AtomicUsize::new(0) }).build()
    }
}

impl Transport for Overloaded {
    async fn send(&self, outgoing: OutgoingRequest<'_>) -> Result<Response, TransportError> {
        if self.requests.fetch_add(1, Ordering::SeqCst) == 0 {
            return Err(
                TransportError::interrupted("overloaded").with_retry_after(self.retry_after)
            );
        }
        if outgoing.long_lived {
            return Err(TransportError::subscription_ended("no subscriptions"));
        }
        let outcome = Ok(RawValue::from_string(r#"{"content":[]}"#.to_owned()).unwrap());
        Ok(Response { id: Some(outgoing.request.id), outcome })
    }
}

/// A retry waits for `Retry-After` and its own delay, but not longer than 30 s or the call's
/// timeout.
#[tokio::test(start_paused = true)]
async fn retry_waits_for_retry_after_within_limits() {
    let call = async |retry_after, retries, timeout| {
        let client = Overloaded::client(Duration::from_secs(retry_after)).with_retries(retries);
        let client = client.with_call_timeout(Duration::from_secs(timeout));
        let start = Instant::now();
        let result = client.call_tool("t", json!({})).await;
        (result.map(drop).map_err(|error| error.to_string()), start.elapsed())
    };
    let (result, elapsed) = call(20, 1, 25).await;
    result.unwrap();
    let earliest = Duration::from_secs(20) + Duration::from_millis(50);
    let latest = earliest + Duration::from_millis(55);
    assert!(elapsed >= earliest && elapsed <= latest, "{elapsed:?}");
    let fails_at_once = (Err("overloaded".to_owned()), Duration::ZERO);
    assert_eq!(call(25, 1, 25).await, fails_at_once, "longer than the timeout allows");
    assert_eq!(call(31, 1, 60).await, fails_at_once, "longer than 30 s");
    assert_eq!(call(20, 0, 60).await, fails_at_once, "no retries");
}

/// A transport that waits for the user before each request, and some time after it.
struct LoggingIn(UserTime, Duration);

impl Transport for LoggingIn {
    async fn send(&self, outgoing: OutgoingRequest<'_>) -> Result<Response, TransportError> {
        let waiting = self.0.begin();
        sleep(Duration::from_mins(10)).await;
        drop(waiting);
        sleep(self.1).await;
        let result = r#"{"content":[],"tools":[],"ttlMs":0,"cacheScope":"private"}"#;
        let outcome = Ok(RawValue::from_string(result.to_owned()).unwrap());
        Ok(Response { id: Some(outgoing.request.id), outcome })
    }
}

#[tokio::test(start_paused = true)]
async fn time_of_the_user_can_be_excluded_from_the_timeout() {
    for (is_excluded, after, in_time) in [(true, 59, true), (true, 61, false), (false, 1, false)] {
        let user_time = UserTime::default();
        let transport = LoggingIn(user_time.clone(), Duration::from_secs(after));
        let client = Client::builder(transport).call_timeout(Duration::from_mins(1));
        let client = if is_excluded { client.exclude_user_time(user_time) } else { client };
        let client = client.build();
        for is_list in [false, true] {
            let begun = Instant::now();
            let result = if is_list {
                client.list_tools().await.map(drop)
            } else {
                client.call_tool("t", json!({})).await.map(drop)
            };
            assert_eq!(result.is_ok(), in_time, "{after}: {result:?}");
            let error = result.err().is_none_or(|error| error.is_timeout());
            assert!(error && begun.elapsed() < Duration::from_mins(12), "{:?}", begun.elapsed());
        }
    }
}

#[tokio::test(start_paused = true)]
async fn subscription_reconnects_after_retry_after() {
    for (retry_after, expected) in [(60, 60), (3600, 600)] {
        let start = Instant::now();
        let client = Overloaded::client(Duration::from_secs(retry_after));
        let events: Vec<_> = client.listen(&SubscriptionFilter::default()).unwrap().collect().await;
        assert!(events.is_empty());
        let extra = start.elapsed().saturating_sub(Duration::from_secs(expected));
        let delay = Duration::from_millis(125)..=Duration::from_millis(252);
        assert!(delay.contains(&extra), "{extra:?}");
    }
}
