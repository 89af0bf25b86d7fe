//! Validation against JSON Schema (specification: basic, "JSON Schema Usage"). Needs the feature
//! `validate`.
//!
//! The dialect is the one that the schema declares with `$schema`, from draft 4 to 2020-12; the
//! default is 2020-12. References to other documents are rejected: nothing is fetched. Work is
//! bounded: the cost of a schema is estimated first, and a schema that costs too much is rejected.

use std::collections::{HashMap, HashSet};
use std::fmt::{self, Write as _};

use jsonschema::PatternOptions;
use serde_json::Value;

use crate::{InvalidValue, Object, peer_text, uri};

/// Maximum number of subschemas that are applied to one node of a value. Far more than any
/// hand-written schema needs, and few enough to be counted quickly.
const MAX_PER_NODE: u64 = 20_000;

/// Maximum number of applications of subschemas to nodes for one value: bounds a validation to a
/// fraction of a second.
const MAX_TOTAL: u64 = 5_000_000;

/// Maximum nesting of subschemas, references included. Bounds the recursion of this module and of
/// the validator.
const MAX_DEPTH: usize = 200;

/// Maximum product of the nesting of a recursive schema and that of a value. Bounds the recursion
/// of the validator, which begins again at each level of the value.
const MAX_RECURSION: usize = 4_000;

/// Maximum size of a compiled pattern, in bytes. Fifty Unicode letters take half of it.
const MAX_PATTERN_SIZE: usize = 2 << 20;

/// Maximum size of all compiled patterns, in bytes. Each gets an equal share, up to
/// [`MAX_PATTERN_SIZE`].
const MAX_PATTERNS_SIZE: usize = 8 << 20;

/// Maximum number of different patterns.
const MAX_PATTERNS: usize = 100;

/// The values in `enum` and `const` that count as one subschema.
const VALUES_PER_COST: u64 = 100;

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

/// Maximum number of errors in one message.
const MAX_ERRORS: usize = 5;

/// A compiled JSON Schema.
///
/// # Example
///
/// ```
/// use mrtr_schema::json_schema::Validator;
/// use serde_json::json;
///
/// let schema = json!({
///     "type": "object",
///     "properties": { "people": { "type": "integer", "minimum": 1 } },
/// });
/// let validator = Validator::new(schema.as_object().unwrap())?;
///
/// validator.validate(&json!({ "people": 4 }))?;
/// let error = validator.validate(&json!({ "people": 0 })).unwrap_err();
/// assert_eq!(error.path(), "/people");
/// # Ok::<(), mrtr_schema::InvalidValue>(())
/// ```
#[derive(Debug)]
pub struct Validator {
    inner: jsonschema::Validator,
    /// Subschemas that are applied to one node, recursive references not counted.
    breadth: u64,
    /// Number of recursive references.
    recursive: u64,
    /// The nesting of the subschemas, references included.
    depth: usize,
}

impl Validator {
    /// Compiles a schema.
    ///
    /// # Errors
    ///
    /// [`InvalidValue`] if the schema is malformed, declares an unknown dialect, contains a
    /// reference that is not within itself, uses `$dynamicRef`, `$recursiveRef` or an `$id` in a
    /// subschema, or costs too much.
    pub fn new(schema: &Object) -> Result<Self, InvalidValue> {
        let root = Value::Object(schema.clone());
        let mut estimator = CostEstimator {
            root: &root,
            known: HashMap::new(),
            anchors: HashMap::new(),
            patterns: HashSet::new(),
            path: Vec::new(),
            depth: 0,
            recursive: 0,
            steps: 0,
        };
        find_anchors(&root, &mut estimator.anchors, 0);
        let breadth = estimator.cost(&root).map_err(InvalidValue::new)?;
        let CostEstimator { recursive, depth, patterns, .. } = estimator;
        let size = MAX_PATTERN_SIZE.min(MAX_PATTERNS_SIZE / patterns.len().max(1));
        // The `regex` crate matches in linear time; the default engine backtracks.
        let patterns = PatternOptions::regex().size_limit(size).dfa_size_limit(size / 4);
        let options = jsonschema::options().with_pattern_options(patterns);
        let inner = options.build(&root).map_err(|error| InvalidValue::new(error.to_string()))?;
        Ok(Self { inner, breadth, recursive, depth })
    }

