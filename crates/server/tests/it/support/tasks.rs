//! Replicas with a common task store, from which each can be cut off.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use mrtr_schema::jsonrpc::Notification;
use mrtr_server::tasks::{
    Claim, Created, HeldTask, Lease, MemoryTaskStore, NewTask, TaskKey, TaskPolicy, TaskRecord,
    TaskStore, TaskStoreError, TaskWrite, Verdict,
};
use mrtr_server::{Context, Error, Principal, Server, ServerBuilder, Tool};
use mrtr_testkit::TestClock;
use mrtr_transport::{GrantedScopes, InProcess, OutgoingRequest, Transport as _};
use serde_json::{Value, json};

use super::counter::Counter;
use super::replicas::{Text, alice, replica};
use super::requests::request;

/// A store as one replica sees it.
#[derive(Clone)]
pub(crate) struct Connection {
    store: Arc<MemoryTaskStore>,
    is_cut: Arc<AtomicBool>,
    /// Drops the replies to creations and claims after the store has carried them out.
    pub(crate) loses_replies: Arc<AtomicBool>,
    /// Never replies to creations after the store has carried them out.
    pub(crate) hangs_in_creations: Arc<AtomicBool>,
    /// Fails the next creation, which the store carries out after this time.
    pub(crate) delays_creation: Arc<Mutex<Option<Duration>>>,
    /// Never replies to claims.
    pub(crate) hangs_in_claims: Arc<AtomicBool>,
    /// The number of writes that never reach the store, and get no reply.
    pub(crate) loses_writes: Arc<AtomicUsize>,
    /// Replies to writes after 5 ms, and carries out creations after that time.
    pub(crate) is_slow: Arc<AtomicBool>,
    /// Refuses new tasks.
    pub(crate) is_full: Arc<AtomicBool>,
    /// All operations but reads, claims that found nothing, and waiting for changes.
    pub(crate) operations: Arc<AtomicUsize>,
    /// All bytes that were stored.
    pub(crate) written: Arc<Mutex<Vec<u8>>>,
}

impl Connection {
    fn new(store: &Arc<MemoryTaskStore>) -> Self {
        Self {
            store: Arc::clone(store),
            is_cut: Arc::default(),
            loses_replies: Arc::default(),
            hangs_in_creations: Arc::default(),
            delays_creation: Arc::default(),
            hangs_in_claims: Arc::default(),
            loses_writes: Arc::default(),
            is_slow: Arc::default(),
            is_full: Arc::default(),
            operations: Arc::default(),
            written: Arc::default(),
        }
    }

    /// Fails all operations from now on.
    pub(crate) fn cut(&self) {
        self.is_cut.store(true, Ordering::SeqCst);
    }

    pub(crate) fn restore(&self) {
        self.is_cut.store(false, Ordering::SeqCst);
    }

    fn check(&self) -> Result<(), TaskStoreError> {
        if self.is_cut.load(Ordering::SeqCst) {
            return Err(TaskStoreError::Unavailable("cut off".into()));
        }
        Ok(())
    }

    /// Fails an operation that the store has carried out.
    fn check_reply(&self) -> Result<(), TaskStoreError> {
        if self.loses_replies.load(Ordering::SeqCst) {
            return Err(TaskStoreError::Unavailable("the reply was lost".into()));
        }
        Ok(())
    }

    fn count(&self) -> Result<(), TaskStoreError> {
        self.operations.fetch_add(1, Ordering::SeqCst);
        self.check()
    }

    fn keep<'a>(&self, parts: impl IntoIterator<Item = &'a Vec<u8>>) {
        self.written.lock().unwrap().extend(parts.into_iter().flatten());
    }
}

