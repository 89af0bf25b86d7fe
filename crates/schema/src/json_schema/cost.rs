//! The cost of a schema: how much work a validation can be.

use std::collections::{HashMap, HashSet};

use serde_json::Value;

use super::value_size::{BYTES_PER_NODE, ValueSize, comparisons};
use crate::{peer_text, uri};

/// Maximum number of subschemas that are applied to one node of a value. Far more than any
/// hand-written schema needs, and few enough to be counted quickly.
const MAX_PER_NODE: u64 = 20_000;

/// Maximum nesting of subschemas, references included. Bounds the recursion of this module and of
/// the validator.
const MAX_DEPTH: usize = 200;

/// Maximum number of different patterns.
const MAX_PATTERNS: usize = 100;

/// The values in `enum` and `const` that count as one subschema.
const VALUES_PER_COST: u64 = 100;

/// How many nodes the bytes that count as one are for a pattern.
const PATTERN_FACTOR: u64 = 16;

/// The bytes of a pattern that count as another one: alternatives are tried one by one.
const BYTES_PER_SCAN: usize = 64;

/// The nodes of items that are compared, and count as one.
const COMPARED_PER_NODE: u64 = 16;

/// Keywords whose value is a subschema, or an array of them.
const SUBSCHEMAS: [&str; 16] = [
    "additionalItems",
    "additionalProperties",
    "allOf",
    "anyOf",
    "contains",
    "contentSchema",
    "else",
    "if",
    "items",
    "not",
    "oneOf",
    "prefixItems",
    "propertyNames",
    "then",
    "unevaluatedItems",
    "unevaluatedProperties",
];

/// Keywords whose value is an object of subschemas by name.
const NAMED_SUBSCHEMAS: [&str; 6] =
    ["$defs", "definitions", "dependencies", "dependentSchemas", "patternProperties", "properties"];

/// What a schema costs.
#[derive(Debug)]
pub(super) struct SchemaCost {
    /// Subschemas that are applied to one node, recursive references not counted.
    breadth: u64,
    /// Patterns that are applied to one node.
    scans: u64,
    /// Number of recursive references.
    pub(super) recursive: u64,
    /// The nesting of the subschemas, references included.
    pub(super) depth: usize,
    /// Number of different patterns.
    pub(super) patterns: usize,
    /// True if there is an `anyOf` or a `oneOf`.
    pub(super) has_alternatives: bool,
    /// How often `uniqueItems` is applied to one node.
    compares: u64,
    /// The length of what an error can copy from the schema, in bytes.
    copied: usize,
}

impl SchemaCost {
    /// Estimates the cost of a schema.
    ///
    /// # Errors
    ///
    /// The reason, if it is too high or cannot be estimated.
    pub(super) fn of(root: &Value) -> Result<Self, String> {
        let mut estimator = Estimator {
            root,
            known: HashMap::new(),
            anchors: HashMap::new(),
            patterns: HashSet::new(),
            path: Vec::new(),
            depth: 0,
            has_alternatives: false,
            copied: 0,
            steps: 0,
        };
        find_anchors(root, &mut estimator.anchors, 0)?;
        let Count { visits, scans, compares, recursive } = estimator.cost(root)?.applied;
        Ok(Self {
            breadth: visits,
            scans,
            recursive,
            depth: estimator.depth,
            patterns: estimator.patterns.len(),
            has_alternatives: estimator.has_alternatives,
            compares,
            copied: estimator.copied,
        })
    }

    /// Returns how often subschemas are applied to nodes of a value, in the worst case: every level
    /// of the value follows every recursive reference.
    pub(super) fn applications(&self, value: &Value, size: &ValueSize) -> u64 {
        let levels = u32::try_from(size.depth).unwrap_or(u32::MAX);
        let nodes = self.breadth.saturating_mul(size.nodes + size.text);
        let scans = self.scans.saturating_mul(PATTERN_FACTOR).saturating_mul(size.text);
        let compared = if self.compares > 0 { comparisons(value).1 } else { 0 };
        let compared = self.compares.saturating_mul(compared) / COMPARED_PER_NODE;
        let repetitions = self.recursive.max(1).saturating_pow(levels);
        nodes.saturating_add(scans).saturating_add(compared).saturating_mul(repetitions)
    }

