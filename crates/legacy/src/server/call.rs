//! One request of a legacy client, from its arrival to its response.
//!
//! The adapter is a client of the current revision: where the handler returns input requests, it
//! sends them to the legacy client as requests, and continues the call with the answers.

use std::future::poll_fn;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{self, Waker};
use std::time::Duration;

use mrtr_schema::input::{InputRequest, InputRequiredResult, InputResponses};
use mrtr_schema::json::{ObjectWriter, read_pairs};
use mrtr_schema::jsonrpc::{ErrorObject, Notification, Params, Request, RequestId};
use mrtr_schema::meta::RequestMeta;
use mrtr_schema::notification::{Cancelled, LogLevel, name};
use mrtr_schema::peer_text;
use mrtr_schema::{RawJson, method, uri};
use mrtr_transport::{NotificationSender, RequestHandler};
use serde::Deserialize;
use serde_json::value::RawValue;
use tokio::time::{Instant, sleep, timeout_at};

use super::bus::Message;
use super::context::{self, AnsweredBy, Context};
use super::gateway::Gateway;
use super::session::{Change, PendingAnswer, Session};
use super::stream::Permit;
use crate::legacy_method;
use crate::translate::{
    is_input_required, legacy_error, legacy_input, legacy_result, url_elicitation_required,
};

/// The pauses before a call is continued that has returned a state and no questions.
const BACKOFF: [Duration; 3] =
    [Duration::from_millis(50), Duration::from_millis(100), Duration::from_millis(200)];

/// The pause after all of these.
const MAX_BACKOFF: Duration = Duration::from_millis(250);

/// The way of messages about one request to its client.
pub(crate) trait Channel: Send + Sync + 'static {
    /// Sends a message. Returns false if the client is gone.
    fn send(&self, message: Outgoing) -> Pin<Box<dyn Future<Output = bool> + Send + '_>>;

    /// Returns true if a client that lost its connection can resume from a sealed state.
    fn is_resumable(&self) -> bool;

    /// Ends the call here, without a response: the client resumes it at another replica, from an
    /// event without a message if `place` is given. The task of the call is aborted.
    fn hand_over(&self, place: Option<Arc<str>>);

    /// Returns what counts the call as in flight, for work that outlives it.
    fn permit(&self) -> Option<Permit>;
}

/// A message about a request, ahead of its response.
#[derive(Debug)]
pub(crate) enum Outgoing {
    Notification(Notification),
    Request {
        request: Request,
        /// The sealed state from which any replica can continue the call.
        resume: Option<Arc<str>>,
    },
}

/// A request of a client, and everything that answering it takes.
pub(crate) struct Call<'a, H, C> {
    pub(crate) gateway: &'a Gateway<H>,
    pub(crate) session: &'a Arc<Session>,
    pub(crate) channel: &'a C,
    pub(crate) context: &'a Context,
}

