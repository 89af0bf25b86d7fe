//! Events of a call, for the application's observer.

use std::time::Duration;

use mrtr_schema::input::InputRequest;
use mrtr_schema::jsonrpc::RequestId;
use mrtr_schema::tasks::Task;
use serde_json::value::RawValue;

use crate::error::CallError;
use crate::input_context::InputContext;
use crate::pending_call::PendingCall;

/// An event of a call, for audit logs, metrics and progress displays. See
/// [`ClientBuilder::on_event`](crate::ClientBuilder::on_event).
#[derive(Debug)]
#[non_exhaustive]
pub enum CallEvent<'a> {
    /// A request is about to be sent.
    RequestSent(&'a RequestInfo<'a>),
    /// A request received its response, or failed.
    #[non_exhaustive]
    RequestFinished {
        /// The request.
        request: &'a RequestInfo<'a>,
        /// The time since [`CallEvent::RequestSent`].
        elapsed: Duration,
        /// The result, which may be an `InputRequiredResult`, or the error.
        outcome: Result<&'a RawValue, &'a CallError>,
    },
    /// The server turned the call into a task, or a poll returned the task.
    ///
    /// Serialize `call` to durable storage, so that another process can resume it after a crash.
    #[non_exhaustive]
    TaskUpdated {
        /// The call, as if it were paused now.
        call: &'a PendingCall,
        /// The task.
        task: &'a Task,
        /// The label of the call, if it has one.
        label: Option<&'a str>,
    },
    /// An input request is about to go to the policy and its handler.
    #[non_exhaustive]
    InputRequested {
        /// The origin of the input request.
        context: &'a InputContext,
        /// The input request.
        request: &'a InputRequest,
    },
    /// An input request was answered by its handler or the policy, or failed and ends the call.
    #[non_exhaustive]
    InputFinished {
        /// The origin of the input request.
        context: &'a InputContext,
        /// The response as it is sent, which may contain the user's text, or the error.
        outcome: Result<&'a RawValue, &'a CallError>,
    },
}

/// One request of a call.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct RequestInfo<'a> {
    /// The method, such as `tools/call`.
    pub method: &'a str,
    /// The name of the tool or prompt, or the URI of the resource; empty for other methods.
    pub target: &'a str,
    /// The id of the request.
    pub id: &'a RequestId,
    /// The number of the request within the call, from 1. Retries count; a resumed call starts
    /// again at 1.
    pub round: u32,
    /// The label of the call, if it has one: see [`Client::with_label`](crate::Client::with_label).
    pub label: Option<&'a str>,
}

type Callback = Box<dyn Fn(CallEvent<'_>) + Send + Sync>;

/// The application's observer, if it has one.
#[derive(Default)]
pub(crate) struct Observer(Option<Callback>);

impl Observer {
    pub(crate) fn new(callback: impl Fn(CallEvent<'_>) + Send + Sync + 'static) -> Self {
        Self(Some(Box::new(callback)))
    }

    pub(crate) fn notify(&self, event: CallEvent<'_>) {
        if let Some(callback) = &self.0 {
            callback(event);
        }
    }
}
