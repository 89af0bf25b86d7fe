//! Options that clones of a client can set differently.

use std::sync::Arc;
use std::time::Duration;

use mrtr_schema::capabilities::ClientCapabilities;

use crate::notifications::{LogHandler, ProgressHandler};
use crate::round_limits::RoundLimits;
use crate::trace::TraceSource;
use crate::user_time::UserTime;

/// Options of calls.
#[derive(Clone, Default)]
#[expect(clippy::struct_excessive_bools, reason = "each is set by a method of its own")]
pub(crate) struct CallOptions {
    /// The time that a call may take with all its rounds.
    pub(crate) timeout: Option<Duration>,
    /// Excludes the time that handlers take from `timeout`.
    pub(crate) exclude_handler_time: bool,
    /// The time that is excluded from `timeout`, too.
    pub(crate) user_time: Option<UserTime>,
    /// Maximum number of times that requests of one call are sent again after a transport error.
    pub(crate) retries: u32,
    /// Pauses calls of the application in rounds without input requests, too.
    pub(crate) pause_in_every_round: bool,
    /// Does not validate results of tools against their output schemas.
    pub(crate) unvalidated_results: bool,
    /// Whose calls these are, if several callers share the connection.
    pub(crate) caller: Option<Arc<str>>,
    /// Cancels the task of a call that is dropped.
    pub(crate) cancel_on_drop: bool,
    pub(crate) limits: RoundLimits,
    pub(crate) label: Option<Arc<str>>,
    pub(crate) progress: Option<Arc<ProgressHandler>>,
    pub(crate) log: Option<Arc<LogHandler>>,
    /// The source of trace contexts.
    pub(crate) trace: Option<Arc<TraceSource>>,
    /// Replaces the capabilities that follow from the client's handlers.
    pub(crate) capabilities: Option<Arc<ClientCapabilities>>,
}
