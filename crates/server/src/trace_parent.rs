//! The hook that joins a request's span to the client's trace.

use std::fmt;

use mrtr_schema::meta::TraceContext;
use tracing::Span;

/// The function that sets the parent of a request's span.
pub(crate) struct TraceParent(pub(crate) SetParent);

type SetParent = Box<dyn Fn(&Span, &TraceContext) + Send + Sync>;

impl TraceParent {
    pub(crate) fn new(set_parent: impl Fn(&Span, &TraceContext) + Send + Sync + 'static) -> Self {
        Self(Box::new(set_parent))
    }
}

impl fmt::Debug for TraceParent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("TraceParent")
    }
}
