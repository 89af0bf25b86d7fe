//! How much work a schema is for a value.

use serde_json::Value;

use super::value_size::{BYTES_PER_NODE, comparisons};

/// How many nodes the bytes that count as one are for a pattern.
const PATTERN_FACTOR: u64 = 16;

/// The nodes of items that are compared, and count as one.
const COMPARED_PER_NODE: u64 = 16;

/// What is done at each node that is equally deep in a value.
#[derive(Debug, Default, Clone, Copy)]
pub(super) struct NodeWork {
    /// Subschemas that are applied.
    pub(super) visits: u64,
    /// Patterns that are applied.
    pub(super) scans: u64,
    /// Arrays whose items are compared.
    pub(super) compares: u64,
}

impl NodeWork {
    pub(super) fn visits(visits: u64) -> Self {
        Self { visits, ..Self::default() }
    }

    pub(super) fn times(self, count: u64) -> Self {
        Self {
            visits: self.visits.saturating_mul(count),
            scans: self.scans.saturating_mul(count),
            compares: self.compares.saturating_mul(count),
        }
    }

    fn add(self, other: Self) -> Self {
        Self {
            visits: self.visits.saturating_add(other.visits),
            scans: self.scans.saturating_add(other.scans),
            compares: self.compares.saturating_add(other.compares),
        }
    }

    fn max(self, other: Self) -> Self {
        Self {
            visits: self.visits.max(other.visits),
            scans: self.scans.max(other.scans),
            compares: self.compares.max(other.compares),
        }
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
        self.combine(other, NodeWork::add);
    }

    /// Adds what is done instead, at other nodes.
    pub(super) fn or(&mut self, other: &Self) {
        self.combine(other, NodeWork::max);
    }

    fn combine(&mut self, other: &Self, combine: fn(NodeWork, NodeWork) -> NodeWork) {
        if self.0.len() < other.0.len() {
            self.0.resize(other.0.len(), NodeWork::default());
        }
        for (work, other) in self.0.iter_mut().zip(&other.0) {
            *work = combine(*work, *other);
        }
    }

    /// Returns the largest number of subschemas that are applied to one node.
    pub(super) fn most_visits(&self) -> u64 {
        self.0.iter().map(|work| work.visits).max().unwrap_or_default()
    }

    /// Returns how much is done for a value.
    pub(super) fn on(&self, value: &Value) -> u64 {
        let mut total = 0_u64;
        let mut nodes = vec![("", value)];
        for (level, work) in self.0.iter().enumerate() {
            let is_last = level + 1 == self.0.len();
            let (mut count, mut compared, mut children) = (0, 0_u64, Vec::new());
            for (name, node) in nodes {
                count += 1;
                let mut text = name.len() / BYTES_PER_NODE;
                match node {
                    Value::Array(items) => {
                        if work.compares > 0 {
                            let (nodes, items) = comparisons(node);
                            compared = compared.saturating_add(nodes + items / COMPARED_PER_NODE);
                        }
                        if !is_last {
                            children.extend(items.iter().map(|item| ("", item)));
                        }
                    }
                    Value::Object(members) if !is_last => {
                        children.extend(members.iter().map(|(name, node)| (name.as_str(), node)));
                    }
                    Value::String(string) => text += string.len() / BYTES_PER_NODE,
                    _ => {}
                }
                let text = text as u64;
                count += text;
                total = total.saturating_add(work.scans.saturating_mul(text * PATTERN_FACTOR));
            }
            total = total.saturating_add(work.visits.saturating_mul(count));
            total = total.saturating_add(work.compares.saturating_mul(compared));
            nodes = children;
        }
        total
    }
}
