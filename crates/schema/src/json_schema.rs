//! Validation against JSON Schema (specification: basic, "JSON Schema Usage"). Needs the feature
//! `validate`.
//!
//! The dialect is the one that the schema declares with `$schema`, from draft 4 to 2020-12; the
//! default is 2020-12. References to other documents are rejected: nothing is fetched. Work is
//! bounded: it is estimated before a schema is applied, and before each reference is followed. What
//! would cost too much is rejected.

mod budget;
mod cost;
mod estimator;
mod in_place;
mod patterns;
#[cfg(test)]
mod random;
mod targets;
mod value_size;
mod work;

use std::fmt::{self, Display, Write};

use cost::SchemaCost;
use estimator::MAX_BACKTRACKS;
use jsonschema::{PatternOptions, ValidationError, error::ValidationErrorKind};
use serde_json::Value;
use value_size::ValueSize;
use work::Amount;

use crate::{InvalidValue, Object};

/// Maximum number of applications of subschemas to nodes for one value: bounds the time of a
/// validation. One that is not crafted to be slow takes a fraction of a second.
const MAX_TOTAL: u64 = 5_000_000;

/// Maximum number of applications, times the length of an error, for which all errors are
/// collected: there may be as many. The length is 1, and 1 more for each 256 bytes that are copied
/// from schema and value.
const MAX_COLLECTED: u64 = 100_000;

/// Maximum product of the nesting of the subschemas that are applied to one node, and that of a
/// value. Bounds the recursion of the validator.
const MAX_RECURSION: usize = 4_000;

/// Maximum size of a compiled pattern, in bytes. Fifty Unicode letters take half of it.
const MAX_PATTERN_SIZE: usize = 2 << 20;

/// Maximum size of all compiled patterns, in bytes. Each gets an equal share, up to
/// [`MAX_PATTERN_SIZE`].
const MAX_PATTERNS_SIZE: usize = 8 << 20;

/// Maximum number of errors in one message.
const MAX_ERRORS: usize = 5;

/// Maximum length of an error in a message, in bytes.
const MAX_ERROR_LENGTH: usize = 500;

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
    cost: SchemaCost,
}

impl Validator {
    /// Compiles a schema.
    ///
    /// # Errors
    ///
    /// [`InvalidValue`] if the schema is malformed, declares an unknown dialect, contains a
    /// reference that is not within itself or leads back to the same value, uses `$dynamicRef`,
    /// `$recursiveRef`, an `$id` in a subschema or an anchor twice, mixes drafts, or costs too
    /// much.
    pub fn new(schema: &Object) -> Result<Self, InvalidValue> {
        let root = Value::Object(schema.clone());
        // The engine that is tried first needs linear time, but has no look-around.
        Self::compile(&root, false).or_else(|error| Self::compile(&root, true).map_err(|_| error))
    }

    fn compile(root: &Value, is_backtracking: bool) -> Result<Self, InvalidValue> {
        let (cost, references) =
            SchemaCost::of(root, is_backtracking).map_err(InvalidValue::new)?;
        let limited = budget::limited(root, &references).map_err(InvalidValue::new)?;
        let options = budget::with_keyword(jsonschema::options(), references.works);
        // It takes time that is quadratic in the length of the text, and is an annotation by
        // default.
        let options = options.with_format("regex", |_| true);
        let size = MAX_PATTERN_SIZE.min(MAX_PATTERNS_SIZE / cost.patterns.max(1));
        let inner = if is_backtracking {
            let patterns = PatternOptions::fancy_regex().backtrack_limit(MAX_BACKTRACKS);
            let patterns = patterns.size_limit(size).dfa_size_limit(size / 4);
            options.with_pattern_options(patterns).build(&limited)
        } else {
            let patterns = PatternOptions::regex().size_limit(size).dfa_size_limit(size / 4);
            options.with_pattern_options(patterns).build(&limited)
        };
        let inner = inner.map_err(|error| InvalidValue::new(cut(&error)))?;
        Ok(Self { inner, cost })
    }

