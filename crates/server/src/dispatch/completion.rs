//! `completion/complete`.

use std::sync::Arc;
use std::time::Duration;

use mrtr_schema::completion::{
    CompleteArgument, CompleteParams, CompleteResult, Completion, Reference,
};
use mrtr_schema::jsonrpc::{ErrorObject, Request};
use mrtr_schema::method;

use super::panics::catch_panics;
use super::scopes::check_scopes;
use super::{log_handler_error, unknown};
use crate::call_options::CallOptions;
use crate::completion::{Completers, CompletionRequest};
use crate::registry::{Methods, Outcome, Registry, ResponseFuture};
use crate::request_parts::RequestParts;

/// The timeout of a completer.
const COMPLETION_TIMEOUT: Duration = Duration::from_secs(30);

pub(crate) const METHODS: Methods = &[(method::COMPLETE, complete)];

fn complete(
    server: Arc<Registry>,
    request: &Request,
    parts: Box<RequestParts>,
) -> ResponseFuture<'_> {
    Box::pin(async move { server.suggest(CompleteParams::from_request(request)?, parts).await })
}

/// A prompt or a resource template, and what it suggests.
struct Completable<'a> {
    /// The names of its arguments or variables.
    declared: Vec<&'a str>,
    completers: &'a Completers,
    options: &'a CallOptions,
}

impl Registry {
    async fn suggest(&self, call: CompleteParams, mut parts: Box<RequestParts>) -> Outcome {
        let Completable { declared, completers, options } =
            self.completable(&call.r#ref, &parts)?;
        check_scopes(options, &parts, None)?;
        parts.group_states.clone_from(&options.group_states);
        let CompleteParams { argument, context, .. } = call;
        if !declared.contains(&argument.name.as_str()) {
            return Err(unknown("argument", &argument.name));
        }
        let mut arguments = context.unwrap_or_default().arguments;
        arguments.retain(|name, _| declared.contains(&name.as_str()));
        let mut completion = match completers.find(&argument.name) {
            None => Completion::from(Vec::new()),
            Some(completer) => {
                let CompleteArgument { name: argument, value, .. } = argument;
                let completing = CompletionRequest { argument, value, arguments, parts };
                let suggesting = catch_panics(|| completer.suggest(completing));
                let suggested = tokio::time::timeout(COMPLETION_TIMEOUT, suggesting).await;
                let timed_out = |_| {
                    tracing::error!(target: "mrtr::handler", "completion timed out");
                    ErrorObject::internal("Internal error")
                };
                suggested
                    .map_err(timed_out)??
                    .map_err(|error| log_handler_error(&error, "completion failed"))?
            }
        };
        if completion.values.len() > Completion::MAX_VALUES {
            completion.values.truncate(Completion::MAX_VALUES);
            completion.has_more = Some(true);
        }
        self.complete(&CompleteResult::new(completion))
    }

    /// Returns what a reference names, if the caller can see it.
    fn completable(
        &self,
        reference: &Reference,
        caller: &RequestParts,
    ) -> Result<Completable<'_>, ErrorObject> {
        match reference {
            Reference::Prompt { name } => {
                let prompt = self.prompts.find_visible(name, caller);
                let prompt = prompt.ok_or_else(|| unknown("prompt", name))?;
                let declared = prompt.wire.arguments.iter().map(|argument| argument.name.as_str());
                let (completers, options) = (&prompt.completers, &prompt.options);
                Ok(Completable { declared: declared.collect(), completers, options })
            }
            Reference::Resource { uri } => {
                // The reference is the template itself, or a URI that matches it.
                let own = self.templates.find(uri);
                let by_uri = || {
                    self.matching_template(uri).filter(|found| {
                        found.1.options.is_visible_to(caller) && !self.hides_uri(uri, caller)
                    })
                };
                let found = match own {
                    Some(own) => Some(own).filter(|own| own.1.options.is_visible_to(caller)),
                    None => by_uri(),
                };
                let (template, resource) =
                    found.ok_or_else(|| unknown("resource template", uri))?;
                let (completers, options) = (&resource.completers, &resource.options);
                Ok(Completable { declared: template.names().collect(), completers, options })
            }
            _ => Err(ErrorObject::invalid_params("Invalid params: unknown type of `ref`")),
        }
    }

    /// Returns the options of what a request for suggestions names, if the caller can see it.
    pub(super) fn completion_options(
        &self,
        request: &Request,
        caller: &RequestParts,
    ) -> Option<&CallOptions> {
        let call = CompleteParams::from_request(request).ok()?;
        Some(self.completable(&call.r#ref, caller).ok()?.options)
    }
}
