//! Subscriptions to the tasks of upstreams.

use std::collections::VecDeque;
use std::future::pending;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures_util::StreamExt as _;
use mrtr_client::{
    Client, OutgoingRequest, Subscription, SubscriptionEvent, Transport, TransportError,
};
use mrtr_gateway::Gateway;
use mrtr_schema::elicitation::ElicitResult;
use mrtr_schema::jsonrpc::{Notification, Response};
use mrtr_schema::subscription::{ListenParams, SubscriptionFilter, name};
use mrtr_schema::tasks::TaskStatus;
use mrtr_server::{Principal, Server};
use mrtr_transport::InProcess;
use serde_json::json;
use tokio::time::{Instant, timeout};

use super::tasks::{create, send, upstream, wait_for};
use super::{caller, gateway, gateway_server};

/// Subscribes as `principal`, and returns also the ids that are granted.
async fn listen(
    gateway: &Gateway<impl Transport>,
    principal: &str,
    task_ids: &[&str],
) -> (Subscription, Vec<String>) {
    let client = caller(gateway, principal).with_tasks().build();
    let filter = SubscriptionFilter::new();
    let filter = task_ids.iter().fold(filter, |filter, id| filter.with_task(*id));
    let mut changes = client.listen(&filter).unwrap();
    let Some(Ok(SubscriptionEvent::Acknowledged(mut granted))) = changes.next().await else {
        panic!("no acknowledgement")
    };
    granted.task_ids.sort();
    (changes, granted.task_ids)
}

/// Waits until the task has the status. There must be no changes of other tasks than `known`.
async fn wait_for_change(
    changes: &mut Subscription,
    known: &[String],
    id: &str,
    status: TaskStatus,
) {
    loop {
        match timeout(Duration::from_mins(5), changes.next()).await.unwrap() {
            Some(Ok(SubscriptionEvent::TaskUpdated(task))) => {
                assert!(known.contains(&task.task_id), "{task:?}");
                if task.task_id == id && task.status == status {
                    return;
                }
            }
            other => panic!("{other:?}"),
        }
    }
}

async fn nothing_follows(mut changes: Subscription) {
    let more = timeout(Duration::from_mins(5), changes.next()).await;
    assert!(more.is_err(), "{more:?}");
}

/// Answers the question of the task, so that it ends.
async fn answer(gateway: &Gateway<impl Transport>, id: &str) {
    wait_for(gateway, id, "input_required").await;
    send_answer(gateway, id).await;
}

async fn send_answer(gateway: &Gateway<impl Transport>, id: &str) {
    let answer = ElicitResult::accept(json!({ "text": "all" })).unwrap();
    let answer = json!({ "taskId": id, "inputResponses": { "more": answer } });
    send(gateway, "alice", "tasks/update", answer).await.unwrap();
}

/// Each change of a task reaches the caller as a notification, with the id that the caller knows.
#[tokio::test(start_paused = true)]
async fn caller_is_told_of_changes_of_its_tasks() {
    let servers = [upstream("a"), upstream("b")];
    let gateway = gateway(&[("a", &servers[0]), ("b", &servers[1])]).await;
    let mut ids = vec![create(&gateway, "a__report").await, create(&gateway, "b__report").await];
    ids.sort();
    let (mut changes, granted) =
        listen(&gateway, "alice", &[&ids[0], "invented", &ids[1], ""]).await;
    assert_eq!(granted, ids);
    for id in &ids {
        answer(&gateway, id).await;
        wait_for_change(&mut changes, &ids, id, TaskStatus::Completed).await;
    }
    nothing_follows(changes).await;
}

#[tokio::test(start_paused = true)]
async fn task_of_another_caller_cannot_be_subscribed_to() {
    let server = upstream("a");
    let gateway = gateway(&[("a", &server)]).await;
    let id = create(&gateway, "a__report").await;
    let (changes, granted) = listen(&gateway, "bob", &[&id]).await;
    assert!(granted.is_empty(), "{granted:?}");
    send(&gateway, "alice", "tasks/cancel", json!({ "taskId": id })).await.unwrap();
    nothing_follows(changes).await;
}

