//! Scopes that imply others (specification: authorization, scope hierarchies).

use crate::Scopes;

/// The implications between scopes.
#[derive(Debug, Clone, Default)]
pub(super) struct ScopeHierarchy(Vec<(Scopes, Scopes)>);

impl ScopeHierarchy {
    /// Adds an implication between two single scopes.
    pub(super) fn insert(&mut self, broader: Scopes, narrower: Scopes) {
        self.0.push((broader, narrower));
    }

    /// Returns `scopes` and all that they imply, directly or through others.
    pub(super) fn expand(&self, mut scopes: Scopes) -> Scopes {
        // Each pass adds a scope of the hierarchy, so there are at most as many passes as
        // implications.
        while let Some((_, narrower)) = self.0.iter().find(|(broader, narrower)| {
            scopes.contains_all(broader) && !scopes.contains_all(narrower)
        }) {
            scopes = scopes.union(narrower);
        }
        scopes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn implications_are_transitive_and_may_be_circular() {
        let mut hierarchy = ScopeHierarchy::default();
        for (broader, narrower) in [("write", "read"), ("admin", "write"), ("read", "read")] {
            let [broader, narrower] = [broader, narrower].map(|s| Scopes::parse(s).unwrap());
            hierarchy.insert(broader, narrower);
        }
        let expanded = |scopes| hierarchy.expand(Scopes::parse(scopes).unwrap()).to_string();
        assert_eq!(expanded("admin"), "admin write read");
        assert_eq!(expanded("write other"), "write other read");
        assert_eq!(expanded("read"), "read");
        assert_eq!(expanded(""), "");
    }
}
