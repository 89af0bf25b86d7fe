//! JSON Schema: whether a schema is one, and whether a value fits it (specification: basic, "JSON Schema
//! Usage"). Behind the feature `validate`.
//!
//! The dialect is the one that the schema declares with `$schema`, of draft 4 to 2020-12, or 2020-12.
//! Nothing is fetched. Work is bounded: what a hostile schema could ask for is estimated first, and refused
//! if it is too much.

use std::collections::HashMap;

use jsonschema::PatternOptions;
use serde_json::Value;

use crate::Object;

/// How many subschemas one place of a value may be held against, and how many in all.
const MOST_AT_ONCE: u64 = 20_000;
const MOST_IN_ALL: u64 = 5_000_000;

/// How deeply subschemas may be nested, references followed.
const DEEPEST: usize = 200;

/// A schema that values can be held against.
#[derive(Debug)]
pub struct Validator {
    inner: jsonschema::Validator,
    /// Subschemas for one place, if no reference came back to where it was.
    breadth: u64,
    /// References that come back to where they were.
    recursive: u64,
}

impl Validator {
    /// Reads a schema.
    ///
    /// # Errors
    ///
    /// If it is none, of an unknown dialect, refers to somewhere else, or is too much work.
    pub fn new(schema: &Object) -> Result<Self, String> {
        let root = Value::Object(schema.clone());
        let mut walk =
            Walk { root: &root, known: HashMap::new(), path: Vec::new(), recursive: 0, steps: 0 };
        let breadth = walk.cost(&root)?;
        let recursive = walk.recursive;
        // Regular expressions in linear time.
        let options = jsonschema::options().with_pattern_options(PatternOptions::regex());
        let inner = options.build(&root).map_err(|error| error.to_string())?;
        Ok(Self { inner, breadth, recursive })
    }

    /// Holds a value against the schema.
    ///
    /// # Errors
    ///
    /// What does not fit, and where; or that finding out would be too much work.
    pub fn check(&self, value: &Value) -> Result<(), String> {
        let (nodes, depth) = size(value);
        let again = self.recursive.max(1).saturating_pow(u32::try_from(depth).unwrap_or(u32::MAX));
        if self.breadth.saturating_mul(nodes).saturating_mul(again) > MOST_IN_ALL {
            return Err("it is too much work to hold the value against its schema".to_owned());
        }
        let mut errors = self.inner.iter_errors(value).map(|error| {
            let at = error.instance_path().to_string();
            if at.is_empty() { error.to_string() } else { format!("{at}: {error}") }
        });
        match errors.next() {
            None => Ok(()),
            Some(first) => {
                Err(std::iter::once(first).chain(errors.take(4)).collect::<Vec<_>>().join("; "))
            }
        }
    }
}

/// How many values there are in a value, and how deeply they are nested.
fn size(value: &Value) -> (u64, usize) {
    let (mut nodes, mut deepest, mut rest) = (0, 0, vec![(value, 1)]);
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

/// Counts subschemas as a validator would come to them, references followed.
struct Walk<'a> {
    root: &'a Value,
    /// What is counted already, by address.
    known: HashMap<*const Value, u64>,
    /// Where the walk is.
    path: Vec<*const Value>,
    recursive: u64,
    steps: u64,
}

impl<'a> Walk<'a> {
    fn cost(&mut self, schema: &'a Value) -> Result<u64, String> {
        let at: *const Value = schema;
        if self.path.contains(&at) {
            self.recursive += 1;
            return Ok(1);
        }
        if let Some(known) = self.known.get(&at) {
            return Ok(*known);
        }
        if self.path.len() > DEEPEST {
            return Err(format!("its subschemas are nested deeper than {DEEPEST}"));
        }
        self.steps += 1;
        if self.steps > MOST_AT_ONCE {
            return Err(too_many());
        }
        self.path.push(at);
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
        if sum > MOST_AT_ONCE {
            return Err(too_many());
        }
        // What comes back to where it was is counted each time that there is a way to it.
        if self.recursive == recursive_before {
            self.known.insert(at, sum);
        }
        Ok(sum)
    }

    fn keyword(&mut self, keyword: &str, value: &'a Value) -> Result<u64, String> {
        match (keyword, value) {
            ("$ref", Value::String(target)) => {
                let pointer = target.strip_prefix('#').ok_or_else(|| {
                    format!("it refers to {target:.100?}, and nothing is fetched")
                })?;
                let pointer = crate::uri::percent_decode(pointer).unwrap_or_default();
                match self.root.pointer(&pointer) {
                    Some(target) => self.cost(target),
                    None => Err(format!("it refers to {target:.100?}, which is not there")),
                }
            }
            // They would need the scopes of a whole evaluation.
            ("$dynamicRef" | "$recursiveRef", _) => Err(format!("{keyword} is not supported here")),
            ("$id" | "id", Value::String(_)) if self.path.len() > 1 => {
                Err("a subschema with an `$id` of its own is not supported here".to_owned())
            }
            // Data, not schemas.
            ("const" | "default" | "enum" | "examples", _) => Ok(1),
            (_, Value::Object(_) | Value::Array(_)) => self.cost(value),
            _ => Ok(0),
        }
    }
}

