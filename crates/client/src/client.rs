//! The async driver.

use std::collections::HashMap;
use std::fmt;
use std::future::Future;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use mrtr_schema::capabilities::Implementation;
use mrtr_schema::completion::{
    CompleteArgument, CompleteContext, CompleteResult, Completion, Reference,
};
use mrtr_schema::discover::DiscoverResult;
use mrtr_schema::elicitation::{ElicitResult, FormParams, UrlParams};
use mrtr_schema::jsonrpc::{self, ErrorObject, Notification, Request, RequestId, code};
use mrtr_schema::meta::RequestMeta;
use mrtr_schema::notification::{LogLevel, LogMessage, Progress, name};
use mrtr_schema::prompt::{GetPromptResult, ListPromptsResult};
use mrtr_schema::resource::{ListResourceTemplatesResult, ListResourcesResult, ReadResourceResult};
use mrtr_schema::roots::Root;
use mrtr_schema::sampling::{CreateMessageParams, CreateMessageResult};
use mrtr_schema::subscription::SubscriptionFilter;
use mrtr_schema::tool::{CallToolResult, ListToolsResult};
use mrtr_schema::{PROTOCOL_VERSION, method};
use mrtr_transport::headers::ParamHeader;
use mrtr_transport::{Exchange, Outgoing};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use serde_json::value::RawValue;

use crate::error::CallError;
use crate::handlers::{BoxError, Handlers, Question, boxed};
use crate::listen::Subscription;
use crate::machine::{Action, Event, Ids, Machine, RoundLimits};

/// A client of one server. Every call goes through the loop: questions are answered by the handlers,
/// all of one round at the same time, and the call is sent again until it is done.
///
/// Dropping a call's future cancels it, its handlers included.
pub struct Client<X> {
    inner: Arc<Inner<X>>,
}

struct Inner<X> {
    exchange: X,
    handlers: Handlers,
    meta: RequestMeta,
    ids: Ids,
    limits: RoundLimits,
    deadline: Option<Duration>,
    heard: Heard,
    /// What the tools want mirrored in headers, as far as they were listed.
    param_headers: Mutex<HashMap<String, Arc<[ParamHeader]>>>,
}

type Hear<T> = Box<dyn Fn(T) + Send + Sync>;

/// Who hears notifications.
#[derive(Default)]
struct Heard {
    progress: Option<Hear<Progress>>,
    log: Option<(LogLevel, Hear<LogMessage>)>,
}

impl Heard {
    /// A notification that cannot be read concerns nobody else: it is logged and passed over.
    fn hear(&self, notification: &Notification) {
        let read = match (notification.method.as_str(), &self.progress, &self.log) {
            (name::PROGRESS, Some(hear), _) => notification.params().map(hear),
            (name::MESSAGE, _, Some((_, hear))) => notification.params().map(hear),
            _ => Ok(()),
        };
        if let Err(error) = read {
            tracing::warn!(target: "mrtr::client", %error, "a notification cannot be read");
        }
    }
}

/// Builds a [`Client`].
#[must_use = "call `build`"]
pub struct ClientBuilder<X> {
    exchange: X,
    handlers: Handlers,
    info: Implementation,
    limits: RoundLimits,
    deadline: Option<Duration>,
    heard: Heard,
}

impl<X> Clone for Client<X> {
    fn clone(&self) -> Self {
        Self { inner: Arc::clone(&self.inner) }
    }
}

impl<X: Exchange> Client<X> {
    /// Starts a client on a connection.
    pub fn builder(exchange: X) -> ClientBuilder<X> {
        ClientBuilder {
            exchange,
            handlers: Handlers::default(),
            info: Implementation::new("mrtr", env!("CARGO_PKG_VERSION")),
            limits: RoundLimits::default(),
            deadline: None,
            heard: Heard::default(),
        }
    }

    /// Asks the server what it is and can do (`server/discover`).
    ///
    /// # Errors
    ///
    /// See [`CallError`].
    pub async fn discover(&self) -> Result<DiscoverResult, CallError> {
        self.call(method::DISCOVER, "", &[]).await
    }

    /// Lists the server's tools, all pages of them (`tools/list`).
    ///
    /// A tool whose schema has an `x-mcp-header` that is not allowed is left out, with a warning in the
    /// log. What the others want mirrored in headers is remembered for calls.
    ///
    /// # Errors
    ///
    /// See [`CallError`].
    pub async fn list_tools(&self) -> Result<Vec<mrtr_schema::tool::Tool>, CallError> {
        let page = |page: ListToolsResult| (page.tools, page.next_cursor);
        let mut tools = self.all_pages(method::TOOLS_LIST, page).await?;
        let mut headers = HashMap::new();
        tools.retain(|tool| match ParamHeader::of_schema(&tool.input_schema) {
            Ok(params) => {
                headers.insert(tool.name.clone(), Arc::from(params));
                true
            }
            Err(why) => {
                tracing::warn!(target: "mrtr::client", tool = tool.name, why, "an invalid tool is left out");
                false
            }
        });
        *self.inner.param_headers.lock().unwrap_or_else(PoisonError::into_inner) = headers;
        Ok(tools)
    }

