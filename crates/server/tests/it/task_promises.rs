//! Promises of tasks that need a run of their own: `docs/tasks.md` lists all of them.

use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::time::Duration;

use mrtr_schema::notification::LogLevel;
use mrtr_server::tasks::{
    Claim, Created, HeldTask, Lease, LeaseId, MemoryTaskStore, NewTask, RunEnd, StoredStatus,
    TaskHandler, TaskKey, TaskPolicy, TaskRecord, TaskStore, TaskStoreError, TaskWrite, Verdict,
};
use mrtr_server::{Context, Error, Result, Server, Tool};
use mrtr_testkit::TestClock;
use serde_json::{Value, json};

use crate::support::tasks::{TaskFleet, accept, id_of, with_tasks};
use crate::support::{Counter, Text, alice, replica, with_meta};

#[tokio::test(start_paused = true)]
async fn created_task_is_found_at_once_by_every_replica() {
    for policy in [TaskPolicy::immediately(), TaskPolicy::on_detach()] {
        let fleet = TaskFleet::start(3, || {
            let tool = Tool::new("t", "", async |cx: Context| {
                cx.detach().await?;
                std::future::pending::<Result<String>>().await
            });
            tool.task(policy.clone())
        });
        for creator in 0..3 {
            let id = id_of(&fleet.call(creator, json!({})).await);
            for reader in 0..3 {
                let task = fleet.get(reader, &id).await;
                assert_eq!((&task["taskId"], &task["status"]), (&json!(id), &json!("working")));
            }
        }
    }
}

#[tokio::test(start_paused = true)]
async fn equal_calls_are_different_tasks_with_ids_of_128_bits() {
    let fleet = TaskFleet::start(1, || {
        let tool = Tool::new("t", "", async |_: Context| std::future::pending::<String>().await);
        tool.task(TaskPolicy::immediately())
    });
    let mut ids = std::collections::BTreeSet::new();
    for _ in 0..100 {
        let id = id_of(&fleet.call(0, json!({})).await);
        assert_eq!(id.len(), 22, "128 bits in base64url");
        assert!(id.bytes().all(|c| c.is_ascii_alphanumeric() || c == b'-' || c == b'_'), "{id}");
        // A shared beginning would leave less to guess.
        ids.insert(id[..8].to_owned());
    }
    assert_eq!(ids.len(), 100);
}

#[tokio::test(start_paused = true)]
async fn waiting_task_holds_nothing_in_its_replica() {
    let alive = Arc::new(());
    let fleet = TaskFleet::start_with(1, |_, builder| {
        let alive = Arc::clone(&alive);
        let tool = Tool::new("t", "", move |cx: Context| {
            let alive = Arc::clone(&alive);
            async move {
                let answer: Text = cx.elicit("q", "What?").await?;
                drop(alive);
                Ok::<_, Error>(answer.text)
            }
        });
        // One task at a time can run, so the others would never ask if a waiting one counted.
        builder.tool(tool.task(TaskPolicy::immediately())).max_running_tasks(1)
    });
    let before = Arc::strong_count(&alive);
    let mut ids = Vec::new();
    for _ in 0..20 {
        ids.push(id_of(&fleet.call(0, json!({})).await));
    }
    for id in &ids {
        fleet.wait_for(0, id, "input_required").await;
    }
    assert_eq!(Arc::strong_count(&alive), before, "no handler exists");
    // Runs are detached work: none is in flight.
    fleet.servers[0].begin_shutdown();
    fleet.servers[0].drained().await;
}

/// A handler with everything that a journal records.
async fn everything(cx: Context) -> Result<String> {
    let id = cx.step("id", async |_| Ok(7)).await?;
    cx.detach().await?;
    let (one, other) =
        tokio::try_join!(cx.elicit::<Text>("one", "One?"), cx.elicit::<Text>("other", "Other?"))?;
    cx.checkpoint("middle").await?;
    let refused = cx.step("refused", async |_| Err::<(), _>(Error::new("No."))).await;
    let refused = refused.err().map(|error| error.to_string());
    let left = async { Ok(cx.elicit::<Text>("left", "Left?").await?.text) };
    let right = async { Ok(cx.elicit::<Text>("right", "Right?").await?.text) };
    let first = cx.race("first", left, right).await?;
    let mut loops = Vec::new();
    for n in 0..3 {
        loops.push(cx.step(format!("loop{n}"), async move |_| Ok(n * n)).await?);
    }
    Ok(format!("{id} {} {} {refused:?} {first} {loops:?}", one.text, other.text))
}