    /// Validates a value.
    ///
    /// # Errors
    ///
    /// [`InvalidValue`] with the path of the first error and the text of up to five errors, or if
    /// the validation would cost too much.
    pub fn validate(&self, value: &Value) -> Result<(), InvalidValue> {
        let (nodes, depth) = size(value);
        // In the worst case every level of the value follows every recursive reference.
        let visits = self.recursive.max(1).saturating_pow(u32::try_from(depth).unwrap_or(u32::MAX));
        if self.breadth.saturating_mul(nodes).saturating_mul(visits) > MAX_TOTAL {
            return Err(InvalidValue::new(format!(
                "validation would apply more than {MAX_TOTAL} subschemas"
            )));
        }
        if self.recursive > 0 && self.depth.saturating_mul(depth) > MAX_RECURSION {
            return Err(InvalidValue::new(format!(
                "validation would nest deeper than {MAX_RECURSION} subschemas"
            )));
        }
        let mut errors = self.inner.iter_errors(value);
        let Some(first) = errors.next() else { return Ok(()) };
        let mut reason = first.to_string();
        for error in errors.take(MAX_ERRORS - 1) {
            let path = error.instance_path().to_string();
            let separator = if path.is_empty() { "" } else { ": " };
            // Writing to a `String` cannot fail.
            let _: fmt::Result = write!(reason, "; {path}{separator}{error}");
        }
        Err(InvalidValue::with_path(first.instance_path().to_string(), reason))
    }
}

/// Returns the number of nodes of a value and their depth.
fn size(value: &Value) -> (u64, usize) {
    let mut nodes = 0;
    let mut deepest = 0;
    let mut rest = vec![(value, 1)];
    while let Some((value, depth)) = rest.pop() {
        nodes += 1;
        deepest = deepest.max(depth);
        match value {
            Value::Array(items) => rest.extend(items.iter().map(|item| (item, depth + 1))),
            Value::Object(members) => rest.extend(members.values().map(|item| (item, depth + 1))),
            _ => {}
        }
    }
    (nodes, deepest)
}

/// Counts the subschemas that a validator would visit, references included.
struct CostEstimator<'a> {
    root: &'a Value,
    /// The cost of the subschemas that were counted already, by address.
    known: HashMap<*const Value, u64>,
    /// The subschemas with an anchor, by its name.
    anchors: HashMap<&'a str, &'a Value>,
    /// The patterns so far.
    patterns: HashSet<&'a str>,
    /// The subschemas from the root to the current one.
    path: Vec<*const Value>,
    /// The longest path so far.
    depth: usize,
    /// The recursive references so far.
    recursive: u64,
    /// The subschemas visited so far.
    steps: u64,
}

impl<'a> CostEstimator<'a> {
    fn cost(&mut self, schema: &'a Value) -> Result<u64, String> {
        let at: *const Value = schema;
        if self.path.contains(&at) {
            self.recursive += 1;
            return Ok(1);
        }
        if let Some(known) = self.known.get(&at) {
            return Ok(*known);
        }
        if self.path.len() > MAX_DEPTH {
            return Err(format!("subschemas are nested deeper than {MAX_DEPTH}"));
        }
        self.steps += 1;
        if self.steps > MAX_PER_NODE {
            return Err(too_many_subschemas());
        }
        self.path.push(at);
        self.depth = self.depth.max(self.path.len());
        let recursive_before = self.recursive;
        let mut sum: u64 = 1;
        match schema {
            Value::Object(members) => {
                for (keyword, value) in members {
                    sum = sum.saturating_add(self.keyword(keyword, value)?);
                }
            }
            Value::Array(items) => {
                for item in items {
                    sum = sum.saturating_add(self.cost(item)?);
                }
            }
            _ => {}
        }
        self.path.pop();
        if sum > MAX_PER_NODE {
            return Err(too_many_subschemas());
        }
        // A subschema with a recursive reference is counted again on every path that leads to it.
        if self.recursive == recursive_before {
            self.known.insert(at, sum);
        }
        Ok(sum)
    }

