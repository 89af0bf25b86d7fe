//! A limit on the work of one validation.
//!
//! How often the references of a schema are followed depends on the value. So a condition is put
//! before each, and before the schema: it is met as long as its work is within the limit.

use std::{cell::Cell, collections::HashMap, fmt::Write as _, sync::Arc};

use jsonschema::error::ValidationErrorKind;
use jsonschema::{Keyword, ValidationError, ValidationOptions};
use serde_json::{Map, Value, json};

use super::{
    cost::References,
    estimator::BUDGET,
    work::{Amount, Work},
};

/// How the names of conditions begin.
const CONDITION: &str = "mrtr:condition";

/// Maximum length of all pointers to targets, in bytes.
const MAX_POINTERS: usize = 8 << 20;

thread_local! {
    /// What is left for the validation that this thread runs, or `None` once it was too little.
    static LEFT: Cell<Option<Amount>> = const { Cell::new(None) };
}

/// Runs a validation, and returns `None` if it exceeds the limit.
pub(super) fn within<T>(limit: Amount, validate: impl FnOnce() -> T) -> Option<T> {
    LEFT.set(Some(limit));
    let result = validate();
    LEFT.get().map(|_| result)
}

/// Returns a schema with a condition before the given one and each of its references.
///
/// All places are named by pointers from here, so that no identifier in the schema matters.
///
/// # Errors
///
/// If a reference leads into the value of `const` or `enum`, which must not be changed.
pub(super) fn limited(schema: &Value, references: &References) -> Result<Value, String> {
    let mut copy = Copy {
        references,
        pointer: "#/definitions/schema".to_owned(),
        pointers: HashMap::new(),
        pointers_length: 0,
    };
    let mut definitions = Map::new();
    definitions.insert("schema".to_owned(), copy.redirected(schema));
    if copy.pointers_length > MAX_POINTERS {
        return Err("names on the way to targets of `$ref` are too long".to_owned());
    }
    for index in 0..references.works.len() {
        let Some(pointer) = copy.pointers.get(&index) else {
            return Err("a `$ref` leads into the value of `const` or `enum`".to_owned());
        };
        let (condition, target) = (json!({ (BUDGET): index }), json!({ "$ref": pointer }));
        let limited = if references.has_conditions {
            json!({ "if": condition, "then": target })
        } else {
            json!({ "anyOf": [{ "not": condition }, target] })
        };
        definitions.insert(condition_name(index), limited);
    }
    let first = format!("#/definitions/{}", condition_name(0));
    let mut limited = json!({ "$ref": first, "definitions": definitions });
    if let (Value::Object(limited), Some(draft)) = (&mut limited, schema.get("$schema")) {
        limited.insert("$schema".to_owned(), draft.clone());
    }
    Ok(limited)
}

fn condition_name(index: usize) -> String {
    format!("{CONDITION}{index}")
}

/// Adds an error to a list or, if it is about a condition, the errors of the target.
pub(super) fn push_original<'e, 'i>(
    error: &'e ValidationError<'i>,
    errors: &mut Vec<&'e ValidationError<'i>>,
) {
    if let ValidationErrorKind::AnyOf { context } = error.kind()
        && let [_, target] = context.as_slice()
        && error.schema_path().as_str().contains(CONDITION)
    {
        for error in target {
            push_original(error, errors);
        }
    } else {
        errors.push(error);
    }
}

struct Copy<'a> {
    references: &'a References,
    /// Where the current part is in the copy.
    pointer: String,
    /// Where the targets are in the copy.
    pointers: HashMap<usize, String>,
    pointers_length: usize,
}

