//! What the parts of a schema cost.

use std::collections::{HashMap, HashSet};

use jsonschema::Draft;
use serde_json::Value;

use super::{
    in_place::{InPlace, MAX_DEPTH, nested_too_deep},
    patterns,
    targets::Targets,
    value_size::ValueSize,
    work::{NodeWork, Scans, Work},
};

/// The subschemas that a reference becomes in [`limited`](super::budget::limited).
const LEVELS_PER_REFERENCE: usize = 3;

/// Maximum number of subschemas that are visited for the estimate. One in a target of several
/// references counts once, or as often as targets contain one another.
const MAX_SUBSCHEMAS: u64 = 50_000;

/// Maximum number of nodes of what the validator copies from the schema.
const MAX_COPIED: u64 = 1_000_000;

/// Maximum sum of the squares of the lengths of patterns: the validator compares their groups with
/// one another.
const MAX_PATTERN_SQUARES: u64 = 10_000_000_000;

/// Maximum number of different patterns.
const MAX_PATTERNS: usize = 100;

/// How often the engine for patterns may go back in a text.
pub(super) const MAX_BACKTRACKS: usize = 1_000;

/// The keyword of the condition before a reference. Its value is the index of an [`Entry`].
pub(super) const BUDGET: &str = "mrtr:budget";

/// The values in `enum` and `const` that count as one subschema.
const VALUES_PER_COST: u64 = 100;

/// The size of a pattern that counts as another one: its parts can be tried one by one.
const ATOMS_PER_SCAN: u64 = 16;

/// How much more each part of a long text costs than a short one.
const SCANS_OF_LONG_TEXT: u64 = 16;

/// The square of the size of a pattern that counts as another one for each part of a long text.
const ATOMS_PER_LONG_SCAN: u64 = 4096;

/// The schema, or the target of a reference.
pub(super) struct Entry {
    /// Its work, references not followed.
    pub(super) work: Work,
    pub(super) marked: Work,
    pub(super) in_place: InPlace,
    /// The subschemas and values in it.
    pub(super) size: u64,
    pub(super) height: usize,
    /// All entries that it refers to.
    pub(super) targets: Vec<usize>,
}

/// What a draft says about references.
pub(super) struct RefRules {
    /// Keywords beside `$ref` are read.
    has_siblings: bool,
    /// There is `if`.
    pub(super) has_conditions: bool,
}

impl RefRules {
    fn of(draft: Draft) -> Self {
        let has_siblings = !matches!(draft, Draft::Draft4 | Draft::Draft6 | Draft::Draft7);
        let has_conditions = !matches!(draft, Draft::Draft4 | Draft::Draft6 | Draft::Unknown);
        Self { has_siblings, has_conditions }
    }
}

/// What a subschema costs, references not followed.
#[derive(Debug, Default)]
struct Cost {
    /// To apply it.
    applied: Work,
    /// To find out which members or items it has evaluated, for `unevaluatedProperties` and
    /// `unevaluatedItems` around it. The validator then applies its alternatives once more.
    marked: Work,
    in_place: InPlace,
}

impl Cost {
    /// Of a keyword that needs no subschemas.
    fn applied(work: NodeWork) -> Self {
        Self { applied: Work::of_node(work), ..Self::default() }
    }

    fn scans(text: Scans) -> Self {
        Self::applied(NodeWork { visits: 1, text, ..NodeWork::default() })
    }

    fn visits(visits: u64) -> Self {
        Self::applied(NodeWork::visits(visits))
    }

    fn add(&mut self, other: Self) {
        self.applied.add(&other.applied);
        self.marked.add(&other.marked);
        self.in_place.add(other.in_place);
    }
}

