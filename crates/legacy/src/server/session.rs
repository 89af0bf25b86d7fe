//! The state of a session in this process: nothing that a call needs to be continued elsewhere.

use std::collections::{BTreeSet, HashMap};
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use mrtr_codec::{Digest, Principal};
use mrtr_schema::jsonrpc::{ErrorObject, RequestId};
use mrtr_schema::notification::LogLevel;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use tokio::sync::{oneshot, watch};
use tokio::task::AbortHandle;

use super::claims::SessionClaims;
use super::context::AnsweredBy;
use super::stream::Stream;

/// Identifies a session without its id, which is a secret.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub(crate) struct SessionKey([u8; 32]);

impl SessionKey {
    pub(crate) fn of(session_id: &str) -> Self {
        Self(*Digest::from_parts(&[session_id.as_bytes()]).as_bytes())
    }

    pub(crate) fn as_bytes(&self) -> &[u8] {
        &self.0
    }
}

/// The level of log messages before the client has set one. Legacy revisions leave it to the
/// server.
const DEFAULT_LOG_LEVEL: LogLevel = LogLevel::Info;

/// The most resources that a session can subscribe to.
const MAX_SUBSCRIPTIONS: usize = 1_000;

/// The most bytes that the URIs of a session's subscriptions have together.
const MAX_SUBSCRIPTION_BYTES: usize = 32 << 10;

/// The answer of a client to a request of the server.
pub(crate) type Answer = Result<Box<RawValue>, ErrorObject>;

/// What a client can change in its session.
#[derive(Clone, Serialize, Deserialize)]
pub(crate) enum Change {
    #[serde(rename = "l")]
    LogLevel(LogLevel),
    #[serde(rename = "s")]
    Subscribe(String),
    #[serde(rename = "u")]
    Unsubscribe(String),
}

/// A session of a legacy client.
pub(crate) struct Session {
    pub(crate) key: SessionKey,
    pub(crate) claims: SessionClaims,
    pub(crate) principal: Option<Principal>,
    state: Mutex<State>,
    subscriptions: watch::Sender<BTreeSet<String>>,
}

#[derive(Default)]
struct State {
    log_level: Option<LogLevel>,
    /// How many requests there were.
    call_count: u64,
    /// Requests of the client that are being answered.
    calls: HashMap<RequestId, CallInFlight>,
    /// Requests to the client that wait for an answer, by their ids.
    questions: HashMap<String, oneshot::Sender<(Answer, AnsweredBy)>>,
    /// Streams that the client can resume.
    streams: HashMap<String, Arc<Stream>>,
    /// The task that sends changes to the client.
    listener: Option<AbortHandle>,
    is_terminated: bool,
}

/// A request of the client that is being answered.
struct CallInFlight {
    /// Tells it from an earlier request with the same id, whose task may still end.
    number: u64,
    /// `None` until the task has started.
    task: Option<AbortHandle>,
    stream: Option<Arc<Stream>>,
}

impl Session {
    pub(crate) fn new(
        key: SessionKey,
        claims: SessionClaims,
        principal: Option<Principal>,
    ) -> Self {
        let subscriptions = watch::Sender::new(BTreeSet::new());
        Self { key, claims, principal, state: Mutex::default(), subscriptions }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn log_level(&self) -> LogLevel {
        self.lock().log_level.unwrap_or(DEFAULT_LOG_LEVEL)
    }

    /// Changes what is kept between requests. Returns false if the session has too many
    /// subscriptions.
    pub(crate) fn change(&self, change: Change) -> bool {
        match change {
            Change::LogLevel(level) => self.lock().log_level = Some(level),
            Change::Subscribe(uri) => return self.subscribe(uri),
            Change::Unsubscribe(uri) => {
                self.subscriptions.send_if_modified(|uris| uris.remove(&uri));
            }
        }
        true
    }

    fn subscribe(&self, uri: String) -> bool {
        let mut is_added = true;
        self.subscriptions.send_if_modified(|uris| {
            let bytes = uris.iter().map(String::len).sum::<usize>() + uri.len();
            let has_room = uris.len() < MAX_SUBSCRIPTIONS && bytes <= MAX_SUBSCRIPTION_BYTES;
            is_added = has_room || uris.contains(&uri);
            is_added && uris.insert(uri)
        });
        is_added
    }

    /// Returns the resources that the session is subscribed to, and their changes.
    pub(crate) fn subscriptions(&self) -> watch::Receiver<BTreeSet<String>> {
        self.subscriptions.subscribe()
    }

    /// Adds a request of the client, whose task is started by `spawn` with its number.
    ///
    /// # Errors
    ///
    /// The reason, if one with this id is being answered, or the session has ended.
    pub(crate) fn begin_call(
        &self,
        id: &RequestId,
        stream: Option<Arc<Stream>>,
        spawn: impl FnOnce(u64) -> AbortHandle,
    ) -> Result<(), &'static str> {
        let mut state = self.lock();
        if state.is_terminated {
            return Err("the session has ended");
        }
        if state.calls.contains_key(id) {
            return Err("a request with this `id` is already in flight");
        }
        state.call_count += 1;
        let number = state.call_count;
        state.calls.insert(id.clone(), CallInFlight { number, task: None, stream });
        // A runtime that is shutting down drops the task at once, which ends the call.
        drop(state);
        let task = spawn(number);
        match self.lock().calls.get_mut(id) {
            Some(call) if call.number == number => call.task = Some(task),
            // It was cancelled, or has ended.
            _ => task.abort(),
        }
        Ok(())
    }

