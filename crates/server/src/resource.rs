//! Resources and resource templates, whose handlers can ask questions like those of tools.

use std::fmt;
use std::time::Duration;

use mrtr_schema::resource::{Resource as WireResource, ResourceTemplate as WireTemplate};
use mrtr_schema::result::CacheScope;
use serde_json::Value;

use crate::call_options::CallOptions;
use crate::completion::Completers;
use crate::context::Context;
use crate::handler::{ErasedHandler, Handler, HandlerParts};
use crate::manual::ManualContext;
use crate::output::ResourceOutput;

/// The time for which a result may be reused, and the callers that may reuse it. Default: no reuse.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct CacheControl {
    pub(crate) ttl_ms: u64,
    pub(crate) scope: CacheScope,
}

impl CacheControl {
    /// Allows the same caller to reuse the result for `time`, counted in whole milliseconds.
    pub fn private(time: Duration) -> Self {
        Self {
            ttl_ms: u64::try_from(time.as_millis()).unwrap_or(u64::MAX),
            scope: CacheScope::Private,
        }
    }

    /// Allows all callers, gateways and proxies to reuse the result for `time`, counted in whole
    /// milliseconds. The result must not be specific to one caller.
    pub fn public(time: Duration) -> Self {
        Self { scope: CacheScope::Public, ..Self::private(time) }
    }
}

/// The URI that a request reads, in the extensions of requests that a [`ResourceTemplate`] handles.
///
/// The template's variables are the arguments of the handler. This is the URI as the client sent
/// it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ResourceUri(pub String);

/// A resource: its description for clients, and its handler.
pub struct Resource {
    pub(crate) wire: WireResource,
    pub(crate) options: CallOptions,
    pub(crate) cache: CacheControl,
    pub(crate) handler: ErasedHandler<ResourceOutput>,
    /// The metadata of contents that have none (MCP Apps). Set when the server is built.
    pub(crate) contents_ui: Option<Value>,
}

impl Resource {
    /// Creates a resource.
    pub fn new<P>(
        uri: impl Into<String>,
        name: impl Into<String>,
        handler: impl Handler<Context, P, ResourceOutput>,
    ) -> Self {
        Self::from_parts(uri.into(), name.into(), handler.erase(), false)
    }

    /// Creates a resource whose handler is in the [manual form](crate::manual).
    pub fn manual<P>(
        uri: impl Into<String>,
        name: impl Into<String>,
        handler: impl Handler<ManualContext, P, ResourceOutput>,
    ) -> Self {
        Self::from_parts(uri.into(), name.into(), handler.erase(), true)
    }

    /// Replaces the URI, the name and everything else that clients get to know of the resource.
    /// Call it before the methods that set a part of it.
    ///
    /// For resources that are defined by data, such as those of another server.
    pub fn definition(mut self, definition: WireResource) -> Self {
        self.wire = definition;
        self
    }

    fn from_parts(
        uri: String,
        name: String,
        handler: HandlerParts<ResourceOutput>,
        manual: bool,
    ) -> Self {
        let HandlerParts { requirements, call: handler, .. } = handler;
        let options = CallOptions::new(requirements, manual);
        let wire = WireResource::new(uri, name);
        let cache = CacheControl::default();
        Self { wire, options, cache, handler, contents_ui: None }
    }
}

/// A family of resources, with one handler.
///
/// The URI template is a subset of RFC 6570: `{name}` matches one segment, `{+name}` matches
/// several segments, and `{?one,two}` matches a query at the end. The handler's argument type is a
/// struct with one string field for each variable. The fields of query variables are optional.
pub struct ResourceTemplate {
    pub(crate) wire: WireTemplate,
    pub(crate) options: CallOptions,
    pub(crate) cache: CacheControl,
    pub(crate) handler: ErasedHandler<ResourceOutput>,
    pub(crate) completers: Completers,
    /// The metadata of contents that have none (MCP Apps). Set when the server is built.
    pub(crate) contents_ui: Option<Value>,
}

impl ResourceTemplate {
    /// Creates a resource template.
    pub fn new<P>(
        uri_template: impl Into<String>,
        name: impl Into<String>,
        handler: impl Handler<Context, P, ResourceOutput>,
    ) -> Self {
        Self::from_parts(uri_template.into(), name.into(), handler.erase(), false)
    }

    /// Creates a resource template whose handler is in the [manual form](crate::manual).
    pub fn manual<P>(
        uri_template: impl Into<String>,
        name: impl Into<String>,
        handler: impl Handler<ManualContext, P, ResourceOutput>,
    ) -> Self {
        Self::from_parts(uri_template.into(), name.into(), handler.erase(), true)
    }

    /// Replaces the URI template, the name and everything else that clients get to know of the
    /// template. Call it before the methods that set a part of it.
    ///
    /// For templates that are defined by data, such as those of another server.
    pub fn definition(mut self, definition: WireTemplate) -> Self {
        self.wire = definition;
        self
    }

    fn from_parts(
        uri_template: String,
        name: String,
        handler: HandlerParts<ResourceOutput>,
        manual: bool,
    ) -> Self {
        let HandlerParts { requirements, call: handler, .. } = handler;
        let options = CallOptions::new(requirements, manual);
        let wire = WireTemplate::new(uri_template, name);
        let cache = CacheControl::default();
        let completers = Completers::default();
        Self { wire, options, cache, handler, completers, contents_ui: None }
    }
}

impl fmt::Debug for Resource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Resource").field("wire", &self.wire).finish_non_exhaustive()
    }
}

impl fmt::Debug for ResourceTemplate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ResourceTemplate").field("wire", &self.wire).finish_non_exhaustive()
    }
}
