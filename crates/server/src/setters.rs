//! Builder methods shared by tools, prompts, resources and resource templates.

use std::time::Duration;

use mrtr_schema::completion::Completion;
use mrtr_schema::icon::Icon;
use schemars::JsonSchema;
use tower_layer::Layer;

use crate::call_options::SingleUse;
use crate::client_feature::ClientFeature;
use crate::completion::{Completer, CompletionRequest};
use crate::error::Error;
use crate::form::form_of;
use crate::middleware::{Next, RequestService};
use crate::prompt::Prompt;
use crate::request_parts::RequestParts;
use crate::resource::{CacheControl, Resource, ResourceTemplate};
use crate::tool::Tool;
use crate::visibility::VisibilityRule;

macro_rules! call_setters {
    ($($kind:ident),*) => {$(
        impl $kind {
            /// Sets the title that hosts show to users.
            pub fn title(mut self, title: impl Into<String>) -> Self {
                self.wire.title = Some(title.into());
                self
            }

            /// Adds icons that hosts show to users.
            pub fn icons(mut self, icons: impl IntoIterator<Item = Icon>) -> Self {
                self.wire.icons.extend(icons);
                self
            }

            /// Declares client features that the handler always needs.
            ///
            /// A client that lacks one of them gets -32021 (missing client capability) before the
            /// handler runs, instead of in the middle of a call.
            pub fn requires(mut self, features: impl IntoIterator<Item = ClientFeature>) -> Self {
                self.options.requires.extend(features);
                self
            }

            /// Declares a scope that the caller's access token must have (specification:
            /// authorization). Call it for each scope.
            ///
            /// A request without it gets 403 before the handler runs, with a challenge that names
            /// all scopes that the call needs. Scopes that only some calls need are for
            /// [`Context::require_scope`](crate::Context::require_scope). The contents of a
            /// resource with a scope of either kind are `private` to their caller (specification:
            /// caching).
            ///
            /// The layer that checks tokens attaches the scopes
            /// ([`GrantedScopes`](mrtr_transport::GrantedScopes)). An HTTP request without them has
            /// none. Requests over stdio have all, since the user has started the server.
            pub fn requires_scope(mut self, scope: impl Into<String>) -> Self {
                self.options.scopes.push(scope.into());
                self
            }

            /// Hides the feature from callers that the rule does not allow. Add more rules by more
            /// calls; all must allow a caller. Default: every caller can see it.
            ///
            /// A hidden feature is in no list. Calls, later rounds, completions, reads and requests
            /// about tasks get the same error as for an unknown name, URI or task. Subscriptions
            /// omit it. A list with rules is `private` to its caller (specification: caching), and
            /// so are the contents of a resource with rules. A task continues when a rule begins to
            /// hide its tool, but its caller cannot see it until the rule allows the tool again.
            ///
            /// The rule sees the request: the [principal](crate::RequestParts::principal), the
            /// [scopes](crate::RequestParts::has_scope), the
            /// [headers](crate::RequestParts::headers) and the
            /// [capabilities](crate::RequestParts::capabilities) of the client. Only the first two
            /// are authenticated. In a subscription it is the request that began it, and in a call
            /// of a legacy revision the one that began the call.
            ///
            /// It runs for each use and for each item of each list, so it must be fast, and must
            /// not block. If it panics and unwinds, the item is hidden. If its answer changes for
            /// a caller, [publish](crate::ChangeNotifier::publish) the change of the list.
            ///
            /// A URI belongs to the resource that has it, or to the first template that matches
            /// it, even if that is disabled. So do URIs of a broader template that its handler
            /// may take for the same: in another percent-encoding or letter case, or with other
            /// slashes, parameters or a fragment. Other Unicode normalization forms are not
            /// compared. Add hidden templates before broader ones. A handler that fetches what its
            /// caller names should check that, too.
            ///
            /// Callers can notice that something is hidden, but not what: a list is `private`, and
            /// `list_changed` is sent to all subscribers. To list a feature, and tell clients what
            /// to log in for, use [`requires_scope`](Self::requires_scope) instead.
            pub fn visible_to(
                mut self,
                rule: impl Fn(&RequestParts) -> bool + Send + Sync + 'static,
            ) -> Self {
                self.options.visibility.push(VisibilityRule::new(rule));
                self
            }

            /// Adds a [layer](crate::middleware) around the handler. It runs for each round of
            /// callers that can see the feature, and the layer that is added last runs first.
            /// Default: none.
            pub fn layer<L>(mut self, layer: L) -> Self
            where
                L: Layer<Next, Service: RequestService>,
            {
                let next = self.options.layers.take().unwrap_or_else(Next::method);
                self.options.layers = Some(next.wrapped_by(&layer));
                self
            }

            /// Declares that the handler always asks for the form of `T`.
            ///
            /// Equivalent to [`requires`](Self::requires) with [`ClientFeature::Form`]. In
            /// addition, building the server fails if no form can be built from `T`.
            pub fn requires_form<T: JsonSchema + 'static>(mut self) -> Self {
                if let Err(why) = form_of::<T>() {
                    self.options.form_error.get_or_insert(why);
                }
                self.requires([ClientFeature::Form])
            }

            /// Sets how long the client may take to answer the input requests of one round: the
            /// validity of one request state. Default: 10 min.
            ///
            /// Counted in whole seconds; less than one second is a build error.
            pub fn answer_timeout(mut self, time: Duration) -> Self {
                self.options.answer_timeout = time;
                self
            }

            /// Sets how long a call may take, from the end of its first round. Default: 1 h.
            ///
            /// Counted in whole seconds; less than one second is a build error.
            pub fn call_timeout(mut self, time: Duration) -> Self {
                self.options.call_timeout = time;
                self
            }

            /// Sets the maximum number of rounds that may end without a result. Default: 100. Zero
            /// is a build error. Hand-overs to other replicas, of which there are at most two, do
            /// not count.
            ///
            /// A call that needs more fails.
            pub fn max_rounds(mut self, rounds: u32) -> Self {
                self.options.max_rounds = rounds;
                self
            }

            /// Accepts each request state only once.
            ///
            /// The identical request gets the same response again; other answers are refused. The
            /// server needs a [`SingleUseStore`](crate::single_use::SingleUseStore); see
            /// [`crate::single_use`] for the guarantees. A request with a state then runs in a task
            /// of its own, to its end, even if its client disconnects. Task-local values of layers
            /// in front of the server are not visible there.
            pub fn single_use(mut self) -> Self {
                self.options.single_use = SingleUse::On;
                self
            }

            /// Accepts each request state only once, and refuses even the identical request after
            /// the first has completed.
            ///
            /// Like [`single_use`](Self::single_use), but no response is stored: a client that
            /// loses a response cannot get it again.
            pub fn strict_single_use(mut self) -> Self {
                self.options.single_use = SingleUse::Strict;
                self
            }

            /// Sets the version of the handler. Default: 0.
            ///
            /// Raise it when the handler's behaviour changes. By default, calls continue across
            /// versions in both directions: answers and step results are matched by key, and a
            /// question that reads differently is asked again. Use
            /// [`min_compatible_version`](Self::min_compatible_version) where that is wrong.
            pub fn version(mut self, version: u32) -> Self {
                self.options.version.number = version;
                self
            }

            /// Restarts calls that a version before this one began: their answers and step results
            /// are dropped. Default: 0, which restarts no calls.
            ///
            /// Steps run again, with the [idempotency keys](crate::Step::idempotency_key) they had
            /// for the same answers. Replicas whose version is lower refuse calls that this one
            /// began (-32602), so that no call alternates between the two. During a rollout, route
            /// a call to one version, or let clients start over.
            pub fn min_compatible_version(mut self, version: u32) -> Self {
                self.options.version.since = version;
                self
            }

            /// Sets how long the handler may run in one request. Default: 1 min. Zero is a build
            /// error.
            ///
            /// When the time is over, the handler is dropped and the call fails.
            pub fn request_timeout(mut self, time: Duration) -> Self {
                self.options.request_timeout = time;
                self
            }
        }
    )*};
}
call_setters!(Tool, Prompt, Resource, ResourceTemplate);