/// Counts the subschemas that a validator would visit.
pub(super) struct Estimator<'a> {
    root: &'a Value,
    draft: Draft,
    pub(super) rules: RefRules,
    has_other_draft: bool,
    /// 1 if the engine for patterns goes back where a pattern needs it.
    backtracks: u64,
    targets: Targets<'a>,
    /// How many subschemas were visited.
    count: u64,
    pub(super) schemas: HashSet<*const Value>,
    /// The schema, and the targets of its references.
    found: Vec<&'a Value>,
    /// Their indices, by their addresses.
    pub(super) indices: HashMap<*const Value, usize>,
    /// The indices of targets, by the addresses of the subschemas that refer to them.
    pub(super) references: HashMap<*const Value, usize>,
    /// The patterns so far.
    pub(super) patterns: HashSet<&'a str>,
    /// What is applied to one node, for each place where a subschema is applied to another node.
    pub(super) chains: Vec<InPlace>,
    pub(super) has_unevaluated: bool,
    pub(super) has_alternatives: bool,
    /// The nodes that are copied from the schema.
    copied: u64,
    /// The nodes of values that the validator compares with, and required names.
    values: u64,
    /// The length of what an error can copy.
    pub(super) longest_copied: usize,
    squares: u64,
    /// The nesting in the current entry, and what it refers to.
    height: usize,
    current_targets: Vec<usize>,
}

impl<'a> Estimator<'a> {
    pub(super) fn new(root: &'a Value, is_backtracking: bool) -> Result<Self, String> {
        let draft = Draft::default().detect(root);
        Ok(Self {
            root,
            draft,
            rules: RefRules::of(draft),
            has_other_draft: false,
            backtracks: u64::from(is_backtracking),
            targets: Targets::of(root, id_keyword(draft))?,
            count: 0,
            schemas: HashSet::new(),
            found: Vec::new(),
            indices: HashMap::new(),
            references: HashMap::new(),
            patterns: HashSet::new(),
            chains: Vec::new(),
            has_unevaluated: false,
            has_alternatives: false,
            copied: 0,
            values: 0,
            longest_copied: 0,
            squares: 0,
            height: 0,
            current_targets: Vec::new(),
        })
    }

    /// Returns the index of an entry.
    fn entry(&mut self, schema: &'a Value) -> usize {
        *self.indices.entry(schema).or_insert_with(|| {
            self.found.push(schema);
            self.found.len() - 1
        })
    }

    /// Returns all entries.
    ///
    /// # Errors
    ///
    /// The reason, if their cost is too high or cannot be estimated.
    pub(super) fn entries(&mut self) -> Result<Vec<Entry>, String> {
        self.entry(self.root);
        let mut entries = Vec::new();
        while let Some(schema) = self.found.get(entries.len()).copied() {
            self.height = 0;
            let before = self.size();
            let Cost { applied: work, marked, in_place } = self.cost(schema, 1)?;
            let targets = std::mem::take(&mut self.current_targets);
            let (size, height) = (self.size() - before, self.height);
            entries.push(Entry { work, marked, in_place, size, height, targets });
        }
        if self.has_other_draft && !self.references.is_empty() {
            return Err("`$ref` is not supported in a schema that mixes drafts".to_owned());
        }
        Ok(entries)
    }

    fn size(&self) -> u64 {
        self.count + self.copied + self.values
    }

    /// Counts what the validator copies.
    fn add_copied(&mut self, size: &ValueSize) -> Result<(), String> {
        self.copied += size.nodes + size.text;
        if self.copied > MAX_COPIED {
            return Err(format!("subschemas would be copied with more than {MAX_COPIED} values"));
        }
        Ok(())
    }

    /// Returns the cost of a subschema that is nested as deep as given in its entry.
    fn cost(&mut self, schema: &'a Value, depth: usize) -> Result<Cost, String> {
        self.count += 1;
        if self.count > MAX_SUBSCHEMAS {
            return Err(format!("there are more than {MAX_SUBSCHEMAS} subschemas"));
        }
        if depth > MAX_DEPTH {
            return Err(nested_too_deep());
        }
        self.height = self.height.max(depth);
        let visit = Work::of_node(NodeWork::visits(1));
        let in_place = InPlace { depth: 1, targets: Vec::new() };
        let mut sum = Cost { applied: visit.clone(), marked: visit, in_place };
        let Value::Object(members) = schema else { return Ok(sum) };
        let draft = self.draft.detect(schema);
        self.has_other_draft |= draft != self.draft;
        let mut ids = ["$id", id_keyword(draft)].into_iter();
        let id = ids.find(|id| members.get(*id).is_some_and(Value::is_string));
        if let Some(id) = id.filter(|_| !std::ptr::eq(schema, self.root)) {
            return Err(format!("`{id}` in a subschema is not supported"));
        }
        if members.contains_key(BUDGET) {
            return Err(format!("`{BUDGET}` is reserved"));
        }
        self.schemas.insert(schema);
        if let Some(Value::String(target)) = members.get("$ref") {
            sum.add(self.reference(schema, target)?);
            self.height = self.height.max(depth + LEVELS_PER_REFERENCE);
        }
        let has_reference = members.contains_key("$ref");
        for (keyword, value) in members {
            let is_read = !has_reference || self.rules.has_siblings;
            if is_read || ["$defs", "definitions"].contains(&keyword.as_str()) {
                sum.add(self.keyword(keyword, value, depth)?);
            }
        }
        for keyword in ["unevaluatedItems", "unevaluatedProperties"] {
            if members.contains_key(keyword) {
                sum.applied.add(&sum.marked);
                self.has_unevaluated = true;
            }
        }
        Ok(sum)
    }

