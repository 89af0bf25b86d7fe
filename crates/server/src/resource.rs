//! Resources and resource templates. They ask questions as tools do.

use std::fmt;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use mrtr_schema::content::ResourceContents;
use mrtr_schema::resource::{
    ReadResourceResult, Resource as WireResource, ResourceTemplate as WireTemplate,
};
use mrtr_schema::result::CacheScope;

use crate::completion::Completer;
use crate::handler::{Erased, Handler};
use crate::manual::InputRequired;
use crate::tool::{CallOptions, Output};

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
    pub(crate) rules: CallOptions,
    pub(crate) cache: CacheControl,
    pub(crate) handler: Erased<ResourceOutput>,
}

impl Resource {
    /// A resource.
    pub fn new<A>(
        uri: impl Into<String>,
        name: impl Into<String>,
        handler: impl Handler<A, ResourceOutput>,
    ) -> Self {
        let handler = handler.erase().call;
        let wire = WireResource::new(uri, name);
        Self { wire, rules: CallOptions::default(), cache: CacheControl::default(), handler }
    }
}

/// A family of resources, with one handler.
///
/// The URIs are those of an RFC 6570 template with `{name}` for one segment, `{+name}` for several, and
/// `{?one,two}` for a query at the end. The handler's arguments are a struct with a text for each variable
/// (those of a query are optional).
pub struct ResourceTemplate {
    pub(crate) wire: WireTemplate,
    pub(crate) rules: CallOptions,
    pub(crate) cache: CacheControl,
    pub(crate) handler: Erased<ResourceOutput>,
    pub(crate) completers: Vec<(String, Completer)>,
}

impl ResourceTemplate {
    /// A template.
    pub fn new<A>(
        uri_template: impl Into<String>,
        name: impl Into<String>,
        handler: impl Handler<A, ResourceOutput>,
    ) -> Self {
        let handler = handler.erase().call;
        let wire = WireTemplate::new(uri_template, name);
        let (rules, cache) = (CallOptions::default(), CacheControl::default());
        Self { wire, rules, cache, handler, completers: Vec::new() }
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

/// A resource's contents. Text turns into it.
#[derive(Debug)]
pub struct ResourceOutput(pub(crate) Output<ReadResourceResult>);

impl ResourceOutput {
    /// Text.
    pub fn text(text: impl Into<String>) -> Self {
        Self::many([ResourceContents::text("", text)])
    }

    /// Bytes.
    pub fn bytes(bytes: impl AsRef<[u8]>) -> Self {
        Self::many([ResourceContents::blob("", STANDARD.encode(bytes))])
    }

    /// Several contents, with URIs of their own: a directory.
    pub fn many(contents: impl IntoIterator<Item = ResourceContents>) -> Self {
        let contents = contents.into_iter().collect();
        Self(Output::complete(ReadResourceResult::new(contents)))
    }
}

impl From<String> for ResourceOutput {
    fn from(text: String) -> Self {
        Self::text(text)
    }
}

impl From<&str> for ResourceOutput {
    fn from(text: &str) -> Self {
        Self::text(text)
    }
}

impl From<InputRequired> for ResourceOutput {
    fn from(questions: InputRequired) -> Self {
        Self(Output::questions(questions))
    }
}