    /// Validates a value.
    ///
    /// # Errors
    ///
    /// [`InvalidValue`] with the path of the first error and the text of up to five errors, each up
    /// to 500 bytes, or if the validation would cost too much. If there could be many errors, the
    /// text has one, or says only that the value does not match. It contains names of members, and
    /// no values.
    pub fn validate(&self, value: &Value) -> Result<(), InvalidValue> {
        let size = ValueSize::of(value);
        if self.cost.depth.saturating_mul(size.depth) > MAX_RECURSION {
            return Err(InvalidValue::new(format!(
                "validation would nest deeper than {MAX_RECURSION} subschemas"
            )));
        }
        // There can be as many errors as subschemas are applied.
        let visits = MAX_COLLECTED / self.cost.error_length(&size);
        let limit = Amount { visits, total: MAX_TOTAL };
        budget::within(limit, || self.all_errors(value)).unwrap_or_else(|| self.first_error(value))
    }

    /// Validates a value, and returns all errors as one.
    fn all_errors(&self, value: &Value) -> Result<(), InvalidValue> {
        let found: Vec<_> = self.inner.iter_errors(value).take(MAX_ERRORS).collect();
        let mut errors = Vec::new();
        for error in &found {
            budget::push_original(error, &mut errors);
        }
        let mut errors = errors.into_iter().take(MAX_ERRORS);
        let Some(first) = errors.next() else { return Ok(()) };
        let mut reason = text(first);
        for error in errors {
            let path = cut(error.instance_path());
            let separator = if path.is_empty() { "" } else { ": " };
            // Writing to a `String` cannot fail.
            let _: fmt::Result = write!(reason, "; {path}{separator}{}", text(error));
        }
        Err(InvalidValue::with_path(cut(first.instance_path()), reason))
    }

    /// Validates a value that may have too many errors to keep them all in memory.
    fn first_error(&self, value: &Value) -> Result<(), InvalidValue> {
        // Unlike the search for an error, this applies no target of a reference to the same node
        // again and again.
        let limit = Amount { visits: MAX_TOTAL, total: MAX_TOTAL };
        match budget::within(limit, || self.inner.is_valid(value)) {
            Some(true) => return Ok(()),
            Some(false) => {}
            None => {
                let reason = format!("validation would apply more than {MAX_TOTAL} subschemas");
                return Err(InvalidValue::new(reason));
            }
        }
        // The error about alternatives contains all errors of each.
        if !self.cost.has_alternatives
            && let Some(Err(error)) = budget::within(limit, || self.inner.validate(value))
        {
            return Err(InvalidValue::with_path(cut(error.instance_path()), text(&error)));
        }
        Err(InvalidValue::new("the value does not match the schema"))
    }
}

/// Returns the text of an error, without the value: errors are logged.
fn text(error: &ValidationError<'_>) -> String {
    // The library would write the whole schema.
    if let ValidationErrorKind::Not { .. } = error.kind() {
        return "the value matches the schema in `not`".to_owned();
    }
    cut(&error.masked_with("the value"))
}