impl Copy<'_> {
    /// Returns a subschema, or another part of the schema, whose references lead to conditions.
    fn redirected(&mut self, part: &Value) -> Value {
        let address = std::ptr::from_ref(part);
        if let Some(index) = self.references.targets.get(&address)
            // Enough for the caller to find out that they are too long.
            && self.pointers_length <= MAX_POINTERS
        {
            self.pointers_length += self.pointer.len();
            self.pointers.insert(*index, self.pointer.clone());
        }
        match part {
            Value::Object(members) => {
                let members = members.iter().filter_map(|(name, value)| {
                    Some((name.clone(), self.member(address, name, value)?))
                });
                Value::Object(members.collect())
            }
            Value::Array(items) => {
                let items = items.iter().enumerate();
                items.map(|(n, item)| self.nested(&n.to_string(), item)).collect()
            }
            other => other.clone(),
        }
    }

    fn nested(&mut self, name: &str, part: &Value) -> Value {
        let length = self.pointer.len();
        self.pointer.push('/');
        push_escaped(&mut self.pointer, name);
        let copy = self.redirected(part);
        self.pointer.truncate(length);
        copy
    }

    fn member(&mut self, of: *const Value, name: &str, value: &Value) -> Option<Value> {
        let is_schema = self.references.schemas.contains(&of);
        match (name, value, self.references.by_schema.get(&of)) {
            ("$ref", _, Some(index)) => {
                Some(json!(format!("#/definitions/{}", condition_name(*index))))
            }
            ("const" | "enum", ..) if is_schema => Some(value.clone()),
            ("$id" | "id" | "$anchor" | "$dynamicAnchor", Value::String(_), _) => None,
            // What is not applied has no dialect.
            ("$schema", Value::String(_), _) if !is_schema => None,
            _ => Some(self.nested(name, value)),
        }
    }
}

/// Adds a name to a JSON Pointer in a URI fragment (RFC 6901, section 6).
fn push_escaped(pointer: &mut String, name: &str) {
    for byte in name.bytes() {
        match byte {
            b'~' => pointer.push_str("~0"),
            b'/' => pointer.push_str("~1"),
            b'-' | b'.' | b'_' | b'$' => pointer.push(char::from(byte)),
            _ if byte.is_ascii_alphanumeric() => pointer.push(char::from(byte)),
            // Writing to a `String` cannot fail.
            _ => drop(write!(pointer, "%{byte:02X}")),
        }
    }
}

/// Defines the keyword of the condition.
pub(super) fn with_keyword(
    options: ValidationOptions<'_>,
    works: Arc<[Work]>,
) -> ValidationOptions<'_> {
    options.with_keyword(BUDGET, move |_: &Map<String, Value>, index: &Value, _| {
        let index = index.as_u64().and_then(|index| usize::try_from(index).ok());
        match index.filter(|index| *index < works.len()) {
            Some(index) => Ok(Box::new(Condition { works: Arc::clone(&works), index })),
            None => Err(ValidationError::custom(format!("`{BUDGET}` is reserved"))),
        }
    })
}

/// Is met if its work is within the limit.
struct Condition {
    works: Arc<[Work]>,
    index: usize,
}

