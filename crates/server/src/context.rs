//! What a handler has in hand.

use std::fmt;
use std::future::Future;
use std::sync::Arc;

use http::HeaderMap;
use mrtr_codec::Principal;
use mrtr_schema::capabilities::Implementation;
use mrtr_schema::elicitation::{ElicitAction, ElicitParams, ElicitResult, UrlParams};
use mrtr_schema::form::FormSchema;
use mrtr_schema::input::InputRequest;
use mrtr_schema::json::from_value;
use mrtr_schema::notification::{LogLevel, LogMessage, name};
use mrtr_schema::roots::{ListRootsResult, Root};
use mrtr_schema::sampling::{CreateMessageParams, CreateMessageResult};
use schemars::JsonSchema;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::client_feature::ClientFeature;
use crate::error::Error;
use crate::form::cached;
use crate::manual::Answers;
use crate::question::Question;
use crate::rounds::{ElicitOutcome, InputFuture, Round, Step, StepFuture};

/// What a handler has in hand: ways to ask, steps, and who calls. Cheap to clone.
///
/// Every question and step has a key, which the author picks: unique in the handler, and the same on
/// every leg. In a loop, number it: `cx.elicit(format!("guest-{n}"), …)`.
#[derive(Clone)]
pub struct Context {
    pub(crate) round: Arc<Round>,
}

impl Context {
    /// Asks the person to fill in the form of `T`, and waits for it.
    ///
    /// `T` is a struct of texts, numbers, booleans, enums without data and lists of those, or options of
    /// them; see [`crate::form`]. The message is part of the question: make it of the arguments, and of
    /// answers and steps, so that it reads the same on every leg. One that changes is asked again.
    ///
    /// Never ask for passwords, keys or tokens in a form: clients and models may read what is in it. Send people
    /// to a page of yours for those, with [`Context::elicit_url`].
    ///
    /// A client that cannot show forms gets the error -32021, and the handler is dropped; ask
    /// [`Context::can`] first to do something else then.
    ///
    /// # Errors
    ///
    /// If the person declines or dismisses the form. Passed on by `?`, it becomes a tool error that the
    /// model can read. To tell the three apart, use [`Context::ask`].
    pub fn elicit<T>(&self, key: impl Into<String>, message: impl Into<String>) -> InputFuture<T>
    where
        T: DeserializeOwned + JsonSchema + 'static,
    {
        self.form(key.into(), message.into(), |key, answer| match answer {
            ElicitOutcome::Accept(value) => Ok(value),
            ElicitOutcome::Decline => Err(Error::declined(key)),
            ElicitOutcome::Cancel => Err(Error::cancelled(key)),
        })
    }

    /// Asks the person to fill in the form of `T`, and waits for what they do.
    ///
    /// # Errors
    ///
    /// Only [`Error::is_round_closed`], in a task of its own.
    pub fn ask<T>(
        &self,
        key: impl Into<String>,
        message: impl Into<String>,
    ) -> InputFuture<ElicitOutcome<T>>
    where
        T: DeserializeOwned + JsonSchema + 'static,
    {
        self.form(key.into(), message.into(), |_, answer| Ok(answer))
    }

    fn form<T, R>(
        &self,
        key: String,
        message: String,
        outcome: impl Fn(&str, ElicitOutcome<T>) -> Result<R, Error> + Send + Sync + 'static,
    ) -> InputFuture<R>
    where
        T: DeserializeOwned + JsonSchema + 'static,
    {
        let (question, form) = match cached::<T>() {
            Ok(form) => {
                let schema = Arc::clone(&form.schema);
                (Ok(Question::form(message, form)), schema)
            }
            Err(why) => (Err(why), Arc::default()),
        };
        InputFuture::new(&self.round, key, question, move |key, text| {
            Ok(outcome(key, read_form(&form, text)?))
        })
    }

    /// Asks the person to visit `url`, out of the client's sight, and waits for their consent.
    ///
    /// Consent is not completion: look for yourself whether what happens there has happened. Put
    /// nothing into the URL that says who the person is or that opens a door by itself. It must be one of
    /// `https` or `http`, with a host; otherwise the flow ends, and the log says why.
    ///
    /// # Errors
    ///
    /// If the person declines or dismisses it.
    pub fn elicit_url(
        &self,
        key: impl Into<String>,
        message: impl Into<String>,
        url: impl Into<String>,
    ) -> InputFuture<()> {
        let params = UrlParams::new(message, url);
        let question = Question::new(InputRequest::Elicit(ElicitParams::Url(params)));
        InputFuture::new(&self.round, key.into(), question, |key, text| {
            let result: ElicitResult = read(text)?;
            Ok(match result.action {
                ElicitAction::Accept => Ok(()),
                ElicitAction::Decline => Err(Error::declined(key)),
                ElicitAction::Cancel => Err(Error::cancelled(key)),
            })
        })
    }

