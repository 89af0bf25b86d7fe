//! What can be set on more than one of tools, prompts, resources and resource templates.

use std::time::Duration;

use mrtr_schema::icon::Icon;
use schemars::JsonSchema;

use crate::client_feature::ClientFeature;
use crate::completion::{Completer, CompletionRequest};
use crate::error::Error;
use crate::form::form_of;
use crate::prompt::Prompt;
use crate::resource::{CacheControl, Resource, ResourceTemplate};
use crate::tool::Tool;

macro_rules! all_can_ask {
    ($($kind:ident),*) => {$(
        impl $kind {
            /// A name for people.
            pub fn title(mut self, title: impl Into<String>) -> Self {
                self.wire.title = Some(title.into());
                self
            }

            /// Icons for people.
            pub fn icons(mut self, icons: impl IntoIterator<Item = Icon>) -> Self {
                self.wire.icons.extend(icons);
                self
            }

            /// What the handler will ask in any case. A client that lacks a capability for it is told so
            /// before the handler runs (error -32021), rather than in the middle.
            pub fn asks(mut self, kinds: impl IntoIterator<Item = ClientFeature>) -> Self {
                self.rules.asks.extend(kinds);
                self
            }

            /// The handler will ask for the form of `T` in any case: as with [`asks`](Self::asks), a client that shows
            /// none is told so first. A `T` that no form can be made of is found when the server is built, and not
            /// when somebody is asked.
            pub fn requires_form<T: JsonSchema + 'static>(mut self) -> Self {
                if let Err(why) = form_of::<T>() {
                    self.rules.wrong_form.get_or_insert(why);
                }
                self.asks([ClientFeature::Form])
            }

            /// How long a person may take for the questions of one round. Default: 10 min. Counted in
            /// whole seconds.
            pub fn answer_timeout(mut self, time: Duration) -> Self {
                self.rules.answer_timeout = time;
                self
            }

            /// How long a flow may take from the end of its first round. Default: 1 h. Counted in whole seconds.
            pub fn lifetime(mut self, time: Duration) -> Self {
                self.rules.lifetime = time;
                self
            }

            /// How many rounds a flow may take. Default: 100. A handler that asks once more fails the call, so
            /// that one that never has enough (of a model, say) comes to an end.
            pub fn max_rounds(mut self, rounds: u32) -> Self {
                self.rules.max_rounds = rounds;
                self
            }

            /// Each state of a flow works once: the same request again gets the same response, and other answers are
            /// refused. The server needs a [`SingleUseStore`](crate::single_use::SingleUseStore); see [`crate::single_use`] for
            /// what this promises. A leg that comes with a state then runs in a task of its own (so it sees no
            /// task-local values of layers in front), to its end, even if its client goes away.
            pub fn single_use(mut self) -> Self {
                self.rules.single_use = true;
                self
            }

            /// Which version of the handler this is. Default: 0. Raise it when what the handler does changes, together
            /// with [`min_compatible_version`](Self::min_compatible_version) if calls that an earlier version began cannot
            /// be gone on with.
            ///
            /// Without more, they are gone on with by key, also by replicas of an earlier version: answers and results
            /// of steps stand under keys that both have, and a question that reads differently is asked again.
            pub fn version(mut self, version: u32) -> Self {
                self.rules.version.number = version;
                self
            }

            /// Calls that a version before this one began start over: nothing that was answered or done counts. Steps
            /// run again, and get the [idempotency keys](crate::Step::idempotency_key) that they had for the same
            /// answers. Default: 0, none does.
            ///
            /// A replica whose version is before this one refuses what this one began, as a state that is not valid
            /// (-32602), so that no call goes to and fro between the two. While both run, send a call to one of them, or let
            /// clients begin again.
            pub fn min_compatible_version(mut self, version: u32) -> Self {
                self.rules.version.since = version;
                self
            }

            /// How long one leg may run. Default: 1 min. Then the handler is dropped, and the call fails.
            pub fn deadline(mut self, time: Duration) -> Self {
                self.rules.deadline = time;
                self
            }
        }
    )*};
}
all_can_ask!(Tool, Prompt, Resource, ResourceTemplate);

macro_rules! have_contents {
    ($($kind:ident),*) => {$(
        impl $kind {
            /// What it is, for people and the model.
            pub fn description(mut self, text: impl Into<String>) -> Self {
                self.wire.description = Some(text.into());
                self
            }

            /// The media type of its contents, where the handler names none.
            pub fn mime_type(mut self, mime_type: impl Into<String>) -> Self {
                self.wire.mime_type = Some(mime_type.into());
                self
            }

            /// For how long its contents may be reused, and by whom. Default: not at all.
            pub fn cache(mut self, cache: CacheControl) -> Self {
                self.cache = cache;
                self
            }
        }
    )*};
}
have_contents!(Resource, ResourceTemplate);

macro_rules! can_suggest {
    ($($kind:ident),*) => {$(
        impl $kind {
            /// Suggests values for an argument of the prompt, or a variable of the template
            /// (`completion/complete`).
            pub fn complete<F, Fut>(mut self, argument: impl Into<String>, suggest: F) -> Self
            where
                F: Fn(CompletionRequest) -> Fut + Send + Sync + 'static,
                Fut: Future<Output = Result<Vec<String>, Error>> + Send + 'static,
            {
                self.completers.push((argument.into(), Completer::new(suggest)));
                self
            }
        }
    )*};
}
can_suggest!(Prompt, ResourceTemplate);