    /// Lists the server's prompts, all pages of them (`prompts/list`).
    ///
    /// # Errors
    ///
    /// See [`CallError`].
    pub async fn list_prompts(&self) -> Result<Vec<mrtr_schema::prompt::Prompt>, CallError> {
        let page = |page: ListPromptsResult| (page.prompts, page.next_cursor);
        self.all_pages(method::PROMPTS_LIST, page).await
    }

    /// Calls a tool (`tools/call`). `arguments` is written as JSON, and must be an object.
    ///
    /// # Errors
    ///
    /// See [`CallError`]. A tool that fails in a way that the model should read is no error: see
    /// [`CallToolResult::is_error`].
    pub async fn call_tool(
        &self,
        name: &str,
        arguments: impl Serialize,
    ) -> Result<CallToolResult, CallError> {
        self.call(
            method::TOOLS_CALL,
            name,
            &[("name", raw(&name)?), ("arguments", raw(&arguments)?)],
        )
        .await
    }

    /// Gets a prompt (`prompts/get`). `arguments` is written as JSON, and must be an object of strings.
    ///
    /// # Errors
    ///
    /// See [`CallError`].
    pub async fn get_prompt(
        &self,
        name: &str,
        arguments: impl Serialize,
    ) -> Result<GetPromptResult, CallError> {
        self.call(
            method::PROMPTS_GET,
            name,
            &[("name", raw(&name)?), ("arguments", raw(&arguments)?)],
        )
        .await
    }

    /// Lists the server's resources, all pages of them (`resources/list`).
    ///
    /// # Errors
    ///
    /// See [`CallError`].
    pub async fn list_resources(&self) -> Result<Vec<mrtr_schema::resource::Resource>, CallError> {
        let page = |page: ListResourcesResult| (page.resources, page.next_cursor);
        self.all_pages(method::RESOURCES_LIST, page).await
    }

    /// Lists the server's resource templates, all pages of them (`resources/templates/list`).
    ///
    /// # Errors
    ///
    /// See [`CallError`].
    pub async fn list_resource_templates(
        &self,
    ) -> Result<Vec<mrtr_schema::resource::ResourceTemplate>, CallError> {
        let page = |page: ListResourceTemplatesResult| (page.resource_templates, page.next_cursor);
        self.all_pages(method::RESOURCE_TEMPLATES_LIST, page).await
    }

    /// Reads a resource (`resources/read`).
    ///
    /// # Errors
    ///
    /// See [`CallError`].
    pub async fn read_resource(&self, uri: &str) -> Result<ReadResourceResult, CallError> {
        self.call(method::RESOURCES_READ, uri, &[("uri", raw(&uri)?)]).await
    }

    /// Asks for values of an argument (`completion/complete`), given what was typed and the arguments
    /// that are known.
    ///
    /// # Errors
    ///
    /// See [`CallError`].
    pub async fn complete(
        &self,
        of: &Reference,
        argument: &CompleteArgument,
        context: &CompleteContext,
    ) -> Result<Completion, CallError> {
        let params = [("ref", raw(of)?), ("argument", raw(argument)?), ("context", raw(context)?)];
        let result: CompleteResult = self.call(method::COMPLETE, "", &params).await?;
        Ok(result.completion)
    }

    /// Listens to what the server announces (`subscriptions/listen`).
    ///
    /// # Errors
    ///
    /// If the request cannot be written. What goes wrong later comes out of the stream.
    pub fn listen(&self, filter: &SubscriptionFilter) -> Result<Subscription, CallError> {
        let (inner, filter) = (Arc::clone(&self.inner), raw(filter)?);
        Subscription::new(move |sender| {
            let params = vec![("notifications".to_owned(), filter.clone())];
            let meta = RequestMeta { progress_token: None, ..inner.meta.clone() };
            let (ids, limits) = (inner.ids.clone(), inner.limits);
            let (_, first) = Machine::start(ids, method::LISTEN, params, meta, limits)?;
            let Action::Send(request) = first else {
                return Err(CallError::request("a call begins with a request"));
            };
            let inner = Arc::clone(&inner);
            Ok(Box::pin(async move {
                let heard = |notification| drop(sender.send(notification));
                let outgoing =
                    Outgoing { heard: &heard, long_lived: true, ..Outgoing::new(request) };
                inner.exchange.exchange(outgoing).await
            }))
        })
    }

