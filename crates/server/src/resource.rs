//! Resources and resource templates. They ask questions as tools do.

use std::fmt;
use std::time::Duration;

use mrtr_schema::resource::{Resource as WireResource, ResourceTemplate as WireTemplate};
use mrtr_schema::result::CacheScope;

use crate::call_options::CallOptions;
use crate::completion::Completer;
use crate::context::Context;
use crate::handler::{ErasedHandler, Handler, HandlerParts};
use crate::manual::ManualContext;
use crate::output::ResourceOutput;

/// For how long a result may be reused, and by whom.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct CacheControl {
    pub(crate) ttl_ms: u64,
    pub(crate) scope: CacheScope,
}

impl CacheControl {
    /// Only by the same caller. The time is counted in whole milliseconds.
    pub fn private(time: Duration) -> Self {
        Self {
            ttl_ms: u64::try_from(time.as_millis()).unwrap_or(u64::MAX),
            scope: CacheScope::Private,
        }
    }

    /// By anyone, gateways and proxies included: the result holds nothing specific to a caller.
    pub fn public(time: Duration) -> Self {
        Self { scope: CacheScope::Public, ..Self::private(time) }
    }
}

/// A resource: its description for clients, and its handler.
pub struct Resource {
    pub(crate) wire: WireResource,
    pub(crate) options: CallOptions,
    pub(crate) cache: CacheControl,
    pub(crate) handler: ErasedHandler<ResourceOutput>,
}

impl Resource {
    /// A resource.
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

    fn from_parts(
        uri: String,
        name: String,
        handler: HandlerParts<ResourceOutput>,
        manual: bool,
    ) -> Self {
        let HandlerParts { requirements, call: handler, .. } = handler;
        let options = CallOptions::new(requirements, manual);
        let wire = WireResource::new(uri, name);
        Self { wire, options, cache: CacheControl::default(), handler }
    }
}

/// A family of resources, with one handler.
///
/// The URIs are those of an RFC 6570 template with `{name}` for one segment, `{+name}` for several, and
/// `{?one,two}` for a query at the end. The handler's arguments are a struct with a text for each variable
/// (those of a query are optional).
pub struct ResourceTemplate {
    pub(crate) wire: WireTemplate,
    pub(crate) options: CallOptions,
    pub(crate) cache: CacheControl,
    pub(crate) handler: ErasedHandler<ResourceOutput>,
    pub(crate) completers: Vec<(String, Completer)>,
}

impl ResourceTemplate {
    /// A template.
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
        Self { wire, options, cache, handler, completers: Vec::new() }
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
