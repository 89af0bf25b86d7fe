//! The cost of a schema: how much work a validation can be.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use serde_json::Value;

use super::{
    estimator::{Entry, Estimator},
    in_place::{Chains, MAX_DEPTH, nested_too_deep},
    value_size::{BYTES_PER_NODE, ValueSize},
    work::Work,
};

/// Maximum number of subschemas that are applied to one node of a value, references not followed.
/// Far more than any hand-written schema needs.
const MAX_PER_NODE: u64 = 20_000;

/// How many targets of references the validator compiles on its stack at the same time, and the
/// schema itself.
const NESTED_TARGETS: usize = 9;

/// Maximum number of subschemas and nodes that the validator compiles to find out what a value of
/// `unevaluatedProperties` or `unevaluatedItems` is applied to: it compiles what references name
/// once for each path to it.
const MAX_EXPANDED: u64 = 100_000;

/// What a schema costs.
#[derive(Debug)]
pub(super) struct SchemaCost {
    /// The nesting of the subschemas that are applied to one node, references included.
    pub(super) depth: usize,
    /// Number of different patterns.
    pub(super) patterns: usize,
    /// True if there is an `anyOf` or a `oneOf`.
    pub(super) has_alternatives: bool,
    /// The length of what an error can copy from the schema, in bytes.
    copied: usize,
}

/// The references of a schema.
pub(super) struct References {
    /// The addresses of the subschemas.
    pub(super) schemas: HashSet<*const Value>,
    /// The addresses of the schema itself and of the targets.
    pub(super) targets: HashMap<*const Value, usize>,
    /// The target of each reference, by the address of the subschema that contains it.
    pub(super) by_schema: HashMap<*const Value, usize>,
    /// The work of the schema and of each target, references not followed.
    pub(super) works: Arc<[Work]>,
    /// False in drafts without `if`.
    pub(super) has_conditions: bool,
}

impl SchemaCost {
    /// Estimates the cost of a schema. Patterns have look-around if `is_backtracking`.
    ///
    /// # Errors
    ///
    /// The reason, if it is too high or cannot be estimated.
    pub(super) fn of(root: &Value, is_backtracking: bool) -> Result<(Self, References), String> {
        let mut estimator = Estimator::new(root, is_backtracking)?;
        let mut entries = estimator.entries()?;
        let mut heights: Vec<_> = entries.iter().map(|entry| entry.height).collect();
        heights.sort_unstable_by(|a, b| b.cmp(a));
        if heights.iter().take(NESTED_TARGETS).sum::<usize>() > MAX_DEPTH {
            return Err(nested_too_deep());
        }
        let mut chains = Chains::new(entries.iter().map(|entry| &entry.in_place).collect());
        let mut depth = 0;
        for chain in estimator.chains.iter().chain(entries.iter().map(|entry| &entry.in_place)) {
            depth = chains.follow(chain)?.max(depth);
        }
        if estimator.has_unevaluated {
            expand(&entries, 0, &mut Vec::new(), &mut 0)?;
            // A target is either applied or marked.
            for entry in &mut entries {
                entry.work.or(&entry.marked);
            }
        }
        if entries.iter().any(|entry| entry.work.most_visits() > MAX_PER_NODE) {
            return Err(too_many_subschemas());
        }
        let cost = Self {
            depth,
            patterns: estimator.patterns.len(),
            has_alternatives: estimator.has_alternatives || !estimator.rules.has_conditions,
            copied: estimator.longest_copied,
        };
        let references = References {
            schemas: estimator.schemas,
            targets: estimator.indices,
            by_schema: estimator.references,
            works: entries.into_iter().map(|entry| entry.work).collect(),
            has_conditions: estimator.rules.has_conditions,
        };
        Ok((cost, references))
    }

    /// Returns the length of the longest error, its path included, in nodes.
    pub(super) fn error_length(&self, size: &ValueSize) -> u64 {
        1 + ((self.copied + size.longest_path) / BYTES_PER_NODE) as u64
    }
}

/// Counts what is compiled on all paths from an entry through references, as long as no path leads
/// back.
fn expand(
    entries: &[Entry],
    index: usize,
    path: &mut Vec<usize>,
    expanded: &mut u64,
) -> Result<(), String> {
    let Some(entry) = entries.get(index).filter(|_| !path.contains(&index)) else {
        return Ok(());
    };
    *expanded += entry.size;
    if *expanded > MAX_EXPANDED {
        return Err(format!("more than {MAX_EXPANDED} subschemas would be compiled"));
    }
    path.push(index);
    let nested = path.iter().filter_map(|index| entries.get(*index)).map(|entry| entry.height);
    if nested.sum::<usize>() > MAX_DEPTH {
        return Err(nested_too_deep());
    }
    for target in &entry.targets {
        expand(entries, *target, path, expanded)?;
    }
    path.pop();
    Ok(())
}

fn too_many_subschemas() -> String {
    format!("more than {MAX_PER_NODE} subschemas would apply to one value")
}
