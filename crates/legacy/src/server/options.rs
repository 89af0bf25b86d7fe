//! Settings of a [`LegacyServer`](super::LegacyServer).

use std::time::Duration;

use super::bus::{ReplicaBus, SharedBus};

/// Settings of a [`LegacyServer`](super::LegacyServer).
///
/// ```
/// use std::time::Duration;
///
/// use mrtr_legacy::LegacyOptions;
///
/// let options = LegacyOptions::default().with_session_lifetime(Duration::from_secs(3_600));
/// ```
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct LegacyOptions {
    pub(crate) session_lifetime: Duration,
    pub(crate) answer_timeout: Duration,
    pub(crate) resume_timeout: Duration,
    pub(crate) max_sessions: usize,
    pub(crate) has_questions: bool,
    pub(crate) bus: Option<SharedBus>,
}

impl Default for LegacyOptions {
    fn default() -> Self {
        Self {
            session_lifetime: Duration::from_hours(24),
            answer_timeout: Duration::from_mins(10),
            resume_timeout: Duration::from_secs(30),
            max_sessions: 10_000,
            has_questions: true,
            bus: None,
        }
    }
}

impl LegacyOptions {
    /// Sets how long a session may be used. Default: 24 h, in whole seconds. After that, requests
    /// get 404, and the client opens a new session.
    #[must_use]
    pub fn with_session_lifetime(mut self, lifetime: Duration) -> Self {
        self.session_lifetime = lifetime;
        self
    }

    /// Sets how long a client may take to answer a question. Default: 10 min. After that, the call
    /// fails.
    #[must_use]
    pub fn with_answer_timeout(mut self, timeout: Duration) -> Self {
        self.answer_timeout = timeout;
        self
    }

    /// Sets how long a call continues after its client has disconnected, and how long its response
    /// is kept for a client that resumes the stream. Default: 30 s.
    #[must_use]
    pub fn with_resume_timeout(mut self, timeout: Duration) -> Self {
        self.resume_timeout = timeout;
        self
    }

    /// Sets how many sessions may have state in this process: a log level, subscriptions, calls in
    /// flight, or a stream. Default: 10,000. Sessions without such state take no memory, however
    /// many there are. Beyond the limit, the session that was not used for longest loses its log
    /// level and subscriptions; if all have calls or streams, a request gets 503.
    #[must_use]
    pub fn with_max_sessions(mut self, sessions: usize) -> Self {
        self.max_sessions = sessions;
        self
    }

    /// Asks clients no questions over HTTP. For replicas without session affinity and without a
    /// [bus](Self::with_bus), where an answer could reach a replica that does not wait for it.
    ///
    /// To a handler, the clients then lack the capabilities that questions need: a tool that
    /// requires one is rejected before it runs, and other ones when they ask. A page to visit is
    /// the exception, for clients that have URL elicitation: the call fails with -32042 and the
    /// URL, and a client that has visited the page calls again. The handler runs from the top then,
    /// so it has to find out itself that the page was visited.
    #[must_use]
    pub fn without_questions(mut self) -> Self {
        self.has_questions = false;
        self
    }

    /// Sets the bus over which replicas pass on what reaches the wrong one over HTTP: answers,
    /// cancellations, ended sessions, log levels and subscriptions. Default: none.
    ///
    /// All replicas must use the same channel and the same keys. A bus belongs to one
    /// [`LegacyServer`](super::LegacyServer): `LegacyServer::new` returns an error if these
    /// options, or a clone of them, already serve another one.
    #[must_use]
    pub fn with_bus(mut self, bus: impl ReplicaBus) -> Self {
        self.bus = Some(SharedBus::new(bus));
        self
    }
}