    async fn all_pages<P: DeserializeOwned, T>(
        &self,
        method: &str,
        open: impl Fn(P) -> (Vec<T>, Option<String>),
    ) -> Result<Vec<T>, CallError> {
        // A server that never stops giving out cursors is cut off.
        const PAGES: usize = 1_000;
        const ITEMS: usize = 100_000;
        let (mut all, mut cursor): (Vec<T>, Option<String>) = (Vec::new(), None);
        for _ in 0..PAGES {
            let params = match &cursor {
                Some(cursor) => vec![("cursor", raw(cursor)?)],
                None => Vec::new(),
            };
            let (items, next) = open(self.call(method, "", &params).await?);
            all.extend(items);
            if all.len() > ITEMS {
                return Err(CallError::protocol(format!("{method} has more than {ITEMS} items")));
            }
            if next.is_none() {
                return Ok(all);
            }
            if next == cursor {
                return Err(CallError::protocol(format!("{method} gave the same cursor twice")));
            }
            cursor = next;
        }
        Err(CallError::protocol(format!("{method} has more than {PAGES} pages")))
    }

    async fn call<T: DeserializeOwned>(
        &self,
        method: &str,
        target: &str,
        params: &[(&str, Box<RawValue>)],
    ) -> Result<T, CallError> {
        let run = self.run(method, target, params);
        let result = match self.inner.deadline {
            None => run.await?,
            Some(time) => match tokio::time::timeout(time, run).await {
                Ok(result) => result?,
                Err(_) => {
                    return Err(CallError::deadline(format!(
                        "{method} {target} took longer than {time:?}"
                    )));
                }
            },
        };
        serde_json::from_str(result.get())
            .map_err(|e| CallError::protocol(format!("malformed result of {method}: {e}")))
    }

    async fn run(
        &self,
        method: &str,
        target: &str,
        params: &[(&str, Box<RawValue>)],
    ) -> Result<Box<RawValue>, CallError> {
        let inner = &*self.inner;
        let arguments = params.iter().find(|(name, _)| *name == "arguments");
        let arguments = arguments.and_then(|(_, raw)| serde_json::from_str(raw.get()).ok());
        let arguments: Value = arguments.unwrap_or_default();
        let params =
            params.iter().map(|(name, value)| ((*name).to_owned(), value.clone())).collect();
        let (mut machine, mut action) =
            Machine::start(inner.ids.clone(), method, params, inner.meta.clone(), inner.limits)?;
        loop {
            let event = match action {
                Action::Done(result) => return Ok(result),
                Action::Send(request) => {
                    tracing::debug!(target: "mrtr::client", method, target, id = %request.id, "leg");
                    Event::Response(self.send(request, target, &arguments).await?)
                }
                Action::Ask(requests) => {
                    let round = machine.question_rounds();
                    Event::Answers(
                        inner.handlers.answer_all(requests, method, target, round).await?,
                    )
                }
                Action::Wait(time) => {
                    tokio::time::sleep(jittered(time)).await;
                    Event::Waited
                }
            };
            action = machine.next(event)?;
        }
    }
}

impl<X: Exchange> Client<X> {
    /// Sends one leg. If the server wants other headers than we knew of, its tools are listed again, and
    /// the leg is sent once more: it was refused before anything was done.
    async fn send(
        &self,
        mut request: Request,
        target: &str,
        arguments: &Value,
    ) -> Result<Result<Box<RawValue>, ErrorObject>, CallError> {
        let inner = &*self.inner;
        let heard = |notification| inner.heard.hear(&notification);
        let is_call = request.method == method::TOOLS_CALL;
        let param_headers =
            if is_call { self.param_headers(target, arguments)? } else { Vec::new() };
        let first = Outgoing {
            param_headers: param_headers.clone(),
            heard: &heard,
            ..Outgoing::new(request.clone())
        };
        let outcome = inner.exchange.exchange(first).await?.outcome;
        if !is_call || !matches!(&outcome, Err(error) if error.code == code::HEADER_MISMATCH) {
            return Ok(outcome);
        }
        // Listing is a call of its own, so this future would contain itself.
        Box::pin(self.list_tools()).await?;
        let refreshed = self.param_headers(target, arguments)?;
        if refreshed == param_headers {
            return Ok(outcome);
        }
        request.id = inner.ids.next();
        let again = Outgoing { param_headers: refreshed, heard: &heard, ..Outgoing::new(request) };
        Ok(inner.exchange.exchange(again).await?.outcome)
    }

