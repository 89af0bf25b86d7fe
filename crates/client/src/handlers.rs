//! The application's handlers of input requests.

use std::fmt;
use std::future::Future;
use std::pin::Pin;

use mrtr_schema::Object;
use mrtr_schema::capabilities::{
    ClientCapabilities, ElicitationCapability, RootsCapability, SamplingCapability,
};
use mrtr_schema::elicitation::{ElicitParams, ElicitResult, FormParams, UrlParams};
use mrtr_schema::input::{InputRequest, InputRequests, InputResponses};
use mrtr_schema::peer_text::quote;
use mrtr_schema::roots::{ListRootsResult, Root};
use mrtr_schema::sampling::{CreateMessageParams, CreateMessageResult};
use mrtr_transport::BoxError;
use serde_json::value::RawValue;

use crate::answers;
use crate::error::CallError;
use crate::input_context::InputContext;
use crate::json::encode_response;
use crate::observer::{CallEvent, Observer};
use crate::policy::{Policy, PolicyDecision};

type HandlerFuture<R> = Pin<Box<dyn Future<Output = Result<R, BoxError>> + Send>>;
type Handler<P, R> = Box<dyn Fn(InputContext, P) -> HandlerFuture<R> + Send + Sync>;

/// The handlers of a client. It declares a capability for each.
#[derive(Default)]
pub(crate) struct Handlers {
    pub(crate) form: Option<Handler<FormParams, ElicitResult>>,
    pub(crate) url: Option<Handler<UrlParams, ElicitResult>>,
    pub(crate) sample: Option<Handler<CreateMessageParams, CreateMessageResult>>,
    /// `sample` accepts requests with tools.
    pub(crate) sampling_tools: bool,
    /// `sample` accepts requests with the context of servers.
    pub(crate) sampling_context: bool,
    pub(crate) roots: Option<Handler<(), Vec<Root>>>,
}

/// Erases the type of a handler.
pub(crate) fn boxed<P, R, F, Fut>(handler: F) -> Handler<P, R>
where
    F: Fn(InputContext, P) -> Fut + Send + Sync + 'static,
    Fut: Future<Output = Result<R, BoxError>> + Send + 'static,
{
    Box::new(move |context, params| Box::pin(handler(context, params)))
}

impl Handlers {
    /// Returns the capabilities that the handlers add up to.
    pub(crate) fn capabilities(&self) -> ClientCapabilities {
        let mut elicitation = ElicitationCapability::default();
        elicitation.form = self.form.as_ref().map(|_| Object::new());
        elicitation.url = self.url.as_ref().map(|_| Object::new());
        let mut sampling = SamplingCapability::default();
        sampling.context = self.sampling_context.then(Object::new);
        sampling.tools = self.sampling_tools.then(Object::new);
        let mut capabilities = ClientCapabilities::default();
        capabilities.elicitation =
            (self.form.is_some() || self.url.is_some()).then_some(elicitation);
        capabilities.sampling = self.sample.as_ref().map(|_| sampling);
        capabilities.roots = self.roots.as_ref().map(|_| RootsCapability::default());
        capabilities
    }

    /// Answers all input requests of a round concurrently. The first failure drops the others.
    pub(crate) async fn answer_all(
        &self,
        policy: &Policy,
        observer: &Observer,
        requests: InputRequests,
        origin: &InputContext,
    ) -> Result<InputResponses, CallError> {
        let responses = requests.0.into_iter().map(|(key, request)| async move {
            let context = InputContext { key: key.clone(), ..origin.clone() };
            observer.notify(CallEvent::InputRequested { context: &context, request: &request });
            let response = match policy.decide(&context, &request).await {
                Ok(PolicyDecision::Allow) => self.answer(context.clone(), request).await,
                Ok(PolicyDecision::Decline) => decline(&key, &request),
                Ok(PolicyDecision::Refuse(reason)) => Err(refused(&key, &reason)),
                Err(source) => Err(policy_failed(&key, source)),
            };
            let outcome = response.as_ref().map(|response| &**response);
            observer.notify(CallEvent::InputFinished { context: &context, outcome });
            Ok::<_, CallError>((key, response?))
        });
        futures_util::future::try_join_all(responses).await.map(InputResponses)
    }

    async fn answer(
        &self,
        context: InputContext,
        request: InputRequest,
    ) -> Result<Box<RawValue>, CallError> {
        let key = context.key.clone();
        match request {
            InputRequest::Elicit(ElicitParams::Form(params)) => {
                let schema = params.requested_schema.clone();
                let result = call(self.form.as_ref(), context, params, "elicitation.form").await?;
                encode_response(&answers::validate_form(&key, &schema, result)?)
            }
            InputRequest::Elicit(ElicitParams::Url(params)) => {
                let result = call(self.url.as_ref(), context, params, "elicitation.url").await?;
                encode_response(&answers::without_content(result))
            }
            InputRequest::Sample(params) => {
                let may_use_tools = params.may_use_tools();
                let result = call(self.sample.as_ref(), context, *params, "sampling").await?;
                answers::validate_sampling(&key, may_use_tools, &result)?;
                encode_response(&result)
            }
            InputRequest::Roots => {
                let roots = call(self.roots.as_ref(), context, (), "roots").await?;
                answers::validate_roots(&roots)?;
                encode_response(&ListRootsResult::new(roots))
            }
            other => Err(answers::unknown_method(&key, &other)),
        }
    }
}

/// Calls a handler, if the client has it.
async fn call<P, R>(
    handler: Option<&Handler<P, R>>,
    context: InputContext,
    params: P,
    capability: &str,
) -> Result<R, CallError> {
    let key = context.key.clone();
    let handler = handler.ok_or_else(|| CallError::undeclared(&key, capability))?;
    handler(context, params).await.map_err(|source| {
        let key = quote(&key);
        CallError::handler(
            format!("the handler of input request {key} failed: {source}"),
            Some(source),
        )
    })
}

fn decline(key: &str, request: &InputRequest) -> Result<Box<RawValue>, CallError> {
    match request {
        InputRequest::Elicit(_) => encode_response(&ElicitResult::decline()),
        other => Err(refused(key, &format!("{} cannot be declined", other.method()))),
    }
}

fn refused(key: &str, reason: &str) -> CallError {
    let key = quote(key);
    CallError::handler(format!("the policy refused input request {key}: {reason}"), None)
}

fn policy_failed(key: &str, source: BoxError) -> CallError {
    let key = quote(key);
    CallError::handler(format!("the policy failed for input request {key}: {source}"), Some(source))
}

impl fmt::Debug for Handlers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Handlers").field(&self.capabilities()).finish()
    }
}
