//! A call, with a person who answers as a test says.

use std::collections::HashMap;
use std::fmt;
use std::future::{Future, poll_fn};
use std::pin::pin;
use std::task::Poll;

use mrtr_codec::Principal;
use mrtr_schema::elicitation::ElicitResult;
use mrtr_schema::jsonrpc::{ErrorObject, Params, Request, RequestId};
use mrtr_schema::{PROTOCOL_VERSION, method};
use mrtr_transport::OutgoingRequest;
use serde::Serialize;
use serde_json::{Map, Value, json};

use super::replicas::Replicas;
use super::steps::StepBegun;

/// A call to a [`Replicas`], from its first request to its result.
///
/// It declares every capability unless told otherwise, so that it can be asked anything; what it is asked and has no answer
/// for is a [`TestError`].
#[derive(Debug, Clone)]
pub struct TestCall {
    method: &'static str,
    params: Map<String, Value>,
    capabilities: Value,
    answers: HashMap<String, Vec<Value>>,
    faults: Vec<(usize, Fault)>,
    most_rounds: usize,
    /// The first thing that could not be written as JSON.
    mistake: Option<String>,
}

/// What goes wrong with a request, or comes beside it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Fault {
    /// Its response is lost, and it is sent again.
    Lost,
    /// It is sent twice at once; the one response that counts is the first one's.
    Twice,
    /// The client goes away while the handler first waits for something, and sends it again.
    Cut,
    /// The request of the round before comes once more, before it. From round 2 on.
    Late,
    /// Its answers come in another order. There have to be two.
    Reordered,
    /// Somebody else sends it first. The call fails if they get anything but an error. From round 2 on, and where the fleet has a
    /// principal: without one, everybody is the same caller.
    Stranger,
}

/// What a test has not foreseen.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum TestError {
    /// A question that the test has no answer to.
    #[error("{key:?} was asked, and there is no answer to it: {question}")]
    NoAnswer {
        /// The question's key.
        key: String,
        /// As it was asked, in JSON.
        question: String,
    },
    /// More rounds than many clients have patience for, or than [`TestCall::at_most`] says.
    #[error("the call takes more than {most} rounds; asked were {asked:?}")]
    Rounds {
        /// How many it may take.
        most: usize,
        /// What was asked in each of them.
        asked: Vec<Vec<String>>,
    },
    /// Who is not the caller got something with the caller's state.
    #[error("somebody else was served in round {round}: {outcome}")]
    Stranger {
        /// The round.
        round: usize,
        /// What they got, in JSON.
        outcome: String,
    },
    /// A fault that did not happen, so that the test shows nothing about it: the round was not reached, or the fault makes no sense in it.
    #[error("{fault:?} did not happen in round {round}")]
    Unhappened {
        /// The round that it was to happen in.
        round: usize,
        /// The fault.
        fault: Fault,
    },
    /// Something in the test cannot be written as JSON, or the fleet has no replicas.
    #[error("the call cannot be made: {0}")]
    TestCall(String),
}

impl TestCall {
    /// A call of a tool.
    pub fn tool(name: &str, arguments: impl Serialize) -> Self {
        Self::new(method::TOOLS_CALL, json!({ "name": name })).argument("arguments", arguments)
    }

    /// A prompt; its arguments are texts.
    pub fn prompt(name: &str, arguments: impl Serialize) -> Self {
        Self::new(method::PROMPTS_GET, json!({ "name": name })).argument("arguments", arguments)
    }

    /// The contents of a resource.
    pub fn resource(uri: &str) -> Self {
        Self::new(method::RESOURCES_READ, json!({ "uri": uri }))
    }

    fn new(method: &'static str, params: Value) -> Self {
        let params = if let Value::Object(params) = params { params } else { Map::new() };
        let capabilities = json!({
            "elicitation": { "form": {}, "url": {} },
            "sampling": { "tools": {}, "context": {} },
            "roots": {},
        });
        let (answers, faults) = (HashMap::new(), Vec::new());
        Self { method, params, capabilities, answers, faults, most_rounds: 8, mistake: None }
    }

    fn argument(mut self, name: &str, value: impl Serialize) -> Self {
        match serde_json::to_value(value) {
            Ok(value) => drop(self.params.insert(name.to_owned(), value)),
            Err(error) => drop(self.mistake.get_or_insert(format!("{name}: {error}"))),
        }
        self
    }

    /// Fills in the form under `key`. Of several answers under one key, the first is for the first time it is asked, and the
    /// last for all times that have none of their own.
    pub fn answer(mut self, key: &str, content: impl Serialize) -> Self {
        match ElicitResult::accept(content) {
            Ok(result) => self.respond(key, result),
            Err(error) => {
                self.mistake.get_or_insert(format!("the answer to {key:?}: {error}"));
                self
            }
        }
    }

