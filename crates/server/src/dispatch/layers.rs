//! The way of a request through the layers around the server, and around what it names.

use std::sync::Arc;

use mrtr_schema::jsonrpc;
use mrtr_schema::method;

use super::panics::catch_panics;
use crate::call_options::CallOptions;
use crate::middleware::{Dispatch, Next, Request, Response, ResponseFuture};
use crate::registry::{Outcome, Registry};
use crate::request_parts::RequestParts;

impl Registry {
    /// Answers a request through the layers.
    pub(super) async fn respond_through_layers(
        self: Arc<Self>,
        message: jsonrpc::Request,
        parts: Box<RequestParts>,
    ) -> Outcome {
        let next = self.layers.clone().unwrap_or_else(Next::feature);
        let request = Request::new(self, message, parts);
        let response = catch_panics(|| Box::pin(next.run(request))).await??;
        Ok(response.0)
    }

    /// Returns the options of what a request names, if the caller can see it.
    fn target_options(&self, request: &Request) -> Option<&CallOptions> {
        if request.method() == method::COMPLETE {
            return self.completion_options(&request.message, &request.parts);
        }
        let name = request.name()?;
        let options = match request.method() {
            method::TOOLS_CALL => &self.tool(&name)?.options,
            method::PROMPTS_GET => &self.prompt(&name)?.options,
            _ if self.hides_uri(&name, &request.parts) => return None,
            _ => self.resource_options(&name)?,
        };
        options.is_visible_to(&request.parts).then_some(options)
    }
}

impl Dispatch for Registry {
    fn run_feature(self: Arc<Self>, mut request: Request) -> ResponseFuture {
        let options = self.target_options(&request);
        let names_target = || request.method() == method::COMPLETE || request.name().is_some();
        request.parts.hides_target = options.is_none() && names_target();
        let layers = options.and_then(|options| options.layers.clone());
        Box::pin(layers.unwrap_or_else(Next::method).run(request))
    }

    fn run_method(self: Arc<Self>, request: Request) -> ResponseFuture {
        Box::pin(async move {
            let Request { message, parts, dispatch } = request;
            drop(dispatch);
            self.dispatch(&message, parts).await.map(Response)
        })
    }
}
