//! A client, and the calls it can make.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use mrtr_schema::capabilities::Icon;
use mrtr_schema::completion::{
    CompleteArgument, CompleteContext, CompleteResult, Completion, Reference,
};
use mrtr_schema::content::ContentBlock;
use mrtr_schema::discover::DiscoverResult;
use mrtr_schema::jsonrpc::{self, Notification, RequestId};
use mrtr_schema::meta::RequestMeta;
use mrtr_schema::method;
use mrtr_schema::prompt::{GetPromptResult, ListPromptsResult};
use mrtr_schema::resource::{ListResourceTemplatesResult, ListResourcesResult, ReadResourceResult};
use mrtr_schema::subscription::{Acknowledged, SubscriptionFilter, name};
use mrtr_schema::tool::{CallToolResult, ListToolsResult};
use mrtr_transport::headers::ParamHeader;
use mrtr_transport::{OutgoingRequest, Transport};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::value::RawValue;

use crate::builder::ClientBuilder;
use crate::cache::{Cache, Found};
use crate::call_options::Options;
use crate::error::CallError;
use crate::handlers::Handlers;
use crate::machine::{Action, Machine, RequestIds, RoundLimits};
use crate::notifications::Log;
use crate::observer::Watch;
use crate::output_schema::OutputSchema;
use crate::subscription::Subscription;

/// A client of one server. Every call goes through the loop: questions are answered by the handlers,
/// all of one round at the same time, and the call is sent again until it is done.
///
/// Dropping a call's future cancels it, its handlers included.
///
/// Lists, `server/discover` and resources are reused for as long as the server says they stay fresh,
/// unless they took more than one round, or a [`Subscription`] of this client hears that they have changed.
/// See [`ClientBuilder::cache`].
pub struct Client<X> {
    pub(crate) inner: Arc<Inner<X>>,
    pub(crate) options: Options,
}

pub(crate) struct Inner<X> {
    pub(crate) exchange: X,
    pub(crate) handlers: Handlers,
    pub(crate) watch: Watch,
    pub(crate) meta: RequestMeta,
    pub(crate) ids: RequestIds,
    pub(crate) limits: RoundLimits,
    pub(crate) log: Option<Log>,
    pub(crate) cache: Cache,
    /// Types of results, beside those of the core, that end a call.
    pub(crate) result_types: Vec<String>,
    /// The tools, as far as they were listed.
    pub(crate) known: Mutex<HashMap<String, Arc<Known>>>,
}

/// What calls need to know of a tool.
#[derive(Debug)]
pub(crate) struct Known {
    /// What it wants mirrored in headers.
    pub(crate) param_headers: Vec<ParamHeader>,
    pub(crate) output: OutputSchema,
}

impl Known {
    /// An error if the tool is not one that may be called.
    fn of(tool: &mrtr_schema::tool::Tool) -> Result<Self, String> {
        let param_headers =
            ParamHeader::from_schema(&tool.input_schema).map_err(|e| e.to_string())?;
        Ok(Self { param_headers, output: OutputSchema::of(tool)? })
    }
}

impl<X> Client<X> {
    /// What requests of a call say of this client.
    pub(crate) fn meta(&self) -> RequestMeta {
        let mut meta = self.inner.meta.clone();
        // Each leg gets a token of its own: see `Machine::start`.
        meta.progress_token = self.options.progress.as_ref().map(|_| RequestId::Number(0));
        meta
    }
}

impl<X> Inner<X> {
    pub(crate) fn known(&self, tool: &str) -> Option<Arc<Known>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner).get(tool).cloned()
    }
}

impl<X> Clone for Client<X> {
    fn clone(&self) -> Self {
        Self { inner: Arc::clone(&self.inner), options: self.options.clone() }
    }
}

impl<X: Transport> Client<X> {
    /// Starts a client on a connection.
    pub fn builder(exchange: X) -> ClientBuilder<X> {
        ClientBuilder::new(exchange)
    }

    /// The connection that this client calls through.
    pub fn connection(&self) -> &X {
        &self.inner.exchange
    }

    /// Asks the server what it is and can do (`server/discover`).
    ///
    /// # Errors
    ///
    /// See [`CallError`].
    pub async fn discover(&self) -> Result<DiscoverResult, CallError> {
        self.call(method::DISCOVER, &[]).await
    }

