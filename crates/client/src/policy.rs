//! The policy that decides on input requests before their handlers see them.

use std::future::Future;
use std::pin::Pin;

use mrtr_schema::input::InputRequest;
use mrtr_transport::BoxError;

use crate::input_context::InputContext;

/// The decision of a policy on one input request. See
/// [`ClientBuilder::policy`](crate::ClientBuilder::policy).
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum PolicyDecision {
    /// Passes the input request to its handler.
    Allow,
    /// Declines the elicitation without calling its handler. Sampling and roots requests cannot be
    /// declined, so for them the call ends with an error.
    Decline,
    /// Ends the call with an error that contains this reason.
    Refuse(String),
}

type Decision = Pin<Box<dyn Future<Output = Result<PolicyDecision, BoxError>> + Send>>;
type Callback = Box<dyn Fn(InputContext, InputRequest) -> Decision + Send + Sync>;

/// The application's policy. Without one, every input request is allowed.
#[derive(Default)]
pub(crate) struct Policy(Option<Callback>);

impl Policy {
    pub(crate) fn new<F, Fut>(policy: F) -> Self
    where
        F: Fn(InputContext, InputRequest) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<PolicyDecision, BoxError>> + Send + 'static,
    {
        Self(Some(Box::new(move |context, request| Box::pin(policy(context, request)))))
    }

    pub(crate) async fn decide(
        &self,
        context: &InputContext,
        request: &InputRequest,
    ) -> Result<PolicyDecision, BoxError> {
        match &self.0 {
            None => Ok(PolicyDecision::Allow),
            Some(policy) => policy(context.clone(), request.clone()).await,
        }
    }
}