/// Returns what is displayed, up to [`MAX_ERROR_LENGTH`].
fn cut(displayed: &impl Display) -> String {
    struct Cut(String);

    impl Write for Cut {
        fn write_str(&mut self, text: &str) -> fmt::Result {
            let room = MAX_ERROR_LENGTH.saturating_sub(self.0.len());
            let end = text.floor_char_boundary(room);
            self.0.push_str(text.get(..end).unwrap_or_default());
            if end == text.len() { Ok(()) } else { Err(fmt::Error) }
        }
    }

    let mut written = Cut(String::new());
    if write!(written, "{displayed}").is_err() {
        written.0.push('…');
    }
    written.0
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
            (json!({ "n": 0 }), "/n: the value is less"),
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
            (json!({ "allOf": [{ "$anchor": "a" }, { "$anchor": "a" }] }), "\"a\" occurs twice"),
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
        for own in
            ["", "#", "tree", "/schemas/tree", "tree#", "https://a.example/schemas/tree#/$defs/a"]
        {
            let tree = json!({
                "$id": "https://a.example/schemas/tree", "type": "object",
                "properties": { "next": { "$ref": own } }, "$defs": { "a": true },
            });
            assert_eq!(validator(tree).unwrap().validate(&json!({ "next": {} })), Ok(()), "{own}");
        }
        for other in
            ["other", "/tree", "schemas/tree", "https://b.example/schemas/tree", "#/%FF", "#/100%"]
        {
            let tree = json!({
                "$id": "https://a.example/schemas/tree", "properties": { "next": { "$ref": other } },
            });
            assert!(validator(tree).is_err(), "{other}");
        }
    }

    /// Drafts 4 and 6 have no `if`.
    #[test]
    fn errors_of_old_drafts_have_their_path() {
        let old = validator(json!({
            "$schema": "http://json-schema.org/draft-04/schema#", "required": ["n"],
            "properties": { "n": { "minimum": 1 }, "next": { "$ref": "#" } },
        }));
        let error = old.unwrap().validate(&json!({ "n": 2, "next": { "n": 0 } })).unwrap_err();
        assert_eq!(
            (error.path(), error.reason()),
            ("/next/n", "the value is less than the minimum of 1")
        );
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
        let bomb = validator(json!({ "$defs": definitions, "$ref": "#/$defs/n0" })).unwrap();
        let error = bomb.validate(&json!(5)).unwrap_err();
        assert!(error.reason().contains("more than 5000000 subschemas"), "{error}");
        // The work would double at each level of the value, but the library remembers results.
        let twice = json!({ "properties": { "a": { "$ref": "#" } } });
        let half = json!({ "properties": { "a": { "$ref": "#/$defs/back" } } });
        let deep = (0..60).fold(json!({}), |inner, _| json!({ "a": inner }));
        for schema in [
            json!({ "allOf": [twice, twice] }),
            json!({ "allOf": [half, half], "$defs": { "back": { "$ref": "#" } } }),
        ] {
            assert_eq!(validator(schema).unwrap().validate(&deep), Ok(()));
        }
        let mut nested = json!({});
        for _ in 0..300 {
            nested = json!({ "not": nested });
        }
        assert!(validator(nested).unwrap_err().reason().contains("nested deeper"));
        // A schema of a tree is recursive and must not be rejected, in the forms that generators
        // write.
        let tree = |node: &str| {
            let children = json!({ "type": "array", "items": { "$ref": node } });
            json!({ "type": "object", "properties": { "children": children, "next": { "$ref": node } } })
        };
        let value = (0..40).fold(json!({}), |inner, _| json!({ "children": [inner], "next": {} }));
        let node = "#/$defs/Node";
        let of_root = json!({ "$defs": { "Node": tree(node) }, "$ref": node });
        let of_field = json!({ "$defs": { "Node": tree(node) }, "properties": { "children": { "items": { "$ref": node } } } });
        for schema in [tree("#"), of_root, of_field] {
            assert_eq!(validator(schema).unwrap().validate(&value), Ok(()));
        }
    }

    /// Each level applies everything below it once more, to find out what that has evaluated.
    #[test]
    fn validator_bounds_the_work_for_unevaluated_members() {
        for keyword in ["unevaluatedProperties", "unevaluatedItems"] {
            let nested = |levels| {
                (0..levels).fold(json!({}), |inner, _| json!({ "allOf": [inner], (keyword): {} }))
            };
            assert_eq!(validator(nested(5)).unwrap().validate(&json!({})), Ok(()));
            let error = validator(nested(50)).unwrap_err();
            assert!(error.reason().contains("more than 20000 subschemas"), "{error}");
        }
        // The same at each level of the value.
        let tree = |branch: &str| {
            validator(json!({ (branch): [{ "properties": { "a": { "$ref": "#" } } }], "unevaluatedProperties": false }))
                .unwrap()
        };
        let value = |levels| (0..levels).fold(json!({}), |inner, _| json!({ "a": inner }));
        assert_eq!(tree("anyOf").validate(&value(60)), Ok(()));
        assert_eq!(tree("allOf").validate(&value(60)), Ok(()));
        // Here, no subschema is applied twice.
        let linear = json!({
            "properties": { "a": { "$ref": "#" } }, "unevaluatedProperties": false,
        });
        assert_eq!(validator(linear).unwrap().validate(&value(60)), Ok(()));
    }

    /// A value can have an error for each node and name.
    #[test]
    fn validator_bounds_the_number_of_errors() {
        let list = |count: u64| Value::from((0..count).collect::<Vec<_>>());
        let strings = json!({ "items": { "type": "string" } });
        let alternatives = json!({ "items": { "anyOf": [{ "type": "string" }, false] } });
        for schema in [&strings, &alternatives] {
            let schema = validator(schema.clone()).unwrap();
            assert_eq!(schema.validate(&list(9)).unwrap_err().reason().matches("; ").count(), 4);
            assert_eq!(schema.validate(&json!(vec!["x"; 50_000])), Ok(()));
        }
        let error = validator(strings).unwrap().validate(&list(100_000)).unwrap_err();
        assert_eq!(error.reason(), "the value is not of type \"string\"");
        let error = validator(alternatives).unwrap().validate(&list(50_000)).unwrap_err();
        assert_eq!(error.reason(), "the value does not match the schema");

        let names: Vec<_> = (0..10_000).map(|n| format!("a{n}")).collect();
        let objects = Value::from(vec![json!({ "a": 1 }); 1_000]);
        for keyword in [json!({ "required": names }), json!({ "dependencies": { "a": names } })] {
            let required = validator(json!({ "items": keyword })).unwrap();
            assert!(
                required.validate(&objects).unwrap_err().reason().contains("more than 5000000")
            );
        }
    }

    /// The errors may be few, and long.
    #[test]
    fn validator_bounds_the_length_of_all_errors() {
        let list = json!({ "items": { "type": "string" } });
        let lists = validator(json!({ "additionalProperties": list })).unwrap();
        let named = |name: &str| json!({ (name): (0..1_000).collect::<Vec<_>>() });
        let errors = |value| lists.validate(&value).unwrap_err().reason().matches("; ").count();
        assert_eq!(errors(named("x")), 4);
        assert_eq!(errors(named(&"x".repeat(1 << 16))), 0);

        let items = Value::from(vec![json!({}); 1_000]);
        for (keyword, value) in [
            ("required", json!(["x".repeat(1 << 16)])),
            ("not", json!({ "description": "x".repeat(1 << 16) })),
        ] {
            let schema = validator(json!({ "items": { (keyword): value } })).unwrap();
            let error = schema.validate(&items).unwrap_err();
            assert!(!error.reason().contains("; "), "{error}");
        }
    }

    /// Items can have the same hash although they differ: arrays, objects, and numbers beyond 2⁵³.
    #[test]
    fn validator_bounds_the_comparisons_of_items() {
        let unique = validator(json!({ "uniqueItems": true })).unwrap();
        let numbers = |count: u64| Value::from((0..count).collect::<Vec<_>>());
        assert_eq!(unique.validate(&numbers(100_000)), Ok(()));
        let lists = |count: u64| Value::from((0..count).map(|n| json!([n])).collect::<Vec<_>>());
        assert_eq!(unique.validate(&lists(5_000)), Ok(()));
        let many = json!({ "allOf": vec![json!({ "uniqueItems": true }); 60] });
        let wide = (0..5_000).map(|n| json!([vec![0; 60], n])).collect::<Vec<_>>();
        let large = (0..20_000).map(|n| json!(u64::MAX - n)).collect::<Vec<_>>();
        for (schema, value) in [
            (json!({ "uniqueItems": true }), lists(20_000)),
            (json!({ "uniqueItems": true }), wide.into()),
            (json!({ "uniqueItems": true }), large.into()),
            (many, lists(5_000)),
        ] {
            let error = validator(schema).unwrap().validate(&value).unwrap_err();
            assert!(error.reason().contains("more than 5000000 subschemas"), "{error}");
        }
    }

    #[test]
    fn validator_bounds_the_work_for_long_text() {
        let pattern = json!({ "pattern": "^[a-z]*$" });
        let long = json!("x".repeat(4 << 20));
        assert_eq!(validator(pattern.clone()).unwrap().validate(&long), Ok(()));
        let many = validator(json!({ "allOf": vec![pattern; 5_000] })).unwrap();
        assert_eq!(many.validate(&json!("x")), Ok(()));
        assert!(many.validate(&long).unwrap_err().reason().contains("more than 5000000"));
        // Alternatives are tried one by one.
        let words = (0..10_000).map(|n| n.to_string()).collect::<Vec<_>>().join("|");
        let one_of = validator(json!({ "items": { "pattern": format!("^({words})$") } })).unwrap();
        assert_eq!(one_of.validate(&json!(["9999"])), Ok(()));
        let list = Value::from(vec!["9999"; 10_000]);
        assert!(one_of.validate(&list).unwrap_err().reason().contains("more than 5000000"));
        // So are the repetitions of a pattern, which a short one can have.
        let repeated = validator(json!({ "pattern": "^[ab]*a[ab]{15000}[x-z]" })).unwrap();
        assert!(repeated.validate(&json!("ab")).is_err());
        let long_text = json!("ab".repeat(1 << 14));
        let error = repeated.validate(&long_text).unwrap_err();
        assert!(error.reason().contains("more than 5000000"), "{error}");
        let names = json!({ (long.as_str().unwrap()): 1 });
        let pattern = json!({ "propertyNames": { "pattern": "^[a-z]*$" } });
        let many = validator(json!({ "allOf": vec![pattern; 5_000] })).unwrap();
        assert!(many.validate(&names).unwrap_err().reason().contains("more than 5000000"));
    }

    /// As they are generated for addresses of e-mail. They cost more, as the engine goes back.
    #[test]
    fn patterns_may_have_look_around() {
        let address = "^(?!\\.)(?!.*\\.\\.)([A-Za-z0-9_'+\\-\\.]*)[A-Za-z0-9_+-]@([A-Za-z0-9][A-Za-z0-9\\-]*\\.)+[A-Za-z]{2,}$";
        let date =
            format!("^(?:{}|\\d{{4}}-\\d\\d-\\d\\d)$", "\\d{4}-(?:0[1-9]|1[0-2])-".repeat(9));
        let contact = json!({ "properties": {
            "email": { "format": "email", "pattern": address },
            "phone": { "type": "integer" },
            "since": { "anyOf": [{ "type": "string", "pattern": date }, { "type": "null" }] },
        } });
        let schema = validator(json!({ "items": contact })).unwrap();
        let contacts = |email: &str, count| {
            let contact =
                json!({ "email": email, "phone": 5, "since": "2026-11-29", "name": "John" });
            Value::from(vec![contact; count])
        };
        assert_eq!(schema.validate(&contacts("john.m.doe@mail.example.com", 1_000)), Ok(()));
        let error = schema.validate(&contacts("john..doe@example.com", 100)).unwrap_err();
        assert_eq!(error.path(), "/0/email");
        let quoted = validator(json!({ "pattern": "^(['\"]).*\\1$" })).unwrap();
        assert_eq!(quoted.validate(&json!("'a'")), Ok(()));
        assert!(quoted.validate(&json!("'a\"")).is_err());
        let slow = validator(json!({ "items": { "pattern": "^(?=(x+x+)+y)" } })).unwrap();
        let error = slow.validate(&json!(vec!["x".repeat(60); 100_000])).unwrap_err();
        assert!(error.reason().contains("more than 5000000 subschemas"), "{error}");
    }

    /// The library compares the names of all groups of a regular expression.
    #[test]
    fn validator_bounds_the_work_for_regular_expressions() {
        let groups = |count| (0..count).map(|n| format!("(?<a{n}>)")).collect::<Vec<_>>().concat();
        let draft_7 = "http://json-schema.org/draft-07/schema#";
        let error =
            validator(json!({ "$schema": draft_7, "pattern": groups(20_000) })).unwrap_err();
        assert!(error.reason().contains("too long"), "{error}");
        let regex = validator(json!({ "$schema": draft_7, "format": "regex" })).unwrap();
        assert_eq!(regex.validate(&json!(groups(300_000))), Ok(()));
    }

    /// Servers log errors.
    #[test]
    fn errors_contain_no_values_and_are_short() {
        let secret = "secret".repeat(1_000);
        for (schema, value) in [
            (json!({ "type": "integer" }), json!({ "a": secret })),
            (json!({ "enum": ["x".repeat(10_000)] }), json!(secret)),
            (json!({ "uniqueItems": true }), json!([secret, secret])),
            (json!({ "anyOf": [{ "type": "integer" }, { "maxLength": 1 }] }), json!(secret)),
            (json!({ "const": 1 }), json!([secret])),
            (json!({ "pattern": "^a" }), json!(secret)),
            (json!({ "contains": { "const": 1 } }), json!([secret])),
            (json!({ "not": {} }), json!(secret)),
            (
                json!({ "maxProperties": 0, "propertyNames": { "maxLength": 9 } }),
                json!({ "a": secret }),
            ),
        ] {
            let error = validator(schema).unwrap().validate(&value).unwrap_err().to_string();
            assert!(!error.contains("secret") && error.len() < 1_000, "{error}");
        }
        let names = json!({ (secret): { "a": 1 } });
        for schema in [
            json!({ "additionalProperties": false, "properties": { "a": {} } }),
            json!({ "additionalProperties": { "type": "string" } }),
        ] {
            let error = validator(schema).unwrap().validate(&names).unwrap_err().to_string();
            assert!(error.contains('…') && error.len() < 1_000, "{error}");
        }
    }
}
