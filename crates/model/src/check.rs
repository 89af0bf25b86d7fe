//! The check: every state that can be reached.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use stateright::{Checker as _, HasDiscoveries, Model, Property};

use crate::actions::Action;
use crate::history::{Rule, Visited};
use crate::scale::{Fault, Scale};
use crate::state::State;

/// The outcome of a check.
#[derive(Debug)]
pub struct Report {
    /// The number of different states.
    pub states: usize,
    /// The broken rules, each with the actions that lead there.
    pub broken: Vec<(Rule, Vec<String>)>,
    /// The situations that were reached.
    visited: u32,
}

impl Report {
    /// Returns the situations that were not reached.
    pub fn unvisited(&self) -> Vec<Visited> {
        let all = Visited::ALL.into_iter();
        all.filter(|visited| self.visited & *visited as u32 == 0).collect()
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} states", self.states)?;
        for (rule, actions) in &self.broken {
            write!(f, "\nbroken: {} ({rule:?}), by\n  {}", rule.name(), actions.join("\n  "))?;
        }
        Ok(())
    }
}

/// Visits every state, or, if a rule is broken, states up to that point.
pub fn check(scale: Scale, fault: Option<Fault>) -> Report {
    let visited = Arc::new(AtomicU32::new(0));
    let model = TaskModel { scale, fault, visited: Arc::clone(&visited) };
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    let checker = model.checker().threads(threads).finish_when(HasDiscoveries::AnyFailures);
    let checker = checker.spawn_bfs().join();
    let discoveries = checker.discoveries();
    let mut broken = Vec::new();
    for rule in Rule::ALL {
        if let Some(path) = discoveries.get(rule.name()) {
            let actions = path.clone().into_actions();
            broken.push((rule, actions.iter().map(|action| format!("{action:?}")).collect()));
        }
    }
    let states = checker.unique_state_count();
    Report { states, broken, visited: visited.load(Ordering::Relaxed) }
}

pub(crate) struct TaskModel {
    pub(crate) scale: Scale,
    pub(crate) fault: Option<Fault>,
    /// The situations that were reached, as bits. They are no part of the state.
    pub(crate) visited: Arc<AtomicU32>,
}

impl Model for TaskModel {
    type State = State;
    type Action = Action;

    fn init_states(&self) -> Vec<State> {
        State::initial(&self.scale)
    }

    fn actions(&self, state: &State, actions: &mut Vec<Action>) {
        self.list_actions(state, actions);
    }

    fn next_state(&self, before: &State, action: Action) -> Option<State> {
        let mut state = before.clone();
        self.perform(&mut state, action)?;
        Some(state)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        let holds = |rule: Rule| -> fn(&Self, &State) -> bool {
            match rule {
                Rule::OneEnd => |_, state| !state.history.is_broken(Rule::OneEnd),
                Rule::OnceRecorded => |_, state| !state.history.is_broken(Rule::OnceRecorded),
                Rule::OneKey => |_, state| !state.history.is_broken(Rule::OneKey),
                Rule::LeaseRequired => |_, state| !state.history.is_broken(Rule::LeaseRequired),
                Rule::OneHolder => |_, state| !state.history.is_broken(Rule::OneHolder),
                Rule::FirstAnswer => |_, state| !state.history.is_broken(Rule::FirstAnswer),
                Rule::OneEpoch => |_, state| !state.history.is_broken(Rule::OneEpoch),
                Rule::Cancelled => |_, state| !state.history.is_broken(Rule::Cancelled),
                Rule::SameJournal => |_, state| !state.history.is_broken(Rule::SameJournal),
                // Every action uses something up, so that no history is endless: the task ends in
                // all of them if it has ended wherever nothing can happen.
                Rule::Progress => Self::can_go_on,
            }
        };
        Rule::ALL.into_iter().map(|rule| Property::always(rule.name(), holds(rule))).collect()
    }
}

impl TaskModel {
    fn can_go_on(&self, state: &State) -> bool {
        let mut actions = Vec::new();
        if state.store.is_open() {
            self.list_actions(state, &mut actions);
            actions.retain(|action| *action != Action::Cancel);
        }
        !state.store.is_open() || state.history.is_restored || !actions.is_empty()
    }
}
