//! The tools of a document.

use std::collections::HashSet;
use std::fmt;
use std::sync::Arc;

use bytes::Bytes;
use http::Request;
use mrtr_schema::Object;
use mrtr_schema::tool::{Tool as ToolDefinition, ToolAnnotations};
use mrtr_server::{Context, Result, Tool};
use serde_json::Value;
use url::Url;

use crate::api_client::ApiClient;
use crate::arguments::Arguments;
use crate::credentials::Credentials;
use crate::document::Document;
use crate::error::OpenApiError;
use crate::handler::{Api, call};
use crate::operation::{Operation, SkippedOperation};
use crate::plan::Plan;

/// The longest description of a tool, in characters.
const MAX_DESCRIPTION: usize = 4_000;

/// The longest title of a tool, in characters.
const MAX_TITLE: usize = 200;

/// The most tools of a document.
const MAX_TOOLS: usize = 1_000;

type Rule = dyn Fn(&Operation) -> bool + Send + Sync;

/// Builds a tool for each operation of an OpenAPI document.
///
/// The [crate documentation](crate) has an example.
#[must_use = "call `build`"]
pub struct OpenApi<C> {
    document: Document,
    api: Api<C>,
    filter: Box<Rule>,
    confirm: Box<Rule>,
    output_schema: Box<Rule>,
}

/// The tools of a document.
#[derive(Debug)]
#[non_exhaustive]
pub struct OpenApiTools {
    /// The tools: paths in the order of the document, and for each GET, PUT, POST, DELETE, OPTIONS,
    /// HEAD and PATCH.
    pub tools: Vec<Tool>,
    /// The selected operations that cannot become tools.
    pub skipped: Vec<SkippedOperation>,
}

impl<C: ApiClient> OpenApi<C> {
    /// Reads a document of OpenAPI 3.0, 3.1 or 3.2, in JSON or, with the feature `yaml`, in YAML
    /// 1.2. With the feature, a document that begins with `{` is JSON, and any other is YAML.
    ///
    /// Requests go to `base_url`, followed by the path of the operation. The `servers` of the
    /// document are not used.
    ///
    /// # Errors
    ///
    /// - [`InvalidJson`](OpenApiError::InvalidJson) if the document is not JSON.
    /// - `InvalidYaml` if it is not YAML, or exceeds a limit.
    /// - [`MissingVersion`](OpenApiError::MissingVersion) if it has no string `openapi`.
    /// - [`UnsupportedVersion`](OpenApiError::UnsupportedVersion) if its version is not supported.
    /// - [`BaseUrl`](OpenApiError::BaseUrl) if the URL is not an absolute `http` or `https` URL, or
    ///   has credentials, a query or a fragment.
    pub fn new(
        document: &str,
        base_url: &str,
        client: C,
    ) -> std::result::Result<Self, OpenApiError> {
        let document = Document::parse(document)?;
        let refused = |reason: String| OpenApiError::BaseUrl { reason };
        let base = Url::parse(base_url).map_err(|error| refused(error.to_string()))?;
        if !["http", "https"].contains(&base.scheme()) || !base.has_host() {
            return Err(refused("its scheme must be http or https".to_owned()));
        }
        let has_credentials = !base.username().is_empty() || base.password().is_some();
        if has_credentials || base.query().is_some() || base.fragment().is_some() {
            return Err(refused("it must have no credentials, query or fragment".to_owned()));
        }
        let before_send = Box::new(|_: &Context, _: &mut Request<Bytes>| Ok(()));
        let api = Api { base, client, before_send, max_response_bytes: 1 << 20 };
        let confirm = Box::new(|operation: &Operation| !operation.is_safe());
        let (filter, output_schema) = (Box::new(|_: &Operation| true), Box::new(|_: &_| false));
        Ok(Self { document, api, filter, confirm, output_schema })
    }

    /// Selects the operations that become tools. Default: all. The others are not listed in
    /// [`skipped`](OpenApiTools::skipped).
    pub fn filter(mut self, rule: impl Fn(&Operation) -> bool + Send + Sync + 'static) -> Self {
        self.filter = Box::new(rule);
        self
    }

    /// Sets which operations need the user's approval in each call. Default: all that are not
    /// [safe](Operation::is_safe).
    ///
    /// If the user declines or cancels the form, or does not tick `send`, the request is not sent,
    /// and the tool returns an error. A client without form elicitation cannot call such a tool.
    pub fn confirm_when(
        mut self,
        rule: impl Fn(&Operation) -> bool + Send + Sync + 'static,
    ) -> Self {
        self.confirm = Box::new(rule);
        self
    }

