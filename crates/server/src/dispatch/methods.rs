//! Which methods a server answers.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use mrtr_schema::jsonrpc::Request;
use mrtr_schema::method;

use super::Outcome;
use crate::extension;
use crate::request_context::RequestContext;
use crate::server::Inner;

/// The methods of the protocol that a server may be asked for.
pub(crate) const OF_PROTOCOL: [&str; 10] = [
    method::DISCOVER,
    method::TOOLS_LIST,
    method::TOOLS_CALL,
    method::PROMPTS_LIST,
    method::PROMPTS_GET,
    method::RESOURCES_LIST,
    method::RESOURCE_TEMPLATES_LIST,
    method::RESOURCES_READ,
    method::COMPLETE,
    method::LISTEN,
];

/// Methods of the protocol, each with what answers it. It is what a builder is given that brings them in, so that a program has
/// no code for what its server has not; but for `tools/call`, which nearly all have.
pub(crate) type Methods = &'static [(&'static str, Own)];

/// Answers requests of one method of the protocol.
pub(crate) type Own = for<'r> fn(&'r Arc<Inner>, &'r Request, Box<RequestContext>) -> Answering<'r>;

pub(crate) type Answering<'r> = Pin<Box<dyn Future<Output = Outcome> + Send + 'r>>;

/// What answers a method, other than `tools/call`.
pub(crate) enum Method {
    Own(Own),
    Added(extension::Method),
}