    /// Returns the length of the longest error, its path included, in nodes.
    pub(super) fn error_length(&self, size: &ValueSize) -> u64 {
        1 + ((self.copied + size.longest_path) / BYTES_PER_NODE) as u64
    }
}

/// How much is done at one node of a value.
#[derive(Debug, Default, Clone, Copy)]
struct Count {
    /// Subschemas that are applied.
    visits: u64,
    /// Patterns that are applied.
    scans: u64,
    /// Arrays whose items are compared.
    compares: u64,
    /// Recursive references that are followed.
    recursive: u64,
}

impl Count {
    fn visits(visits: u64) -> Self {
        Self { visits, ..Self::default() }
    }

    fn add(&mut self, other: Self) {
        self.visits = self.visits.saturating_add(other.visits);
        self.scans = self.scans.saturating_add(other.scans);
        self.compares = self.compares.saturating_add(other.compares);
        self.recursive = self.recursive.saturating_add(other.recursive);
    }

    /// Adds what is applied to another node of the value: of the recursive references, only those
    /// to one node repeat.
    fn add_beside(&mut self, other: Self) {
        let recursive = self.recursive.max(other.recursive);
        self.add(other);
        self.recursive = recursive;
    }
}

/// What a subschema costs.
#[derive(Debug, Default, Clone, Copy)]
struct Cost {
    /// To apply it.
    applied: Count,
    /// To find out which members or items it has evaluated, for `unevaluatedProperties` and
    /// `unevaluatedItems` around it. The validator then applies its alternatives once more.
    marked: Count,
}

impl Cost {
    fn both(count: Count) -> Self {
        Self { applied: count, marked: count }
    }

    fn applied(applied: Count) -> Self {
        Self { applied, marked: Count::default() }
    }

    fn add(&mut self, other: Self) {
        self.applied.add(other.applied);
        self.marked.add(other.marked);
    }
}

/// Counts the subschemas that a validator would visit, references included.
struct Estimator<'a> {
    root: &'a Value,
    /// The cost and the height of the subschemas that were counted already, by address.
    known: HashMap<*const Value, (Cost, usize)>,
    /// The subschemas with an anchor, by its name.
    anchors: HashMap<&'a str, &'a Value>,
    /// The patterns so far.
    patterns: HashSet<&'a str>,
    /// The subschemas from the root to the current one.
    path: Vec<*const Value>,
    /// The longest path so far through the current subschema.
    depth: usize,
    has_alternatives: bool,
    copied: usize,
    /// The subschemas visited so far.
    steps: u64,
}

impl<'a> Estimator<'a> {
    fn cost(&mut self, schema: &'a Value) -> Result<Cost, String> {
        let at: *const Value = schema;
        if self.path.contains(&at) {
            return Ok(Cost::both(Count { visits: 1, recursive: 1, ..Count::default() }));
        }
        let known = self.known.get(&at).copied();
        let depth = self.path.len() + 1;
        let deepest = depth + known.map_or(0, |(_, height)| height);
        if deepest > MAX_DEPTH {
            return Err(format!("subschemas are nested deeper than {MAX_DEPTH}"));
        }
        self.depth = self.depth.max(deepest);
        if let Some((cost, _)) = known {
            return Ok(cost);
        }
        let depth_outside = std::mem::replace(&mut self.depth, depth);
        self.steps += 1;
        if self.steps > MAX_PER_NODE {
            return Err(too_many_subschemas());
        }
        self.path.push(at);
        let mut sum = Cost::both(Count::visits(1));
        match schema {
            Value::Object(members) => {
                for (keyword, value) in members {
                    sum.add(self.keyword(keyword, value)?);
                }
                let marks = ["unevaluatedItems", "unevaluatedProperties"];
                for _ in marks.iter().filter(|keyword| members.contains_key(**keyword)) {
                    sum.applied.add(sum.marked);
                }
            }
            Value::Array(items) => {
                for item in items {
                    sum.add(self.cost(item)?);
                }
            }
            _ => {}
        }
        self.path.pop();
        if sum.applied.visits > MAX_PER_NODE {
            return Err(too_many_subschemas());
        }
        // A subschema with a recursive reference is counted again on every path that leads to it.
        if sum.applied.recursive == 0 && sum.marked.recursive == 0 {
            self.known.insert(at, (sum, self.depth - depth));
        }
        self.depth = self.depth.max(depth_outside);
        Ok(sum)
    }