    /// Asks the client's language model. Deprecated in this revision of the protocol.
    ///
    /// # Errors
    ///
    /// Only [`Error::is_round_closed`], in a task of its own.
    pub fn sample(
        &self,
        key: impl Into<String>,
        params: CreateMessageParams,
    ) -> InputFuture<CreateMessageResult> {
        self.plain(key.into(), InputRequest::Sample(Box::new(params)), Ok)
    }

    /// Asks for the client's roots. Deprecated in this revision of the protocol.
    ///
    /// # Errors
    ///
    /// Only [`Error::is_round_closed`], in a task of its own.
    pub fn roots(&self, key: impl Into<String>) -> InputFuture<Vec<Root>> {
        self.plain(key.into(), InputRequest::Roots, |ListRootsResult { roots, .. }| {
            roots.iter().try_for_each(Root::validate).map(|()| roots).map_err(String::from)
        })
    }

    fn plain<W: DeserializeOwned + 'static, T: 'static>(
        &self,
        key: String,
        request: InputRequest,
        pick: fn(W) -> Result<T, String>,
    ) -> InputFuture<T> {
        InputFuture::new(&self.round, key, Question::new(request), move |_, text| {
            pick(read(text)?).map(Ok)
        })
    }

    /// Runs a side effect, and keeps its result: later rounds get the result, and do not run it again.
    ///
    /// The closure gets a [`Step`], not a `Context`: a step asks nothing. If it fails, nothing is kept,
    /// and the next round runs it again, unless it is to [`record_errors`](StepFuture::record_errors). What else can be said of a
    /// step is said before it is awaited: [`StepFuture`].
    ///
    /// It runs at most once per request received; see [`Step::idempotency_key`] for what that leaves to
    /// the outside world. While it runs, no round ends for a question beside it; but the deadline of the
    /// leg ([`crate::Tool::deadline`], 1 min) and a client that goes away cut it off. What waits beside a
    /// question without being a step is dropped when the round ends.
    ///
    /// Its result is kept as JSON, of 8 KiB at most; a flow keeps 64 KiB in all.
    ///
    /// # Errors
    ///
    /// Those of the closure.
    pub fn step<'a, T, F, Fut>(&self, key: impl Into<String>, run: F) -> StepFuture<'a, T>
    where
        T: Serialize + DeserializeOwned,
        F: FnOnce(Step) -> Fut + Send + 'a,
        Fut: Future<Output = Result<T, Error>> + Send + 'a,
    {
        StepFuture::new(Arc::clone(&self.round), key.into().into(), run)
    }

    /// Ends the round here, once, with a state and no question: the client comes again at once, and any replica goes on.
    /// Questions that are open beside it go out with it. For work that should not be lost, and for long calls that should
    /// move between replicas.
    ///
    /// It costs a round trip. Clients count such rounds: many give up after ten in one call.
    ///
    /// # Errors
    ///
    /// In a task of its own, when the round ends ([`Error::is_round_closed`]).
    pub fn checkpoint<K>(&self, key: K) -> impl Future<Output = Result<(), Error>> + use<K>
    where
        K: Into<String>,
    {
        crate::rounds::checkpoint(Arc::clone(&self.round), key.into().into())
    }

    /// Goes on with the one of two that first comes to something, and drops the other. Later rounds go on with the same one: which
    /// it was is kept in the state. In a plain `select!` it is chance which of two answers comes first, and the rounds of a call
    /// would not go the same way.
    ///
    /// A side that ends in an error has lost: of two questions one may be declined, and the other answered. If both do, the
    /// error is that of the later one. Of two questions, both are asked; one that is left without an answer is
    /// withdrawn. If both come to something at once, `one` is taken. Steps of the side that is dropped should be
    /// [`skippable`](StepFuture::skippable), since later rounds do not come to them. What is neither a question nor a step (a timer,
    /// say) only wins if it is ready before the round ends. A side that asks what the client cannot be asked ends the call, as it
    /// would alone: see [`Context::can`].
    ///
    /// ```
    /// # use mrtr_server::{Context, Result};
    /// # #[derive(serde::Deserialize, schemars::JsonSchema)]
    /// # struct Code { code: String }
    /// # async fn login(cx: Context) -> Result<String> {
    /// let by_code = async { Ok(cx.elicit::<Code>("code", "The code from the mail?").await?.code) };
    /// let by_page = async {
    ///     cx.elicit_url("page", "Or sign in here.", "https://login.example/").await?;
    ///     Ok("page".to_owned())
    /// };
    /// cx.race("login", by_code, by_page).await
    /// # }
    /// ```
    pub fn race<T, K, A, B>(
        &self,
        key: K,
        one: A,
        other: B,
    ) -> impl Future<Output = Result<T, Error>> + use<T, K, A, B>
    where
        K: Into<String>,
        A: Future<Output = Result<T, Error>>,
        B: Future<Output = Result<T, Error>>,
    {
        crate::rounds::race(Arc::clone(&self.round), key.into().into(), one, other)
    }

