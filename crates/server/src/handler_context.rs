//! The invocation of handlers, and the trait of their contexts.

use std::sync::Arc;

use crate::manual::ManualInput;
use crate::request_parts::RequestParts;
use crate::rounds::Round;

/// One invocation of a handler, from which its context is created.
pub struct Invocation {
    pub(crate) round: Arc<Round>,
    /// The input of a handler in the manual form. `None` for inline handlers.
    pub(crate) manual: Option<Arc<ManualInput>>,
}

/// The context of a handler: [`Context`](crate::Context) for inline handlers,
/// [`ManualContext`](crate::manual::ManualContext) for handlers in the manual form.
///
/// It is sealed: no other type can implement it.
#[diagnostic::on_unimplemented(message = "`{Self}` is not a handler context")]
pub trait HandlerContext: Sealed + Clone + Send + Sync + 'static {}

/// Keeps [`HandlerContext`] sealed.
pub trait Sealed {
    #[doc(hidden)]
    fn from_invocation(invocation: Invocation) -> Self;

    #[doc(hidden)]
    fn round(&self) -> &Arc<Round>;

    #[doc(hidden)]
    fn parts(&self) -> &RequestParts {
        &self.round().parts
    }
}
