//! Extensions of the protocol: their identifiers, and the methods that they add (specification:
//! versioning, "Extension Negotiation").

use std::fmt;
use std::future::Future;

use mrtr_codec::Principal;
use mrtr_schema::Object;
use mrtr_schema::capabilities::ClientCapabilities;
use mrtr_schema::json::from_value;
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::error::Error;
use crate::handler::BoxFuture;
use crate::request_parts::RequestParts;

/// A request with a method of an extension.
#[derive(Debug)]
#[non_exhaustive]
pub struct ExtensionRequest {
    /// The request's parameters, `_meta` included.
    pub params: Object,
    pub(crate) parts: Box<RequestParts>,
}

impl ExtensionRequest {
    /// Deserializes the parameters.
    ///
    /// # Errors
    ///
    /// [`Error::invalid`], which becomes error -32602, if the parameters are not a valid `T`.
    pub fn read<T: DeserializeOwned>(&self) -> Result<T, Error> {
        from_value(&Value::Object(self.params.clone()))
            .map_err(|e| Error::invalid(format!("Invalid params: {e}")))
    }

    /// Returns the authenticated caller, if a layer in front of the server established one.
    pub fn principal(&self) -> Option<&Principal> {
        self.parts.principal.as_ref()
    }

    /// Returns the request: headers, extensions, and application state.
    pub fn parts(&self) -> &RequestParts {
        &self.parts
    }

    /// Returns the capabilities that the client declared with this request, including its
    /// extensions.
    pub fn capabilities(&self) -> &ClientCapabilities {
        self.parts.capabilities()
    }
}

/// The handler of an extension's method, without its type.
pub(crate) struct Method(Box<dyn Fn(ExtensionRequest) -> MethodFuture + Send + Sync>);

type MethodFuture = BoxFuture<Result<Object, Error>>;

impl Method {
    pub(crate) fn new<F, Fut>(handler: F) -> Self
    where
        F: Fn(ExtensionRequest) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<Object, Error>> + Send + 'static,
    {
        Self(Box::new(move |request| Box::pin(handler(request))))
    }

    pub(crate) fn call(&self, request: ExtensionRequest) -> MethodFuture {
        (self.0)(request)
    }
}

impl fmt::Debug for Method {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Method")
    }
}

/// Returns true if `text` is a valid extension identifier: labels joined by dots, a slash, and a
/// name (specification: basic, "`_meta`").
pub(crate) fn is_identifier(text: &str) -> bool {
    let Some((prefix, name)) = text.split_once('/') else { return false };
    let inner = |c: u8| c.is_ascii_alphanumeric() || matches!(c, b'-' | b'_' | b'.');
    let label = |label: &str| {
        label.starts_with(|c: char| c.is_ascii_alphabetic())
            && label.ends_with(|c: char| c.is_ascii_alphanumeric())
            && label.bytes().all(|c| c.is_ascii_alphanumeric() || c == b'-')
    };
    prefix.split('.').all(label)
        && name.starts_with(|c: char| c.is_ascii_alphanumeric())
        && name.ends_with(|c: char| c.is_ascii_alphanumeric())
        && name.bytes().all(inner)
}