    /// Tells the client how far the call has come, if it wants to know.
    ///
    /// Values that do not grow are passed over, and so is what was told on an earlier leg: as long as the
    /// handler has not come to all that was recorded, nothing is sent. 64 may wait to be sent, from this and
    /// [`Context::log`] together; while they do, more are lost.
    pub fn progress(&self, progress: f64, total: Option<f64>, message: Option<&str>) {
        let muted = self.round.is_replaying();
        self.round.caller.progress(progress, total, message, muted);
    }

    /// Sends a log message to the client, if it asked for this level. Deprecated in this revision of the
    /// protocol; `tracing` is for the server's own log. As with [`Context::progress`], what was sent on an
    /// earlier leg is not sent again.
    pub fn log(&self, level: LogLevel, data: impl Serialize) {
        let wanted = self.round.caller.meta.log_level.is_some_and(|wanted| level >= wanted);
        if wanted && !self.round.is_replaying() {
            match serde_json::to_value(data) {
                Ok(data) => {
                    self.round.caller.notify.send(name::MESSAGE, &LogMessage::new(level, data));
                }
                Err(error) => {
                    tracing::error!(target: "mrtr::handler", %error, "a log message is no JSON");
                }
            }
        }
    }

    /// Whether the client can be asked this kind of question.
    pub fn can(&self, kind: ClientFeature) -> bool {
        kind.supported(self.round.capabilities())
    }

    /// Who calls, if something in front of the server has established it.
    pub fn principal(&self) -> Option<&Principal> {
        self.round.caller.principal.as_ref()
    }

    /// What a layer in front of the server left with the request, or what [`provide`] gave to all
    /// requests: a pool of connections, a tenant, a request's id.
    ///
    /// [`provide`]: crate::ServerBuilder::provide
    pub fn get<T: Send + Sync + 'static>(&self) -> Option<&T> {
        self.round.caller.get()
    }

    /// The HTTP headers of the request; none where it did not come over HTTP. Another leg may have others.
    pub fn headers(&self) -> &HeaderMap {
        &self.round.caller.headers
    }

    /// What the client says it is. Not verified: for display and logs.
    pub fn client(&self) -> Option<&Implementation> {
        self.round.caller.meta.client_info.as_ref()
    }

    /// In the [manual form](crate::manual): what the handler kept on the leg before; `None` on the first.
    ///
    /// # Errors
    ///
    /// If it is of another type.
    pub fn state<T: DeserializeOwned>(&self) -> Result<Option<T>, Error> {
        Ok(self.round.manual.state.as_deref().map(serde_json::from_str).transpose()?)
    }

    /// In the [manual form](crate::manual): the answers to what the handler asked on the leg before.
    pub fn answers(&self) -> &Answers {
        &self.round.manual.answers
    }

    /// In the [manual form](crate::manual): answers to questions that this server has no record of
    /// asking. A client may make up any it likes.
    pub fn unsolicited_answers(&self) -> &Answers {
        &self.round.manual.unasked
    }
}

fn read<T: DeserializeOwned>(text: &str) -> Result<T, String> {
    serde_json::from_str(text).map_err(|e| format!("it is malformed: {e}"))
}

/// Holds an answer against its form. Only an accepted form has contents.
pub(crate) fn read_form<T: DeserializeOwned>(
    form: &FormSchema,
    text: &str,
) -> Result<ElicitOutcome<T>, String> {
    let result: ElicitResult = read(text)?;
    match result.action {
        ElicitAction::Decline => Ok(ElicitOutcome::Decline),
        ElicitAction::Cancel => Ok(ElicitOutcome::Cancel),
        ElicitAction::Accept => {
            let content =
                form.validate(result.content.unwrap_or_default()).map_err(|p| p.to_string())?;
            let value = from_value(&Value::Object(content));
            value.map(ElicitOutcome::Accept).map_err(|e| e.to_string())
        }
    }
}

impl fmt::Debug for Context {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Context")
            .field("principal", &self.round.caller.principal)
            .finish_non_exhaustive()
    }
}
