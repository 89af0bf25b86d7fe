//! The tools of a document.

use std::collections::HashSet;
use std::fmt;
use std::sync::Arc;

use bytes::Bytes;
use http::{Method, Request};
use mrtr_schema::tool::{Tool as ToolDefinition, ToolAnnotations};
use mrtr_server::{Context, Result, Tool};
use url::Url;

use crate::api_client::ApiClient;
use crate::arguments::Arguments;
use crate::document::Document;
use crate::error::OpenApiError;
use crate::handler::{Api, call};
use crate::operation::{Operation, SkippedOperation};
use crate::plan::Plan;

/// The longest description of a tool, in characters.
const MAX_DESCRIPTION: usize = 4_000;

type Rule = dyn Fn(&Operation) -> bool + Send + Sync;

/// Makes tools of the operations of an OpenAPI document.
///
/// The crate's page has an example.
#[must_use = "call `tools`"]
pub struct OpenApi<C> {
    document: Document,
    api: Api<C>,
    select: Box<Rule>,
    confirm: Box<Rule>,
}

/// The tools of a document.
#[derive(Debug)]
#[non_exhaustive]
pub struct OpenApiTools {
    /// The tools, in the order of the document.
    pub tools: Vec<Tool>,
    /// The selected operations that cannot become tools.
    pub skipped: Vec<SkippedOperation>,
}

impl<C: ApiClient> OpenApi<C> {
    /// Reads a document of OpenAPI 3.0, 3.1 or 3.2, in JSON.
    ///
    /// Requests go to `base_url`, followed by the path of the operation. The `servers` of the
    /// document are not used.
    ///
    /// # Errors
    ///
    /// If the text is not such a document, or if the URL is not one of HTTP, or has credentials, a
    /// query or a fragment.
    pub fn new(
        document: &str,
        base_url: &str,
        client: C,
    ) -> std::result::Result<Self, OpenApiError> {
        let document = Document::parse(document)?;
        let refused = |why: String| OpenApiError::BaseUrl { url: base_url.to_owned(), why };
        let base = Url::parse(base_url).map_err(|error| refused(format!("is invalid: {error}")))?;
        if !["http", "https"].contains(&base.scheme()) || !base.has_host() {
            return Err(refused("is not an HTTP URL".to_owned()));
        }
        let has_credentials = !base.username().is_empty() || base.password().is_some();
        if has_credentials || base.query().is_some() || base.fragment().is_some() {
            return Err(refused("has credentials, a query or a fragment".to_owned()));
        }
        let before_send = Box::new(|_: &Context, _: &mut Request<Bytes>| Ok(()));
        let api = Api { base, client, before_send, max_response_bytes: 1 << 20 };
        let confirm = Box::new(|operation: &Operation| !operation.is_safe());
        Ok(Self { document, api, select: Box::new(|_| true), confirm })
    }

    /// Sets which operations become tools. Default: all.
    pub fn select(mut self, rule: impl Fn(&Operation) -> bool + Send + Sync + 'static) -> Self {
        self.select = Box::new(rule);
        self
    }

    /// Sets for which operations the user is asked before the request is sent. Default: those that
    /// are not [safe](Operation::is_safe).
    ///
    /// The form shows the request. Clients without forms cannot call such a tool.
    pub fn confirm(mut self, rule: impl Fn(&Operation) -> bool + Send + Sync + 'static) -> Self {
        self.confirm = Box::new(rule);
        self
    }

    /// Sets a rule that completes each request, for example with credentials. Default: none are
    /// sent.
    ///
    /// The context has the caller and its [principal](Context::principal). The caller's own access
    /// token is for this server, so do not send it to the API.
    pub fn before_send(
        mut self,
        rule: impl Fn(&Context, &mut Request<Bytes>) -> Result<()> + Send + Sync + 'static,
    ) -> Self {
        self.api.before_send = Box::new(rule);
        self
    }

    /// Sets the longest body of a response, in bytes. Default: 1 MiB. A call with a longer one
    /// fails.
    pub fn max_response_bytes(mut self, bytes: usize) -> Self {
        self.api.max_response_bytes = bytes;
        self
    }

    /// Returns the tools.
    pub fn tools(self) -> OpenApiTools {
        let Self { document, api, select, confirm } = self;
        let api = Arc::new(api);
        let mut names = HashSet::new();
        let (mut tools, mut skipped) = (Vec::new(), Vec::new());
        for (operation, item, object) in document.operations() {
            if !select(&operation) {
                continue;
            }
            let planned = Plan::new(&document, &operation, item, object).and_then(|plan| {
                let name = operation.tool_name();
                if !names.insert(name.clone()) {
                    return Err(format!("another operation has the tool name {name:?}"));
                }
                Ok(plan)
            });
            match planned {
                Ok(plan) => tools.push(tool(&api, plan, confirm(&operation))),
                Err(reason) => skipped.push(SkippedOperation { operation, reason }),
            }
        }
        OpenApiTools { tools, skipped }
    }
}

fn tool<C: ApiClient>(api: &Arc<Api<C>>, plan: Plan, is_confirmed: bool) -> Tool {
    let operation = &plan.operation;
    let texts = [&operation.summary, &operation.description].into_iter().flatten();
    let description = texts.map(|text| text.trim()).collect::<Vec<_>>().join("\n\n");
    let description = if description.is_empty() {
        format!("{} {}", operation.method, operation.path)
    } else {
        description.chars().take(MAX_DESCRIPTION).collect()
    };
    let mut definition = ToolDefinition::new(operation.tool_name(), plan.schema.clone())
        .with_description(description)
        .with_annotations(annotations(operation));
    definition.title.clone_from(&operation.summary);
    let (api, plan) = (Arc::clone(api), Arc::new(plan));
    let handler = move |cx: Context, arguments: Arguments| {
        call(Arc::clone(&api), Arc::clone(&plan), is_confirmed, cx, arguments)
    };
    Tool::new("", "", handler).definition(definition)
}

/// Returns what the method says about the operation (RFC 9110, section 9.2).
fn annotations(operation: &Operation) -> ToolAnnotations {
    let method = &operation.method;
    ToolAnnotations::default()
        .with_read_only_hint(operation.is_safe())
        .with_destructive_hint(!operation.is_safe() && *method != Method::POST)
        .with_idempotent_hint(method.is_idempotent())
}

impl<C> fmt::Debug for OpenApi<C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OpenApi").field("base", &self.api.base.as_str()).finish_non_exhaustive()
    }
}
