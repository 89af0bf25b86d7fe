//! Application state: values of any type, given to the builder and found by their type.

use std::any::{Any, TypeId, type_name};
use std::collections::HashMap;
use std::fmt;

/// The application state of a server, by type.
#[derive(Default)]
pub(crate) struct StateMap {
    values: HashMap<TypeId, Box<dyn Any + Send + Sync>>,
    /// The first type that was given twice.
    pub(crate) duplicate: Option<&'static str>,
}

impl StateMap {
    pub(crate) fn insert<T: Send + Sync + 'static>(&mut self, value: T) {
        if self.values.insert(TypeId::of::<T>(), Box::new(value)).is_some() {
            self.duplicate.get_or_insert(type_name::<T>());
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.values.is_empty()
    }

    pub(crate) fn get<T: 'static>(&self) -> Option<&T> {
        self.values.get(&TypeId::of::<T>())?.downcast_ref()
    }
}

impl fmt::Debug for StateMap {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StateMap").field("values", &self.values.len()).finish_non_exhaustive()
    }
}

/// The application state that a handler needs, as its extractors declare it.
///
/// `ServerBuilder::build` fails if any of it is missing.
#[derive(Debug, Default)]
pub struct StateRequirements(Vec<Requirement>);

/// The name of a type, and a check that its state was given.
type Requirement = (&'static str, fn(&StateMap) -> bool);

impl StateRequirements {
    /// Declares that the handler needs application state of type `T`.
    pub fn require<T: Send + Sync + 'static>(&mut self) {
        self.0.push((type_name::<T>(), |state| state.get::<T>().is_some()));
    }

    /// Returns the name of the first type that all of `states` lack.
    pub(crate) fn missing<'s>(
        &self,
        states: &(impl Iterator<Item = &'s StateMap> + Clone),
    ) -> Option<&'static str> {
        let mut missing = self.0.iter().filter(|(_, is_given)| !states.clone().any(is_given));
        missing.next().map(|(name, _)| *name)
    }
}