    /// Lists the server's tools, all pages of them (`tools/list`).
    ///
    /// A tool whose schema has an `x-mcp-header` that is not allowed, or whose `outputSchema` nothing can be held
    /// against, is left out, with a warning in the log. So are icons, here and in the other lists, whose URI is not safe to show. What the others want mirrored in headers is remembered for calls.
    ///
    /// # Errors
    ///
    /// See [`CallError`].
    pub async fn list_tools(&self) -> Result<Vec<mrtr_schema::tool::Tool>, CallError> {
        let page = |page: ListToolsResult| (page.tools, page.next_cursor);
        let mut tools = self.all_pages(method::TOOLS_LIST, page).await?;
        let mut known = HashMap::new();
        tools.retain_mut(|tool| match Known::of(tool) {
            Ok(what) => {
                tool.icons.retain(Icon::is_safe);
                known.insert(tool.name.clone(), Arc::new(what));
                true
            }
            Err(why) => {
                tracing::warn!(target: "mrtr::client", tool = tool.name, why, "an invalid tool is left out");
                false
            }
        });
        *self.inner.known.lock().unwrap_or_else(PoisonError::into_inner) = known;
        Ok(tools)
    }

    /// Lists the server's prompts, all pages of them (`prompts/list`).
    ///
    /// # Errors
    ///
    /// See [`CallError`].
    pub async fn list_prompts(&self) -> Result<Vec<mrtr_schema::prompt::Prompt>, CallError> {
        let page = |page: ListPromptsResult| (page.prompts, page.next_cursor);
        let mut prompts = self.all_pages(method::PROMPTS_LIST, page).await?;
        for prompt in &mut prompts {
            prompt.icons.retain(Icon::is_safe);
        }
        Ok(prompts)
    }

    /// Calls a tool (`tools/call`). `arguments` is written as JSON, and must be an object.
    ///
    /// # Errors
    ///
    /// See [`CallError`]. A tool that fails in a way that the model should read is no error: see
    /// [`CallToolResult::is_error`]. A result that does not fit the `outputSchema` with which the tool was
    /// listed is one, of the protocol; with the feature `validate`.
    pub async fn call_tool(
        &self,
        name: &str,
        arguments: impl Serialize,
    ) -> Result<CallToolResult, CallError> {
        let params = [("name", raw(&name)?), ("arguments", raw(&arguments)?)];
        self.whole(name, &params).await
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
        let params = [("name", raw(&name)?), ("arguments", raw(&arguments)?)];
        self.whole(name, &params).await
    }

    /// Lists the server's resources, all pages of them (`resources/list`).
    ///
    /// # Errors
    ///
    /// See [`CallError`].
    pub async fn list_resources(&self) -> Result<Vec<mrtr_schema::resource::Resource>, CallError> {
        let page = |page: ListResourcesResult| (page.resources, page.next_cursor);
        let mut resources = self.all_pages(method::RESOURCES_LIST, page).await?;
        for resource in &mut resources {
            resource.icons.retain(Icon::is_safe);
        }
        Ok(resources)
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
        let mut templates = self.all_pages(method::RESOURCE_TEMPLATES_LIST, page).await?;
        for template in &mut templates {
            template.icons.retain(Icon::is_safe);
        }
        Ok(templates)
    }

    /// Reads a resource (`resources/read`).
    ///
    /// # Errors
    ///
    /// See [`CallError`].
    pub async fn read_resource(&self, uri: &str) -> Result<ReadResourceResult, CallError> {
        self.whole(uri, &[("uri", raw(&uri)?)]).await
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
        let result: CompleteResult = self.call(method::COMPLETE, &params).await?;
        Ok(result.completion)
    }

    /// Makes a call that this crate has no types for: a method of an extension. `params` is written as JSON, and
    /// must be an object. Its `_meta`, if it has one, goes along with the client's own.
    ///
    /// # Errors
    ///
    /// If `_meta` has a key that the client sets itself; for others see [`CallError`].
    pub async fn request<T: DeserializeOwned>(
        &self,
        method: &str,
        params: impl Serialize,
    ) -> Result<T, CallError> {
        let params: HashMap<String, Box<RawValue>> = serde_json::from_str(raw(&params)?.get())
            .map_err(|e| CallError::request(format!("the parameters are no object: {e}")))?;
        let params: Vec<_> =
            params.iter().map(|(name, raw)| (name.as_str(), raw.clone())).collect();
        self.call(method, &params).await
    }

    /// Listens to what the server announces (`subscriptions/listen`).
    ///
    /// # Errors
    ///
    /// If the request cannot be written. What goes wrong later comes out of the stream.
    pub fn listen(&self, filter: &SubscriptionFilter) -> Result<Subscription, CallError> {
        let (inner, asked, filter) = (Arc::clone(&self.inner), filter.clone(), raw(filter)?);
        Subscription::new(move |sender| {
            let params = vec![("notifications".to_owned(), filter.clone())];
            let (ids, meta, limits) = (inner.ids.clone(), inner.meta.clone(), inner.limits);
            let (_, first) = Machine::start(ids, method::LISTEN, params, meta, limits)?;
            let Action::Send(request) = first else {
                return Err(CallError::request("a call begins with a request"));
            };
            let (inner, asked) = (Arc::clone(&inner), asked.clone());
            Ok(Box::pin(async move {
                let heard = |notification| {
                    inner.cache.hear(&notification);
                    warn_of_less(&notification, &asked);
                    let _ = sender.send(notification);
                };
                let outgoing = OutgoingRequest::new(request)
                    .with_long_lived(true)
                    .with_notification_handler(&heard);
                inner.exchange.send(outgoing).await
            }))
        })
    }

