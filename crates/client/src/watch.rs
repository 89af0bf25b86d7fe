//! Who sees a call's legs and questions, and who may refuse them.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::time::Duration;

use mrtr_schema::Object;
use mrtr_schema::input::InputRequest;
use mrtr_schema::jsonrpc::RequestId;
use serde_json::value::RawValue;

use crate::error::CallError;
use crate::handlers::{BoxError, Question};

/// Something that happened in a call: for an audit log, metrics, or a display.
#[derive(Debug)]
#[non_exhaustive]
pub enum Seen<'a> {
    /// A leg goes out.
    Sent(&'a LegSeen<'a>),
    /// A leg has its response, or came to nothing.
    Answered {
        /// The leg.
        leg: &'a LegSeen<'a>,
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
pub struct LegSeen<'a> {
    /// The method, such as `tools/call`.
    pub method: &'a str,
    /// The tool or prompt, or the URI of the resource; empty for other methods.
    pub target: &'a str,
    /// The request's id.
    pub id: &'a RequestId,
    /// Which leg of the call it is, from 1. Calls that were resumed count from there.
    pub leg: u32,
}

/// The trace that a request belongs to, as W3C Trace Context has it (specification: base protocol, "OpenTelemetry trace context").
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TraceContext {
    /// `traceparent`
    pub traceparent: String,
    /// `tracestate`
    pub tracestate: Option<String>,
    /// `baggage`
    pub baggage: Option<String>,
}

impl TraceContext {
    /// Whether it has the form that W3C Trace Context gives it. `tracestate` is looked at for its characters only.
    fn is_valid(&self) -> bool {
        let mut parts = self.traceparent.split('-');
        let lengths = [("version", 2), ("trace-id", 32), ("parent-id", 16), ("flags", 2)];
        let is_hex = |part: &str| part.bytes().all(|c| matches!(c, b'0'..=b'9' | b'a'..=b'f'));
        let fits = lengths.iter().all(|(name, length)| {
            let is_id = name.ends_with("id");
            parts.next().is_some_and(|part| {
                part.len() == *length && is_hex(part) && !(is_id && part.bytes().all(|c| c == b'0'))
            })
        });
        let printable = |text: &String| text.bytes().all(|c| matches!(c, b' '..=b'~'));
        let rest = self.tracestate.iter().chain(&self.baggage).all(printable);
        fits && rest && parts.next().is_none() && !self.traceparent.starts_with("ff")
    }

    /// As `_meta` has it. What has another form than it should is not sent.
    pub(crate) fn into_meta(self) -> Object {
        if !self.is_valid() {
            tracing::warn!(target: "mrtr::client", context = ?self, "a trace context that is none is not sent");
            return Object::new();
        }
        let all = [
            ("traceparent", Some(self.traceparent)),
            ("tracestate", self.tracestate),
            ("baggage", self.baggage),
        ];
        let given =
            all.into_iter().filter_map(|(name, value)| Some((name.to_owned(), value?.into())));
        given.collect()
    }
}

/// What is to become of a question.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Verdict {
    /// Its handler is asked.
    Ask,
    /// It is declined, without asking. A question to a model, and one for roots, cannot be declined: the call ends.
    Decline,
    /// The call ends, with this reason.
    Refuse(String),
}

type Judging = Pin<Box<dyn Future<Output = Result<Verdict, BoxError>> + Send>>;
type Policy = Box<dyn Fn(Question, InputRequest) -> Judging + Send + Sync>;
type Watcher = Box<dyn Fn(Seen<'_>) + Send + Sync>;
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
        Fut: Future<Output = Result<Verdict, BoxError>> + Send + 'static,
    {
        self.policy = Some(Box::new(move |question, request| Box::pin(policy(question, request))));
    }

    pub(crate) fn sees(&self, seen: Seen<'_>) {
        if let Some(watcher) = &self.watcher {
            watcher(seen);
        }
    }

    /// What the trace adds to `_meta`.
    pub(crate) fn trace(&self) -> Object {
        let context = self.tracer.as_ref().and_then(|tracer| tracer());
        context.map(TraceContext::into_meta).unwrap_or_default()
    }

    pub(crate) async fn judge(
        &self,
        question: &Question,
        request: &InputRequest,
    ) -> Result<Verdict, BoxError> {
        match &self.policy {
            None => Ok(Verdict::Ask),
            Some(policy) => policy(question.clone(), request.clone()).await,
        }
    }
}

impl fmt::Debug for Watch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Watch").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_a_trace_context_is_sent() {
        let of = |traceparent: &str| TraceContext {
            traceparent: traceparent.to_owned(),
            ..TraceContext::default()
        };
        let good = "00-0af7651916cd43dd8448eb211c80319c-00f067aa0ba902b7-01";
        assert_eq!(of(good).into_meta().len(), 1);
        for wrong in [
            "",
            "00-0af7651916cd43dd8448eb211c80319c-00f067aa0ba902b7",
            "00-0af7651916cd43dd8448eb211c80319c-00f067aa0ba902b7-01-",
            "00-0AF7651916cd43dd8448eb211c80319c-00f067aa0ba902b7-01",
            "00-0af7651916cd43dd8448eb211c80319-00f067aa0ba902b7-01",
            "00-00000000000000000000000000000000-00f067aa0ba902b7-01",
            "00-0af7651916cd43dd8448eb211c80319c-0000000000000000-01",
            "ff-0af7651916cd43dd8448eb211c80319c-00f067aa0ba902b7-01",
        ] {
            assert!(of(wrong).into_meta().is_empty(), "{wrong}");
        }
        let state = TraceContext { tracestate: Some("a=\u{e9}".to_owned()), ..of(good) };
        assert!(state.into_meta().is_empty());
    }
}