    fn keyword(&mut self, keyword: &str, value: &'a Value) -> Result<u64, String> {
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
            ("pattern", Value::String(pattern)) => self.add_pattern(pattern),
            ("const" | "enum", _) => Ok(1 + size(value).0 / VALUES_PER_COST),
            // The validator copies what is negated, once for each level.
            ("not", _) => Ok(self.cost(value)?.saturating_mul(2)),
            (_, Value::Object(named)) if NAMED_SUBSCHEMAS.contains(&keyword) => {
                let mut sum: u64 = 0;
                for (name, schema) in named {
                    if keyword == "patternProperties" {
                        sum += self.add_pattern(name)?;
                    }
                    sum = sum.saturating_add(self.cost(schema)?);
                }
                Ok(sum)
            }
            (_, Value::Object(_) | Value::Array(_)) if SUBSCHEMAS.contains(&keyword) => {
                self.cost(value)
            }
            // Not a subschema: the value of a keyword, or an annotation.
            _ => Ok(0),
        }
    }

    /// Counts a pattern, whose compiled form takes much memory. The validator compiles equal ones
    /// once.
    fn add_pattern(&mut self, pattern: &'a str) -> Result<u64, String> {
        self.patterns.insert(pattern);
        if self.patterns.len() > MAX_PATTERNS {
            return Err(format!("there are more than {MAX_PATTERNS} different patterns"));
        }
        Ok(1)
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
fn find_anchors<'a>(schema: &'a Value, anchors: &mut HashMap<&'a str, &'a Value>, depth: usize) {
    if depth > MAX_DEPTH {
        return;
    }
    match schema {
        Value::Object(members) => {
            for keyword in ["$anchor", "$dynamicAnchor"] {
                if let Some(Value::String(name)) = members.get(keyword) {
                    anchors.entry(name).or_insert(schema);
                }
            }
            for (keyword, value) in members {
                if SUBSCHEMAS.contains(&keyword.as_str()) {
                    find_anchors(value, anchors, depth + 1);
                } else if let Value::Object(named) = value
                    && NAMED_SUBSCHEMAS.contains(&keyword.as_str())
                {
                    for value in named.values() {
                        find_anchors(value, anchors, depth + 1);
                    }
                }
            }
        }
        Value::Array(items) => {
            for item in items {
                find_anchors(item, anchors, depth + 1);
            }
        }
        _ => {}
    }
}