    /// Returns the cost of a subschema that is applied to the same node.
    fn in_place(&mut self, schema: &'a Value, depth: usize) -> Result<Cost, String> {
        let mut cost = self.cost(schema, depth + 1)?;
        cost.in_place = cost.in_place.nested();
        Ok(cost)
    }

    /// Returns the work of a subschema that is applied to members or items.
    fn of_children(&mut self, schema: &'a Value, depth: usize) -> Result<Work, String> {
        let cost = self.cost(schema, depth + 1)?;
        self.chains.push(cost.in_place);
        Ok(cost.applied.of_children())
    }

    /// Returns the work of subschemas of which one is applied to each member or item.
    fn of_one_child(
        &mut self,
        schemas: impl Iterator<Item = &'a Value>,
        depth: usize,
    ) -> Result<Cost, String> {
        let mut work = Work::default();
        let mut count = 0;
        for schema in schemas {
            work.or(&self.of_children(schema, depth)?);
            count += 1;
        }
        // Each name is looked up.
        work.add(&Work::of_node(NodeWork::visits(count)));
        let marked = Work::of_node(NodeWork::visits(1)).of_children();
        Ok(Cost { applied: work, marked, in_place: InPlace::default() })
    }

    fn reference(&mut self, schema: &'a Value, target: &str) -> Result<Cost, String> {
        let entry = self.targets.find(target)?;
        let entry = self.entry(entry);
        self.references.insert(schema, entry);
        self.current_targets.push(entry);
        let mut cost = Cost::visits(LEVELS_PER_REFERENCE as u64);
        cost.marked = cost.applied.clone();
        cost.in_place.targets.push((entry, LEVELS_PER_REFERENCE));
        Ok(cost)
    }

