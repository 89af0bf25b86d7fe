//! Subscriptions to the tasks of upstreams.

use std::collections::VecDeque;
use std::future::pending;
use std::sync::Mutex;
use std::time::Duration;

use futures_util::StreamExt as _;
use mrtr_client::{
    Client, OutgoingRequest, Subscription, SubscriptionEvent, Transport, TransportError,
};
use mrtr_gateway::Gateway;
use mrtr_schema::elicitation::ElicitResult;
use mrtr_schema::jsonrpc::Response;
use mrtr_schema::subscription::SubscriptionFilter;
use mrtr_schema::tasks::TaskStatus;
use mrtr_server::{Principal, Server};
use mrtr_transport::InProcess;
use serde_json::json;
use tokio::time::timeout;

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
}

/// A connection whose first subscriptions fail.
struct Faulty {
    transport: InProcess<Server>,
    faults: Mutex<VecDeque<Fault>>,
}

impl Transport for Faulty {
    async fn send(&self, outgoing: OutgoingRequest<'_>) -> Result<Response, TransportError> {
        let listens = outgoing.request.method == "subscriptions/listen";
        let fault = listens.then(|| self.faults.lock().unwrap().pop_front()).flatten();
        match fault {
            None => self.transport.send(outgoing).await,
            Some(Fault::Silent) => pending().await,
            Some(Fault::Ends) => {
                let ended = |_| Err(TransportError::subscription_ended("the end"));
                timeout(Duration::from_secs(1), self.transport.send(outgoing))
                    .await
                    .unwrap_or_else(ended)
            }
        }
    }
}

/// A gateway whose upstreams `a`, `b` and so on have these faults.
async fn faulty_gateway(faults: impl IntoIterator<Item = Vec<Fault>>) -> Gateway<Faulty> {
    let mut gateway = Gateway::builder();
    for (prefix, faults) in ["a", "b"].into_iter().zip(faults) {
        let principal = Principal::new("https://login.example", "the gateway");
        let transport = InProcess::new(upstream(prefix)).with_extension(principal);
        let faults = Mutex::new(faults.into());
        gateway = gateway.upstream(prefix, Client::builder(Faulty { transport, faults }).build());
    }
    let gateway = gateway.build(gateway_server()).unwrap();
    gateway.refresh().await;
    gateway
}

#[tokio::test(start_paused = true)]
async fn upstream_that_does_not_acknowledge_holds_up_no_other() {
    let gateway = faulty_gateway([vec![Fault::Silent], Vec::new()]).await;
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
    let gateway = faulty_gateway([vec![Fault::Ends, Fault::Ends]]).await;
    let id = create(&gateway, "a__report").await;
    let (mut changes, granted) = listen(&gateway, "alice", &[&id]).await;
    wait_for_change(&mut changes, &granted, &id, TaskStatus::InputRequired).await;
    // The server announces its changes at once, so the answer comes in the pause.
    tokio::time::sleep(Duration::from_secs(5)).await;
    answer(&gateway, &id).await;
    wait_for_change(&mut changes, &granted, &id, TaskStatus::Completed).await;
    nothing_follows(changes).await;
}
