//! Suggestions for arguments of prompts and variables of resource templates.

use std::collections::BTreeMap;
use std::fmt;
use std::future::Future;

use mrtr_codec::Principal;

use crate::error::Error;
use crate::handler::BoxFuture;
use crate::request_parts::RequestParts;

/// An argument that is being typed.
#[derive(Debug)]
#[non_exhaustive]
pub struct CompletionRequest {
    /// What was typed so far. The client says so: it is not checked.
    pub value: String,
    /// Arguments that are known already, those alone that there are.
    pub arguments: BTreeMap<String, String>,
    pub(crate) parts: Box<RequestParts>,
}

impl CompletionRequest {
    /// Who calls, if something in front of the server has established it: suggest only what they may know.
    pub fn principal(&self) -> Option<&Principal> {
        self.parts.principal.as_ref()
    }

    /// Returns the request: headers, extensions, and application state.
    pub fn parts(&self) -> &RequestParts {
        &self.parts
    }
}

/// Suggests values.
pub(crate) struct Completer(Box<dyn Fn(CompletionRequest) -> Suggestions + Send + Sync>);

type Suggestions = BoxFuture<Result<Vec<String>, Error>>;

impl Completer {
    pub(crate) fn new<F, Fut>(suggest: F) -> Self
    where
        F: Fn(CompletionRequest) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<Vec<String>, Error>> + Send + 'static,
    {
        Self(Box::new(move |completing| Box::pin(suggest(completing))))
    }

    pub(crate) fn suggest(&self, completing: CompletionRequest) -> Suggestions {
        (self.0)(completing)
    }
}

impl fmt::Debug for Completer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Completer")
    }
}