fn too_many() -> String {
    format!("a value would be held against more than {MOST_AT_ONCE} subschemas")
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn validator(schema: Value) -> Result<Validator, String> {
        let Value::Object(schema) = schema else { unreachable!() };
        Validator::new(&schema)
    }

    #[test]
    fn values_are_held_against_their_schema() {
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
            assert_eq!(schema.check(&value), Ok(()), "{value}");
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
            let why = schema.check(&value).unwrap_err();
            assert!(why.contains(part), "{value}: {why}");
        }
    }

    #[test]
    fn the_dialect_is_the_declared_one_or_2020_12() {
        // `prefixItems` is of 2020-12; in draft 7 it means nothing.
        let schema = |dialect: Option<&str>| {
            let mut schema = json!({ "prefixItems": [{ "type": "string" }] });
            if let Some(dialect) = dialect {
                schema["$schema"] = json!(dialect);
            }
            validator(schema)
        };
        let number = json!([5]);
        assert!(schema(None).unwrap().check(&number).is_err());
        let newest = "https://json-schema.org/draft/2020-12/schema";
        assert!(schema(Some(newest)).unwrap().check(&number).is_err());
        let seven = "http://json-schema.org/draft-07/schema#";
        assert!(schema(Some(seven)).unwrap().check(&number).is_ok());
        let why = schema(Some("https://example.com/own")).unwrap_err();
        assert!(why.contains("https://example.com/own"), "{why}");
    }

    #[test]
    fn schemas_that_are_none_or_not_whole_are_refused() {
        for (schema, part) in [
            (json!({ "type": "objekt" }), "objekt"),
            (json!({ "properties": 5 }), "5 is not of type"),
            (json!({ "pattern": "(" }), "regex"),
            (json!({ "$ref": "https://example.com/x.json" }), "nothing is fetched"),
            (json!({ "properties": { "a": { "$ref": "other.json" } } }), "nothing is fetched"),
            (json!({ "$ref": "#/$defs/none" }), "not there"),
            (json!({ "$dynamicRef": "#x" }), "not supported"),
            (json!({ "allOf": [{ "$id": "https://example.com/y", "type": "string" }] }), "`$id`"),
        ] {
            let why = validator(schema.clone()).unwrap_err();
            assert!(why.contains(part), "{schema}: {why}");
        }
    }

    #[test]
    fn work_is_bounded() {
        // Each definition refers to the next one twice.
        let mut definitions = serde_json::Map::new();
        for n in 0..40 {
            let next = json!({ "$ref": format!("#/$defs/n{}", n + 1) });
            definitions.insert(format!("n{n}"), json!({ "allOf": [next, next] }));
        }
        definitions.insert("n40".to_owned(), json!({ "type": "integer" }));
        let bomb = json!({ "$defs": definitions, "$ref": "#/$defs/n0" });
        assert!(validator(bomb).unwrap_err().contains("subschemas"));
        // Twice at each depth of the value.
        let twice = json!({ "properties": { "a": { "$ref": "#" } } });
        let deep = (0..60).fold(json!({}), |inner, _| json!({ "a": inner }));
        let doubling = validator(json!({ "allOf": [twice, twice] })).unwrap();
        assert!(doubling.check(&deep).unwrap_err().contains("too much work"));
        // The same, with the two ways apart and the way back shared.
        let half = json!({ "properties": { "a": { "$ref": "#/$defs/back" } } });
        let shared = json!({ "allOf": [half, half], "$defs": { "back": { "$ref": "#" } } });
        assert!(validator(shared).unwrap().check(&deep).unwrap_err().contains("too much work"));
        let mut nested = json!({});
        for _ in 0..300 {
            nested = json!({ "not": nested });
        }
        assert!(validator(nested).unwrap_err().contains("nested deeper"));
        // A tree is no such thing.
        let tree = json!({ "type": "object", "properties": { "children": { "type": "array", "items": { "$ref": "#" } } } });
        let value = (0..40).fold(json!({}), |inner, _| json!({ "children": [inner] }));
        assert_eq!(validator(tree).unwrap().check(&value), Ok(()));
        assert_eq!(validator(json!({ "$ref": "#" })).unwrap().check(&json!(5)), Ok(()));
    }
}