impl<H: RequestHandler, C: Channel> Call<'_, H, C> {
    /// Answers a request, which continues from `state` if another replica has begun it.
    pub(crate) async fn respond(
        &self,
        request: &Request,
        state: Option<String>,
    ) -> Result<RawJson, ErrorObject> {
        match request.method.as_str() {
            legacy_method::PING => Ok(empty()),
            legacy_method::SET_LEVEL => {
                let SetLevel { level } = request.decode_params()?;
                self.change(Change::LogLevel(level)).await
            }
            legacy_method::SUBSCRIBE => {
                let Resource { uri } = request.decode_params()?;
                uri::validate(&uri).map_err(|why| {
                    let uri = peer_text::quote(&uri);
                    ErrorObject::invalid_params(format!(
                        "Invalid params: invalid resource URI {uri}: {why}"
                    ))
                })?;
                self.change(Change::Subscribe(uri)).await
            }
            legacy_method::UNSUBSCRIBE => {
                let Resource { uri } = request.decode_params()?;
                self.change(Change::Unsubscribe(uri)).await
            }
            legacy_method::INITIALIZE => {
                Err(ErrorObject::invalid_request("this session is initialized already"))
            }
            method::DISCOVER | method::LISTEN => {
                Err(ErrorObject::method_not_found(&request.method))
            }
            _ => {
                let result = self.forward(request, state).await;
                let options = &self.gateway.options;
                result.map_err(|error| legacy_error(&request.method, error, options.has_questions))
            }
        }
    }

    /// Changes the session, at all replicas.
    async fn change(&self, change: Change) -> Result<RawJson, ErrorObject> {
        if !self.session.change(change.clone()) {
            let message = "Invalid params: this session has too many subscriptions";
            return Err(ErrorObject::invalid_params(message));
        }
        self.gateway.publish(&Message::changed(self.session, change)).await?;
        Ok(empty())
    }

    /// Runs a call to its end: round by round, with the answers of the client in between.
    async fn forward(
        &self,
        request: &Request,
        mut state: Option<String>,
    ) -> Result<RawJson, ErrorObject> {
        let meta = Arc::new(self.meta(request)?);
        let mut responses = None;
        let mut pauses = BACKOFF.iter();
        let mut later = None;
        loop {
            let params = with_answers(request, responses.as_ref(), state.as_deref())?;
            let round = Request::new(request.id.clone(), &request.method, params);
            let context = later.as_ref().unwrap_or(self.context);
            let result = self.run_round(round, Arc::clone(&meta), context).await?;
            if !is_input_required(&result) {
                let version = self.session.claims.version;
                return legacy_result(version, &request.method, &result)
                    .map_err(|error| invalid(&error));
            }
            let required: InputRequiredResult =
                serde_json::from_str(result.as_str()).map_err(|error| invalid(&error))?;
            state = required.request_state;
            let questions = required.input_requests.unwrap_or_default().0;
            self.hand_over_at_shutdown(request, state.as_deref()).await;
            responses = if questions.is_empty() {
                sleep(*pauses.next().unwrap_or(&MAX_BACKOFF)).await;
                None
            } else {
                pauses = BACKOFF.iter();
                let (answers, by) = self.ask(request, questions, state.as_deref()).await?;
                later = context.after(by).or(later);
                Some(answers)
            };
        }
    }

    /// Returns the `_meta` for the handler: what the session negotiated, and the client's own keys.
    fn meta(&self, request: &Request) -> Result<RequestMeta, ErrorObject> {
        #[derive(Deserialize)]
        struct OnlyMeta {
            #[serde(rename = "_meta", default)]
            meta: RequestMeta,
        }
        let OnlyMeta { meta: sent } = request.decode_params()?;
        let mut meta = context::meta(&self.session.claims).with_log_level(self.session.log_level());
        meta.progress_token = sent.progress_token;
        meta.other = sent.other;
        Ok(meta)
    }

    /// Runs one round, and forwards the notifications that come before its response.
    async fn run_round(
        &self,
        request: Request,
        meta: Arc<RequestMeta>,
        context: &Context,
    ) -> Result<RawJson, ErrorObject> {
        let mut incoming = context.incoming(&self.session.claims, request, meta);
        let (sender, mut notifications) = NotificationSender::with_permit(self.channel.permit());
        incoming.notifications = sender;
        let mut handling = pin!(Arc::clone(&self.gateway.handler).handle(incoming));
        let response = loop {
            tokio::select! {
                biased;
                response = &mut handling => break response,
                next = poll_fn(|cx| notifications.poll_recv(cx)) => {
                    let mut sending = pin!(self.channel.send(Outgoing::Notification(next)));
                    // The timeout of the handler must not wait for a client that does not read.
                    tokio::select! {
                        biased;
                        _ = &mut sending => {}
                        response = &mut handling => {
                            sending.await;
                            break response;
                        }
                    }
                }
            }
        };
        while let Some(next) = notifications.close_and_recv() {
            self.channel.send(Outgoing::Notification(next)).await;
        }
        response.outcome
    }

    /// Asks the client all questions of a round, and waits for the answers. Returns them, and where
    /// each came from.
    async fn ask(
        &self,
        request: &Request,
        questions: Vec<(String, InputRequest)>,
        state: Option<&str>,
    ) -> Result<(InputResponses, Vec<AnsweredBy>), ErrorObject> {
        if !self.gateway.options.has_questions {
            return Err(url_elicitation_required(&questions, || self.gateway.new_id()));
        }
        let resume = self.resumable_state(request, state);
        // All are converted before one is sent: users must not see those of a round that fails.
        let converted = questions.into_iter().map(|(key, question)| {
            let id = self.gateway.new_id();
            let params = legacy_input(self.session.claims.version, &question, &id)
                .and_then(|params| Params::new(&params).map_err(|error| error.to_string()))
                .map_err(|why| cannot_ask(&why))?;
            Ok((key, question, id, params))
        });
        let converted: Vec<_> = converted.collect::<Result<_, _>>()?;
        let mut pending = Vec::with_capacity(converted.len());
        for (key, question, id, params) in converted {
            let answer = self.session.ask(id.clone());
            let request = Request::new(RequestId::String(id), question.method(), Some(params));
            let resume = resume.clone();
            if !self.channel.send(Outgoing::Request { request, resume }).await {
                return Err(ErrorObject::internal("the client has disconnected"));
            }
            pending.push((key, question.method(), answer));
        }
        let deadline = Instant::now().checked_add(self.gateway.options.answer_timeout);
        let mut shutdown = pin!(self.gateway.handler.shutdown_begun());
        let mut responses = InputResponses::default();
        let mut sources = Vec::with_capacity(pending.len());
        let mut failure = None;
        for (key, method, answer) in &mut pending {
            let answered = tokio::select! {
                answered = self.answer(method, answer, deadline) => answered,
                () = &mut shutdown, if resume.is_some() => return self.hand_over(None).await,
            };
            match answered {
                Ok((response, by)) => {
                    responses.0.push((std::mem::take(key), response));
                    sources.push(by);
                }
                Err(error) => {
                    failure = Some(error);
                    break;
                }
            }
        }
        match failure {
            None => Ok((responses, sources)),
            Some(error) => {
                for (_, _, answer) in pending.iter().filter(|(.., answer)| answer.is_awaited()) {
                    self.cancel_question(answer).await;
                }
                Err(error)
            }
        }
    }

    /// Lets the client resume the call at another replica if this one is shutting down. Clients of
    /// older revisions need a message for that, such as a question.
    async fn hand_over_at_shutdown(&self, request: &Request, state: Option<&str>) {
        let shutdown = pin!(self.gateway.handler.shutdown_begun());
        if !self.session.claims.version.has_priming_events()
            || shutdown.poll(&mut task::Context::from_waker(Waker::noop())).is_pending()
        {
            return;
        }
        if let Some(place) = self.resumable_state(request, state) {
            let () = self.hand_over(Some(place)).await;
        }
    }

    /// Ends the call here, without a response.
    async fn hand_over<T>(&self, place: Option<Arc<str>>) -> T {
        self.channel.hand_over(place);
        // The task is aborted.
        std::future::pending().await
    }

    /// Waits for one answer.
    async fn answer(
        &self,
        method: &str,
        answer: &mut PendingAnswer,
        deadline: Option<Instant>,
    ) -> Result<(Box<RawValue>, AnsweredBy), ErrorObject> {
        let failed = |why: String| Err(ErrorObject::internal(why));
        let answered = match deadline {
            Some(deadline) => timeout_at(deadline, answer.recv()).await,
            None => Ok(answer.recv().await),
        };
        match answered {
            Err(_) => {
                let limit = self.gateway.options.answer_timeout;
                failed(format!("the client did not answer {method} within {limit:?}"))
            }
            Ok(None) => failed("the session has ended".to_owned()),
            Ok(Some((Err(error), _))) => {
                let why = peer_text::truncate(&error.message);
                failed(format!("the client answered {method} with the error {}: {why}", error.code))
            }
            Ok(Some((Ok(result), by))) if result.get().starts_with('{') => Ok((result, by)),
            Ok(Some((Ok(_), _))) => Err(ErrorObject::invalid_request(format!(
                "the result of {method} is not an object"
            ))),
        }
    }

    /// Tells the client that a question has no use any more.
    async fn cancel_question(&self, question: &PendingAnswer) {
        let cancelled = Cancelled::new(RequestId::String(question.id().to_owned()))
            .with_reason("the call has ended");
        if let Ok(notification) = Notification::new(name::CANCELLED, &cancelled) {
            self.channel.send(Outgoing::Notification(notification)).await;
        }
    }

    fn resumable_state(&self, request: &Request, state: Option<&str>) -> Option<Arc<str>> {
        let state = state.filter(|_| self.channel.is_resumable())?;
        self.gateway.seal_call(self.session, request, state).map(Arc::from)
    }
}

