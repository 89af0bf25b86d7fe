//! A call with scripted answers and network faults.

use std::collections::HashMap;
use std::fmt;
use std::future::{Future, poll_fn};
use std::pin::pin;
use std::task::Poll;

use mrtr_codec::Principal;
use mrtr_schema::apps;
use mrtr_schema::elicitation::ElicitResult;
use mrtr_schema::jsonrpc::{ErrorObject, Params, Request, RequestId};
use mrtr_schema::{PROTOCOL_VERSION, method};
use mrtr_transport::OutgoingRequest;
use serde::Serialize;
use serde_json::{Map, Value, json};

use super::replicas::Replicas;
use super::steps::StepExecution;

/// A call with scripted answers, from its first request to its result.
///
/// By default the client declares every capability. An input request without a scripted answer
/// fails the call with [`TestError::NoAnswer`].
///
/// ```
/// # tokio::runtime::Builder::new_current_thread().enable_time().build()?.block_on(async {
/// use mrtr_server::testing::{Replicas, TestCall};
/// use mrtr_server::{Context, Result, Server, Tool};
/// use serde_json::json;
///
/// #[derive(serde::Deserialize, schemars::JsonSchema)]
/// struct Guests {
///     guests: u8,
/// }
///
/// async fn invite(cx: Context) -> Result<String> {
///     let Guests { guests } = cx.elicit("guests", "How many guests?").await?;
///     Ok(format!("{guests} guests"))
/// }
///
/// let server = Server::builder("party", "1").allow_anonymous().ephemeral_key();
/// let server = server.tool(Tool::new("invite", "Invites guests", invite)).build()?;
/// let replicas = Replicas::new([server]);
///
/// let invite = || TestCall::tool("invite", json!({}));
/// // The first answer does not fit the form, so the question is asked again.
/// let transcript = invite()
///     .answer("guests", json!({ "guests": "many" }))
///     .answer("guests", json!({ "guests": 3 }))
///     .run(&replicas)
///     .await?;
/// assert_eq!(transcript.text(), "3 guests");
/// assert_eq!(transcript.rounds().len(), 2);
///
/// let declined = invite().decline("guests").run(&replicas).await?;
/// assert!(declined.is_error());
/// # Ok::<(), Box<dyn std::error::Error>>(()) }).unwrap();
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Debug, Clone)]
pub struct TestCall {
    method: &'static str,
    params: Map<String, Value>,
    capabilities: Value,
    answers: HashMap<String, Vec<Value>>,
    faults: Vec<(usize, Fault)>,
    max_rounds: usize,
    /// The first value that could not be serialized.
    mistake: Option<String>,
}

/// A network fault, injected into one round by [`TestCall::fault`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Fault {
    /// The response is lost, and the client repeats the request.
    ResponseLost,
    /// The request arrives twice. The client takes the response to the first copy. The second one
    /// begins when the handler of the first one waits for anything, such as
    /// `tokio::task::yield_now` in a step, or after its response.
    Duplicate,
    /// The client disconnects when the handler first waits, and repeats the request.
    Disconnect,
    /// The request of the previous round arrives once more, before the request of this round.
    /// Possible from round 2 on.
    StaleRequest,
    /// The responses to the input requests are in reverse order. The round needs at least two.
    Reordered,
    /// Another principal sends the request first. The call fails unless the response is an error.
    /// Possible from round 2 on, and if the [`Replicas`] have a principal: without one, all callers
    /// are the same.
    WrongPrincipal,
}

/// The error of a call that deviated from its script.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum TestError {
    /// The test has no answer to an input request.
    #[error("no answer to the input request {key:?}: {question}")]
    NoAnswer {
        /// The key of the input request.
        key: String,
        /// The input request as JSON.
        question: String,
    },
    /// The call takes more rounds than [`TestCall::max_rounds`].
    #[error("the call takes more than {max} rounds; requested were {keys:?}")]
    TooManyRounds {
        /// The limit.
        max: usize,
        /// The keys of the input requests in each round.
        keys: Vec<Vec<String>>,
    },
    /// Another principal was served with the caller's request state.
    #[error("another principal was served in round {round}: {outcome}")]
    WrongPrincipalServed {
        /// The round.
        round: usize,
        /// The result as JSON.
        outcome: String,
    },
    /// A fault was not injected, so the test does not cover it: the call did not reach the round,
    /// or the fault is impossible in the round.
    #[error("{fault:?} was not injected in round {round}")]
    FaultNotInjected {
        /// The round for which the fault was planned.
        round: usize,
        /// The fault.
        fault: Fault,
    },
    /// The call cannot be made: a value is not valid JSON, or there are no replicas.
    #[error("invalid test call: {0}")]
    InvalidCall(String),
}

