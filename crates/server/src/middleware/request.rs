//! The request that layers see.

use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;

use http::Extensions;
use mrtr_codec::Principal;
use mrtr_schema::jsonrpc::{self, ErrorObject, RequestId};
use mrtr_schema::method;

use super::response::Response;
use crate::handler::BoxFuture;
use crate::request_parts::RequestParts;

/// The server behind the layers.
pub(crate) trait Dispatch: Send + Sync {
    /// Answers the request through the layers of the feature that it names.
    fn run_feature(self: Arc<Self>, request: Request) -> ResponseFuture;

    /// Answers the request by its method.
    fn run_method(self: Arc<Self>, request: Request) -> ResponseFuture;
}

pub(crate) type ResponseFuture = BoxFuture<Result<Response, ErrorObject>>;

/// A request, after it was parsed and its caller was authenticated.
pub struct Request {
    pub(crate) dispatch: Arc<dyn Dispatch>,
    pub(crate) message: jsonrpc::Request,
    pub(crate) parts: Box<RequestParts>,
}

impl Request {
    pub(crate) fn new(
        dispatch: Arc<dyn Dispatch>,
        message: jsonrpc::Request,
        parts: Box<RequestParts>,
    ) -> Self {
        Self { dispatch, message, parts }
    }

    /// Returns the method, such as `tools/call`.
    pub fn method(&self) -> &str {
        &self.message.method
    }

    /// Returns the id of the request, which the client chose.
    pub fn id(&self) -> &RequestId {
        &self.message.id
    }

    /// Returns the name of the tool or prompt, or the URI of the resource, that the request
    /// targets. Returns `None` for other methods, including those about tasks, and if the client
    /// omitted it.
    ///
    /// In a layer of the server, the name is unchecked: the server may have no such feature.
    pub fn name(&self) -> Option<Cow<'_, str>> {
        let member = match self.method() {
            method::TOOLS_CALL | method::PROMPTS_GET => "name",
            method::RESOURCES_READ => "uri",
            _ => return None,
        };
        self.message.params.as_ref()?.string(member)
    }

    /// Returns the arguments of the tool or prompt as JSON text. `None` without arguments.
    ///
    /// The handler has not checked them yet.
    pub fn arguments(&self) -> Option<&str> {
        match self.method() {
            method::TOOLS_CALL | method::PROMPTS_GET => {
                self.message.params.as_ref()?.member("arguments").filter(|text| *text != "null")
            }
            _ => None,
        }
    }

    /// Returns true if the request begins a call: it has no request state. All requests that are
    /// not part of a call with rounds, such as lists, count as first rounds.
    ///
    /// The state of a later round is checked behind the layers, and may turn out to be invalid.
    /// While it is valid, a client can repeat the round.
    pub fn is_first_round(&self) -> bool {
        let has_rounds = matches!(
            self.method(),
            method::TOOLS_CALL | method::PROMPTS_GET | method::RESOURCES_READ
        );
        let state = || self.message.params.as_ref()?.member("requestState");
        !has_rounds || state().is_none_or(|state| state == "null")
    }

    /// Returns the authenticated caller, if a layer in front of the server established one.
    pub fn principal(&self) -> Option<&Principal> {
        self.parts.principal()
    }

    /// Returns the headers, scopes and client capabilities of the request, and the application
    /// state of the server.
    pub fn parts(&self) -> &RequestParts {
        &self.parts
    }

    /// Returns the extensions of the request. Handlers extract what a layer inserts with
    /// [`Extension`](crate::Extension).
    ///
    /// Extensions are not kept between rounds: the layer runs again. A call that has become a task
    /// has them until it is resumed from the store, where no layer runs.
    pub fn extensions_mut(&mut self) -> &mut Extensions {
        &mut self.parts.extensions
    }
}

impl fmt::Debug for Request {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Request")
            .field("id", &self.message.id)
            .field("method", &self.message.method)
            .field("name", &self.name())
            .finish_non_exhaustive()
    }
}