/// Parameters of `logging/setLevel`.
#[derive(Deserialize)]
struct SetLevel {
    level: LogLevel,
}

/// Parameters of `resources/subscribe` and `resources/unsubscribe`.
#[derive(Deserialize)]
struct Resource {
    uri: String,
}

/// The result without members.
pub(crate) fn empty() -> RawJson {
    ObjectWriter::with_capacity(2).end()
}

/// Returns the parameters of the request, with the answers and the state of the round before.
fn with_answers(
    request: &Request,
    responses: Option<&InputResponses>,
    state: Option<&str>,
) -> Result<Option<Params>, ErrorObject> {
    let Some(params) = &request.params else { return Ok(None) };
    let mut deserializer = serde_json::Deserializer::from_str(params.as_str());
    let members: Vec<(String, Box<RawValue>)> =
        read_pairs(&mut deserializer, "parameters").map_err(|error| invalid(&error))?;
    let mut object = ObjectWriter::with_capacity(params.as_str().len() + 1024);
    // A legacy client has no answers and no state of its own to send.
    let is_own = |name: &str| name != "inputResponses" && name != "requestState";
    for (name, value) in members.into_iter().filter(|(name, _)| is_own(name)) {
        object = object.raw(&name, &RawJson::from(value));
    }
    if let Some(responses) = responses {
        object = object.member("inputResponses", responses).map_err(|error| invalid(&error))?;
    }
    if let Some(state) = state {
        object = object.string("requestState", state);
    }
    Params::new(&object.end()).map(Some).map_err(|error| invalid(&error))
}

fn invalid(error: &serde_json::Error) -> ErrorObject {
    tracing::error!(target: "mrtr::legacy", %error, "a message cannot be translated");
    ErrorObject::internal("Internal error")
}

fn cannot_ask(why: &str) -> ErrorObject {
    tracing::error!(target: "mrtr::legacy", why, "a question cannot be sent to a legacy client");
    ErrorObject::internal(format!("the client cannot be asked: {why}"))
}
