//! What may differ between the clones of a client.

use std::sync::Arc;
use std::time::Duration;

use mrtr_schema::notification::Progress;
use mrtr_transport::Transport;

use crate::client::Client;
use crate::notifications::Hear;

/// How calls are made.
#[derive(Clone, Default)]
pub(crate) struct Options {
    pub(crate) deadline: Option<Duration>,
    /// Whether the deadline stands still while people answer.
    pub(crate) exclude_handler_time: bool,
    /// How often a call's legs may be sent again if the connection broke.
    pub(crate) resend: u32,
    pub(crate) label: Option<Arc<str>>,
    pub(crate) progress: Option<Arc<Hear<Progress>>>,
}

impl<X: Transport> Client<X> {
    fn with(&self, change: impl FnOnce(&mut Options)) -> Self {
        let mut other = self.clone();
        change(&mut other.options);
        other
    }

    /// The same client, for calls that may take this long as a whole; see
    /// [`ClientBuilder::deadline`](crate::ClientBuilder::deadline).
    ///
    /// ```
    /// # use std::time::Duration;
    /// # async fn example<X: mrtr_client::Transport>(client: mrtr_client::Client<X>) {
    /// let tools = client.with_call_timeout(Duration::from_secs(5)).list_tools().await;
    /// # }
    /// ```
    #[must_use]
    pub fn with_call_timeout(&self, time: Duration) -> Self {
        self.with(|options| options.deadline = Some(time))
    }

    /// The same client, for calls whose questions and legs are told apart from those of others by this: a conversation, a window, a job.
    /// It is for handlers, for the policy and for who looks on ([`Question::label`](crate::Question::label),
    /// [`RequestInfo::label`](crate::RequestInfo::label)), and is not sent.
    ///
    /// ```
    /// # async fn example<X: mrtr_client::Transport>(client: mrtr_client::Client<X>) {
    /// let (one, two) = (client.with_label("window 1"), client.with_label("window 2"));
    /// let none = serde_json::json!({});
    /// let _both = tokio::join!(one.call_tool("book", &none), two.call_tool("book", &none));
    /// # }
    /// ```
    #[must_use]
    pub fn with_label(&self, label: impl Into<Arc<str>>) -> Self {
        self.with(|options| options.label = Some(label.into()))
    }

    /// The same client, for calls whose progress is heard here, in place of
    /// [`ClientBuilder::on_progress`](crate::ClientBuilder::on_progress).
    #[must_use]
    pub fn with_progress(&self, hear: impl Fn(Progress) + Send + Sync + 'static) -> Self {
        self.with(|options| options.progress = Some(Arc::new(hear)))
    }

    /// The same client, for calls whose legs may be sent again, up to so often in one call, if there is no connection or it breaks
    /// before there is a response, or a gateway answers 502, 503 or 504 in the server's place, or the server has too much to do
    /// (503, 429). The server may have acted on what it got, so use this only for what may be done twice: reading, or a tool whose
    /// annotations say `idempotentHint`.
    ///
    /// A leg goes out again with the same state, the same answers and another id, after 50 to 100 ms, and twice as long each time;
    /// and as much later as the server says (`Retry-After`). If that is longer than 30 s, or than the call has left, it fails.
    /// Default: 0.
    #[must_use]
    pub fn with_retries(&self, times: u32) -> Self {
        self.with(|options| options.resend = times)
    }
}