    /// Sets which operations have an output schema: that of their successful JSON responses.
    /// Default: none, since a client may refuse a result that does not match it, and many APIs
    /// deviate from their document.
    ///
    /// A successful response that is not JSON or, with the feature `validate`, does not match the
    /// schema becomes an error for the model that says so and contains the response. The tool has
    /// no output schema if the document has no successful response of the operation, or one
    /// without JSON, or if the schema is not usable; the log says why.
    pub fn output_schema_when(
        mut self,
        rule: impl Fn(&Operation) -> bool + Send + Sync + 'static,
    ) -> Self {
        self.output_schema = Box::new(rule);
        self
    }

    /// Sets a function that may change each request before it is sent, for example to add
    /// credentials. It must not block. Default: the request is unchanged.
    ///
    /// It runs after the user's approval, so the user does not see its changes. If it returns an
    /// error, nothing is sent, and the call fails with that error.
    ///
    /// [`Context::principal`] is the caller. Do not forward the caller's access token: it was
    /// issued for this server.
    pub fn before_send(
        mut self,
        rule: impl Fn(&Context, &mut Request<Bytes>) -> Result<()> + Send + Sync + 'static,
    ) -> Self {
        self.api.before_send = Box::new(rule);
        self
    }

    /// Sets the maximum size of a response body, in bytes. Default: 1 MiB. If a body is larger, the
    /// tool returns an error.
    pub fn max_response_bytes(mut self, bytes: usize) -> Self {
        self.api.max_response_bytes = bytes;
        self
    }

    /// Builds the tools.
    pub fn build(self) -> OpenApiTools {
        let Self { document, api, filter, confirm, output_schema } = self;
        let api = Arc::new(api);
        let credentials = Arc::new(Credentials::new(&document));
        let mut names = HashSet::new();
        let (mut tools, mut skipped) = (Vec::new(), Vec::new());
        for (operation, item, object) in document.operations() {
            if !filter(&operation) {
                continue;
            }
            // Those that cannot become tools take time, too.
            if tools.len() == MAX_TOOLS || skipped.len() >= MAX_TOOLS {
                let reason = format!("the document has more than {MAX_TOOLS} operations");
                skipped.push(SkippedOperation { operation, reason });
                continue;
            }
            let planned = Plan::new(&document, &credentials, &operation, item, object);
            let planned = planned.and_then(|planned| {
                let name = operation.tool_name();
                if !names.insert(name.clone()) {
                    return Err(format!("another operation has the same tool name, {name:?}"));
                }
                Ok(planned)
            });
            match planned {
                Ok((mut plan, input)) => {
                    let output = output_schema(&operation)
                        .then(|| plan.add_output(&document, object))
                        .flatten();
                    let schemas = (input, output);
                    tools.push(tool(&api, plan, schemas, object, confirm(&operation)));
                }
                Err(reason) => skipped.push(SkippedOperation { operation, reason }),
            }
        }
        OpenApiTools { tools, skipped }
    }
}

fn tool<C: ApiClient>(
    api: &Arc<Api<C>>,
    plan: Plan,
    (input_schema, output_schema): (Object, Option<Object>),
    object: &Value,
    is_confirmed: bool,
) -> Tool {
    let operation = &plan.operation;
    let text = |key: &str, limit: usize| {
        let text = object.get(key)?.as_str()?.trim();
        (!text.is_empty()).then(|| text.chars().take(limit).collect::<String>())
    };
    let texts = ["summary", "description"].map(|key| text(key, MAX_DESCRIPTION));
    let description = texts.into_iter().flatten().collect::<Vec<_>>().join("\n\n");
    let description = if description.is_empty() {
        operation.to_string()
    } else {
        description.chars().take(MAX_DESCRIPTION).collect()
    };
    let mut definition = ToolDefinition::new(operation.tool_name(), input_schema)
        .with_description(description)
        .with_annotations(annotations(operation));
    definition.title = text("summary", MAX_TITLE);
    definition.output_schema = output_schema;
    let (api, plan) = (Arc::clone(api), Arc::new(plan));
    let handler = move |cx: Context, arguments: Arguments| {
        call(Arc::clone(&api), Arc::clone(&plan), is_confirmed, cx, arguments)
    };
    Tool::new("", "", handler).definition(definition)
}

/// Derives the annotations from the method (RFC 9110, section 9.2). What POST does, only the API
/// knows.
fn annotations(operation: &Operation) -> ToolAnnotations {
    let method = &operation.method;
    ToolAnnotations::default()
        .with_read_only_hint(operation.is_safe())
        .with_destructive_hint(!operation.is_safe())
        .with_idempotent_hint(method.is_idempotent())
}

impl<C> fmt::Debug for OpenApi<C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OpenApi").field("base", &self.api.base.as_str()).finish_non_exhaustive()
    }
}