impl TaskStore for Connection {
    async fn create(&self, task: NewTask, lease: Lease) -> Result<Created, TaskStoreError> {
        self.count()?;
        if self.is_slow.load(Ordering::SeqCst) {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        if self.is_full.load(Ordering::SeqCst) {
            return Err(TaskStoreError::Full);
        }
        self.keep(task.entries.iter().chain([&task.call, &task.view]));
        let delay = self.delays_creation.lock().unwrap().take();
        if let Some(delay) = delay {
            let store = Arc::clone(&self.store);
            tokio::spawn(async move {
                tokio::time::sleep(delay).await;
                TaskStore::create(&store, task, lease).await
            });
            return Err(TaskStoreError::Unavailable("the commit hangs".into()));
        }
        let created = TaskStore::create(&self.store, task, lease).await?;
        self.check_reply()?;
        if self.hangs_in_creations.load(Ordering::SeqCst) {
            std::future::pending::<()>().await;
        }
        Ok(created)
    }

    async fn read(&self, key: TaskKey) -> Result<Option<TaskRecord>, TaskStoreError> {
        self.check()?;
        TaskStore::read(&self.store, key).await
    }

    async fn answer(
        &self,
        key: TaskKey,
        answers: Vec<(String, Vec<u8>)>,
    ) -> Result<(), TaskStoreError> {
        self.count()?;
        self.keep(answers.iter().map(|(_, answer)| answer));
        TaskStore::answer(&self.store, key, answers).await
    }

    async fn cancel(&self, key: TaskKey) -> Result<(), TaskStoreError> {
        self.count()?;
        TaskStore::cancel(&self.store, key).await
    }

    async fn claim(&self, claim: Claim) -> Result<Vec<HeldTask>, TaskStoreError> {
        self.check()?;
        if self.hangs_in_claims.load(Ordering::SeqCst) {
            std::future::pending::<()>().await;
        }
        let held = TaskStore::claim(&self.store, claim).await?;
        self.operations.fetch_add(held.len(), Ordering::SeqCst);
        self.check_reply()?;
        Ok(held)
    }

    async fn write(&self, write: TaskWrite) -> Result<Verdict, TaskStoreError> {
        self.count()?;
        let lost = |left: usize| left.checked_sub(1);
        if self.loses_writes.fetch_update(Ordering::SeqCst, Ordering::SeqCst, lost).is_ok() {
            std::future::pending::<()>().await;
        }
        self.keep(write.entries.iter().chain(&write.view));
        let verdict = TaskStore::write(&self.store, write).await;
        if self.is_slow.load(Ordering::SeqCst) {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        verdict
    }

    async fn next_change(&self) -> TaskKey {
        // The store in memory tells each change to one replica only.
        std::future::pending().await
    }
}

/// Replicas with one tool, `t`, and a common store.
pub(crate) struct TaskFleet {
    pub(crate) servers: Vec<Server>,
    pub(crate) connections: Vec<Connection>,
    pub(crate) caller: Principal,
    /// The scopes of the access tokens. `None`: requests come as over stdio.
    pub(crate) scopes: Option<GrantedScopes>,
}

impl TaskFleet {
    /// Starts `count` replicas, which run due tasks.
    pub(crate) fn start(count: usize, tool: impl Fn() -> Tool) -> Self {
        Self::start_with(count, |_, builder| builder.tool(tool()))
    }

    pub(crate) fn start_with(
        count: usize,
        configure: impl Fn(usize, ServerBuilder) -> ServerBuilder,
    ) -> Self {
        let clock = TestClock::default();
        let store = Arc::new(MemoryTaskStore::new(1_000));
        let connections: Vec<_> = (0..count).map(|_| Connection::new(&store)).collect();
        let servers: Vec<Server> = connections
            .iter()
            .enumerate()
            .map(|(n, connection)| {
                let builder = replica(&clock).task_store(connection.clone());
                configure(n, builder).build().unwrap()
            })
            .collect();
        for server in &servers {
            let server = server.clone();
            tokio::spawn(async move { server.run_tasks().await });
        }
        Self { servers, connections, caller: alice(), scopes: None }
    }

    pub(crate) async fn send(&self, replica: usize, method: &str, params: Value) -> Value {
        self.send_as(Some(&self.caller), replica, method, params).await
    }

    pub(crate) async fn send_as(
        &self,
        caller: Option<&Principal>,
        replica: usize,
        method: &str,
        params: Value,
    ) -> Value {
        let mut transport = InProcess::new(self.servers[replica].clone());
        if let Some(caller) = caller {
            transport = transport.with_extension(caller.clone());
        }
        if let Some(scopes) = &self.scopes {
            transport = transport.with_extension(scopes.clone());
        }
        let outgoing = OutgoingRequest::new(request(method, &params));
        let response = transport.send(outgoing).await.unwrap();
        match response.outcome {
            Ok(result) => serde_json::from_str(result.get()).unwrap(),
            Err(error) => json!({ "error": error }),
        }
    }

    /// Calls the tool `t`, and adds `more` to the parameters.
    pub(crate) async fn call(&self, replica: usize, more: Value) -> Value {
        let mut params = with_tasks(json!({ "name": "t", "arguments": {} }));
        params.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        self.send(replica, "tools/call", params).await
    }

    pub(crate) async fn get(&self, replica: usize, id: &str) -> Value {
        self.send(replica, "tasks/get", with_tasks(json!({ "taskId": id }))).await
    }

    pub(crate) async fn answer(&self, replica: usize, id: &str, answers: Value) -> Value {
        let params = with_tasks(json!({ "taskId": id, "inputResponses": answers }));
        self.send(replica, "tasks/update", params).await
    }

    pub(crate) async fn cancel(&self, replica: usize, id: &str) -> Value {
        self.send(replica, "tasks/cancel", with_tasks(json!({ "taskId": id }))).await
    }

    /// Polls until the task has this status.
    pub(crate) async fn wait_for(&self, replica: usize, id: &str, status: &str) -> Value {
        for _ in 0..10_000 {
            let task = self.get(replica, id).await;
            if task["status"] == status {
                return task;
            }
            let has_ended =
                ["completed", "failed", "cancelled"].iter().any(|s| task["status"] == *s);
            assert!(!has_ended, "{task}");
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        unreachable!("the task was never {status}");
    }

    /// Subscribes to tasks until `story` has ended, and returns the notifications.
    pub(crate) async fn listen(
        &self,
        replica: usize,
        ids: &[&str],
        story: impl Future<Output = ()>,
    ) -> Vec<Notification> {
        let transport =
            InProcess::new(self.servers[replica].clone()).with_extension(self.caller.clone());
        let params = with_tasks(json!({ "notifications": { "taskIds": ids } }));
        let received = Mutex::new(Vec::new());
        let collect = |notification| received.lock().unwrap().push(notification);
        let outgoing = OutgoingRequest::new(request("subscriptions/listen", &params));
        tokio::select! {
            ended = transport.send(outgoing.with_notification_handler(&collect)) => {
                unreachable!("the subscription has ended: {ended:?}")
            }
            () = story => {}
        }
        received.into_inner().unwrap()
    }
}

/// Waits until a condition holds.
pub(crate) async fn wait_until(condition: impl Fn() -> bool) {
    for _ in 0..10_000 {
        if condition() {
            return;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    unreachable!("the condition never held");
}

/// Adds the `_meta` of a client that supports forms and tasks.
pub(crate) fn with_tasks(mut params: Value) -> Value {
    let meta = json!({
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientCapabilities": {
            "elicitation": {},
            "extensions": { "io.modelcontextprotocol/tasks": {} },
        },
    });
    params.as_object_mut().unwrap().insert("_meta".to_owned(), meta);
    params
}

/// An answer with this text.
pub(crate) fn accept(text: &str) -> Value {
    json!({ "action": "accept", "content": { "text": text } })
}

/// The id of a task that was created.
pub(crate) fn id_of(created: &Value) -> String {
    assert_eq!(created["resultType"], "task", "{created}");
    created["taskId"].as_str().unwrap().to_owned()
}

/// The text of a completed task.
pub(crate) fn text(task: &Value) -> &str {
    task["result"]["content"][0]["text"].as_str().unwrap()
}

/// A tool that runs a step, asks two questions, and runs another step.
pub(crate) fn order(policy: TaskPolicy, held: &Counter, placed: &Counter) -> Tool {
    let (held, placed) = (held.clone(), placed.clone());
    let tool = Tool::new("t", "", move |cx: Context| {
        let (held, placed) = (held.clone(), placed.clone());
        async move {
            cx.detach().await?;
            let number = cx.step("hold", async |_| Ok(held.increment())).await?;
            let (one, other) = tokio::try_join!(
                cx.elicit::<Text>("one", "One?"),
                cx.elicit::<Text>("other", "Other?")
            )?;
            cx.step("place", async |_| Ok(placed.increment())).await?;
            Ok::<_, Error>(format!("{number}: {} and {}", one.text, other.text))
        }
    });
    tool.task(policy)
}