/// What happens to a subscription at an upstream.
enum Fault {
    /// It is not acknowledged.
    Silent,
    /// It ends after a second.
    Ends,
    /// It does not contain the tasks.
    Empty,
    /// Its task is said to have changed every millisecond.
    Noisy,
}

/// A connection whose first subscriptions fail.
struct Faulty {
    transport: InProcess<Server>,
    faults: Mutex<VecDeque<Fault>>,
    reads: Arc<Reads>,
}

/// How tasks are read.
#[derive(Default)]
struct Reads {
    count: AtomicUsize,
    /// They are not answered.
    are_stuck: AtomicBool,
}

impl Transport for Faulty {
    async fn send(&self, outgoing: OutgoingRequest<'_>) -> Result<Response, TransportError> {
        if outgoing.request.method == "tasks/get" {
            self.reads.count.fetch_add(1, Ordering::Relaxed);
            if self.reads.are_stuck.load(Ordering::Relaxed) {
                return pending().await;
            }
        }
        let listens = outgoing.request.method == "subscriptions/listen";
        let fault = listens.then(|| self.faults.lock().unwrap().pop_front()).flatten();
        let notify = |name: &str, params: serde_json::Value| {
            (outgoing.on_notification)(Notification::new(name, &params).unwrap());
        };
        match fault {
            None => self.transport.send(outgoing).await,
            Some(Fault::Silent) => pending().await,
            Some(Fault::Ends) => {
                let ended = |_| Err(TransportError::subscription_ended("the end"));
                timeout(Duration::from_secs(1), self.transport.send(outgoing))
                    .await
                    .unwrap_or_else(ended)
            }
            Some(Fault::Empty) => {
                notify(name::ACKNOWLEDGED, json!({ "notifications": {} }));
                pending().await
            }
            Some(Fault::Noisy) => {
                let ListenParams { notifications, .. } = outgoing.request.decode_params().unwrap();
                notify(name::ACKNOWLEDGED, json!({ "notifications": notifications }));
                let time = "2026-11-24T10:30:00Z";
                let task = json!({ "taskId": notifications.task_ids[0], "status": "working",
                    "createdAt": time, "lastUpdatedAt": time, "ttlMs": null });
                loop {
                    tokio::time::sleep(Duration::from_millis(1)).await;
                    notify(name::TASK, task.clone());
                }
            }
        }
    }
}

/// A gateway whose upstreams `a`, `b` and so on have these faults. Returns also how it reads tasks.
async fn faulty_gateway(
    faults: impl IntoIterator<Item = Vec<Fault>>,
) -> (Gateway<Faulty>, Arc<Reads>) {
    let reads = Arc::<Reads>::default();
    let mut gateway = Gateway::builder();
    for (prefix, faults) in ["a", "b"].into_iter().zip(faults) {
        let principal = Principal::new("https://login.example", "the gateway");
        let transport = InProcess::new(upstream(prefix)).with_extension(principal);
        let (faults, reads) = (Mutex::new(faults.into()), Arc::clone(&reads));
        let client = Client::builder(Faulty { transport, faults, reads }).build();
        gateway = gateway.upstream(prefix, client);
    }
    let gateway = gateway.build(gateway_server()).unwrap();
    gateway.refresh().await;
    (gateway, reads)
}

#[tokio::test(start_paused = true)]
async fn upstream_that_does_not_acknowledge_holds_up_no_other() {
    let (gateway, _) = faulty_gateway([vec![Fault::Silent], Vec::new()]).await;
    let ids = [create(&gateway, "a__report").await, create(&gateway, "b__report").await];
    let (mut changes, granted) = listen(&gateway, "alice", &[&ids[0], &ids[1]]).await;
    assert_eq!(granted, ids[1..]);
    answer(&gateway, &ids[0]).await;
    answer(&gateway, &ids[1]).await;
    wait_for_change(&mut changes, &granted, &ids[1], TaskStatus::Completed).await;
}

/// What changes while the subscription is interrupted is reported afterwards.
#[tokio::test(start_paused = true)]
async fn subscription_that_ends_is_opened_again() {
    let (gateway, _) = faulty_gateway([vec![Fault::Ends, Fault::Ends]]).await;
    let id = create(&gateway, "a__report").await;
    let (mut changes, granted) = listen(&gateway, "alice", &[&id]).await;
    wait_for_change(&mut changes, &granted, &id, TaskStatus::InputRequired).await;
    // The server announces its changes at once, so the answer comes in the pause.
    tokio::time::sleep(Duration::from_secs(5)).await;
    answer(&gateway, &id).await;
    wait_for_change(&mut changes, &granted, &id, TaskStatus::Completed).await;
    nothing_follows(changes).await;
}

