//! When a subscription comes back.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures_util::StreamExt;
use mrtr_client::{Client, Exchange, Outgoing, TransportError};
use mrtr_schema::jsonrpc::{Notification, Response};
use mrtr_schema::subscription::{SubscriptionFilter, name};
use serde_json::json;
use tokio::time::{Instant, sleep};

/// Acknowledges each subscription, and breaks off after the time that is next.
struct Breaks {
    after: Vec<Duration>,
    begun_and_ended: Arc<Mutex<Vec<(Instant, Instant)>>>,
}

impl Exchange for Breaks {
    async fn exchange(&self, outgoing: Outgoing<'_>) -> Result<Response, TransportError> {
        let begun = Instant::now();
        let count = self.begun_and_ended.lock().unwrap().len();
        let Some(after) = self.after.get(count) else {
            return Err(TransportError::ended("that was all"));
        };
        let acknowledged = json!({ "notifications": {} });
        (outgoing.heard)(Notification::new(name::ACKNOWLEDGED, &acknowledged).unwrap());
        sleep(*after).await;
        self.begun_and_ended.lock().unwrap().push((begun, Instant::now()));
        Err(TransportError::broken("it breaks"))
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
