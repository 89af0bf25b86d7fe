//! The size of a value, as far as it decides how long a validation can take.

use serde_json::Value;

/// The bytes of a string or a name that count as one node.
pub(super) const BYTES_PER_NODE: usize = 256;

/// The size of a value.
pub(super) struct ValueSize {
    pub(super) nodes: u64,
    /// The length of strings and names, in nodes.
    pub(super) text: u64,
    /// The length of the longest string or name, in bytes.
    pub(super) longest_text: usize,
    /// The length of the names on the way to a node, in bytes.
    pub(super) longest_path: usize,
    pub(super) depth: usize,
}

impl ValueSize {
    pub(super) fn of(value: &Value) -> Self {
        let mut size = Self { nodes: 0, text: 0, longest_text: 0, longest_path: 0, depth: 0 };
        let mut rest = vec![(value, 1, 0)];
        while let Some((value, depth, path)) = rest.pop() {
            size.nodes += 1;
            size.depth = size.depth.max(depth);
            size.longest_path = size.longest_path.max(path);
            match value {
                Value::Array(items) => {
                    rest.extend(items.iter().map(|item| (item, depth + 1, path)));
                }
                Value::Object(members) => {
                    for (name, member) in members {
                        size.add_text(name);
                        rest.push((member, depth + 1, path + name.len()));
                    }
                }
                Value::String(text) => size.add_text(text),
                _ => {}
            }
        }
        size
    }

    fn add_text(&mut self, text: &str) {
        self.text += (text.len() / BYTES_PER_NODE) as u64;
        self.longest_text = self.longest_text.max(text.len());
    }
}

/// Returns the number of nodes of a value, and how many are compared, in the worst case, to find
/// equal items in its arrays: each item that can have the hash of another one although they differ
/// is compared with all before it.
pub(super) fn comparisons(value: &Value) -> (u64, u64) {
    let (mut nodes, mut compared) = (1, 0_u64);
    match value {
        Value::Array(items) => {
            let (mut colliding, mut largest) = (0_u64, 0);
            for item in items {
                let (item_nodes, inside) = comparisons(item);
                nodes += item_nodes;
                compared = compared.saturating_add(inside);
                // Numbers are hashed as floats.
                let is_exact = |n: &serde_json::Number| n.as_f64().is_some_and(|n| n.abs() < 9e15);
                let has_own_hash = match item {
                    Value::Array(_) | Value::Object(_) => false,
                    Value::Number(number) => is_exact(number),
                    _ => true,
                };
                if !has_own_hash {
                    colliding += 1;
                    largest = item_nodes.max(largest);
                }
            }
            let pairs = colliding.saturating_mul(colliding) / 2;
            compared = compared.saturating_add(pairs.saturating_mul(largest));
        }
        Value::Object(members) => {
            for member in members.values() {
                let (member_nodes, inside) = comparisons(member);
                nodes += member_nodes;
                compared = compared.saturating_add(inside);
            }
        }
        _ => {}
    }
    (nodes, compared)
}