    fn keyword(&mut self, keyword: &str, value: &'a Value) -> Result<Cost, String> {
        match (keyword, value) {
            ("$ref", Value::String(target)) => {
                let target = self.target(target)?;
                self.cost(target)
            }
            // Their target depends on the path of evaluation, so their cost cannot be estimated.
            ("$dynamicRef" | "$recursiveRef", _) => Err(format!("`{keyword}` is not supported")),
            ("$id", Value::String(_)) if self.path.len() > 1 => {
                Err("`$id` in a subschema is not supported".to_owned())
            }
            ("id", Value::String(_)) if self.path.len() > 1 && self.is_draft_4() => {
                Err("`id` in a subschema is not supported".to_owned())
            }
            ("pattern", Value::String(pattern)) => self.add_pattern(pattern).map(Cost::applied),
            ("const" | "enum", _) => {
                let ValueSize { nodes, text, .. } = ValueSize::of(value);
                Ok(Cost::applied(Count::visits(1 + (nodes + text) / VALUES_PER_COST)))
            }
            ("required" | "dependentRequired", _) => {
                let size = ValueSize::of(value);
                self.copied = self.copied.max(size.longest_text);
                Ok(Cost::applied(Count::visits(size.nodes)))
            }
            ("uniqueItems", Value::Bool(true)) => {
                Ok(Cost::applied(Count { compares: 1, ..Count::default() }))
            }
            // The validator copies what is negated, once for each level.
            ("not", _) => {
                self.copied = self.copied.max(value.to_string().len());
                let mut count = self.cost(value)?.applied;
                count.visits = count.visits.saturating_mul(2);
                Ok(Cost::applied(count))
            }
            // Applied where they are referenced.
            ("$defs" | "definitions", Value::Object(named)) => {
                for schema in named.values() {
                    self.cost(schema)?;
                }
                Ok(Cost::default())
            }
            ("properties", Value::Object(named)) => {
                let mut sum = Count::default();
                for schema in named.values() {
                    sum.add_beside(self.cost(schema)?.applied);
                }
                Ok(Cost::applied(sum))
            }
            (_, Value::Object(named)) if NAMED_SUBSCHEMAS.contains(&keyword) => {
                let mut sum = Cost::default();
                for (name, schema) in named {
                    if keyword == "patternProperties" {
                        sum.add(Cost::both(self.add_pattern(name)?));
                    }
                    let cost = self.cost(schema)?;
                    // These are applied to the same node.
                    let is_marked = ["dependencies", "dependentSchemas"].contains(&keyword);
                    sum.add(if is_marked { cost } else { Cost::applied(cost.applied) });
                }
                Ok(sum)
            }
            (_, Value::Object(_) | Value::Array(_) | Value::Bool(_))
                if SUBSCHEMAS.contains(&keyword) =>
            {
                self.has_alternatives |= ["anyOf", "oneOf"].contains(&keyword);
                let Cost { applied, mut marked } = self.cost(value)?;
                match keyword {
                    "allOf" | "anyOf" | "oneOf" | "if" => marked.add(applied),
                    "then" | "else" => {}
                    "contains" | "unevaluatedItems" | "unevaluatedProperties" => marked = applied,
                    _ => marked = Count::default(),
                }
                Ok(Cost { applied, marked })
            }
            // Not a subschema: the value of a keyword, or an annotation.
            _ => Ok(Cost::default()),
        }
    }