macro_rules! content_setters {
    ($($kind:ident),*) => {$(
        impl $kind {
            /// Sets the description for users and the model.
            pub fn description(mut self, text: impl Into<String>) -> Self {
                self.wire.description = Some(text.into());
                self
            }

            /// Sets the media type of contents, unless the handler sets another one.
            pub fn mime_type(mut self, mime_type: impl Into<String>) -> Self {
                self.wire.mime_type = Some(mime_type.into());
                self
            }

            /// Sets how long, and by which callers, its contents may be reused. Default: no reuse.
            ///
            /// A [`ReadResourceResult`](mrtr_schema::resource::ReadResourceResult) that the handler
            /// returns has its own hints. [`ResourceOutput`](crate::ResourceOutput) has these.
            pub fn cache(mut self, cache: CacheControl) -> Self {
                self.cache = cache;
                self
            }

            /// Sets whether clients may subscribe to its changes. Default: `true`, which has an
            /// effect only if the server [publishes changes](crate::ServerBuilder::changes).
            ///
            /// With `false`, the acknowledgement of a subscription omits it, so that a client does
            /// not rely on notifications that never come (specification: subscriptions).
            pub fn subscribable(mut self, subscribable: bool) -> Self {
                self.options.subscribable = subscribable;
                self
            }
        }
    )*};
}
content_setters!(Resource, ResourceTemplate);

macro_rules! completion_setters {
    ($($kind:ident),*) => {$(
        impl $kind {
            /// Sets the function that suggests values for an argument of the prompt, or for a
            /// variable of the template (`completion/complete`).
            ///
            /// It returns all suggestions, the best first. Clients get the first 100.
            pub fn complete<F, Fut>(mut self, argument: impl Into<String>, suggest: F) -> Self
            where
                F: Fn(CompletionRequest) -> Fut + Send + Sync + 'static,
                Fut: Future<Output = Result<Vec<String>, Error>> + Send + 'static,
            {
                self.completers.named.push((argument.into(), Completer::new(suggest)));
                self
            }

            /// Sets the function that suggests values for all arguments, or variables, that have
            /// no [function of their own](Self::complete). It returns at most 100 suggestions, and
            /// says how many there are.
            pub fn complete_others<F, Fut>(mut self, suggest: F) -> Self
            where
                F: Fn(CompletionRequest) -> Fut + Send + Sync + 'static,
                Fut: Future<Output = Result<Completion, Error>> + Send + 'static,
            {
                self.completers.others = Some(Completer::new(suggest));
                self
            }
        }
    )*};
}
completion_setters!(Prompt, ResourceTemplate);