    /// The headers for a tool's arguments, by what is known of the tool.
    fn param_headers(
        &self,
        tool: &str,
        arguments: &Value,
    ) -> Result<Vec<(String, String)>, CallError> {
        let known = self.inner.param_headers.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(params) = known.get(tool).cloned() else { return Ok(Vec::new()) };
        drop(known);
        let mut headers = Vec::new();
        for param in &*params {
            if let Some(value) = param.value(arguments).map_err(CallError::request)? {
                headers.push((param.name.clone(), value));
            }
        }
        Ok(headers)
    }
}

/// Between half of `time` and all of it, so that clients that were put off together do not come back
/// together.
fn jittered(time: Duration) -> Duration {
    let random = getrandom::u32().unwrap_or(u32::MAX);
    time / 2 + time.mul_f64(f64::from(random) / f64::from(u32::MAX) / 2.0)
}

fn raw(value: &impl Serialize) -> Result<Box<RawValue>, CallError> {
    jsonrpc::raw(value)
        .map_err(|e| CallError::request(format!("the arguments cannot be written as JSON: {e}")))
}

impl<X: Exchange> ClientBuilder<X> {
    /// Who this client says it is. Default: this crate.
    pub fn info(mut self, info: Implementation) -> Self {
        self.info = info;
        self
    }

    /// Answers forms. Declares the capability `elicitation.form`.
    ///
    /// What it returns is held against the form before it is sent. An error ends the call.
    pub fn on_form<F, Fut>(mut self, handler: F) -> Self
    where
        F: Fn(Question, FormParams) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<ElicitResult, BoxError>> + Send + 'static,
    {
        self.handlers.form = Some(boxed(handler));
        self
    }

    /// Takes people to URLs. Declares the capability `elicitation.url`.
    ///
    /// Show the whole URL and its host, and open it only with the person's consent; never fetch it.
    pub fn on_url<F, Fut>(mut self, handler: F) -> Self
    where
        F: Fn(Question, UrlParams) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<ElicitResult, BoxError>> + Send + 'static,
    {
        self.handlers.url = Some(boxed(handler));
        self
    }

    /// Calls a language model. Declares the capability `sampling`, which is deprecated in this revision.
    pub fn on_sample<F, Fut>(mut self, handler: F) -> Self
    where
        F: Fn(Question, CreateMessageParams) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<CreateMessageResult, BoxError>> + Send + 'static,
    {
        self.handlers.sample = Some(boxed(handler));
        self
    }

    /// Lists roots. Declares the capability `roots`, which is deprecated in this revision.
    pub fn on_roots<F, Fut>(mut self, handler: F) -> Self
    where
        F: Fn(Question) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<Vec<Root>, BoxError>> + Send + 'static,
    {
        self.handlers.roots = Some(boxed(move |question, ()| handler(question)));
        self
    }

    /// Hears how far calls have come. Asks servers for progress with every request.
    pub fn on_progress(mut self, hear: impl Fn(Progress) + Send + Sync + 'static) -> Self {
        self.heard.progress = Some(Box::new(hear));
        self
    }

    /// Hears log messages from `level` on. Asks servers for them with every request; deprecated in this
    /// revision.
    pub fn on_log(
        mut self,
        level: LogLevel,
        hear: impl Fn(LogMessage) + Send + Sync + 'static,
    ) -> Self {
        self.heard.log = Some((level, Box::new(hear)));
        self
    }

    /// How often a server may ask back. Default: 10 rounds with questions and 10 without.
    pub fn round_limits(mut self, limits: RoundLimits) -> Self {
        self.limits = limits;
        self
    }

    /// How long a whole call may take, people's time included. Default: no limit; each request has the
    /// transport's.
    pub fn deadline(mut self, time: Duration) -> Self {
        self.deadline = Some(time);
        self
    }

    /// Makes the client. Nothing is sent yet.
    pub fn build(self) -> Client<X> {
        let meta = RequestMeta {
            protocol_version: Some(PROTOCOL_VERSION.to_owned()),
            client_capabilities: Some(self.handlers.capabilities()),
            client_info: Some(self.info),
            log_level: self.heard.log.as_ref().map(|(level, _)| *level),
            // Each leg gets a token of its own: see `Machine::start`.
            progress_token: self.heard.progress.as_ref().map(|_| RequestId::Number(0)),
            ..RequestMeta::default()
        };
        let Self { exchange, handlers, limits, deadline, heard, .. } = self;
        Client {
            inner: Arc::new(Inner {
                exchange,
                handlers,
                meta,
                ids: Ids::default(),
                limits,
                deadline,
                heard,
                param_headers: Mutex::default(),
            }),
        }
    }
}

impl<X> fmt::Debug for Client<X> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Client").field("handlers", &self.inner.handlers).finish_non_exhaustive()
    }
}

impl<X> fmt::Debug for ClientBuilder<X> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ClientBuilder").field("handlers", &self.handlers).finish_non_exhaustive()
    }
}