fn too_many_subschemas() -> String {
    format!("more than {MAX_PER_NODE} subschemas would apply to one value")
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn validator(schema: Value) -> Result<Validator, InvalidValue> {
        let Value::Object(schema) = schema else { unreachable!() };
        Validator::new(&schema)
    }

    #[test]
    fn validator_reports_the_path_and_the_keyword() {
        let schema = json!({
            "type": "object", "required": ["n"], "additionalProperties": false,
            "properties": {
                "n": { "type": "integer", "minimum": 1, "maximum": 5 },
                "text": { "type": "string", "maxLength": 3, "pattern": "^a" },
                "either": { "oneOf": [{ "type": "string" }, { "$ref": "#/$defs/list" }] },
            },
            "$defs": { "list": { "type": "array", "items": { "type": "boolean" }, "minItems": 1 } },
            "if": { "properties": { "n": { "const": 5 } } }, "then": { "required": ["text"] },
        });
        let schema = validator(schema).unwrap();
        for value in [
            json!({ "n": 1 }),
            json!({ "n": 5, "text": "abc" }),
            json!({ "n": 2, "either": [true] }),
            json!({ "n": 2, "either": "x" }),
        ] {
            assert_eq!(schema.validate(&value), Ok(()), "{value}");
        }
        for (value, part) in [
            (json!({}), "\"n\""),
            (json!({ "n": 0 }), "/n: 0 is less"),
            (json!({ "n": 1.5 }), "/n"),
            (json!({ "n": 1, "text": "abcd" }), "/text"),
            (json!({ "n": 1, "text": "b" }), "/text"),
            (json!({ "n": 1, "either": [] }), "/either"),
            (json!({ "n": 5 }), "\"text\""),
            (json!({ "n": 1, "other": 1 }), "other"),
            (json!([]), "object"),
        ] {
            let error = schema.validate(&value).unwrap_err().to_string();
            assert!(error.contains(part), "{value}: {error}");
        }
    }

    #[test]
    fn validator_uses_the_declared_dialect_or_2020_12() {
        // `prefixItems` is of 2020-12; in draft 7 it means nothing.
        let schema = |dialect: Option<&str>| {
            let mut schema = json!({ "prefixItems": [{ "type": "string" }] });
            if let Some(dialect) = dialect {
                schema["$schema"] = json!(dialect);
            }
            validator(schema)
        };
        let number = json!([5]);
        assert!(schema(None).unwrap().validate(&number).is_err());
        let newest = "https://json-schema.org/draft/2020-12/schema";
        assert!(schema(Some(newest)).unwrap().validate(&number).is_err());
        let seven = "http://json-schema.org/draft-07/schema#";
        assert!(schema(Some(seven)).unwrap().validate(&number).is_ok());
        let error = schema(Some("https://example.com/own")).unwrap_err().to_string();
        assert!(error.contains("https://example.com/own"), "{error}");
    }

    #[test]
    fn validator_rejects_malformed_and_incomplete_schemas() {
        for (schema, part) in [
            (json!({ "type": "objekt" }), "objekt"),
            (json!({ "properties": 5 }), "5 is not of type"),
            (json!({ "pattern": "(" }), "regex"),
            (json!({ "$ref": "https://example.com/x.json" }), "nothing is fetched"),
            (json!({ "properties": { "a": { "$ref": "other.json" } } }), "nothing is fetched"),
            (json!({ "$ref": "#/$defs/none" }), "does not exist"),
            (json!({ "$dynamicRef": "#x" }), "not supported"),
            (json!({ "allOf": [{ "$id": "https://example.com/y", "type": "string" }] }), "`$id`"),
        ] {
            let error = validator(schema.clone()).unwrap_err().to_string();
            assert!(error.contains(part), "{schema}: {error}");
        }
    }

    #[test]
    fn validator_resolves_anchors_and_ignores_annotations() {
        let anchored = json!({
            "properties": { "item": { "$ref": "#item" }, "same": { "$ref": "https://a.example/s" } },
            "$id": "https://a.example/s",
            "$defs": { "x": { "$anchor": "item", "type": "integer" } },
        });
        let anchored = validator(anchored).unwrap();
        assert_eq!(anchored.validate(&json!({ "item": 1, "same": { "item": 2 } })), Ok(()));
        assert!(anchored.validate(&json!({ "item": "x" })).is_err());
        assert!(anchored.validate(&json!({ "same": { "item": "x" } })).is_err());
        // Annotations, and properties with the names of keywords.
        let annotated = json!({
            "example": { "id": "42", "$id": "x", "$ref": "https://a.example/other" },
            "properties": {
                "id": { "type": "string" }, "$ref": { "type": "string" }, "$id": { "type": "string" },
            },
        });
        let annotated = validator(annotated).unwrap();
        assert_eq!(annotated.validate(&json!({ "id": "1", "$ref": "a", "$id": "b" })), Ok(()));
        assert!(annotated.validate(&json!({ "$ref": 1 })).is_err());
        let of_draft_4 = json!({
            "$schema": "http://json-schema.org/draft-04/schema#", "items": { "id": "https://a.example" },
        });
        assert!(validator(of_draft_4).is_err());
    }

    #[test]
    fn validator_bounds_the_memory() {
        let property = |n: usize| (format!("p{n}"), json!({ "pattern": format!("a{}", n % 150) }));
        let patterns =
            |count| json!({ "properties": (0..count).map(property).collect::<Object>() });
        assert!(validator(patterns(100)).is_ok());
        assert!(validator(patterns(101)).unwrap_err().reason().contains("more than 100 different"));
        let same = |n: usize| (format!("p{n}"), json!({ "pattern": "^[0-9a-f]{8}$" }));
        let same = json!({ "properties": (0..1_000).map(same).collect::<Object>() });
        assert!(validator(same).is_ok());
        let name = json!({ "pattern": "^[\\p{L} '-]{1,40}$" });
        assert_eq!(validator(name).unwrap().validate(&json!("Zoë")), Ok(()));
        let names = |count: usize| {
            let name =
                |n| (format!("p{n}"), json!({ "pattern": format!("^[\\p{{L}} '-]{{1,40}}{n}$") }));
            json!({ "properties": (0..count).map(name).collect::<serde_json::Map<_, _>>() })
        };
        assert!(validator(names(4)).is_ok());
        assert!(validator(names(40)).is_err(), "they share the space");
        // Between this limit and that of the library, 10 MB.
        let large = validator(json!({ "pattern": "\\p{L}{200}" })).unwrap_err();
        assert!(large.reason().contains("regex"), "{large}");
        let mut negated = json!({ "enum": (0..1_000).collect::<Vec<_>>() });
        for _ in 0..20 {
            negated = json!({ "not": negated });
        }
        assert!(validator(negated).unwrap_err().reason().contains("more than 20000"));
        // Each level of the value would go through all levels of the schema.
        let mut deep = json!({ "properties": { "a": { "$ref": "#" } } });
        for _ in 0..150 {
            deep = json!({ "if": true, "then": deep });
        }
        let value = (0..100).fold(json!({}), |inner, _| json!({ "a": inner }));
        let error = validator(deep).unwrap().validate(&value).unwrap_err();
        assert!(error.reason().contains("nest deeper"), "{error}");
    }

    #[test]
    fn validator_bounds_the_work() {
        // Each definition refers to the next one twice.
        let mut definitions = serde_json::Map::new();
        for n in 0..40 {
            let next = json!({ "$ref": format!("#/$defs/n{}", n + 1) });
            definitions.insert(format!("n{n}"), json!({ "allOf": [next, next] }));
        }
        definitions.insert("n40".to_owned(), json!({ "type": "integer" }));
        let bomb = json!({ "$defs": definitions, "$ref": "#/$defs/n0" });
        assert!(validator(bomb).unwrap_err().reason().contains("more than 20000 subschemas"));
        // The work doubles at each level of the value.
        let twice = json!({ "properties": { "a": { "$ref": "#" } } });
        let deep = (0..60).fold(json!({}), |inner, _| json!({ "a": inner }));
        let doubling = validator(json!({ "allOf": [twice, twice] })).unwrap();
        assert!(
            doubling.validate(&deep).unwrap_err().reason().contains("more than 5000000 subschemas")
        );
        // The same, with two references that share a recursive one.
        let half = json!({ "properties": { "a": { "$ref": "#/$defs/back" } } });
        let shared = json!({ "allOf": [half, half], "$defs": { "back": { "$ref": "#" } } });
        assert!(
            validator(shared)
                .unwrap()
                .validate(&deep)
                .unwrap_err()
                .reason()
                .contains("more than 5000000 subschemas")
        );
        let mut nested = json!({});
        for _ in 0..300 {
            nested = json!({ "not": nested });
        }
        assert!(validator(nested).unwrap_err().reason().contains("nested deeper"));
        // A schema of a tree is recursive and must not be rejected.
        let tree = json!({ "type": "object", "properties": { "children": { "type": "array", "items": { "$ref": "#" } } } });
        let value = (0..40).fold(json!({}), |inner, _| json!({ "children": [inner] }));
        assert_eq!(validator(tree).unwrap().validate(&value), Ok(()));
        assert_eq!(validator(json!({ "$ref": "#" })).unwrap().validate(&json!(5)), Ok(()));
    }
}
