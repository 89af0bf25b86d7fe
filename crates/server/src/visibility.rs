//! Rules about which callers can see a tool, prompt, resource or resource template.

use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use crate::request_parts::RequestParts;

/// A rule. The caller can see what all rules of a feature allow.
#[derive(Clone)]
pub(crate) struct VisibilityRule(Arc<dyn Fn(&RequestParts) -> bool + Send + Sync>);

impl VisibilityRule {
    pub(crate) fn new(rule: impl Fn(&RequestParts) -> bool + Send + Sync + 'static) -> Self {
        Self(Arc::new(rule))
    }

    /// Returns true if the rule allows the caller to see the feature. A rule that panics allows
    /// nothing.
    pub(crate) fn allows(&self, caller: &RequestParts) -> bool {
        catch_unwind(AssertUnwindSafe(|| (self.0)(caller))).unwrap_or_else(|_| {
            tracing::error!(
                target: "mrtr::access",
                "a visibility rule panicked: the feature is hidden from this caller"
            );
            false
        })
    }
}

impl fmt::Debug for VisibilityRule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("VisibilityRule").finish_non_exhaustive()
    }
}
