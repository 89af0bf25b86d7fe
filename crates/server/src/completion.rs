//! Completion: suggestions for arguments of prompts and variables of resource templates.

use std::collections::BTreeMap;
use std::fmt;
use std::future::Future;

use mrtr_codec::Principal;
use mrtr_schema::completion::Completion;

use crate::error::Error;
use crate::handler::BoxFuture;
use crate::request_parts::RequestParts;

/// A request for suggestions: an argument that the user is typing.
#[derive(Debug)]
#[non_exhaustive]
pub struct CompletionRequest {
    /// The name of the argument, or of the variable.
    pub argument: String,
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

/// The functions that suggest values for the arguments of a prompt, or the variables of a template.
#[derive(Default)]
pub(crate) struct Completers {
    /// By the name of the argument.
    pub(crate) named: Vec<(String, Completer)>,
    /// For all other arguments.
    pub(crate) others: Option<Completer>,
}

impl Completers {
    pub(crate) fn is_empty(&self) -> bool {
        self.named.is_empty() && self.others.is_none()
    }

    pub(crate) fn find(&self, argument: &str) -> Option<&Completer> {
        let named = self.named.iter().find(|(name, _)| name == argument);
        named.map(|(_, completer)| completer).or(self.others.as_ref())
    }
}

/// A function that suggests values, without its type.
pub(crate) struct Completer(Box<dyn Fn(CompletionRequest) -> Suggestions + Send + Sync>);

type Suggestions = BoxFuture<Result<Completion, Error>>;

impl Completer {
    pub(crate) fn new<F, Fut, C>(suggest: F) -> Self
    where
        F: Fn(CompletionRequest) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<C, Error>> + Send + 'static,
        C: Into<Completion>,
    {
        Self(Box::new(move |request| {
            let suggesting = suggest(request);
            Box::pin(async move { suggesting.await.map(Into::into) })
        }))
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
