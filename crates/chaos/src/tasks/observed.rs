//! What callers observe.

use std::collections::BTreeMap;

/// The end of a task, as its caller got it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum End {
    Completed(String),
    Failed(String),
    Cancelled,
}

/// The status of a task.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Status {
    Working,
    /// The keys and messages of open questions.
    Input(Vec<(String, String)>),
    Ended(End),
    /// The task does not exist.
    NotFound,
}

/// A response about a task that has ended, or does not exist. Times are seconds since 1970.
#[derive(Debug, Clone)]
pub(crate) struct Observation {
    /// The time of the request.
    pub(crate) asked: f64,
    /// The time of the response.
    pub(crate) at: f64,
    pub(crate) status: Status,
}

/// One call, as its caller observed it.
#[derive(Debug, Default)]
pub(crate) struct Call {
    pub(crate) id: String,
    pub(crate) caller: String,
    pub(crate) tool: String,
    /// The times between which a request was under way that got no response, and that may have
    /// created the task. The caller then gives up the call.
    pub(crate) broken: Option<(f64, f64)>,
    /// The id of the task, and the times between which it was created: those of the first request
    /// of the call, and of the response with the id.
    pub(crate) task: Option<(String, (f64, f64))>,
    /// Keys and messages of all questions that were asked.
    pub(crate) asked: Vec<(String, String)>,
    /// Acknowledged answers, by key.
    pub(crate) answered: BTreeMap<String, Answered>,
    /// Questions that were open after their answer was acknowledged: the key, the answer, and the
    /// times between which they were open. A resumed call may poll many times between them.
    pub(crate) asked_again: Vec<(String, Answered, (f64, f64))>,
    /// A request with answers has failed: it may still have an effect.
    pub(crate) is_update_lost: bool,
    pub(crate) cancelled: Option<Cancelled>,
    /// A request to cancel has failed: it may still have an effect.
    pub(crate) is_cancel_lost: bool,
    /// Ends and absences, in the order of their responses.
    pub(crate) observations: Vec<Observation>,
    /// Responses that no caller should get.
    pub(crate) unexpected: Vec<String>,
}

/// An acknowledged answer.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Answered {
    /// The time of the request whose response had the question.
    pub(crate) seen: f64,
    /// The time of the acknowledgement.
    pub(crate) at: f64,
}

/// An acknowledged cancellation.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Cancelled {
    /// The time of the request.
    pub(crate) asked: f64,
    /// The time of the acknowledgement.
    pub(crate) at: f64,
    /// The task waited for its first answers, and no other request was under way.
    pub(crate) was_waiting: bool,
}

impl Call {
    /// Returns the last end that was observed, unless the task has vanished since.
    pub(crate) fn end(&self) -> Option<&End> {
        match &self.observations.last()?.status {
            Status::Ended(end) => Some(end),
            _ => None,
        }
    }
}
