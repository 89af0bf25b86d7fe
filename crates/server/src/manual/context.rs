//! The context of handlers in the manual form.

use std::fmt;
use std::sync::Arc;

use mrtr_schema::notification::LogMessage;
use serde::de::DeserializeOwned;

use super::responses::{Answers, ManualInput};
use crate::error::Error;
use crate::handler_context::{HandlerContext, Invocation, Sealed};
use crate::request_parts::RequestParts;
use crate::rounds::Round;

/// The context of one invocation of a handler in the [manual form](crate::manual). Cheap to clone.
///
/// It asks no questions by itself and has no steps: a handler that needs these takes a
/// [`Context`](crate::Context). Mixing both forms in one handler does not compile.
#[derive(Clone)]
pub struct ManualContext {
    round: Arc<Round>,
    input: Arc<ManualInput>,
}

impl HandlerContext for ManualContext {}

impl Sealed for ManualContext {
    fn from_invocation(Invocation { round, manual }: Invocation) -> Self {
        Self { round, input: manual.unwrap_or_default() }
    }

    fn round(&self) -> &Arc<Round> {
        &self.round
    }
}

impl ManualContext {
    /// Reads the state that the handler sealed on the previous round; `None` on the first round,
    /// and if the previous round sealed no state.
    ///
    /// # Errors
    ///
    /// If the sealed state does not deserialize as `T`.
    pub fn state<T: DeserializeOwned>(&self) -> Result<Option<T>, Error> {
        Ok(self.input.state.as_deref().map(serde_json::from_str).transpose()?)
    }

    /// Returns the answers to the input requests of the previous round.
    pub fn answers(&self) -> &Answers {
        &self.input.answers
    }

    /// Returns answers to input requests that this server has no record of sending. A client can
    /// invent such answers.
    pub fn unsolicited_answers(&self) -> &Answers {
        &self.input.unsolicited
    }

    /// Reports progress. See [`Context::progress`](crate::Context::progress).
    pub fn progress(&self, progress: f64, total: Option<f64>, message: Option<&str>) {
        self.round.report_progress(progress, total, message);
    }

    /// Sends a log message to the client, if it asked for its level. Deprecated in this revision.
    pub fn log(&self, message: &LogMessage) {
        self.round.parts.log(message);
    }

    /// Returns the request: the caller, headers, extensions, and application state.
    pub fn parts(&self) -> &RequestParts {
        &self.round.parts
    }
}

impl fmt::Debug for ManualContext {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ManualContext").field("input", &self.input).finish_non_exhaustive()
    }
}