    /// Removes a request that was answered. Returns false if it was cancelled.
    pub(crate) fn end_call(&self, id: &RequestId, number: u64) -> bool {
        let mut state = self.lock();
        let is_in_flight = state.calls.get(id).is_some_and(|call| call.number == number);
        if is_in_flight {
            state.calls.remove(id);
        }
        is_in_flight
    }

    /// Aborts a request of the client. No response follows. Returns false if there is none.
    pub(crate) fn cancel_call(&self, id: &RequestId) -> bool {
        let call = self.lock().calls.remove(id);
        let is_known = call.is_some();
        if let Some(call) = call {
            call.cancel();
        }
        is_known
    }

    /// Aborts the requests whose responses would go to this stream.
    pub(crate) fn cancel_calls_on(&self, stream: &Arc<Stream>) {
        let is_on =
            |call: &CallInFlight| call.stream.as_ref().is_some_and(|own| Arc::ptr_eq(own, stream));
        let mut state = self.lock();
        let ids: Vec<_> =
            state.calls.iter().filter(|(_, call)| is_on(call)).map(|(id, _)| id.clone()).collect();
        let calls: Vec<_> = ids.iter().filter_map(|id| state.calls.remove(id)).collect();
        drop(state);
        calls.into_iter().for_each(CallInFlight::cancel);
    }

    /// Adds a request to the client, which waits for an answer until the result is dropped.
    pub(crate) fn ask(self: &Arc<Self>, id: String) -> PendingAnswer {
        let (sender, receiver) = oneshot::channel();
        self.lock().questions.insert(id.clone(), sender);
        PendingAnswer { session: Arc::clone(self), id, receiver }
    }

    /// Delivers an answer. Returns false if no request with this id waits for one.
    pub(crate) fn answer(&self, id: &RequestId, answer: Answer, by: AnsweredBy) -> bool {
        let RequestId::String(id) = id else { return false };
        let question = self.lock().questions.remove(id);
        question.is_some_and(|question| question.send((answer, by)).is_ok())
    }

    pub(crate) fn add_stream(&self, stream: &Arc<Stream>) {
        self.lock().streams.insert(stream.id().to_owned(), Arc::clone(stream));
    }

    pub(crate) fn stream(&self, id: &str) -> Option<Arc<Stream>> {
        self.lock().streams.get(id).cloned()
    }

    pub(crate) fn remove_stream(&self, id: &str) {
        self.lock().streams.remove(id);
    }

    /// Returns true if a request is resumed here, and the other replicas are just being told.
    pub(crate) fn is_resuming(&self, id: &RequestId) -> bool {
        let state = self.lock();
        let stream = state.calls.get(id).and_then(|call| call.stream.as_ref());
        stream.is_some_and(|stream| stream.is_resuming())
    }

    /// Gives up a request that its client continues from an event id. Its stream was that of
    /// another connection.
    pub(crate) fn give_up_call(&self, id: &RequestId) {
        let stream = self.lock().calls.get(id).and_then(|call| call.stream.clone());
        if let Some(stream) = stream {
            self.give_up(&stream);
        }
    }

    /// Ends a stream without responses, and aborts its calls: another replica continues them.
    pub(crate) fn give_up(&self, stream: &Arc<Stream>) {
        self.remove_stream(stream.id());
        stream.end();
        self.cancel_calls_on(stream);
    }

    /// Sets the task that sends changes to the client. The one before is aborted.
    pub(crate) fn replace_listener(&self, task: AbortHandle) {
        let mut state = self.lock();
        let former = state.listener.replace(task);
        if state.is_terminated
            && let Some(task) = &state.listener
        {
            task.abort();
        }
        drop(state);
        if let Some(former) = former {
            former.abort();
        }
    }

    /// Returns true if the session has state between requests: a log level or subscriptions.
    pub(crate) fn has_state(&self) -> bool {
        self.lock().log_level.is_some() || !self.subscriptions.borrow().is_empty()
    }

    /// Ends the session: aborts all requests and ends all streams.
    pub(crate) fn terminate(&self) {
        let mut state = self.lock();
        state.is_terminated = true;
        let calls = std::mem::take(&mut state.calls);
        let streams = std::mem::take(&mut state.streams);
        state.questions.clear();
        let listener = state.listener.take();
        drop(state);
        if let Some(listener) = listener {
            listener.abort();
        }
        calls.into_values().for_each(CallInFlight::cancel);
        for stream in streams.into_values() {
            stream.end();
        }
        self.subscriptions.send_modify(BTreeSet::clear);
    }
}

impl CallInFlight {
    fn cancel(self) {
        if let Some(stream) = self.stream {
            stream.skip_response();
        }
        if let Some(task) = self.task {
            task.abort();
        }
    }
}

impl fmt::Debug for Session {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Session").field("version", &self.claims.version).finish_non_exhaustive()
    }
}

/// A request to the client that waits for its answer.
pub(crate) struct PendingAnswer {
    session: Arc<Session>,
    id: String,
    receiver: oneshot::Receiver<(Answer, AnsweredBy)>,
}

impl PendingAnswer {
    pub(crate) fn id(&self) -> &str {
        &self.id
    }

    /// Returns true if the client has not answered.
    pub(crate) fn is_awaited(&self) -> bool {
        self.session.lock().questions.contains_key(&self.id)
    }

    /// Waits for the answer; `None` if the session has ended.
    pub(crate) async fn recv(&mut self) -> Option<(Answer, AnsweredBy)> {
        (&mut self.receiver).await.ok()
    }
}

impl Drop for PendingAnswer {
    fn drop(&mut self) {
        self.session.lock().questions.remove(&self.id);
    }
}