    /// Consents to visit the URL under `key`.
    pub fn visit(self, key: &str) -> Self {
        self.respond(key, json!({ "action": "accept" }))
    }

    /// Declines the question under `key`.
    pub fn decline(self, key: &str) -> Self {
        self.respond(key, ElicitResult::decline())
    }

    /// Dismisses the question under `key`.
    pub fn cancel(self, key: &str) -> Self {
        self.respond(key, ElicitResult::cancel())
    }

    /// Answers the question under `key` with any result: an `ElicitResult`, `CreateMessageResult` or `ListRootsResult`, or what
    /// a hostile client would send.
    pub fn respond(mut self, key: &str, result: impl Serialize) -> Self {
        match serde_json::to_value(result) {
            Ok(result) => self.answers.entry(key.to_owned()).or_default().push(result),
            Err(error) => {
                self.mistake.get_or_insert(format!("the answer to {key:?}: {error}"));
            }
        }
        self
    }

    /// What the client can be asked, as `ClientCapabilities`. Default: everything.
    pub fn capabilities(mut self, capabilities: impl Serialize) -> Self {
        match serde_json::to_value(capabilities) {
            Ok(capabilities) => self.capabilities = capabilities,
            Err(error) => drop(self.mistake.get_or_insert(format!("capabilities: {error}"))),
        }
        self
    }

    /// Lets something go wrong in a round; the first request is in round 1. Several faults of one round come one after the
    /// other. One that does not happen is a [`TestError`].
    pub fn fault(mut self, round: usize, fault: Fault) -> Self {
        self.faults.push((round, fault));
        self
    }

    /// How many rounds without a result the call may take. Default: 8, since clients tend to give up after nine or ten.
    pub fn at_most(mut self, rounds: usize) -> Self {
        self.most_rounds = rounds;
        self
    }

    /// Makes the call, and answers what is asked, until there is a result or an error.
    ///
    /// # Errors
    ///
    /// [`TestError`], if something happens that the test does not provide for. What the server refuses is none: it stands in
    /// [`Transcript::outcome`].
    pub async fn run(&self, fleet: &Replicas) -> Result<Transcript, TestError> {
        if let Some(mistake) = &self.mistake {
            return Err(TestError::TestCall(mistake.clone()));
        }
        let before = fleet.log().steps().len();
        let (mut rounds, mut questions) = (Vec::new(), Vec::new());
        let mut largest_state = 0;
        let (mut last, mut params) = (None, self.params.clone());
        let outcome = loop {
            let outcome = self.round(fleet, rounds.len() + 1, &mut params, last.as_ref()).await?;
            let result = match outcome {
                Ok(result) if result.get("resultType") == Some(&json!("input_required")) => result,
                outcome => break outcome,
            };
            let mut next = self.params.clone();
            let mut asked = Vec::new();
            let mut responses = Map::new();
            for (key, question) in
                result.get("inputRequests").and_then(Value::as_object).into_iter().flatten()
            {
                let times = questions.iter().filter(|(known, _)| known == key).count();
                responses.insert(key.clone(), self.answer_to(key, question, times)?);
                questions.push((key.clone(), question.clone()));
                asked.push(key.clone());
            }
            rounds.push(asked);
            if rounds.len() > self.most_rounds {
                return Err(TestError::Rounds { most: self.most_rounds, asked: rounds });
            }
            if let Some(state) = result.get("requestState") {
                largest_state = largest_state.max(state.as_str().map_or(0, str::len));
                next.insert("requestState".to_owned(), state.clone());
            }
            if !responses.is_empty() {
                next.insert("inputResponses".to_owned(), Value::Object(responses));
            }
            last = Some(std::mem::replace(&mut params, next));
        };
        // There was a request for each round, and one more.
        if let Some((round, fault)) =
            self.faults.iter().find(|(of, _)| !(1..=rounds.len() + 1).contains(of))
        {
            return Err(TestError::Unhappened { round: *round, fault: *fault });
        }
        let steps = fleet.log().steps().split_off(before);
        Ok(Transcript { outcome, rounds, questions, steps, largest_state })
    }

    fn answer_to(&self, key: &str, question: &Value, times: usize) -> Result<Value, TestError> {
        let answers = self.answers.get(key).map(Vec::as_slice).unwrap_or_default();
        let answer = answers.get(times).or(answers.last()).cloned();
        let none = || TestError::NoAnswer { key: key.to_owned(), question: question.to_string() };
        answer.ok_or_else(none)
    }

