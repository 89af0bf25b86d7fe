//! Random schemas and values: the validator beside the library that it limits.

use std::cell::Cell;

use jsonschema::{Keyword, ValidationError};
use serde_json::{Map, Value, json};

use super::{Validator, cost::SchemaCost};
use crate::Object;

/// A generator of random numbers that is the same everywhere (SplitMix64).
struct Random(u64);

impl Random {
    fn below(&mut self, bound: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut number = self.0;
        number = (number ^ (number >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        number = (number ^ (number >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        usize::try_from((number ^ (number >> 31)) % bound as u64).unwrap()
    }

    fn name(&mut self) -> String {
        ["a", "b", "c"][self.below(3)].to_owned()
    }

    fn value(&mut self, depth: usize) -> Value {
        match self.below(if depth == 0 { 3 } else { 6 }) {
            0 => json!(self.below(2)),
            1 => json!(self.name()),
            2 => json!(null),
            3 => (0..self.below(4)).map(|_| self.value(depth - 1)).collect(),
            _ => {
                let members = (0..self.below(4)).map(|_| (self.name(), self.value(depth - 1)));
                Value::Object(members.collect())
            }
        }
    }

    /// Returns a subschema, with references to `targets` definitions.
    fn schema(&mut self, depth: usize, targets: usize) -> Value {
        let mut schema = Object::new();
        for _ in 0..=self.below(3) {
            let (keyword, value) = self.keyword(depth, targets);
            schema.insert(keyword.to_owned(), value);
        }
        Value::Object(schema)
    }

    fn keyword(&mut self, depth: usize, targets: usize) -> (&'static str, Value) {
        if targets > 0 && self.below(4) == 0 {
            return ("$ref", json!(format!("#/definitions/d{}", self.below(targets))));
        }
        if depth == 0 {
            return match self.below(6) {
                0 => ("type", json!(["object", "array"])),
                1 => ("enum", json!([0, "a", null])),
                2 => ("required", json!([self.name()])),
                3 => ("pattern", json!("^[ab]$")),
                4 => ("uniqueItems", json!(true)),
                _ => ("maxItems", json!(self.below(3))),
            };
        }
        let keywords = [
            "properties",
            "patternProperties",
            "additionalProperties",
            "propertyNames",
            "items",
            "contains",
            "unevaluatedProperties",
            "unevaluatedItems",
            "allOf",
            "anyOf",
            "oneOf",
            "not",
            "if",
            "then",
            "else",
            "dependentSchemas",
            "dependencies",
        ];
        let keyword = keywords[self.below(keywords.len())];
        let value = match keyword {
            "properties" | "dependentSchemas" | "dependencies" => {
                let members = (0..self.below(3)).map(|_| {
                    let name = self.name();
                    (name, self.schema(depth - 1, targets))
                });
                Value::Object(members.collect())
            }
            "patternProperties" => json!({ "^[ab]": self.schema(depth - 1, targets) }),
            "allOf" | "anyOf" | "oneOf" => {
                (0..=self.below(3)).map(|_| self.schema(depth - 1, targets)).collect()
            }
            _ if self.below(6) == 0 => json!(false),
            _ => self.schema(depth - 1, targets),
        };
        (keyword, value)
    }
}

const DRAFTS: [&str; 4] = [
    "https://json-schema.org/draft/2020-12/schema",
    "https://json-schema.org/draft/2019-09/schema",
    "http://json-schema.org/draft-07/schema#",
    "http://json-schema.org/draft-04/schema#",
];

/// The condition before each reference must not change what is valid.
#[test]
fn the_validator_agrees_with_the_library() {
    let mut random = Random(1);
    let (mut valid, mut compared) = (0, 0);
    for round in 0..4_000 {
        let mut schema = random.schema(2, 3);
        let definitions = (0..3).map(|n| (format!("d{n}"), random.schema(2, 3)));
        schema["definitions"] = Value::Object(definitions.collect());
        schema["$schema"] = json!(DRAFTS[round % DRAFTS.len()]);
        // Some references lead back to the same node, and some keywords are not of the draft.
        let Ok(validator) = Validator::new(schema.as_object().unwrap()) else { continue };
        let Ok(library) = jsonschema::options().build(&schema) else { continue };
        for _ in 0..10 {
            let value = random.value(4);
            let result = validator.validate(&value);
            assert_eq!(result.is_ok(), library.is_valid(&value), "{schema}\n{value}\n{result:?}");
            valid += usize::from(result.is_ok());
            compared += 1;
        }
    }
    // Otherwise, the test would say little.
    assert!(valid > 1_000 && compared - valid > 1_000, "{valid} of {compared}");
}

thread_local! {
    static VISITS: Cell<u64> = const { Cell::new(0) };
}

/// A keyword that counts how often it is applied.
struct Counter;

impl<'i> Keyword<'i> for Counter {
    fn validate(&self, _instance: &'i Value) -> Result<(), ValidationError<'i>> {
        VISITS.set(VISITS.get() + 1);
        Ok(())
    }

    fn is_valid(&self, _instance: &'i Value) -> bool {
        VISITS.set(VISITS.get() + 1);
        true
    }
}

/// Adds a counter to all subschemas, in `allOf`: the library applies unknown keywords last, and
/// only if all others are valid.
fn with_counters(schema: &Value) -> Value {
    match schema {
        Value::Object(members) => {
            let counted = members.iter().map(|(name, value)| (name.clone(), with_counters(value)));
            let mut counted: Map<_, _> = counted.collect();
            // The others contain subschemas by name.
            if !members.keys().all(|name| ["a", "b", "c", "^[ab]"].contains(&name.as_str())) {
                let all = counted.entry("allOf").or_insert_with(|| json!([]));
                all.as_array_mut().unwrap().insert(0, json!({ "counter": true }));
            }
            counted.into()
        }
        Value::Array(items) => items.iter().map(with_counters).collect(),
        other => other.clone(),
    }
}

/// What is estimated is at least what the library does.
#[test]
fn the_estimate_covers_the_work_of_the_library() {
    let mut random = Random(2);
    let mut visits = 0;
    for round in 0..2_000 {
        let mut schema = random.schema(4, 0);
        if round < 20 {
            // Rare by chance: alternatives of which none is valid, so that the errors of all are
            // collected.
            schema = (0..round)
                .fold(json!({ "not": {} }), |inner, _| json!({ "oneOf": [inner, false] }));
        }
        schema["$schema"] = json!(DRAFTS[round % DRAFTS.len()]);
        let Ok((_, references)) = SchemaCost::of(&schema, false) else { continue };
        let options = jsonschema::options();
        let options = options
            .with_keyword("counter", |_: &Map<String, Value>, _: &Value, _| Ok(Box::new(Counter)));
        let Ok(library) = options.build(&with_counters(&schema)) else { continue };
        for _ in 0..10 {
            let value = random.value(5);
            let estimated = references.works[0].on(&value).visits;
            let is_valid = library.is_valid(&value);
            let of_is_valid = VISITS.take();
            assert_eq!(library.iter_errors(&value).count() == 0, is_valid);
            let of_errors = VISITS.take();
            assert!(of_is_valid.max(of_errors) <= estimated, "{schema}\n{value}\n{estimated}");
            visits += of_is_valid + of_errors;
        }
    }
    assert!(visits > 100_000, "{visits}");
}
