//! Who answers a server's questions.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use mrtr_schema::Object;
use mrtr_schema::capabilities::{
    ClientCapabilities, ElicitationCapability, RootsCapability, SamplingCapability,
};
use mrtr_schema::elicitation::{ElicitParams, ElicitResult, FormParams, UrlParams};
use mrtr_schema::input::{InputRequest, InputRequests, InputResponses};
use mrtr_schema::peer_text::quote;
use mrtr_schema::roots::{ListRootsResult, Root};
use mrtr_schema::sampling::{CreateMessageParams, CreateMessageResult};
use mrtr_transport::BoxError;
use serde_json::value::RawValue;

use crate::answers;
use crate::error::CallError;
use crate::observer::{CallEvent, PolicyDecision, Watch};
use crate::pending_call::write;

/// Where a question comes from.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Question {
    /// The method that asks, such as `tools/call`.
    pub method: String,
    /// The tool or prompt that asks.
    pub target: String,
    /// The server's name for the question.
    pub key: String,
    /// Which round of the call this is, from 1.
    pub round: u32,
    /// What tells the call apart from others: see [`Client::with_label`](crate::Client::with_label).
    pub label: Option<Arc<str>>,
}

impl Question {
    /// A question, for tests of handlers.
    pub fn new(
        method: impl Into<String>,
        target: impl Into<String>,
        key: impl Into<String>,
        round: u32,
    ) -> Self {
        let (method, target, key) = (method.into(), target.into(), key.into());
        Self { method, target, key, round, label: None }
    }
}

type Boxed<T> = Pin<Box<dyn Future<Output = Result<T, BoxError>> + Send>>;
type Handler<P, R> = Box<dyn Fn(Question, P) -> Boxed<R> + Send + Sync>;

/// The handlers that a client has. One that is missing is a capability that is not declared.
#[derive(Default)]
pub(crate) struct Handlers {
    pub(crate) form: Option<Handler<FormParams, ElicitResult>>,
    pub(crate) url: Option<Handler<UrlParams, ElicitResult>>,
    pub(crate) sample: Option<Handler<CreateMessageParams, CreateMessageResult>>,
    pub(crate) roots: Option<Handler<(), Vec<Root>>>,
}

/// Takes the type off a handler.
pub(crate) fn boxed<P, R, F, Fut>(handler: F) -> Handler<P, R>
where
    F: Fn(Question, P) -> Fut + Send + Sync + 'static,
    Fut: Future<Output = Result<R, BoxError>> + Send + 'static,
{
    Box::new(move |question, params| Box::pin(handler(question, params)))
}

impl Handlers {
    /// What the handlers add up to.
    pub(crate) fn capabilities(&self) -> ClientCapabilities {
        let mut elicitation = ElicitationCapability::default();
        elicitation.form = self.form.as_ref().map(|_| Object::new());
        elicitation.url = self.url.as_ref().map(|_| Object::new());
        let mut all = ClientCapabilities::new();
        all.elicitation = (self.form.is_some() || self.url.is_some()).then_some(elicitation);
        all.sampling = self.sample.as_ref().map(|_| SamplingCapability::new());
        all.roots = self.roots.as_ref().map(|_| RootsCapability::default());
        all
    }

    /// Answers all questions of a round, at the same time. The first failure drops the rest.
    pub(crate) async fn answer_all(
        &self,
        watch: &Watch,
        requests: InputRequests,
        from: &Question,
    ) -> Result<InputResponses, CallError> {
        let answers = requests.0.into_iter().map(|(key, request)| async move {
            let question = Question { key: key.clone(), ..from.clone() };
            watch.sees(CallEvent::Asked { question: &question, request: &request });
            let answer = match watch.judge(&question, &request).await {
                Ok(PolicyDecision::Allow) => self.answer(question.clone(), request).await,
                Ok(PolicyDecision::Decline) => decline(&key, &request),
                Ok(PolicyDecision::Refuse(why)) => Err(refused(&key, &why, None)),
                Err(source) => Err(refused(&key, &source.to_string(), Some(source))),
            };
            let seen = answer.as_ref().map(|answer| &**answer);
            watch.sees(CallEvent::Replied { question: &question, answer: seen });
            Ok::<_, CallError>((key, answer?))
        });
        futures_util::future::try_join_all(answers).await.map(InputResponses)
    }

    async fn answer(
        &self,
        question: Question,
        request: InputRequest,
    ) -> Result<Box<RawValue>, CallError> {
        let key = question.key.clone();
        match request {
            InputRequest::Elicit(ElicitParams::Form(params)) => {
                let schema = params.requested_schema.clone();
                let result = call(self.form.as_ref(), question, params, "forms").await?;
                write(&answers::fit(&key, &schema, result)?)
            }
            InputRequest::Elicit(ElicitParams::Url(params)) => {
                let result = call(self.url.as_ref(), question, params, "URLs").await?;
                write(&ElicitResult::new(result.action, None))
            }
            InputRequest::Sample(params) => {
                if params.uses_tools() {
                    return Err(undeclared(&key, "sampling with tools"));
                }
                if params.uses_context() {
                    return Err(undeclared(&key, "the context of servers for sampling"));
                }
                write(&call(self.sample.as_ref(), question, *params, "sampling").await?)
            }
            InputRequest::Roots => {
                let roots = call(self.roots.as_ref(), question, (), "roots").await?;
                answers::check_roots(&roots)?;
                write(&ListRootsResult::new(roots))
            }
            other => {
                Err(CallError::protocol(format!("unknown kind of question: {}", other.method())))
            }
        }
    }
}

async fn call<P, R>(
    handler: Option<&Handler<P, R>>,
    question: Question,
    params: P,
    what: &str,
) -> Result<R, CallError> {
    let key = question.key.clone();
    let handler = handler.ok_or_else(|| undeclared(&key, what))?;
    handler(question, params).await.map_err(|source| {
        let why = format!("the question {} was not answered: {source}", quote(&key));
        CallError::handler(why, Some(source))
    })
}

fn decline(key: &str, request: &InputRequest) -> Result<Box<RawValue>, CallError> {
    match request {
        InputRequest::Elicit(_) => write(&ElicitResult::decline()),
        _ => Err(refused(key, "it cannot be declined", None)),
    }
}

/// Ours not to answer it.
fn refused(key: &str, why: &str, source: Option<BoxError>) -> CallError {
    let why = format!("the question {} was refused: {why}", quote(key));
    CallError::handler(why, source)
}

/// A server must not ask what a client has not declared, so this is its fault.
fn undeclared(key: &str, what: &str) -> CallError {
    CallError::protocol(format!(
        "the question {} needs {what}, which this client did not declare",
        quote(key)
    ))
}

impl fmt::Debug for Handlers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Handlers").field(&self.capabilities()).finish()
    }
}
