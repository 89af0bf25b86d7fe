//! The clients: callers that make one order after the other, one that looks at ended tasks again,
//! and a thief that tries the tasks of other callers.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use mrtr::client::{CallOutcome, OutgoingRequest, Transport, TransportError};
use mrtr::http::HttpClient;
use mrtr::schema::input::InputResponses;
use mrtr::schema::jsonrpc::Response;
use mrtr::{CallError, Client, ElicitResult};
use mrtr_testkit::random::Random;
use serde_json::{Value, json};
use tokio::time::{sleep, timeout};

use super::drive::{self, Begun, Driver};
use super::observed::{Call, Observation};
use super::record::now;
use super::workload::TOOLS;
use crate::workload::answer_to;
use crate::{Result, lock};

/// Longest time that a request may take. The server may still act on it later.
const TIMEOUT: Duration = Duration::from_millis(1500);

/// The time after which a caller leaves a task alone, and begins another call. The task is looked
/// at again at the end of the run.
const PATIENCE: Duration = Duration::from_secs(20);

/// A call that others can look at.
pub(crate) type Shared = Arc<Mutex<Call>>;

pub(crate) struct Callers {
    ports: Vec<u16>,
    seed: u64,
    stopping: AtomicBool,
    calls: Mutex<Vec<Shared>>,
    pub(crate) foreign: Foreign,
}

/// The outcome of the attempts on tasks of other callers.
#[derive(Debug, Default)]
pub(crate) struct Foreign {
    pub(crate) tried: AtomicU64,
    /// Responses other than that for a task that does not exist.
    pub(crate) not_refused: Mutex<Vec<String>>,
}

/// Sends each request to a random replica.
pub(crate) struct Anywhere {
    replicas: Vec<HttpClient>,
    random: Mutex<Random>,
}

impl Transport for Anywhere {
    async fn send(
        &self,
        outgoing: OutgoingRequest<'_>,
    ) -> std::result::Result<Response, TransportError> {
        let at = lock(&self.random).below(self.replicas.len() as u64);
        let replica = usize::try_from(at).ok().and_then(|at| self.replicas.get(at));
        match replica {
            Some(replica) => replica.send(outgoing).await,
            None => Err(TransportError::not_sent("no replica")),
        }
    }
}

impl Callers {
    pub(crate) fn new(ports: &[u16], seed: u64) -> Arc<Self> {
        Arc::new(Self {
            ports: ports.to_vec(),
            seed,
            stopping: AtomicBool::new(false),
            calls: Mutex::default(),
            foreign: Foreign::default(),
        })
    }

    /// Lets callers finish their order and start no other.
    pub(crate) fn stop(&self) {
        self.stopping.store(true, Ordering::Relaxed);
    }

    fn is_stopping(&self) -> bool {
        self.stopping.load(Ordering::Relaxed)
    }

    pub(crate) fn calls(&self) -> Vec<Shared> {
        lock(&self.calls).clone()
    }

    /// Returns the number of calls, and of those that have ended.
    pub(crate) fn progress(&self) -> (usize, usize) {
        let calls = self.calls();
        (calls.len(), calls.iter().filter(|call| lock(call).end().is_some()).count())
    }

    fn random(&self, nth: u64) -> Random {
        Random::new(self.seed.wrapping_mul(0x9e37_79b9).wrapping_add(nth))
    }

    /// Returns a client for one caller. It never answers by itself: it has a handler so that it
    /// declares forms.
    fn client(&self, caller: &str, random: Random) -> Result<Client<Anywhere>> {
        let connect = |port| {
            let url = format!("http://127.0.0.1:{port}/mcp");
            Ok(HttpClient::builder(url).bearer(caller)?.timeout(TIMEOUT).build()?)
        };
        let replicas = self.ports.iter().map(connect).collect::<Result<_>>()?;
        let anywhere = Anywhere { replicas, random: Mutex::new(random) };
        let client = Client::builder(anywhere)
            .with_tasks()
            .on_form(|_, _| async { Ok(ElicitResult::decline()) });
        Ok(client.build())
    }

    /// Makes orders until callers are stopped.
    pub(crate) async fn order(self: Arc<Self>, nth: u64) -> Result {
        let caller = format!("caller-{nth}");
        let mut random = self.random(nth);
        let client = self.client(&caller, self.random(nth + 1_000_000))?;
        for order in 0_u64.. {
            if self.is_stopping() {
                break;
            }
            let (id, caller) = (format!("{nth}-{order}"), caller.clone());
            let tool = TOOLS.get(usize::try_from(random.below(3))?).copied().unwrap_or_default();
            let call = Call { id, caller, tool: tool.to_owned(), ..Call::default() };
            let call = Arc::new(Mutex::new(call));
            lock(&self.calls).push(Arc::clone(&call));
            if let Some(pending) = begin(&client, &call, tool).await {
                let cancels = (random.below(8) == 0).then(|| random.below(12));
                let driver = Driver { client: &client, call: &call, cancels };
                drop(timeout(PATIENCE, driver.run(Some(pending), &mut random)).await);
            } else {
                sleep(Duration::from_millis(50)).await;
            }
        }
        Ok(())
    }

