//! The options that all kinds of handlers have: limits of a call, required client features, and
//! versions.

use std::sync::Arc;
use std::time::Duration;

use crate::client_feature::ClientFeature;
use crate::middleware::Next;
use crate::request_parts::RequestParts;
use crate::rounds::Version;
use crate::state::{StateMap, StateRequirements};
use crate::visibility::VisibilityRule;

/// The options of the calls of one tool, prompt, resource or resource template.
#[derive(Debug)]
pub(crate) struct CallOptions {
    /// The features that a client must have before the handler runs.
    pub(crate) requires: Vec<ClientFeature>,
    /// The scopes that the access token must have before the handler runs.
    pub(crate) scopes: Vec<String>,
    /// The rules about who can see it; all of them must allow a caller.
    pub(crate) visibility: Vec<VisibilityRule>,
    /// The layers around it.
    pub(crate) layers: Option<Next>,
    /// The reason why a required form cannot be built. `build` reports it.
    pub(crate) form_error: Option<String>,
    /// The validity period of one request state.
    pub(crate) answer_timeout: Duration,
    /// The longest time from the end of a call's first round to its last round.
    pub(crate) call_timeout: Duration,
    /// The most rounds of one call.
    pub(crate) max_rounds: u32,
    /// The longest time that one request may take.
    pub(crate) request_timeout: Duration,
    pub(crate) single_use: SingleUse,
    /// The version of the handler.
    pub(crate) version: Version,
    /// True if the handler is in the manual form and keeps its own state.
    pub(crate) manual: bool,
    /// True if clients may subscribe to changes. Of resources and their templates.
    pub(crate) subscribable: bool,
    /// The application state of the groups that contain it, the innermost first.
    pub(crate) group_states: Vec<Arc<StateMap>>,
    /// The application state that the handler extracts.
    pub(crate) state: StateRequirements,
}

/// The number of times that the server accepts a request state.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum SingleUse {
    /// Unlimited, until the request state expires.
    Off,
    /// Once. The identical request gets the same response again.
    On,
    /// Once. After the first request has completed, even the identical request is refused.
    Strict,
}

impl SingleUse {
    pub(crate) fn is_on(self) -> bool {
        self != Self::Off
    }
}

impl CallOptions {
    pub(crate) fn new(state: StateRequirements, manual: bool) -> Self {
        Self {
            requires: Vec::new(),
            scopes: Vec::new(),
            visibility: Vec::new(),
            layers: None,
            form_error: None,
            answer_timeout: Duration::from_mins(10),
            call_timeout: Duration::from_hours(1),
            max_rounds: 100,
            request_timeout: Duration::from_mins(1),
            single_use: SingleUse::Off,
            version: Version::default(),
            manual,
            subscribable: true,
            group_states: Vec::new(),
            state,
        }
    }

    /// Returns the name of a type of application state that the handler extracts and that neither
    /// its groups nor its server have.
    pub(crate) fn missing_state(&self, of_server: &StateMap) -> Option<&'static str> {
        let of_groups = self.group_states.iter().map(|state| &**state);
        self.state.missing(&of_groups.chain([of_server]))
    }

    /// Returns true if there are rules about who can see the feature.
    pub(crate) fn has_rules(&self) -> bool {
        !self.visibility.is_empty()
    }

    /// Returns true if the caller can see the feature.
    pub(crate) fn is_visible_to(&self, caller: &RequestParts) -> bool {
        !caller.hides_target && self.visibility.iter().all(|rule| rule.allows(caller))
    }
}