/// Answers each question with its key, until the call has a result.
async fn complete(fleet: &TaskFleet, declares_tasks: bool) -> Value {
    let with = if declares_tasks { with_tasks } else { with_meta };
    let answers = |requests: &Value| -> Value {
        let keys = requests.as_object().into_iter().flatten();
        keys.map(|(key, _)| (key.clone(), accept(key))).collect::<serde_json::Map<_, _>>().into()
    };
    let mut more = json!({ "name": "t", "arguments": {} });
    let created = loop {
        let result = fleet.send(0, "tools/call", with(more.clone())).await;
        if result["resultType"] != "input_required" {
            break result;
        }
        more["requestState"] = result["requestState"].clone();
        more["inputResponses"] = answers(&result["inputRequests"]);
    };
    if created["resultType"] != "task" {
        return created["content"].clone();
    }
    let id = id_of(&created);
    for _ in 0..1_000 {
        let task = fleet.get(0, &id).await;
        if task["status"] == "completed" {
            return task["result"]["content"].clone();
        }
        assert!(task["status"] == "working" || task["status"] == "input_required", "{task}");
        if task["status"] == "input_required" {
            fleet.answer(0, &id, answers(&task["inputRequests"])).await;
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    Value::Null
}

#[tokio::test(start_paused = true)]
async fn handler_has_the_same_result_in_rounds_and_as_a_task() {
    let fleet = |policy: TaskPolicy| {
        TaskFleet::start(1, move || Tool::new("t", "", everything).task(policy.clone()))
    };
    let expected = complete(&fleet(TaskPolicy::immediately()), false).await;
    let text = expected[0]["text"].as_str().unwrap();
    assert_eq!(text, r#"7 one other Some("No.") left [0, 1, 4]"#);
    for policy in [
        TaskPolicy::immediately(),
        TaskPolicy::on_detach(),
        TaskPolicy::after(Duration::from_millis(1)),
    ] {
        let described = format!("{policy:?}");
        assert_eq!(complete(&fleet(policy), true).await, expected, "{described}");
    }
}

#[tokio::test(start_paused = true)]
async fn subscription_to_a_task_has_no_progress_and_no_log_messages() {
    let fleet = TaskFleet::start(1, || {
        let tool = Tool::new("t", "", async |cx: Context| {
            for n in 1..=3_u32 {
                tokio::time::sleep(Duration::from_secs(10)).await;
                cx.progress(f64::from(n), Some(3.0), None);
                cx.log(LogLevel::Error, "a message");
            }
            Ok::<_, Error>("done")
        });
        tool.task(TaskPolicy::immediately())
    });
    let meta = json!({ "progressToken": "p", "io.modelcontextprotocol/logLevel": "debug" });
    let mut params = with_tasks(json!({ "name": "t", "arguments": {} }));
    params["_meta"].as_object_mut().unwrap().extend(meta.as_object().unwrap().clone());
    let id = id_of(&fleet.send(0, "tools/call", params).await);
    let received = fleet.listen(0, &[&id], tokio::time::sleep(Duration::from_mins(1))).await;
    let methods: Vec<_> = received.iter().map(|notification| &*notification.method).collect();
    assert_eq!(methods[0], "notifications/subscriptions/acknowledged");
    assert!(methods.len() > 2, "{methods:?}");
    assert!(methods[1..].iter().all(|method| *method == "notifications/tasks"), "{methods:?}");
}

fn lease(n: u8) -> Lease {
    Lease { id: LeaseId([n; 16]), time: Duration::from_secs(10) }
}

fn claim(n: u8) -> Claim {
    let handler = TaskHandler { tool: "t".to_owned(), version: 0, min_version: 0 };
    Claim { service: "s".to_owned(), handlers: [handler].into(), lease: lease(n), limit: 10 }
}

/// Creates a task with one entry, which is held with the lease 1.
async fn store_with_task(key: TaskKey) -> MemoryTaskStore {
    let store = MemoryTaskStore::new(10);
    let task = NewTask {
        key,
        service: "s".to_owned(),
        handler: claim(1).handlers[0].clone(),
        ttl: None,
        retention: Duration::ZERO,
        call: b"call".to_vec(),
        view: b"view".to_vec(),
        entries: vec![b"one".to_vec()],
    };
    assert!(matches!(store.create(task, lease(1)).await, Ok(Created::New(_))));
    store
}

/// Replaces the journal and the view.
fn overwrite(key: TaskKey, holder: u8, end: Option<RunEnd>) -> TaskWrite {
    TaskWrite {
        renew: Some(Duration::from_hours(1)),
        position: Some(0),
        entries: vec![b"other".to_vec()],
        view: Some(b"other".to_vec()),
        end,
        ..TaskWrite::new(key, LeaseId([holder; 16]))
    }
}

#[tokio::test(start_paused = true)]
async fn write_without_the_lease_changes_nothing() {
    let key = TaskKey::of("a task");
    let store = store_with_task(key).await;
    assert!(store.claim(claim(2)).await.unwrap().is_empty(), "it is held");
    tokio::time::sleep(Duration::from_secs(11)).await;
    assert_eq!(store.claim(claim(2)).await.unwrap().len(), 1);
    // The first holder was suspended, and does not know that its lease has run out.
    for end in [None, Some(RunEnd::Waits), Some(RunEnd::Ended(StoredStatus::Completed))] {
        assert_eq!(store.write(overwrite(key, 1, end)).await.unwrap(), Verdict::Lost);
    }
    let record = store.read(key).await.unwrap().unwrap();
    assert_eq!((record.status, &*record.view), (StoredStatus::Open, &b"view"[..]));
    tokio::time::sleep(Duration::from_secs(11)).await;
    let held = store.claim(claim(3)).await.unwrap();
    assert_eq!(held[0].entries, [b"one"], "and the lease of the second was not renewed");
}

#[tokio::test(start_paused = true)]
async fn ended_task_does_not_change() {
    for status in [StoredStatus::Completed, StoredStatus::Failed, StoredStatus::Cancelled] {
        let key = TaskKey::of("a task");
        let store = store_with_task(key).await;
        let end = overwrite(key, 1, Some(RunEnd::Ended(status)));
        assert_eq!(store.write(end).await.unwrap(), Verdict::Kept { cancel: false });
        let ended = store.read(key).await.unwrap().unwrap();
        tokio::time::sleep(Duration::from_secs(1)).await;
        // As if the requests had been on their way when the task ended.
        store.cancel(key).await.unwrap();
        store.answer(key, vec![("q".to_owned(), b"late".to_vec())]).await.unwrap();
        let late = TaskWrite { view: Some(b"late".to_vec()), ..overwrite(key, 1, None) };
        assert_eq!(store.write(late).await.unwrap(), Verdict::Lost);
        tokio::time::sleep(Duration::from_hours(1)).await;
        assert!(store.claim(claim(2)).await.unwrap().is_empty());
        let later = store.read(key).await.unwrap().unwrap();
        assert_eq!((later.status, later.updated), (status, ended.updated));
        assert_eq!((later.view, later.answered), (ended.view, ended.answered));
    }
}

#[tokio::test(start_paused = true)]
async fn first_answer_to_a_question_is_kept() {
    let key = TaskKey::of("a task");
    let store = store_with_task(key).await;
    store.write(overwrite(key, 1, Some(RunEnd::Waits))).await.unwrap();
    for answer in ["first", "second"] {
        store.answer(key, vec![("q".to_owned(), answer.into())]).await.unwrap();
    }
    let held = store.claim(claim(2)).await.unwrap();
    assert_eq!(held[0].answers[0].answer, b"first");
}

#[tokio::test(start_paused = true)]
async fn full_store_and_oversized_requests_are_refused() {
    let server = replica(&TestClock::default())
        .tool(Tool::new("t", "", ask_once).task(TaskPolicy::immediately()))
        .task_store(MemoryTaskStore::new(2))
        .build()
        .unwrap();
    let fleet = fleet_of(server);
    let id = id_of(&fleet.call(0, json!({})).await);
    id_of(&fleet.call(0, json!({})).await);
    let third = fleet.call(0, json!({})).await;
    assert_eq!(third["error"]["data"]["reason"], "task_store_full");
    fleet.wait_for(0, &id, "input_required").await;

    let long = "x".repeat(256 * 1024);
    let refused = fleet.answer(0, &id, json!({ "q": accept(&long) })).await;
    assert_eq!(refused["error"]["code"], -32602);
    // What is not outstanding is not even stored.
    let ignored = fleet.answer(0, &id, json!({ "unknown": accept(&long) })).await;
    assert_eq!(ignored["resultType"], "complete");
    let ids: Vec<_> = (0..1_001).map(|n| n.to_string()).collect();
    let params = with_tasks(json!({ "notifications": { "taskIds": ids } }));
    let refused = fleet.send(0, "subscriptions/listen", params).await;
    assert_eq!(refused["error"]["code"], -32602);

    fleet.answer(0, &id, json!({ "q": accept("a") })).await;
    fleet.wait_for(0, &id, "completed").await;
}

async fn ask_once(cx: Context) -> Result<String> {
    Ok(cx.elicit::<Text>("q", "What?").await?.text)
}

/// Returns a fleet of one server, which runs due tasks.
fn fleet_of(server: Server) -> TaskFleet {
    let running = server.clone();
    tokio::spawn(async move { running.run_tasks().await });
    TaskFleet { servers: vec![server], connections: Vec::new(), caller: alice(), scopes: None }
}

/// Changes that an attacker with access to the database can make.
const ATTACKS: [fn(&mut HeldTask); 6] = [
    |task| "other".clone_into(&mut task.handler.tool),
    |task| task.entries.swap(0, 1),
    |task| drop(task.entries.pop()),
    |task| task.entries.insert(1, task.entries[1].clone()),
    |task| task.answers[0].answer = task.answers[1].answer.clone(),
    |task| std::mem::swap(&mut task.call, &mut task.view),
];

/// A store whose rows are altered between the replicas and the database.
struct Altered {
    store: MemoryTaskStore,
    /// The position in [`ATTACKS`], if it is one.
    attack: Arc<AtomicU8>,
    /// The number of claimed tasks that were altered.
    count: Counter,
}

impl TaskStore for Altered {
    async fn create(&self, task: NewTask, lease: Lease) -> Result<Created, TaskStoreError> {
        self.store.create(task, lease).await
    }

    async fn read(&self, key: TaskKey) -> Result<Option<TaskRecord>, TaskStoreError> {
        self.store.read(key).await
    }

    async fn answer(
        &self,
        key: TaskKey,
        answers: Vec<(String, Vec<u8>)>,
    ) -> Result<(), TaskStoreError> {
        self.store.answer(key, answers).await
    }

    async fn cancel(&self, key: TaskKey) -> Result<(), TaskStoreError> {
        self.store.cancel(key).await
    }

    async fn claim(&self, claim: Claim) -> Result<Vec<HeldTask>, TaskStoreError> {
        let mut held = self.store.claim(claim).await?;
        if let Some(attack) = ATTACKS.get(usize::from(self.attack.load(Ordering::SeqCst))) {
            for task in &mut held {
                attack(task);
                self.count.increment();
            }
        }
        Ok(held)
    }

    async fn write(&self, write: TaskWrite) -> Result<Verdict, TaskStoreError> {
        self.store.write(write).await
    }
}

#[tokio::test(start_paused = true)]
async fn altered_rows_are_not_continued() {
    for attack in 0..ATTACKS.len() {
        let (other, last) = (Counter::default(), Counter::default());
        let attack_now = Arc::new(AtomicU8::new(u8::MAX));
        let altered = Counter::default();
        let store = Altered {
            store: MemoryTaskStore::new(10),
            attack: Arc::clone(&attack_now),
            count: altered.clone(),
        };
        let (other_ran, last_ran) = (other.clone(), last.clone());
        let tool = Tool::new("t", "", move |cx: Context| {
            let last = last_ran.clone();
            async move {
                cx.step("a", async |_| Ok(1)).await?;
                cx.step("b", async |_| Ok(2)).await?;
                tokio::try_join!(
                    cx.elicit::<Text>("one", "One?"),
                    cx.elicit::<Text>("other", "Other?")
                )?;
                cx.step("c", async |_| Ok(last.increment())).await?;
                Ok::<_, Error>("done")
            }
        });
        let more = Tool::new("other", "", move |_: Context| {
            let other = other_ran.clone();
            async move { other.increment().to_string() }
        });
        let builder = replica(&TestClock::default()).task_store(store);
        let builder = builder.tool(tool.task(TaskPolicy::immediately()));
        let fleet = fleet_of(builder.tool(more.task(TaskPolicy::immediately())).build().unwrap());
        let id = id_of(&fleet.call(0, json!({})).await);
        fleet.wait_for(0, &id, "input_required").await;
        attack_now.store(u8::try_from(attack).unwrap(), Ordering::SeqCst);
        fleet.answer(0, &id, json!({ "one": accept("a"), "other": accept("b") })).await;
        tokio::time::sleep(Duration::from_mins(5)).await;
        assert!(altered.get() > 1, "it is tried again");
        assert_eq!((last.get(), other.get()), (0, 0), "attack {attack}");
        assert_eq!(fleet.get(0, &id).await["status"], "working", "attack {attack}");
        attack_now.store(u8::MAX, Ordering::SeqCst);
        fleet.wait_for(0, &id, "completed").await;
        assert_eq!((last.get(), other.get()), (1, 0));
    }
}

#[tokio::test(start_paused = true)]
async fn failed_task_has_the_error_and_a_status_message() {
    let fleet = TaskFleet::start(1, || {
        let tool = Tool::new("t", "", async |cx: Context| {
            cx.progress(1.0, None, Some("Working"));
            cx.elicit_url("page", "Go there", "https://a.example").await?;
            Ok::<_, Error>("done")
        });
        tool.task(TaskPolicy::immediately())
    });
    let id = id_of(&fleet.call(0, json!({})).await);
    let task = fleet.wait_for(0, &id, "failed").await;
    assert_eq!(task["error"]["code"], -32021);
    assert_eq!(task["statusMessage"], task["error"]["message"]);
}

#[tokio::test(start_paused = true)]
async fn task_that_ends_its_replicas_fails() {
    let runs = Counter::default();
    let fleet = TaskFleet::start(2, || {
        let runs = runs.clone();
        let tool = Tool::new("t", "", move |cx: Context| {
            let runs = runs.clone();
            async move {
                let step = cx.step("s", async |_| {
                    runs.increment();
                    std::future::pending::<Result<()>>().await
                });
                step.await?;
                Ok::<_, Error>("done")
            }
        });
        tool.task(TaskPolicy::immediately())
    });
    let id = id_of(&fleet.call(0, json!({})).await);
    for n in 0..5 {
        for _ in 0..1_000 {
            if runs.get() > n {
                break;
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        fleet.connections[n % 2].cut();
        fleet.connections[(n + 1) % 2].restore();
    }
    let task = fleet.wait_for(1, &id, "failed").await;
    assert_eq!(task["error"]["code"], -32603);
    assert_eq!(runs.get(), 5);
}

#[tokio::test(start_paused = true)]
async fn subscription_to_the_task_of_another_caller_is_not_acknowledged() {
    let fleet =
        TaskFleet::start(1, || Tool::new("t", "", ask_once).task(TaskPolicy::immediately()));
    let id = id_of(&fleet.call(0, json!({})).await);
    let mallory = TaskFleet {
        servers: fleet.servers.clone(),
        connections: Vec::new(),
        caller: mrtr_server::Principal::new("https://login.example", "mallory"),
        scopes: None,
    };
    let answer = async {
        tokio::time::sleep(Duration::from_secs(10)).await;
        fleet.answer(0, &id, json!({ "q": accept("a") })).await;
        tokio::time::sleep(Duration::from_secs(10)).await;
    };
    let received = mallory.listen(0, &[&id], answer).await;
    assert_eq!(received.len(), 1, "the acknowledgement only");
    let acknowledged = serde_json::to_value(&received[0].params).unwrap();
    assert!(acknowledged["notifications"].get("taskIds").is_none_or(|ids| *ids == json!([])));
}