    fn keyword(&mut self, keyword: &str, value: &'a Value, depth: usize) -> Result<Cost, String> {
        match (keyword, value) {
            // Their target depends on the path of evaluation, so their cost cannot be estimated.
            ("$dynamicRef" | "$recursiveRef", _) => Err(format!("`{keyword}` is not supported")),
            ("pattern", Value::String(pattern)) => self.add_pattern(pattern).map(Cost::scans),
            ("const" | "enum", _) => {
                let ValueSize { nodes, text, .. } = ValueSize::of(value);
                self.values += nodes + text;
                Ok(Cost::visits(1 + (nodes + text) / VALUES_PER_COST))
            }
            ("required" | "dependentRequired", _) => Ok(self.names(value)),
            ("uniqueItems", Value::Bool(true)) => {
                Ok(Cost::applied(NodeWork { compares: 1, ..NodeWork::default() }))
            }
            // Applied where they are referenced.
            ("$defs" | "definitions", Value::Object(named)) => {
                for schema in named.values() {
                    self.entry(schema);
                }
                Ok(Cost::default())
            }
            ("properties", Value::Object(named)) => {
                self.values += named.len() as u64;
                self.of_one_child(named.values(), depth)
            }
            ("prefixItems" | "items", Value::Array(items)) => {
                self.of_one_child(items.iter(), depth)
            }
            ("patternProperties", Value::Object(named)) => {
                let mut sum = Cost::default();
                for (pattern, schema) in named {
                    let name = self.add_pattern(pattern)?;
                    let scanned = NodeWork { visits: 1, name, ..NodeWork::default() };
                    let scanned = Work::of_node(scanned).of_children();
                    sum.marked.add(&scanned);
                    sum.applied.add(&scanned);
                    sum.applied.add(&self.of_children(schema, depth)?);
                }
                Ok(sum)
            }
            // Names have no members, and are as many as the members.
            ("propertyNames", _) => {
                let cost = self.cost(value, depth + 1)?;
                self.chains.push(cost.in_place);
                let NodeWork { visits, text: name, .. } = cost.applied.at_node();
                let names = NodeWork { visits, name, ..NodeWork::default() };
                let names = Work::of_node(names).of_children();
                Ok(Cost { applied: names, ..Cost::default() })
            }
            ("dependencies" | "dependentSchemas", Value::Object(named)) => {
                let mut sum = Cost::default();
                for schema in named.values() {
                    let is_names = schema.is_array();
                    sum.add(if is_names {
                        self.names(schema)
                    } else {
                        self.in_place(schema, depth)?
                    });
                }
                Ok(sum)
            }
            ("allOf" | "anyOf" | "oneOf", Value::Array(schemas)) => {
                let mut sum = Cost::default();
                for schema in schemas {
                    sum.add(self.in_place(schema, depth)?);
                }
                sum.marked.add(&sum.applied);
                // To find the errors, each alternative is applied once more.
                if keyword != "allOf" {
                    self.has_alternatives = true;
                    sum.applied.add(&sum.applied.clone());
                }
                Ok(sum)
            }
            ("if", _) => {
                let mut cost = self.in_place(value, depth)?;
                cost.marked.add(&cost.applied);
                Ok(cost)
            }
            ("then" | "else", _) => self.in_place(value, depth),
            // The validator copies what is negated, once for each level.
            ("not", _) => {
                self.add_copied(&ValueSize::of(value))?;
                self.longest_copied = self.longest_copied.max(value.to_string().len());
                let mut cost = self.in_place(value, depth)?;
                cost.applied.add(&cost.applied.clone());
                cost.marked = Work::default();
                Ok(cost)
            }
            ("additionalItems" | "additionalProperties" | "items", _) => {
                let applied = self.of_children(value, depth)?;
                let marked = Work::of_node(NodeWork::visits(1)).of_children();
                Ok(Cost { applied, marked, in_place: InPlace::default() })
            }
            ("contains" | "unevaluatedItems" | "unevaluatedProperties", _) => {
                let applied = self.of_children(value, depth)?;
                Ok(Cost { marked: applied.clone(), applied, in_place: InPlace::default() })
            }
            ("format" | "contentEncoding" | "contentMediaType", _) => {
                Ok(Cost::scans(Scans { each: 1, long: SCANS_OF_LONG_TEXT, backtracking: 0 }))
            }
            // The value of a keyword without subschemas, or an annotation, which is copied.
            _ => self.add_copied(&ValueSize::of(value)).map(|()| Cost::default()),
        }
    }

    /// Returns the cost of names that members must have.
    fn names(&mut self, names: &Value) -> Cost {
        let size = ValueSize::of(names);
        self.values += size.nodes + size.text;
        self.longest_copied = self.longest_copied.max(size.longest_text);
        Cost::visits(size.nodes)
    }

    /// Counts a pattern, whose compiled form takes much memory. The validator compiles equal ones
    /// once.
    fn add_pattern(&mut self, pattern: &'a str) -> Result<Scans, String> {
        self.patterns.insert(pattern);
        if self.patterns.len() > MAX_PATTERNS {
            return Err(format!("there are more than {MAX_PATTERNS} different patterns"));
        }
        self.squares = self.squares.saturating_add((pattern.len() as u64).saturating_pow(2));
        if self.squares > MAX_PATTERN_SQUARES {
            return Err("patterns are too long".to_owned());
        }
        self.longest_copied = self.longest_copied.max(pattern.len());
        let size = patterns::size(pattern);
        let each = 1 + size / ATOMS_PER_SCAN;
        let long = SCANS_OF_LONG_TEXT * each + size.saturating_mul(size) / ATOMS_PER_LONG_SCAN;
        let backtracking = self.backtracks * u64::from(patterns::needs_backtracking(pattern));
        Ok(Scans { each, long, backtracking })
    }
}

fn id_keyword(draft: Draft) -> &'static str {
    if draft == Draft::Draft4 { "id" } else { "$id" }
}
