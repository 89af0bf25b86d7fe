//! What a handler has in hand.

use std::fmt;
use std::future::Future;
use std::sync::Arc;

use mrtr_codec::Principal;
use mrtr_schema::elicitation::{ElicitAction, ElicitParams, ElicitResult, UrlParams};
use mrtr_schema::input::InputRequest;
use mrtr_schema::notification::{LogLevel, LogMessage, name};
use mrtr_schema::roots::{ListRootsResult, Root};
use mrtr_schema::sampling::{CreateMessageParams, CreateMessageResult};
use schemars::JsonSchema;
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::client_feature::ClientFeature;
use crate::error::Error;
use crate::form::cached_form;
use crate::form_answer::{read, read_form};
use crate::handler_context::{HandlerContext, Invocation, Sealed};
use crate::question::Question;
use crate::request_parts::RequestParts;
use crate::rounds::{self, ElicitOutcome, InputFuture, Round, Step, StepFuture};

/// The context of one handler invocation: input requests, steps, and the request. Cheap to clone.
///
/// Every input request and step has a key, which the author chooses: unique in the handler, and the
/// same on every round. In a loop, number it: `cx.elicit(format!("guest-{n}"), …)`.
#[derive(Clone)]
pub struct Context {
    pub(crate) round: Arc<Round>,
}

impl HandlerContext for Context {}

impl Sealed for Context {
    fn from_invocation(Invocation { round, .. }: Invocation) -> Self {
        Self { round }
    }

    fn round(&self) -> &Arc<Round> {
        &self.round
    }
}

impl Context {
    /// Asks the user to fill in the form of `T`, and waits for the answer.
    ///
    /// `T` is a struct whose fields are texts, numbers, booleans, enums without data, lists of
    /// those, or options of them; see [`crate::form`]. The message is part of the question: build it
    /// from the arguments, earlier answers and step results, so that it is the same on every
    /// replay. A question that changed is asked again.
    ///
    /// Never ask for passwords, keys or tokens in a form: clients and models may read its contents.
    /// Send the user to a page of yours instead, with [`Context::elicit_url`].
    ///
    /// A client without forms gets error -32021 and the handler is dropped. Check
    /// [`Context::supports`] first, or make the question [optional](InputFuture::optional).
    ///
    /// ```
    /// # use mrtr_server::{Context, Result};
    /// # use schemars::JsonSchema;
    /// # use serde::Deserialize;
    /// #[derive(Deserialize, JsonSchema)]
    /// struct Seat {
    ///     /// Inside or outside?
    ///     place: String,
    /// }
    ///
    /// async fn book(cx: Context) -> Result<String> {
    ///     let seat: Seat = cx.elicit("seat", "Where would you like to sit?").await?;
    ///     Ok(format!("A table {}.", seat.place))
    /// }
    /// # let _ = mrtr_server::Tool::new("book", "Books a table", book);
    /// ```
    ///
    /// # Errors
    ///
    /// If the user declines or dismisses the form. With `?`, it becomes a tool error that the model
    /// can read. To tell the outcomes apart, use [`InputFuture::outcome`].
    pub fn elicit<T>(&self, key: impl Into<String>, message: impl Into<String>) -> InputFuture<T>
    where
        T: DeserializeOwned + JsonSchema + 'static,
    {
        let (question, form) = match cached_form::<T>() {
            Ok(form) => {
                let schema = Arc::clone(&form.schema);
                (Ok(Question::form(message.into(), form)), schema)
            }
            Err(why) => (Err(why), Arc::default()),
        };
        InputFuture::new(&self.round, key.into(), question, move |key, text| {
            Ok(match read_form(&form, text)? {
                ElicitOutcome::Accept(value) => Ok(value),
                ElicitOutcome::Decline => Err(Error::declined(key)),
                ElicitOutcome::Cancel => Err(Error::cancelled(key)),
            })
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
        rounds::checkpoint(Arc::clone(&self.round), key.into().into())
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
        rounds::race(Arc::clone(&self.round), key.into().into(), one, other)
    }

    /// Reports progress to the client, if it asked for it.
    ///
    /// Values that do not grow are dropped, and so is everything that an earlier round reported:
    /// nothing is sent while the handler replays its journal. At most 64 notifications wait to be
    /// sent, from this and [`Context::log`] together; more are dropped.
    pub fn progress(&self, progress: f64, total: Option<f64>, message: Option<&str>) {
        self.round.report_progress(progress, total, message);
    }

    /// Sends a log message to the client, if it asked for this level. Deprecated in this revision of
    /// the protocol; `tracing` is for the server's own log.
    ///
    /// As with [`Context::progress`], messages of earlier rounds are not sent again.
    pub fn log(&self, level: LogLevel, data: impl Serialize) {
        let wanted = self.round.parts.meta.log_level.is_some_and(|wanted| level >= wanted);
        if !wanted || self.round.is_replaying() {
            return;
        }
        match serde_json::to_value(data) {
            Ok(data) => {
                let message = LogMessage::new(level, data);
                self.round.parts.notifier.send(name::MESSAGE, &message);
            }
            Err(error) => {
                tracing::error!(target: "mrtr::handler", %error, "log message is not valid JSON");
            }
        }
    }

    /// Returns whether the client supports this feature.
    pub fn supports(&self, feature: ClientFeature) -> bool {
        feature.supported(self.round.capabilities())
    }

    /// Returns the authenticated caller, if a layer in front of the server established one.
    pub fn principal(&self) -> Option<&Principal> {
        self.round.parts.principal()
    }

    /// Returns the request: headers, extensions, application state, and the client's claims.
    pub fn parts(&self) -> &RequestParts {
        &self.round.parts
    }
}

impl fmt::Debug for Context {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Context")
            .field("principal", &self.round.parts.principal)
            .finish_non_exhaustive()
    }
}