    /// One request, with what goes wrong about it.
    async fn round(
        &self,
        fleet: &Replicas,
        round: usize,
        params: &mut Map<String, Value>,
        last: Option<&Map<String, Value>>,
    ) -> Result<Outcome, TestError> {
        let mut first = None;
        for (_, fault) in self.faults.iter().filter(|(of, _)| *of == round) {
            let unhappened = TestError::Unhappened { round, fault: *fault };
            let principal = fleet.principal();
            // What came before was lost.
            first = None;
            match fault {
                Fault::Lost => drop(self.leg(fleet, params, principal).await?),
                Fault::Twice => {
                    let (one, other) = tokio::join!(
                        self.leg(fleet, params, principal),
                        self.leg(fleet, params, principal)
                    );
                    drop(other?);
                    first = Some(one?);
                }
                Fault::Cut => cut(self.leg(fleet, params, principal)).await,
                Fault::Late => {
                    let last = last.ok_or(unhappened)?;
                    drop(self.leg(fleet, last, principal).await?);
                }
                Fault::Reordered => match params.get_mut("inputResponses") {
                    Some(Value::Object(answers)) if answers.len() > 1 => {
                        *answers = std::mem::take(answers).into_iter().rev().collect();
                    }
                    _ => return Err(unhappened),
                },
                Fault::Stranger => {
                    if principal.is_none() || last.is_none() {
                        return Err(unhappened);
                    }
                    let stranger = Principal::new("https://elsewhere.example", "stranger");
                    if let Ok(outcome) = self.leg(fleet, params, Some(&stranger)).await? {
                        return Err(TestError::Stranger { round, outcome: outcome.to_string() });
                    }
                }
            }
        }
        match first {
            Some(outcome) => Ok(outcome),
            None => self.leg(fleet, params, fleet.principal()).await,
        }
    }

    async fn leg(
        &self,
        fleet: &Replicas,
        params: &Map<String, Value>,
        principal: Option<&Principal>,
    ) -> Result<Outcome, TestError> {
        let mut params = params.clone();
        let meta = json!({
            "io.modelcontextprotocol/protocolVersion": PROTOCOL_VERSION,
            "io.modelcontextprotocol/clientCapabilities": self.capabilities,
        });
        params.insert("_meta".to_owned(), meta);
        let unmade = |why: &dyn fmt::Display| TestError::TestCall(why.to_string());
        let params = Params::new(&params).map_err(|error| unmade(&error))?;
        let request = Request::new(RequestId::Number(1), self.method, Some(params));
        let response = fleet.leg(OutgoingRequest::new(request), principal).await;
        let outcome = response.map_err(|error| unmade(&error))?.outcome;
        outcome
            .map(|result| serde_json::from_str(result.get()).map_err(|error| unmade(&error)))
            .map_or_else(|error| Ok(Err(error)), |result| result.map(Ok))
    }
}

type Outcome = Result<Value, ErrorObject>;

/// Polls a request once, and drops it.
async fn cut<T>(leg: impl Future<Output = T>) {
    let mut leg = pin!(leg);
    poll_fn(|cx| {
        let _ = leg.as_mut().poll(cx).is_ready();
        Poll::Ready(())
    })
    .await;
}

/// What became of a call.
#[derive(Debug, Clone, PartialEq)]
pub struct Transcript {
    /// The result as JSON, or the error that the server answered with.
    pub outcome: Result<Value, ErrorObject>,
    rounds: Vec<Vec<String>>,
    questions: Vec<(String, Value)>,
    steps: Vec<StepBegun>,
    largest_state: usize,
}

impl Transcript {
    /// The text of a tool's result; empty if there is none.
    pub fn text(&self) -> &str {
        let result = self.outcome.as_ref().ok();
        let text = result.and_then(|result| result.pointer("/content/0/text"));
        text.and_then(Value::as_str).unwrap_or_default()
    }

    /// Whether it ended in an error of the server's, or in a result that says that the tool failed.
    pub fn is_error(&self) -> bool {
        self.outcome.as_ref().map_or(true, |result| result.get("isError") == Some(&json!(true)))
    }

    /// The keys that each round asked for; none for a round that only went on elsewhere.
    pub fn rounds(&self) -> &[Vec<String>] {
        &self.rounds
    }

    /// The question under `key`, as it was asked last.
    pub fn question(&self, key: &str) -> Option<&Value> {
        self.questions.iter().rev().find(|(asked, _)| asked == key).map(|(_, question)| question)
    }

    /// How often a step was begun, on all legs.
    pub fn runs(&self, step: &str) -> usize {
        self.steps.iter().filter(|begun| begun.key == step).count()
    }

    /// All steps that were begun, in their order.
    pub fn steps(&self) -> &[StepBegun] {
        &self.steps
    }

    /// How many bytes the longest state had.
    pub fn largest_state(&self) -> usize {
        self.largest_state
    }
}
