//! How much work a schema is for a value.

use serde_json::Value;

use super::value_size::{BYTES_PER_NODE, comparisons};

/// What the engine that goes back can cost for a text, which it can read each time that it does.
const BACKTRACKS: u64 = 100;
const BACKTRACKS_PER_BYTE: u64 = 25;

/// The nodes of items that are compared, and count as one.
const COMPARED_PER_NODE: u64 = 16;

/// Patterns that are applied to a text.
#[derive(Debug, Default, Clone, Copy)]
pub(super) struct Scans {
    /// What they cost for each text.
    pub(super) each: u64,
    /// What they cost in addition for each part of a long text: every character can be compared
    /// with all parts of a pattern.
    pub(super) long: u64,
    /// The number of those for which the engine goes back.
    pub(super) backtracking: u64,
}

impl Scans {
    fn combine(self, other: Self, combine: fn(u64, u64) -> u64) -> Self {
        Self {
            each: combine(self.each, other.each),
            long: combine(self.long, other.long),
            backtracking: combine(self.backtracking, other.backtracking),
        }
    }

    fn on(self, text: &str) -> u64 {
        let units = (text.len() / BYTES_PER_NODE) as u64;
        let linear = self.each.saturating_add(self.long.saturating_mul(units));
        let read_again = BACKTRACKS + BACKTRACKS_PER_BYTE * text.len() as u64;
        linear.saturating_add(self.backtracking.saturating_mul(read_again))
    }
}

/// What is done at each node that is equally deep in a value.
#[derive(Debug, Default, Clone, Copy)]
pub(super) struct NodeWork {
    /// Subschemas that are applied.
    pub(super) visits: u64,
    /// What is applied to the node if it is a string.
    pub(super) text: Scans,
    /// What is applied to its name.
    pub(super) name: Scans,
    /// Arrays whose items are compared.
    pub(super) compares: u64,
}

impl NodeWork {
    pub(super) fn visits(visits: u64) -> Self {
        Self { visits, ..Self::default() }
    }

    fn combine(self, other: Self, combine: fn(u64, u64) -> u64) -> Self {
        Self {
            visits: combine(self.visits, other.visits),
            text: self.text.combine(other.text, combine),
            name: self.name.combine(other.name, combine),
            compares: combine(self.compares, other.compares),
        }
    }
}

/// How much is done for a value.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(super) struct Amount {
    /// Subschemas that are applied: there can be as many errors.
    pub(super) visits: u64,
    /// Everything, counted in visits.
    pub(super) total: u64,
}

impl Amount {
    /// Returns the rest, or `None` if it is too little.
    pub(super) fn minus(self, other: Self) -> Option<Self> {
        let visits = self.visits.checked_sub(other.visits)?;
        let total = self.total.checked_sub(other.total)?;
        Some(Self { visits, total })
    }
}

/// What is done at the nodes of a value, in the worst case, by depth below the node that a schema
/// is applied to.
#[derive(Debug, Default, Clone)]
pub(super) struct Work(Vec<NodeWork>);

impl Work {
    pub(super) fn of_node(work: NodeWork) -> Self {
        Self(vec![work])
    }

    /// Returns the same work for the members or items of a node.
    pub(super) fn of_children(mut self) -> Self {
        self.0.insert(0, NodeWork::default());
        self
    }

    /// Returns what is done at the node itself.
    pub(super) fn at_node(&self) -> NodeWork {
        self.0.first().copied().unwrap_or_default()
    }

    /// Adds what is done as well.
    pub(super) fn add(&mut self, other: &Self) {
        self.combine(other, u64::saturating_add);
    }

    /// Adds what is done instead, at other nodes.
    pub(super) fn or(&mut self, other: &Self) {
        self.combine(other, u64::max);
    }

    fn combine(&mut self, other: &Self, combine: fn(u64, u64) -> u64) {
        if self.0.len() < other.0.len() {
            self.0.resize(other.0.len(), NodeWork::default());
        }
        for (work, other) in self.0.iter_mut().zip(&other.0) {
            *work = work.combine(*other, combine);
        }
    }

    /// Returns the largest number of subschemas that are applied to one node.
    pub(super) fn most_visits(&self) -> u64 {
        self.0.iter().map(|work| work.visits).max().unwrap_or_default()
    }

    /// Returns how much is done for a value.
    pub(super) fn on(&self, value: &Value) -> Amount {
        let mut amount = Amount::default();
        let mut nodes = vec![("", value)];
        for (level, work) in self.0.iter().enumerate() {
            let is_last = level + 1 == self.0.len();
            let (mut count, mut other, mut children) = (0, 0_u64, Vec::new());
            for (name, node) in nodes {
                count += 1 + (name.len() / BYTES_PER_NODE) as u64;
                other = other.saturating_add(work.name.on(name));
                match node {
                    Value::Array(items) => {
                        if work.compares > 0 {
                            let (nodes, items) = comparisons(node);
                            let compared = nodes.saturating_add(items / COMPARED_PER_NODE);
                            other = other.saturating_add(work.compares.saturating_mul(compared));
                        }
                        if !is_last {
                            children.extend(items.iter().map(|item| ("", item)));
                        }
                    }
                    Value::Object(members) if !is_last => {
                        children.extend(members.iter().map(|(name, node)| (name.as_str(), node)));
                    }
                    Value::String(text) => {
                        count += (text.len() / BYTES_PER_NODE) as u64;
                        other = other.saturating_add(work.text.on(text));
                    }
                    _ => {}
                }
            }
            let visits = work.visits.saturating_mul(count);
            amount.visits = amount.visits.saturating_add(visits);
            amount.total = amount.total.saturating_add(visits).saturating_add(other);
            nodes = children;
        }
        amount
    }
}