impl TestCall {
    /// Creates a call of a tool.
    pub fn tool(name: &str, arguments: impl Serialize) -> Self {
        Self::new(method::TOOLS_CALL, json!({ "name": name })).argument("arguments", arguments)
    }

    /// Creates a request for a prompt. The values of its arguments are strings.
    pub fn prompt(name: &str, arguments: impl Serialize) -> Self {
        Self::new(method::PROMPTS_GET, json!({ "name": name })).argument("arguments", arguments)
    }

    /// Creates a request for the contents of a resource.
    pub fn resource(uri: &str) -> Self {
        Self::new(method::RESOURCES_READ, json!({ "uri": uri }))
    }

    fn new(method: &'static str, params: Value) -> Self {
        let params = if let Value::Object(params) = params { params } else { Map::new() };
        let capabilities = json!({
            "elicitation": { "form": {}, "url": {} },
            "sampling": { "tools": {}, "context": {} },
            "roots": {},
            "extensions": { apps::EXTENSION: apps::client_settings() },
        });
        Self {
            method,
            params,
            capabilities,
            answers: HashMap::new(),
            faults: Vec::new(),
            max_rounds: 8,
            mistake: None,
        }
    }

    fn argument(mut self, name: &str, value: impl Serialize) -> Self {
        match serde_json::to_value(value) {
            Ok(value) => {
                self.params.insert(name.to_owned(), value);
                self
            }
            Err(error) => self.mistake(format!("{name}: {error}")),
        }
    }

    fn mistake(mut self, why: String) -> Self {
        self.mistake.get_or_insert(why);
        self
    }

    /// Answers the form under `key` with `content`.
    ///
    /// If a key has several answers, they are used in order, and the last one is repeated.
    pub fn answer(self, key: &str, content: impl Serialize) -> Self {
        match ElicitResult::accept(content) {
            Ok(result) => self.respond(key, result),
            Err(error) => self.mistake(format!("the answer to {key:?}: {error}")),
        }
    }

    /// Consents to open the URL under `key`.
    pub fn accept_url(self, key: &str) -> Self {
        self.respond(key, json!({ "action": "accept" }))
    }

    /// Declines the elicitation under `key`.
    pub fn decline(self, key: &str) -> Self {
        self.respond(key, ElicitResult::decline())
    }

    /// Cancels the elicitation under `key`.
    pub fn cancel(self, key: &str) -> Self {
        self.respond(key, ElicitResult::cancel())
    }

    /// Answers the input request under `key` with any result: an `ElicitResult`,
    /// `CreateMessageResult` or `ListRootsResult`, or the invalid result of a hostile client.
    pub fn respond(mut self, key: &str, result: impl Serialize) -> Self {
        match serde_json::to_value(result) {
            Ok(result) => {
                self.answers.entry(key.to_owned()).or_default().push(result);
                self
            }
            Err(error) => self.mistake(format!("the answer to {key:?}: {error}")),
        }
    }

    /// Sets the capabilities of the client, as `ClientCapabilities`. Default: all; of the
    /// extensions, MCP Apps alone.
    pub fn capabilities(mut self, capabilities: impl Serialize) -> Self {
        match serde_json::to_value(capabilities) {
            Ok(capabilities) => {
                self.capabilities = capabilities;
                self
            }
            Err(error) => self.mistake(format!("capabilities: {error}")),
        }
    }

    /// Injects a fault into a round; the first request is round 1. Faults of one round are injected
    /// one after the other.
    pub fn fault(mut self, round: usize, fault: Fault) -> Self {
        self.faults.push((round, fault));
        self
    }

