//! The context of one handler invocation.

use std::fmt;
use std::future::Future;
use std::sync::Arc;

use mrtr_codec::Principal;
use mrtr_schema::elicitation::{ElicitAction, ElicitParams, ElicitResult, UrlParams};
use mrtr_schema::input::InputRequest;
use mrtr_schema::notification::{LogLevel, LogMessage};
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
    /// `T` is a struct whose fields are texts, numbers, booleans, enums without data, lists of such
    /// enums, or options of these; see [`crate::form`]. The message is part of the question: build
    /// it from the arguments, earlier answers and step results, so that it is the same on every
    /// replay. A question that changed is asked again.
    ///
    /// Never ask for passwords, keys or tokens in a form: clients and models may read its contents.
    /// Send the user to a page of yours instead, with [`Context::elicit_url`].
    ///
    /// A client without forms gets -32021 (missing client capability), and the handler is dropped.
    /// Check [`Context::supports`] first, or make the question
    /// [optional](InputFuture::optional).
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
    /// If the user declines or cancels the form. With `?`, it becomes a tool error that the model
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

    /// Asks the user to visit `url`, and waits for the user's consent. The client does not see what
    /// happens at the URL.
    ///
    /// Consent is not completion: the server has to check that the user completed the task.
    ///
    /// The URL must not identify the user or grant access by itself. Its scheme is `https` or
    /// `http`, and it has a host. Any other URL fails the call with an internal error, and the log
    /// names the reason.
    ///
    /// A client without URL elicitation gets -32021 (missing client capability), and the handler is
    /// dropped. Check [`Context::supports`] first, or make the question
    /// [optional](InputFuture::optional).
    ///
    /// ```
    /// # use mrtr_server::{Context, Error, Result};
    /// # async fn is_paid(invoice: u32) -> Result<bool> { Ok(true) }
    /// async fn pay(cx: Context) -> Result<String> {
    ///     let url = "https://pay.example/invoices/17";
    ///     cx.elicit_url("pay", "Please pay the invoice.", url).await?;
    ///     let paid = cx.step("paid", async |_| is_paid(17).await).await?;
    ///     if !paid {
    ///         return Err(Error::new("The invoice is not paid yet."));
    ///     }
    ///     Ok("The invoice is paid.".to_owned())
    /// }
    /// # let _ = mrtr_server::Tool::new("pay", "Lets the user pay an invoice", pay);
    /// ```
    ///
    /// # Errors
    ///
    /// If the user declines or cancels the question, as with [`Context::elicit`].
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

    /// Sends a request to the client's language model, and waits for the result. Deprecated in this
    /// revision of the protocol.
    ///
    /// # Errors
    ///
    /// Only [`Error::is_round_closed`], if it is awaited in a separately spawned task when the
    /// round ends.
    pub fn sample(
        &self,
        key: impl Into<String>,
        params: CreateMessageParams,
    ) -> InputFuture<CreateMessageResult> {
        let validated: fn(CreateMessageResult) -> Result<CreateMessageResult, String> =
            if params.may_use_tools() { validated::<true> } else { validated::<false> };
        self.plain(key.into(), InputRequest::Sample(Box::new(params)), validated)
    }

    /// Asks the client for its roots. Deprecated in this revision of the protocol.
    ///
    /// # Errors
    ///
    /// Only [`Error::is_round_closed`], if it is awaited in a separately spawned task when the
    /// round ends.
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

    /// Runs a side effect and records its result. Later rounds return the recorded result, and do
    /// not run it again.
    ///
    /// The closure gets a [`Step`] instead of a `Context`: it cannot ask questions or run other
    /// steps. If it fails, nothing is recorded, and the next round runs it again, unless
    /// [`record_errors`](StepFuture::record_errors) is set. [`StepFuture`] has the options of a
    /// step, which are set before it is awaited.
    ///
    /// Within one HTTP or stdio request, a step runs at most once. [`Step::idempotency_key`]
    /// describes what this means for external systems.
    ///
    /// While a step is in flight, the round does not end for a question that is open beside it. The
    /// [timeout of the request](crate::Tool::request_timeout) (default: 1 min) and a disconnect of
    /// the client cancel the step, unless it is to
    /// [finish on disconnect](StepFuture::finish_on_disconnect). A future that is neither a
    /// question nor a step is dropped when the round ends.
    ///
    /// The result is recorded as JSON, of at most 8 KiB. The request state of a call has at most
    /// 64 KiB. The call fails if it exceeds one of these limits.
    ///
    /// ```
    /// # use mrtr_server::{Context, Result};
    /// # async fn reserve(key: &str) -> Result<u32> { Ok(7) }
    /// # #[derive(serde::Deserialize, schemars::JsonSchema)]
    /// # struct Guest { name: String }
    /// async fn book(cx: Context) -> Result<String> {
    ///     // Runs in the first round. The second round returns the recorded table.
    ///     let table = cx.step("table", async |step| reserve(step.idempotency_key()).await).await?;
    ///     let guest: Guest = cx.elicit("guest", "Your name?").await?;
    ///     Ok(format!("Table {table} is reserved for {}.", guest.name))
    /// }
    /// # let _ = mrtr_server::Tool::new("book", "Books a table", book);
    /// ```
    ///
    /// # Errors
    ///
    /// The error of the closure; an error that the model can read, if the step exceeds its
    /// [`timeout`](StepFuture::timeout); or [`Error::is_round_closed`], if a step that has not
    /// begun is awaited in a separately spawned task when the round ends.
    pub fn step<'a, T, F, Fut>(&self, key: impl Into<String>, run: F) -> StepFuture<'a, T>
    where
        T: Serialize + DeserializeOwned,
        F: FnOnce(Step) -> Fut + Send + 'a,
        Fut: Future<Output = Result<T, Error>> + Send + 'a,
    {
        StepFuture::new(Arc::clone(&self.round), key.into(), run)
    }

    /// Ends the round with a request state and without a question, once per call and key. The
    /// client retries at once, and any replica continues the call.
    ///
    /// Questions that are open at the same time are sent with the state. Use a checkpoint after
    /// work that should not be lost, and in long calls, so that they can move between replicas.
    ///
    /// A checkpoint costs a round trip. Clients count such rounds: many give up after ten in one
    /// call.
    ///
    /// ```
    /// # use mrtr_server::{Context, Result};
    /// # async fn export() -> Result<u32> { Ok(4) }
    /// # async fn upload(export: u32) -> Result<String> { Ok(format!("upload-{export}")) }
    /// async fn publish(cx: Context) -> Result<String> {
    ///     let id = cx.step("export", async |_| export().await).await?;
    ///     // A replica that fails during the upload does not lose the export.
    ///     cx.checkpoint("exported").await?;
    ///     cx.step("upload", async move |_| upload(id).await).await
    /// }
    /// # let _ = mrtr_server::Tool::new("publish", "Publishes the data", publish);
    /// ```
    ///
    /// # Errors
    ///
    /// Only [`Error::is_round_closed`], if it is awaited in a separately spawned task when the
    /// round ends.
    pub fn checkpoint<K>(&self, key: K) -> impl Future<Output = Result<(), Error>> + use<K>
    where
        K: Into<String>,
    {
        rounds::checkpoint(Arc::clone(&self.round), key.into().into())
    }

    /// Requires a scope of the caller's access token (specification: step-up authorization flow).
    /// Returns at once if the token of this request has it.
    ///
    /// Otherwise, the client gets 403 with a challenge that names the scope. It obtains another
    /// token and sends the same request again: the handler is replayed up to this point, so no
    /// question is asked again and no step runs again. If steps have run in this round, or
    /// notifications were sent, the round first ends with a request state that keeps them, and the
    /// client's retry gets the 403.
    ///
    /// Each round requires the scope again, so a later token must have it, too. Scopes that are
    /// required together are named in one challenge. Scopes that all calls need are for
    /// [`Tool::requires_scope`](crate::Tool::requires_scope).
    ///
    /// ```
    /// # use mrtr_server::{Context, Result};
    /// # #[derive(serde::Deserialize, schemars::JsonSchema)]
    /// # struct Seat { place: String, deposit: bool }
    /// # async fn charge(place: &str) -> Result<()> { Ok(()) }
    /// async fn book(cx: Context) -> Result<String> {
    ///     let seat: Seat = cx.elicit("seat", "Inside or outside?").await?;
    ///     if seat.deposit {
    ///         cx.require_scope("booking:pay").await?;
    ///         cx.step("charge", async |_| charge(&seat.place).await).await?;
    ///     }
    ///     Ok(format!("A seat {}.", seat.place))
    /// }
    /// # let tool = mrtr_server::Tool::new("book", "Books a seat", book);
    /// # let _ = tool.requires_scope("booking:read");
    /// ```
    ///
    /// # Errors
    ///
    /// Only [`Error::is_round_closed`], if it is awaited in a separately spawned task when the
    /// round ends. Inside a step, the call fails. Over stdio, every scope is granted.
    pub fn require_scope<S>(&self, scope: S) -> impl Future<Output = Result<(), Error>> + use<S>
    where
        S: Into<String>,
    {
        rounds::require_scope(Arc::clone(&self.round), scope.into())
    }

    /// Turns the call into a [task](crate::tasks), which does not need the client's connection or
    /// this replica: the client gets its id, and the handler continues. Returns at once if the call
    /// is a task already.
    ///
    /// It also returns at once, and the call stays as it is, if the client does not declare the
    /// extension or the tool has no [policy](crate::Tool::task). It needs no key: a handler may
    /// call it any number of times.
    ///
    /// What is asked before is asked in rounds, without any store. [`crate::tasks`] describes what
    /// changes for the handler.
    ///
    /// ```
    /// # use mrtr_server::{Context, Result};
    /// # #[derive(serde::Deserialize, schemars::JsonSchema)]
    /// # struct Period { month: String }
    /// # async fn write(month: &str) -> Result<String> { Ok(month.to_owned()) }
    /// async fn report(cx: Context) -> Result<String> {
    ///     // Nothing is stored for users who give up here.
    ///     let period: Period = cx.elicit("period", "Which month?").await?;
    ///     cx.detach().await?;
    ///     cx.step("write", async |_| write(&period.month).await).await
    /// }
    /// # let _ = mrtr_server::Tool::new("report", "Writes the report", report);
    /// ```
    ///
    /// # Errors
    ///
    /// Only [`Error::is_round_closed`], if it is awaited in a separately spawned task when the
    /// round ends. If the store is unavailable, the call fails with -32603, and the client may
    /// repeat its request.
    pub fn detach(&self) -> impl Future<Output = Result<(), Error>> + use<> {
        rounds::detach(Arc::clone(&self.round))
    }

    /// Races two futures, records the winner and drops the loser. Later rounds return the result of
    /// the same side.
    ///
    /// With a plain `select!`, chance decides which of two answers comes first, so the handler
    /// would not be deterministic.
    ///
    /// - The first side to succeed wins. If both succeed in the same poll, `one` wins.
    /// - A side that fails loses: one question may be declined while the other is answered.
    /// - If both sides ask, both questions are sent. The question of the loser is withdrawn.
    /// - Mark steps as [`skippable`](StepFuture::skippable): later rounds do not reach the steps of
    ///   the loser.
    /// - A future that is neither a question nor a step, such as a timer, wins only if it is ready
    ///   before the round ends.
    /// - A question that the client does not support ends the call, as it does without a race. See
    ///   [`Context::supports`].
    ///
    /// ```
    /// # use mrtr_server::{Context, Result};
    /// # #[derive(serde::Deserialize, schemars::JsonSchema)]
    /// # struct Code { code: String }
    /// # async fn login(cx: Context) -> Result<String> {
    /// let by_code = async { Ok(cx.elicit::<Code>("code", "The code we sent you?").await?.code) };
    /// let by_page = async {
    ///     cx.elicit_url("page", "Or sign in here.", "https://login.example/").await?;
    ///     Ok("page".to_owned())
    /// };
    /// cx.race("login", by_code, by_page).await
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// If both sides fail, the error of the side that failed last.
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
    /// A value that is not greater than the previous one is dropped. While the handler replays its
    /// journal, nothing is sent, because an earlier round has sent it. At most 64 notifications
    /// wait to be sent, from this method and [`Context::log`] together; more are dropped.
    ///
    /// ```
    /// # use mrtr_server::{Context, Result};
    /// # async fn import_batch(batch: u32) -> Result<()> { Ok(()) }
    /// async fn import(cx: Context) -> Result<String> {
    ///     for batch in 1..=3_u32 {
    ///         cx.step(format!("batch-{batch}"), async move |_| import_batch(batch).await).await?;
    ///         cx.progress(f64::from(batch), Some(3.0), Some("Importing"));
    ///     }
    ///     Ok("3 batches".to_owned())
    /// }
    /// # let _ = mrtr_server::Tool::new("import", "Imports the data", import);
    /// ```
    pub fn progress(&self, progress: f64, total: Option<f64>, message: Option<&str>) {
        self.round.report_progress(progress, total, message);
    }

    /// Sends a log message to the client, if it asked for this level. Deprecated in this revision
    /// of the protocol; `tracing` is for the server's own log.
    ///
    /// As with [`Context::progress`], messages of earlier rounds are not sent again.
    pub fn log(&self, level: LogLevel, data: impl Serialize) {
        if !self.round.parts.wants_log(level) || self.round.is_replaying() {
            return;
        }
        match serde_json::to_value(data) {
            Ok(data) => self.round.parts.log(&LogMessage::new(level, data)),
            Err(error) => {
                tracing::error!(target: "mrtr::handler", %error, "log message is not valid JSON");
            }
        }
    }

    /// Returns true if the client supports this feature.
    pub fn supports(&self, feature: ClientFeature) -> bool {
        feature.supported(self.round.capabilities())
    }

    /// Returns the protocol revision that the client speaks: 2026-07-28, or a legacy one such as
    /// 2025-11-25 (feature `legacy` of `mrtr`).
    pub fn protocol_version(&self) -> &'static str {
        self.round.parts.protocol_version()
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

/// Validates the result of a sampling request.
fn validated<const MAY_USE_TOOLS: bool>(
    result: CreateMessageResult,
) -> Result<CreateMessageResult, String> {
    result.validate(MAY_USE_TOOLS).map_err(|why| why.to_string())?;
    Ok(result)
}

impl fmt::Debug for Context {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Context")
            .field("principal", &self.round.parts.principal)
            .finish_non_exhaustive()
    }
}
