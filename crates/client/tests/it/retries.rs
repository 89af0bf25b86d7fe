//! When a subscription comes back, and a call that was put off is made.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures_util::StreamExt;
use mrtr_client::{Client, OutgoingRequest, Transport, TransportError};
use mrtr_schema::jsonrpc::{Notification, Response};
use mrtr_schema::subscription::{SubscriptionFilter, name};
use serde_json::json;
use serde_json::value::RawValue;
use tokio::time::{Instant, sleep};

/// Acknowledges each subscription, and breaks off after the time that is next.
struct Breaks {
    after: Vec<Duration>,
    begun_and_ended: Arc<Mutex<Vec<(Instant, Instant)>>>,
}

impl Transport for Breaks {
    async fn send(&self, outgoing: OutgoingRequest<'_>) -> Result<Response, TransportError> {
        let begun = Instant::now();
        let count = self.begun_and_ended.lock().unwrap().len();
        let Some(after) = self.after.get(count) else {
            return Err(TransportError::subscription_ended("that was all"));
        };
        let acknowledged = json!({ "notifications": {} });
        (outgoing.on_notification)(Notification::new(name::ACKNOWLEDGED, &acknowledged).unwrap());
        sleep(*after).await;
        self.begun_and_ended.lock().unwrap().push((begun, Instant::now()));
        Err(TransportError::interrupted("it breaks"))
    }
}

/// A server that acknowledges and dies is not asked four times a second for ever; one that lasted is asked at once again.
#[tokio::test(start_paused = true)]
async fn the_time_between_connections_doubles_until_one_has_lasted() {
    let at_once = Duration::ZERO;
    let mut after = vec![at_once; 10];
    after.extend([Duration::from_mins(1), at_once]);
    let begun_and_ended = Arc::default();
    let breaks = Breaks { after, begun_and_ended: Arc::clone(&begun_and_ended) };
    let client = Client::builder(breaks).build();
    let heard: Vec<_> = client.listen(&SubscriptionFilter::default()).unwrap().collect().await;
    assert_eq!(heard.len(), 12, "each was acknowledged");
    let times = begun_and_ended.lock().unwrap().clone();
    let pauses = times.windows(2).map(|two| two[1].0 - two[0].1);
    for (count, pause) in (0_u32..).zip(pauses) {
        let longest = match count {
            0..10 => Duration::from_secs(30).min(Duration::from_millis(250) * 2_u32.pow(count)),
            // After the one that lasted.
            _ => Duration::from_millis(250),
        };
        // A timer is of a millisecond.
        let allowed = longest / 2..=longest + Duration::from_millis(1);
        assert!(allowed.contains(&pause), "{count}: {pause:?}, not within {allowed:?}");
    }
}

/// Puts the first request off for so long.
struct PutsOff {
    by: Duration,
    asked: AtomicUsize,
}

impl PutsOff {
    fn client(by: Duration) -> Client<Self> {
        Client::builder(Self { by, asked: AtomicUsize::new(0) }).build()
    }
}

impl Transport for PutsOff {
    async fn send(&self, outgoing: OutgoingRequest<'_>) -> Result<Response, TransportError> {
        if self.asked.fetch_add(1, Ordering::SeqCst) == 0 {
            return Err(TransportError::interrupted("too much to do").with_retry_after(self.by));
        }
        if outgoing.long_lived {
            return Err(TransportError::subscription_ended("that was all"));
        }
        let outcome = Ok(RawValue::from_string(r#"{"content":[]}"#.to_owned()).unwrap());
        Ok(Response { id: Some(outgoing.request.id), outcome })
    }
}

/// Whoever is put off comes back when it was told to, by chance a little later; but not when that is no time to wait.
#[tokio::test(start_paused = true)]
async fn what_is_put_off_is_made_when_the_server_says() {
    let call = async |seconds, resends, within| {
        let client = PutsOff::client(Duration::from_secs(seconds)).with_retries(resends);
        let client = client.with_call_timeout(Duration::from_secs(within));
        let begun = Instant::now();
        let result = client.call_tool("t", json!({})).await;
        (result.map(drop).map_err(|error| error.to_string()), begun.elapsed())
    };
    let (made, took) = call(20, 1, 25).await;
    made.unwrap();
    let later = Duration::from_secs(20) + Duration::from_millis(50);
    assert!(took >= later && took <= later + Duration::from_millis(55), "{took:?}");
    let at_once = (Err("too much to do".to_owned()), Duration::ZERO);
    assert_eq!(call(25, 1, 25).await, at_once, "too long for the call");
    assert_eq!(call(31, 1, 60).await, at_once, "too long");
    assert_eq!(call(20, 0, 60).await, at_once, "not allowed");
}

#[tokio::test(start_paused = true)]
async fn a_subscription_comes_back_when_the_server_says() {
    for (seconds, waits) in [(60, 60), (3600, 600)] {
        let begun = Instant::now();
        let client = PutsOff::client(Duration::from_secs(seconds));
        let heard: Vec<_> = client.listen(&SubscriptionFilter::default()).unwrap().collect().await;
        assert!(heard.is_empty());
        let late = begun.elapsed().saturating_sub(Duration::from_secs(waits));
        let by_chance = Duration::from_millis(125)..=Duration::from_millis(252);
        assert!(by_chance.contains(&late), "{late:?}");
    }
}