/// The caller relies on the subscription, so the gateway polls for it.
#[tokio::test(start_paused = true)]
async fn tasks_that_are_not_granted_again_are_polled() {
    for fault in [Fault::Empty, Fault::Silent] {
        let (gateway, _) = faulty_gateway([vec![Fault::Ends, fault]]).await;
        let id = create(&gateway, "a__report").await;
        let (mut changes, granted) = listen(&gateway, "alice", &[&id]).await;
        wait_for_change(&mut changes, &granted, &id, TaskStatus::InputRequired).await;
        tokio::time::sleep(Duration::from_mins(2)).await;
        answer(&gateway, &id).await;
        wait_for_change(&mut changes, &granted, &id, TaskStatus::Completed).await;
    }
}

/// An upstream that reports changes without end does not keep the gateway busy, and its caller gets
/// what has changed.
#[tokio::test(start_paused = true)]
async fn reported_changes_are_read_at_most_twice_per_second() {
    let (gateway, reads) = faulty_gateway([vec![Fault::Noisy]]).await;
    let id = create(&gateway, "a__report").await;
    let (mut changes, granted) = listen(&gateway, "alice", &[&id]).await;
    wait_for_change(&mut changes, &granted, &id, TaskStatus::InputRequired).await;
    let before = reads.count.load(Ordering::Relaxed);
    let next = timeout(Duration::from_secs(10), changes.next()).await;
    assert!(next.is_err(), "{next:?}");
    let reads = reads.count.load(Ordering::Relaxed) - before;
    assert!((10..=21).contains(&reads), "{reads} reads");
}

/// The caller is told so, and a subscription goes on when the upstream answers again.
#[tokio::test(start_paused = true)]
async fn upstream_that_is_stuck_is_left_after_the_timeout() {
    let (gateway, reads) = faulty_gateway([Vec::new()]).await;
    let id = create(&gateway, "a__report").await;
    let (mut changes, granted) = listen(&gateway, "alice", &[&id]).await;
    wait_for_change(&mut changes, &granted, &id, TaskStatus::InputRequired).await;
    reads.are_stuck.store(true, Ordering::Relaxed);
    send_answer(&gateway, &id).await;
    let started = Instant::now();
    let error = send(&gateway, "alice", "tasks/get", json!({ "taskId": id })).await.unwrap_err();
    assert_eq!(error.message, "The upstream server did not answer in time");
    assert_eq!(started.elapsed().as_secs(), 60);
    let stuck = timeout(Duration::from_secs(10), changes.next()).await;
    assert!(stuck.is_err(), "{stuck:?}");
    reads.are_stuck.store(false, Ordering::Relaxed);
    wait_for_change(&mut changes, &granted, &id, TaskStatus::Completed).await;
}

/// Each subscription is a request that stays open, on a connection that callers share.
#[tokio::test(start_paused = true)]
async fn subscriptions_to_tasks_leave_room_for_calls() {
    let server = upstream("a");
    let gateway = gateway(&[("a", &server)]).await;
    let alices = create(&gateway, "a__report").await;
    let params = json!({ "name": "a__report", "arguments": {} });
    let bobs = send(&gateway, "bob", "tools/call", params).await.unwrap();
    let bobs = bobs["taskId"].as_str().unwrap().to_owned();
    let mut open = Vec::new();
    for n in 0..70 {
        let (caller, id) = if n % 2 == 0 { ("alice", &alices) } else { ("bob", &bobs) };
        let (changes, granted) = listen(&gateway, caller, &[id]).await;
        assert_eq!(granted.len(), usize::from(n < 64), "{n}");
        open.push(changes);
    }
    // A call has room.
    create(&gateway, "a__report").await;
    drop(open);
    tokio::task::yield_now().await;
    let (_, granted) = listen(&gateway, "alice", &[&alices]).await;
    assert_eq!(granted, [alices]);
}