    /// Sets the maximum number of rounds that may end without a result. Default: 8, because many
    /// clients give up after nine or ten.
    pub fn max_rounds(mut self, max: usize) -> Self {
        self.max_rounds = max;
        self
    }

    /// Makes the call and answers its input requests, until there is a result or an error.
    ///
    /// # Errors
    ///
    /// [`TestError`], if the call deviates from its script. An error response of the server is not
    /// a `TestError`: it is the [`Transcript::outcome`].
    pub async fn run(&self, replicas: &Replicas) -> Result<Transcript, TestError> {
        if let Some(mistake) = &self.mistake {
            return Err(TestError::InvalidCall(mistake.clone()));
        }
        let earlier_steps = replicas.log().steps().len();
        let mut rounds = Vec::new();
        let mut questions = Vec::new();
        let mut largest_state = 0;
        let mut previous = None;
        let mut params = self.params.clone();
        let outcome = loop {
            let round = rounds.len() + 1;
            let outcome = self.round(replicas, round, &mut params, previous.as_ref()).await?;
            let result = match outcome {
                Ok(result) if result.get("resultType") == Some(&json!("input_required")) => result,
                outcome => break outcome,
            };
            let mut next = self.params.clone();
            let mut keys = Vec::new();
            let mut responses = Map::new();
            for (key, question) in
                result.get("inputRequests").and_then(Value::as_object).into_iter().flatten()
            {
                let times = questions.iter().filter(|(known, _)| known == key).count();
                responses.insert(key.clone(), self.answer_to(key, question, times)?);
                questions.push((key.clone(), question.clone()));
                keys.push(key.clone());
            }
            rounds.push(keys);
            if rounds.len() > self.max_rounds {
                return Err(TestError::TooManyRounds { max: self.max_rounds, keys: rounds });
            }
            if let Some(state) = result.get("requestState") {
                largest_state = largest_state.max(state.as_str().map_or(0, str::len));
                next.insert("requestState".to_owned(), state.clone());
            }
            if !responses.is_empty() {
                next.insert("inputResponses".to_owned(), Value::Object(responses));
            }
            previous = Some(std::mem::replace(&mut params, next));
        };
        // One request per round without a result, and the last one.
        let requests = rounds.len() + 1;
        let unreached = self.faults.iter().find(|(round, _)| !(1..=requests).contains(round));
        if let Some(&(round, fault)) = unreached {
            return Err(TestError::FaultNotInjected { round, fault });
        }
        let steps = replicas.log().steps().split_off(earlier_steps);
        Ok(Transcript { outcome, rounds, questions, steps, largest_state })
    }

    fn answer_to(&self, key: &str, question: &Value, times: usize) -> Result<Value, TestError> {
        let answers = self.answers.get(key).map(Vec::as_slice).unwrap_or_default();
        let answer = answers.get(times).or(answers.last()).cloned();
        let missing =
            || TestError::NoAnswer { key: key.to_owned(), question: question.to_string() };
        answer.ok_or_else(missing)
    }

    /// Sends the request of one round, with its faults.
    async fn round(
        &self,
        replicas: &Replicas,
        round: usize,
        params: &mut Map<String, Value>,
        previous: Option<&Map<String, Value>>,
    ) -> Result<Outcome, TestError> {
        let principal = replicas.principal();
        let mut response = None;
        for (_, fault) in self.faults.iter().filter(|(of, _)| *of == round) {
            let not_injected = TestError::FaultNotInjected { round, fault: *fault };
            // A later fault of the same round happens to a repeated request: the response to the
            // earlier one was lost.
            response = None;
            match fault {
                Fault::ResponseLost => {
                    let _ = self.request(replicas, params, principal).await?;
                }
                Fault::Duplicate => {
                    let (first, second) = tokio::join!(
                        self.request(replicas, params, principal),
                        self.request(replicas, params, principal)
                    );
                    let _ = second?;
                    response = Some(first?);
                }
                Fault::Disconnect => {
                    if is_ready(self.request(replicas, params, principal)).await {
                        return Err(not_injected);
                    }
                }
                Fault::StaleRequest => {
                    let stale = previous.ok_or(not_injected)?;
                    let _ = self.request(replicas, stale, principal).await?;
                }
                Fault::Reordered => match params.get_mut("inputResponses") {
                    Some(Value::Object(answers)) if answers.len() > 1 => {
                        *answers = std::mem::take(answers).into_iter().rev().collect();
                    }
                    _ => return Err(not_injected),
                },
                Fault::WrongPrincipal => {
                    if principal.is_none() || previous.is_none() {
                        return Err(not_injected);
                    }
                    let other = Principal::new("https://elsewhere.example", "stranger");
                    if let Ok(result) = self.request(replicas, params, Some(&other)).await? {
                        let outcome = result.to_string();
                        return Err(TestError::WrongPrincipalServed { round, outcome });
                    }
                }
            }
        }
        match response {
            Some(outcome) => Ok(outcome),
            None => self.request(replicas, params, principal).await,
        }
    }

