//! Completion: suggestions for arguments of prompts and variables of resource templates.

use std::collections::BTreeMap;
use std::fmt;
use std::future::Future;

use mrtr_codec::Principal;

use crate::error::Error;
use crate::handler::BoxFuture;
use crate::request_parts::RequestParts;

/// A request for suggestions: an argument that the user is typing.
#[derive(Debug)]
#[non_exhaustive]
pub struct CompletionRequest {
    /// The text that the user has typed so far, as sent by the client. It is not validated.
    pub value: String,
    /// The other arguments that the client knows already. Names that the prompt or template does
    /// not have are left out.
    pub arguments: BTreeMap<String, String>,
    pub(crate) parts: Box<RequestParts>,
}

impl CompletionRequest {
    /// Returns the authenticated caller, if a layer in front of the server established one. Suggest
    /// only values that this caller may know.
    pub fn principal(&self) -> Option<&Principal> {
        self.parts.principal.as_ref()
    }

    /// Returns the request: headers, extensions, and application state.
    pub fn parts(&self) -> &RequestParts {
        &self.parts
    }
}

/// A function that suggests values, without its type.
pub(crate) struct Completer(Box<dyn Fn(CompletionRequest) -> Suggestions + Send + Sync>);

type Suggestions = BoxFuture<Result<Vec<String>, Error>>;

impl Completer {
    pub(crate) fn new<F, Fut>(suggest: F) -> Self
    where
        F: Fn(CompletionRequest) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<Vec<String>, Error>> + Send + 'static,
    {
        Self(Box::new(move |request| Box::pin(suggest(request))))
    }

    pub(crate) fn suggest(&self, request: CompletionRequest) -> Suggestions {
        (self.0)(request)
    }
}

impl fmt::Debug for Completer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Completer")
    }
}