impl<'i> Keyword<'i> for Condition {
    fn validate(&self, instance: &'i Value) -> Result<(), ValidationError<'i>> {
        let is_met = Keyword::is_valid(self, instance);
        if is_met { Ok(()) } else { Err(ValidationError::custom("too much work")) }
    }

    fn is_valid(&self, instance: &'i Value) -> bool {
        let Some(left) = LEFT.get() else { return false };
        let amount = self.works.get(self.index).map(|work| work.on(instance)).unwrap_or_default();
        LEFT.set(left.minus(amount));
        LEFT.get().is_some()
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use crate::{InvalidValue, Object, json_schema::Validator};

    fn validator(schema: &Value) -> Result<Validator, InvalidValue> {
        Validator::new(schema.as_object().unwrap())
    }

    /// Definitions `n0` to `n{count}`, each with a reference to the one before.
    fn chain(count: usize, definition: impl Fn(Value) -> Value) -> Value {
        let mut definitions = Object::from_iter([("n0".to_owned(), json!({}))]);
        for n in 1..count {
            let former = json!({ "$ref": format!("#/$defs/n{}", n - 1) });
            definitions.insert(format!("n{n}"), definition(former));
        }
        json!({ "$defs": definitions, "$ref": format!("#/$defs/n{}", count - 1) })
    }

    #[test]
    fn chains_of_references_are_bounded() {
        // Applied to the same node.
        for definition in [|former| former, |former| json!({ "allOf": [former] })] {
            assert_eq!(validator(&chain(40, definition)).unwrap().validate(&json!(1)), Ok(()));
            let error = validator(&chain(5_000, definition)).unwrap_err();
            assert!(error.reason().contains("nested deeper than 200"), "{error}");
        }
        // Applied to one level of the value each.
        let schema = validator(&chain(3_000, |former| json!({ "items": former }))).unwrap();
        let value = (0..120).fold(json!([]), |inner, _| json!([inner]));
        assert_eq!(schema.validate(&value), Ok(()));
        let itself = json!({ "anyOf": [{ "type": "string" }, { "$ref": "#" }] });
        assert!(validator(&itself).unwrap_err().reason().contains("nested deeper than 200"));
    }

    /// The deepest recursion that is permitted has to fit into the stack of a thread.
    #[test]
    fn permitted_recursion_fits_into_the_stack() {
        let value = |levels| (0..levels).fold(json!([]), |inner, _| json!([inner]));
        let items = json!({ "items": { "$ref": "#" } });
        let nested = (0..25).fold(items.clone(), |inner, _| json!({ "allOf": [inner] }));
        let mut chain = chain(7, |former| json!({ "allOf": [former] }));
        if let Some(first) = chain.pointer_mut("/$defs/n0") {
            *first = items;
        }
        for schema in [nested, chain] {
            let schema = validator(&schema).unwrap();
            assert_eq!(schema.validate(&value(125)), Ok(()));
            let error = schema.validate(&value(150)).unwrap_err();
            assert!(error.reason().contains("nest deeper"), "{error}");
        }
    }

    /// As they are generated for languages with types: each type may contain each other one.
    #[test]
    fn types_that_contain_one_another_are_supported() {
        let names: Vec<_> = (0..12).map(|n| format!("T{n}")).collect();
        let node = |name: &String| json!({ "$ref": format!("#/$defs/{name}") });
        let union = json!({ "anyOf": names.iter().map(node).collect::<Vec<_>>() });
        for inline in [true, false] {
            let nodes = if inline { union.clone() } else { json!({ "$ref": "#/$defs/Node" }) };
            let definition = |name: &String| {
                let definition = json!({
                    "type": "object", "required": ["kind"], "additionalProperties": false,
                    "properties": {
                        "kind": { "const": name },
                        "text": { "type": "string" },
                        "children": { "type": "array", "items": nodes },
                    },
                });
                (name.clone(), definition)
            };
            let mut definitions: Object = names.iter().map(definition).collect();
            definitions.insert("Node".to_owned(), union.clone());
            let schema = json!({ "$defs": definitions, "properties": { "root": nodes } });
            let schema = validator(&schema).unwrap();
            let document = |text: Value| {
                let leaf = json!({ "kind": "T11", "text": text });
                let node = |inner: Value, level: usize| {
                    let leaf = json!({ "kind": "T0", "text": "" });
                    let kind = format!("T{}", level % 12);
                    json!({ "kind": kind, "children": [leaf, inner, leaf, leaf, leaf] })
                };
                json!({ "root": (0..30).fold(leaf, node) })
            };
            assert_eq!(schema.validate(&document(json!("text"))), Ok(()));
            let error = schema.validate(&document(json!(5))).unwrap_err();
            assert_eq!(error.reason(), "the value does not match the schema");
        }
        let value = json!({ "$defs": { "Value": { "anyOf": [
            { "type": ["string", "number", "boolean", "null"] },
            { "type": "array", "items": { "$ref": "#/$defs/Value" } },
            { "type": "object", "additionalProperties": { "$ref": "#/$defs/Value" } },
        ] } }, "$ref": "#/$defs/Value" });
        let deep = (0..60).fold(json!(1), |inner, _| json!([{ "a": inner }, 2]));
        assert_eq!(validator(&value).unwrap().validate(&deep), Ok(()));
    }

    /// To find out what is evaluated, the validator compiles targets once for each path to them.
    #[test]
    fn paths_to_unevaluated_members_are_bounded() {
        let marked = |target: usize| json!({ "$ref": format!("#/$defs/n{target}"), "unevaluatedProperties": false });
        let nested = |count: usize, definition: &dyn Fn(Value) -> Value| {
            let next = |n| (format!("n{n}"), definition(marked(n + 1)));
            let mut definitions: Object = (0..count).map(next).collect();
            definitions.insert(format!("n{count}"), json!({}));
            json!({ "$defs": definitions, "$ref": "#/$defs/n0" })
        };
        let one = |next| json!({ "additionalProperties": next });
        let two = |next: Value| json!({ "allOf": [{ "additionalProperties": next }, { "additionalProperties": next }] });
        assert_eq!(validator(&nested(10, &one)).unwrap().validate(&json!({})), Ok(()));
        for (schema, part) in [
            (nested(3_000, &one), "nested deeper"),
            (nested(18, &two), "more than 100000 subschemas"),
        ] {
            let error = validator(&schema).unwrap_err();
            assert!(error.reason().contains(part), "{error}");
        }
        let names: Object = (0..10_000).map(|n| (format!("p{n}"), json!(true))).collect();
        let users: Object = (0..1_000).map(|n| (format!("k{n}"), marked(0))).collect();
        let schema = json!({ "$defs": { "n0": { "properties": names } }, "properties": users });
        assert!(validator(&schema).unwrap_err().reason().contains("more than 100000 subschemas"));
    }

    #[test]
    fn targets_keep_their_places() {
        let draft_7 = "http://json-schema.org/draft-07/schema#";
        let pet =
            json!({ "type": "object", "properties": { "next": { "$ref": "#/components/Pet" } } });
        let converted =
            json!({ "$schema": draft_7, "$ref": "#/components/Pet", "components": { "Pet": pet } });
        let schema = validator(&converted).unwrap();
        assert_eq!(schema.validate(&json!({ "next": {} })), Ok(()));
        assert_eq!(schema.validate(&json!({ "next": 5 })).unwrap_err().path(), "/next");

        let with_id = json!({
            "$schema": "http://json-schema.org/draft-04/schema#", "id": "https://a.example/s",
            "items": { "$ref": "https://a.example/s#/definitions/a" },
            "definitions": { "a": { "type": "string" } },
        });
        assert!(validator(&with_id).unwrap().validate(&json!([1])).is_err());

        // A value must stay as it is.
        let value = json!({ "const": { "$ref": "#/$defs/s" }, "default": { "$ref": "#/$defs/s" }, "$defs": { "s": {} } });
        let schema = validator(&value).unwrap();
        assert_eq!(schema.validate(&json!({ "$ref": "#/$defs/s" })), Ok(()));
        let both = json!({ "properties": { "a": value, "b": { "$ref": "#/properties/a/const" } }, "$defs": { "s": {} } });
        assert!(validator(&both).unwrap_err().reason().contains("value of `const`"));
        // Nor can an identifier in what is not applied take the place of a target.
        let hidden = json!({ "$schema": draft_7, "$id": "https://a.example/s", "definitions": { "x": { "$anchor": "a", "type": "string" } },
            "allOf": [{ "$ref": "#a" }], "contentSchema": { "$id": "https://a.example/s", "$anchor": "a" } });
        assert!(validator(&hidden).unwrap().validate(&json!(1)).is_err());
        let odd =
            json!({ "$ref": "#/$defs/a~1b%25%22c", "$defs": { "a/b%\"c": { "type": "string" } } });
        assert!(validator(&odd).unwrap().validate(&json!(1)).is_err());
        assert_eq!(validator(&odd).unwrap().validate(&json!("x")), Ok(()));
        let anchors: Vec<_> = (0..100).map(|n| json!({ "$anchor": format!("a{n}") })).collect();
        let all: Vec<_> = (0..100).map(|n| json!({ "$ref": format!("#a{n}") })).collect();
        let long =
            json!({ "allOf": all, "properties": { "a".repeat(1 << 20): { "anyOf": anchors } } });
        assert!(validator(&long).unwrap_err().reason().contains("too long"));
        let reserved = json!({ "not": { "mrtr:budget": 0 } });
        assert!(validator(&reserved).unwrap_err().reason().contains("reserved"));
    }

    /// Subschemas that contain one another are copied with what the library does not know.
    #[test]
    fn copies_of_annotations_are_bounded() {
        let mut schema = json!({ "values": vec![0; 100_000] });
        let mut all = Vec::new();
        for n in 1..50 {
            schema = json!({ "x": schema });
            all.push(json!({ "$ref": format!("#{}", "/x".repeat(n)) }));
        }
        assert!(validator(&schema).is_ok());
        schema["allOf"] = json!(all);
        assert!(validator(&schema).unwrap_err().reason().contains("would be copied"));
    }
}