    /// Counts a pattern, whose compiled form takes much memory. The validator compiles equal ones
    /// once.
    fn add_pattern(&mut self, pattern: &'a str) -> Result<Count, String> {
        self.patterns.insert(pattern);
        if self.patterns.len() > MAX_PATTERNS {
            return Err(format!("there are more than {MAX_PATTERNS} different patterns"));
        }
        self.copied = self.copied.max(pattern.len());
        let count = 1 + (pattern.len() / BYTES_PER_SCAN) as u64;
        Ok(Count { visits: count, scans: count, ..Count::default() })
    }

    /// Returns the subschema that a reference names: by a JSON Pointer, or by an anchor.
    fn target(&self, target: &str) -> Result<&'a Value, String> {
        let quoted = || peer_text::quote(target);
        // A schema may name itself.
        let own = self.root.get("$id").and_then(Value::as_str);
        let own = own.map_or("", |id| id.trim_end_matches('#'));
        let place =
            target.strip_prefix(own).filter(|place| matches!(place.get(..1), None | Some("#")));
        let place = place.unwrap_or(target);
        if place.is_empty() && !target.is_empty() {
            return Ok(self.root);
        }
        let Some(fragment) = place.strip_prefix('#') else {
            return Err(format!("`$ref` {} is external; nothing is fetched", quoted()));
        };
        let fragment = uri::percent_decode(fragment).unwrap_or_default();
        let found = if fragment.is_empty() || fragment.starts_with('/') {
            self.root.pointer(&fragment)
        } else {
            self.anchors.get(&*fragment).copied()
        };
        found.ok_or_else(|| format!("`$ref` {} does not exist", quoted()))
    }

    fn is_draft_4(&self) -> bool {
        let dialect = self.root.get("$schema").and_then(Value::as_str);
        dialect.is_some_and(|dialect| dialect.contains("draft-04"))
    }
}

/// Finds the subschemas with an anchor, as deep as subschemas may be nested.
///
/// # Errors
///
/// If two have the same: it is undefined which one a reference names (JSON Schema 2020-12, section
/// 8.2.2).
fn find_anchors<'a>(
    schema: &'a Value,
    anchors: &mut HashMap<&'a str, &'a Value>,
    depth: usize,
) -> Result<(), String> {
    if depth > MAX_DEPTH {
        return Ok(());
    }
    match schema {
        Value::Object(members) => {
            for keyword in ["$anchor", "$dynamicAnchor"] {
                if let Some(Value::String(name)) = members.get(keyword) {
                    let former = anchors.insert(name, schema);
                    if former.is_some_and(|former| !std::ptr::eq(former, schema)) {
                        return Err(format!("the anchor {} occurs twice", peer_text::quote(name)));
                    }
                }
            }
            for (keyword, value) in members {
                if SUBSCHEMAS.contains(&keyword.as_str()) {
                    find_anchors(value, anchors, depth + 1)?;
                } else if let Value::Object(named) = value
                    && NAMED_SUBSCHEMAS.contains(&keyword.as_str())
                {
                    for value in named.values() {
                        find_anchors(value, anchors, depth + 1)?;
                    }
                }
            }
        }
        Value::Array(items) => {
            for item in items {
                find_anchors(item, anchors, depth + 1)?;
            }
        }
        _ => {}
    }
    Ok(())
}

fn too_many_subschemas() -> String {
    format!("more than {MAX_PER_NODE} subschemas would apply to one value")
}