    /// Forgets all results that are kept for reuse, so that the next calls ask the server: for lists that
    /// belong together, or when who is logged in has changed.
    pub fn clear_cache(&self) {
        self.inner.cache.clear();
    }

    async fn all_pages<P: DeserializeOwned, T>(
        &self,
        method: &str,
        open: impl Fn(P) -> (Vec<T>, Option<String>),
    ) -> Result<Vec<T>, CallError> {
        let all = self.each_page(method, open);
        let Some(time) = self.options.deadline else { return all.await };
        let late = |_| CallError::deadline(format!("all of {method} took longer than {time:?}"));
        tokio::time::timeout(time, all).await.map_err(late)?
    }

    async fn each_page<P: DeserializeOwned, T>(
        &self,
        method: &str,
        open: impl Fn(P) -> (Vec<T>, Option<String>),
    ) -> Result<Vec<T>, CallError> {
        // A server that never stops giving out cursors is cut off.
        const PAGES: usize = 1_000;
        const ITEMS: usize = 100_000;
        const BYTES: usize = 64 << 20;
        let mut bytes = 0;
        let (mut all, mut cursor): (Vec<T>, Option<String>) = (Vec::new(), None);
        let mut restarted = false;
        for _ in 0..PAGES {
            let params = match &cursor {
                Some(cursor) => vec![("cursor", raw(cursor)?)],
                None => Vec::new(),
            };
            let page = match self.raw_call(method, &params).await {
                // The cursor may have gone stale since the pages before this one were kept.
                Err(error) if is_params(&error) && cursor.is_some() && !restarted => {
                    restarted = true;
                    self.inner.cache.forget(&[method]);
                    (all, cursor) = (Vec::new(), None);
                    continue;
                }
                page => page?,
            };
            bytes += page.get().len();
            if bytes > BYTES {
                return Err(CallError::protocol(format!("{method} has more than {BYTES} bytes")));
            }
            let (items, next) = open(read(method, &page)?);
            all.extend(items);
            if all.len() > ITEMS {
                return Err(CallError::protocol(format!("{method} has more than {ITEMS} items")));
            }
            if next.is_none() {
                return Ok(all);
            }
            cursor = next;
        }
        Err(CallError::protocol(format!("{method} has more than {PAGES} pages")))
    }

    pub(crate) async fn call<T: DeserializeOwned>(
        &self,
        method: &str,
        params: &[(&str, Box<RawValue>)],
    ) -> Result<T, CallError> {
        read(method, &self.raw_call(method, params).await?)
    }

    async fn raw_call(
        &self,
        method: &str,
        params: &[(&str, Box<RawValue>)],
    ) -> Result<Box<RawValue>, CallError> {
        Ok(match self.inner.cache.find(method, params) {
            Found::Fresh(result) => result,
            Found::NotKept => self.run(method, params).await?.result,
            Found::Nothing(place) => {
                let done = self.run(method, params).await?;
                if done.legs == 1 {
                    self.inner.cache.keep(place, &done.result);
                }
                done.result
            }
        })
    }
}

fn read<T: DeserializeOwned>(method: &str, result: &RawValue) -> Result<T, CallError> {
    serde_json::from_str(result.get())
        .map_err(|e| CallError::protocol(format!("malformed result of {method}: {e}")))
}

pub(crate) fn drop_unsafe_icons(block: &mut ContentBlock) {
    if let ContentBlock::ResourceLink(link) = block {
        link.icons.retain(Icon::is_safe);
    }
}

/// Says so if an acknowledgement is for less than was asked for.
fn warn_of_less(notification: &Notification, asked: &SubscriptionFilter) {
    if notification.method == name::ACKNOWLEDGED
        && let Ok(Acknowledged { notifications: granted, .. }) = notification.params()
        && granted != *asked
    {
        tracing::warn!(target: "mrtr::client", ?asked, ?granted, "a subscription is not for all that was asked");
    }
}

fn is_params(error: &CallError) -> bool {
    error.as_server_error().is_some_and(|error| error.code == jsonrpc::code::INVALID_PARAMS)
}

pub(crate) fn raw(value: &impl Serialize) -> Result<Box<RawValue>, CallError> {
    jsonrpc::raw(value)
        .map_err(|e| CallError::request(format!("the arguments cannot be written as JSON: {e}")))
}

impl<X> fmt::Debug for Client<X> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Client").field("handlers", &self.inner.handlers).finish_non_exhaustive()
    }
}
