//! Who answers a server's questions.

use std::error::Error as StdError;
use std::fmt;
use std::future::Future;
use std::pin::Pin;

use mrtr_schema::Object;
use mrtr_schema::capabilities::{
    ClientCapabilities, ElicitationCapability, RootsCapability, SamplingCapability,
};
use mrtr_schema::elicitation::{ElicitAction, ElicitParams, ElicitResult, FormParams, UrlParams};
use mrtr_schema::input::{InputRequest, InputRequests, InputResponses};
use mrtr_schema::jsonrpc::{self, ErrorObject};
use mrtr_schema::roots::{ListRootsResult, Root};
use mrtr_schema::sampling::{CreateMessageParams, CreateMessageResult};
use serde_json::value::RawValue;

use crate::error::CallError;

/// Any error.
pub type BoxError = Box<dyn StdError + Send + Sync>;

/// Where a question comes from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Question {
    /// The method that asks, such as `tools/call`.
    pub method: String,
    /// The tool or prompt that asks.
    pub target: String,
    /// The server's name for the question.
    pub key: String,
    /// Which round of the call this is, from 1.
    pub round: u32,
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
        let elicitation = ElicitationCapability {
            form: self.form.as_ref().map(|_| Object::new()),
            url: self.url.as_ref().map(|_| Object::new()),
        };
        ClientCapabilities {
            elicitation: (self.form.is_some() || self.url.is_some()).then_some(elicitation),
            sampling: self.sample.as_ref().map(|_| SamplingCapability::default()),
            roots: self.roots.as_ref().map(|_| RootsCapability {}),
            ..ClientCapabilities::default()
        }
    }

    /// Answers all questions of a round, at the same time. The first failure drops the rest.
    pub(crate) async fn answer_all(
        &self,
        requests: InputRequests,
        method: &str,
        target: &str,
        round: u32,
    ) -> Result<InputResponses, CallError> {
        let answers = requests.0.into_iter().map(|(key, request)| async move {
            let (method, target) = (method.to_owned(), target.to_owned());
            let question = Question { method, target, key: key.clone(), round };
            let answer = self.answer(question, request).await?;
            Ok::<_, CallError>((key, answer))
        });
        futures_util::future::try_join_all(answers).await.map(InputResponses)
    }

    async fn answer(
        &self,
        question: Question,
        request: InputRequest,
    ) -> Result<Box<RawValue>, CallError> {
        let key = question.key.clone();
        request.check().map_err(|why| {
            CallError::protocol(format!("the question {}: {why}", ErrorObject::quote(&key)))
        })?;
        match request {
            InputRequest::Elicit(ElicitParams::Form(params)) => {
                let schema = params.requested_schema.clone();
                let mut result = call(self.form.as_ref(), question, params, "forms").await?;
                match result.action {
                    ElicitAction::Accept => {
                        let content = schema.check(result.content.unwrap_or_default()).map_err(
                            |problems| {
                                let why = format!(
                                    "the answer to {} does not fit its form: {problems}",
                                    ErrorObject::quote(&key)
                                );
                                CallError::handler(why, None)
                            },
                        )?;
                        result.content = Some(content);
                    }
                    // Nothing of a form that was not submitted goes out.
                    ElicitAction::Decline | ElicitAction::Cancel => result.content = None,
                }
                write(&result)
            }
            InputRequest::Elicit(ElicitParams::Url(params)) => {
                let result = call(self.url.as_ref(), question, params, "URLs").await?;
                write(&ElicitResult { content: None, ..result })
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
                for root in &roots {
                    let wrong =
                        |why| CallError::handler(format!("root {:?}: {why}", root.uri), None);
                    root.check().map_err(wrong)?;
                }
                write(&ListRootsResult { roots })
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
        let why = format!("the question {} was not answered: {source}", ErrorObject::quote(&key));
        CallError::handler(why, Some(source))
    })
}

/// A server must not ask what a client has not declared, so this is its fault.
fn undeclared(key: &str, what: &str) -> CallError {
    CallError::protocol(format!(
        "the question {} needs {what}, which this client did not declare",
        ErrorObject::quote(key)
    ))
}

fn write(answer: &impl serde::Serialize) -> Result<Box<RawValue>, CallError> {
    jsonrpc::raw(answer)
        .map_err(|e| CallError::handler(format!("the answer is no JSON: {e}"), None))
}

impl fmt::Debug for Handlers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Handlers").field(&self.capabilities()).finish()
    }
}