    /// Looks at each of the tasks once more, and finishes those that are open again, or that
    /// their callers did not finish. `nth` of `of` concurrent tasks.
    pub(crate) async fn settle(self: Arc<Self>, nth: usize, of: usize) -> Result {
        let mut random = self.random(2_000_000 + nth as u64);
        for call in self.calls().iter().skip(nth).step_by(of) {
            let caller = {
                let call = lock(call);
                call.task.as_ref().map(|_| call.caller.clone())
            };
            if let Some(caller) = caller {
                let client = self.client(&caller, random.clone())?;
                let driver = Driver { client: &client, call, cancels: None };
                driver.run(None, &mut random).await;
            }
        }
        Ok(())
    }

    /// Looks at ended tasks again, about twenty times a second.
    pub(crate) async fn look_again(self: Arc<Self>) -> Result {
        let mut random = self.random(3_000_000);
        while !self.is_stopping() {
            sleep(Duration::from_millis(50)).await;
            let Some(call) = self.any_task(&mut random) else { continue };
            let (id, caller, has_ended) = {
                let call = lock(&call);
                let id = call.task.as_ref().map(|(id, _)| id.clone()).unwrap_or_default();
                (id, call.caller.clone(), call.end().is_some())
            };
            if !has_ended {
                continue;
            }
            let client = self.client(&caller, random.clone())?;
            let asked = now();
            if let Ok(status) = drive::get(&client, &id).await {
                let observation = Observation { asked, at: now(), status };
                lock(&call).observations.push(observation);
            }
        }
        Ok(())
    }

    /// Tries the tasks of other callers, about ten times a second.
    pub(crate) async fn steal(self: Arc<Self>) -> Result {
        let mut random = self.random(4_000_000);
        let client = self.client("thief", random.clone())?;
        while !self.is_stopping() {
            sleep(Duration::from_millis(100)).await;
            let Some(call) = self.any_task(&mut random) else { continue };
            let id = lock(&call).task.as_ref().map(|(id, _)| id.clone()).unwrap_or_default();
            let answer = json!({ "action": "accept", "content": { "text": "stolen" } });
            let answers = json!({ "seat": answer, "meal": answer, "consent": answer });
            for (method, params) in [
                ("tasks/get", json!({ "taskId": id })),
                ("tasks/update", json!({ "taskId": id, "inputResponses": answers })),
                ("tasks/cancel", json!({ "taskId": id })),
            ] {
                match client.request::<Value>(method, params).await {
                    Err(error) if is_not_found(&error) => {
                        self.foreign.tried.fetch_add(1, Ordering::Relaxed);
                    }
                    // Something else than a response about the task proves nothing. The task is
                    // left alone, so that only this guarantee breaks.
                    Err(error) if !is_about_task(&error) => break,
                    other => {
                        let what = format!("{method} of a foreign task: {other:?}");
                        lock(&self.foreign.not_refused).push(what);
                        break;
                    }
                }
            }
        }
        Ok(())
    }

    /// Returns a random call that has become a task, among the last ones or among all.
    fn any_task(&self, random: &mut Random) -> Option<Shared> {
        let calls = lock(&self.calls);
        let among =
            if random.below(2) == 0 { 64.min(calls.len() as u64) } else { calls.len() as u64 };
        let back = usize::try_from(random.below(among)).ok()?;
        let call = calls.get(calls.len().checked_sub(1 + back)?)?;
        lock(call).task.is_some().then(|| Arc::clone(call))
    }
}

/// Returns true for the response about a task that does not exist.
pub(crate) fn is_not_found(error: &CallError) -> bool {
    error.as_server_error().is_some_and(|error| error.message.contains("the task does not exist"))
}

/// Returns true if the server has looked at the task.
fn is_about_task(error: &CallError) -> bool {
    error.as_server_error().is_some_and(|error| error.code != -32603)
}

/// Begins a call, up to the point from which on it is a task. `None`: a request got no response.
async fn begin(client: &Client<Anywhere>, call: &Shared, tool: &str) -> Option<Begun> {
    let (id, caller) = {
        let call = lock(call);
        (call.id.clone(), call.caller.clone())
    };
    let since = now();
    let mut asked = since;
    let mut outcome = client.begin_tool(tool, json!({ "call": id })).await;
    loop {
        let pending = match outcome {
            Ok(CallOutcome::Working(pending) | CallOutcome::InputRequired(pending)) => pending,
            Ok(CallOutcome::Complete(result)) => {
                lock(call).unexpected.push(format!("not a task: {}", result.text()));
                return None;
            }
            Err(_) => {
                lock(call).broken = Some((since, now()));
                return None;
            }
        };
        if let Some(task) = pending.task_id() {
            lock(call).task = Some((task.to_owned(), (since, now())));
            return Some(Begun { pending, asked });
        }
        // The question of the round before the task. The same request gets the same task.
        let mut responses = InputResponses::default();
        for (key, request) in &pending.input_requests().0 {
            let message = drive::message(&serde_json::to_value(request).unwrap_or_default());
            let answer = answer_to(&caller, key, &message);
            lock(call).asked.push((key.clone(), message));
            let accepted = ElicitResult::accept(json!({ "text": answer }));
            if let Err(error) = accepted.and_then(|answer| responses.push(key, &answer)) {
                lock(call).unexpected.push(error.to_string());
            }
        }
        asked = now();
        outcome = client.with_retries(6).resume(pending, &responses).await;
    }
}
