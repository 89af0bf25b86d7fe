//! Who sees a call's legs and questions, and who may refuse them.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::time::Duration;

use mrtr_schema::Object;
use mrtr_schema::input::InputRequest;
use mrtr_schema::jsonrpc::RequestId;
use mrtr_schema::meta::TraceContext;
use mrtr_transport::BoxError;
use serde_json::value::RawValue;

use crate::error::CallError;
use crate::handlers::Question;

/// Something that happened in a call: for an audit log, metrics, or a display.
#[derive(Debug)]
#[non_exhaustive]
pub enum CallEvent<'a> {
    /// A leg goes out.
    Sent(&'a RequestInfo<'a>),
    /// A leg has its response, or came to nothing.
    Answered {
        /// The leg.
        leg: &'a RequestInfo<'a>,
        /// How long it took.
        took: Duration,
        /// The result, which may be one that asks; or why there is none.
        outcome: Result<&'a RawValue, &'a CallError>,
    },
    /// A question goes to its handler.
    Asked {
        /// Where it comes from.
        question: &'a Question,
        /// What is asked.
        request: &'a InputRequest,
    },
    /// A question was answered, by its handler or by the policy; or it was not, and the call ends.
    Replied {
        /// Where it comes from.
        question: &'a Question,
        /// The answer as it is sent, which may hold what a person wrote; or why there is none.
        answer: Result<&'a RawValue, &'a CallError>,
    },
}

/// One request of a call.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct RequestInfo<'a> {
    /// The method, such as `tools/call`.
    pub method: &'a str,
    /// The tool or prompt, or the URI of the resource; empty for other methods.
    pub target: &'a str,
    /// The request's id.
    pub id: &'a RequestId,
    /// Which leg of the call it is, from 1. Calls that were resumed count from there.
    pub leg: u32,
    /// What tells the call apart from others: see [`Client::with_label`](crate::Client::with_label).
    pub label: Option<&'a str>,
}

/// What is to become of a question.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum PolicyDecision {
    /// Its handler is asked.
    Allow,
    /// It is declined, without asking. A question to a model, and one for roots, cannot be declined: the call ends.
    Decline,
    /// The call ends, with this reason.
    Refuse(String),
}

type Judging = Pin<Box<dyn Future<Output = Result<PolicyDecision, BoxError>> + Send>>;
type Policy = Box<dyn Fn(Question, InputRequest) -> Judging + Send + Sync>;
type Watcher = Box<dyn Fn(CallEvent<'_>) + Send + Sync>;
type Tracer = Box<dyn Fn() -> Option<TraceContext> + Send + Sync>;

/// Those who look on.
#[derive(Default)]
pub(crate) struct Watch {
    pub(crate) watcher: Option<Watcher>,
    pub(crate) tracer: Option<Tracer>,
    policy: Option<Policy>,
}

impl Watch {
    pub(crate) fn judge_by<F, Fut>(&mut self, policy: F)
    where
        F: Fn(Question, InputRequest) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<PolicyDecision, BoxError>> + Send + 'static,
    {
        self.policy = Some(Box::new(move |question, request| Box::pin(policy(question, request))));
    }

    pub(crate) fn sees(&self, seen: CallEvent<'_>) {
        if let Some(watcher) = &self.watcher {
            watcher(seen);
        }
    }

    /// What the trace adds to `_meta`.
    pub(crate) fn trace(&self) -> Object {
        let context = self.tracer.as_ref().and_then(|tracer| tracer());
        let Some(context) = context else { return Object::new() };
        context.to_meta().unwrap_or_else(|| {
            tracing::warn!(target: "mrtr::client", ?context, "a trace context that is none is not sent");
            Object::new()
        })
    }

    pub(crate) async fn judge(
        &self,
        question: &Question,
        request: &InputRequest,
    ) -> Result<PolicyDecision, BoxError> {
        match &self.policy {
            None => Ok(PolicyDecision::Allow),
            Some(policy) => policy(question.clone(), request.clone()).await,
        }
    }
}

impl fmt::Debug for Watch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Watch").finish_non_exhaustive()
    }
}