    /// Sends one request.
    async fn request(
        &self,
        replicas: &Replicas,
        params: &Map<String, Value>,
        principal: Option<&Principal>,
    ) -> Result<Outcome, TestError> {
        let mut params = params.clone();
        let meta = json!({
            "io.modelcontextprotocol/protocolVersion": PROTOCOL_VERSION,
            "io.modelcontextprotocol/clientCapabilities": self.capabilities,
        });
        params.insert("_meta".to_owned(), meta);
        let unmade = |why: &dyn fmt::Display| TestError::InvalidCall(why.to_string());
        let params = Params::new(&params).map_err(|error| unmade(&error))?;
        let request = Request::new(RequestId::Number(1), self.method, Some(params));
        let response = replicas.exchange(OutgoingRequest::new(request), principal).await;
        let outcome = response.map_err(|error| unmade(&error))?.outcome;
        outcome
            .map(|result| serde_json::from_str(result.get()).map_err(|error| unmade(&error)))
            .map_or_else(|error| Ok(Err(error)), |result| result.map(Ok))
    }
}

type Outcome = Result<Value, ErrorObject>;

/// Polls a request once, and drops it. Returns true if it had a response.
async fn is_ready<T>(request: impl Future<Output = T>) -> bool {
    let mut request = pin!(request);
    poll_fn(|cx| Poll::Ready(request.as_mut().poll(cx).is_ready())).await
}

/// The course of a call: its outcome, its input requests, and its steps.
#[derive(Debug, Clone, PartialEq)]
pub struct Transcript {
    /// The result as JSON, or the error of the server's response.
    pub outcome: Result<Value, ErrorObject>,
    rounds: Vec<Vec<String>>,
    questions: Vec<(String, Value)>,
    steps: Vec<StepExecution>,
    largest_state: usize,
}

impl Transcript {
    /// Returns the first text of a tool's result; empty if there is none.
    pub fn text(&self) -> &str {
        let result = self.outcome.as_ref().ok();
        let text = result.and_then(|result| result.pointer("/content/0/text"));
        text.and_then(Value::as_str).unwrap_or_default()
    }

    /// Returns true if the call ended with an error response, or with a tool result that has
    /// `isError`.
    pub fn is_error(&self) -> bool {
        self.outcome.as_ref().map_or(true, |result| result.get("isError") == Some(&json!(true)))
    }

    /// Returns the keys of the input requests in each round without a result; a round that ended
    /// with request state alone has none.
    pub fn rounds(&self) -> &[Vec<String>] {
        &self.rounds
    }

    /// Returns the most recent input request under `key`, as JSON.
    pub fn question(&self, key: &str) -> Option<&Value> {
        self.questions.iter().rev().find(|(asked, _)| asked == key).map(|(_, question)| question)
    }

    /// Returns the number of times that a step was executed, in all rounds.
    pub fn step_runs(&self, key: &str) -> usize {
        self.steps.iter().filter(|step| step.key == key).count()
    }

    /// Returns all executions of steps, in the order in which they began.
    pub fn steps(&self) -> &[StepExecution] {
        &self.steps
    }

    /// Returns the length of the longest request state in bytes.
    pub fn largest_state(&self) -> usize {
        self.largest_state
    }
}
