//! Helpers for clients that show a form: the defaults of the fields, and the conversion of typed
//! text to values.

use std::collections::HashSet;

use serde_json::{Number, Value};

use super::{ChoiceOption, Field, FieldKind, FormSchema};
use crate::Object;

impl FormSchema {
    /// Returns the defaults of the fields that have one.
    ///
    /// A client that shows the form should prefill it with them (specification: elicitation,
    /// "Requested Schema"). A client without a user may submit them.
    pub fn defaults(&self) -> Object {
        let default = |field: &Field| Some((field.name.clone(), field.default()?));
        self.fields.iter().filter_map(default).collect()
    }

    /// Converts typed text to the types of the fields, for clients whose input is text.
    ///
    /// - In a number field, `"3"` becomes 3; in a boolean field, `"y"`, `"yes"` and `"true"` become
    ///   true, and `"n"`, `"no"` and `"false"` become false.
    /// - In a choice, the title of an option becomes its value; several choices are separated by
    ///   commas.
    /// - Empty text becomes an absent field, except in text fields.
    ///
    /// Text that cannot be converted stays as it is, so that [`validate`](Self::validate) reports
    /// it. Defaults are not added.
    pub fn coerce(&self, mut typed: Object) -> Object {
        let mut absent = HashSet::new();
        for field in &self.fields {
            let Some(value) = typed.get_mut(&field.name) else { continue };
            match field.coerce(value) {
                Some(coerced) => *value = coerced,
                None => drop(absent.insert(field.name.as_str())),
            }
        }
        typed.retain(|name, _| !absent.contains(name.as_str()));
        typed
    }
}

impl Field {
    fn default(&self) -> Option<Value> {
        match &self.kind {
            FieldKind::Text { default, .. } | FieldKind::Choice { default, .. } => {
                default.clone().map(Value::from)
            }
            FieldKind::Number { default, .. } => default.clone().map(Value::from),
            FieldKind::Boolean { default } => default.map(Value::from),
            FieldKind::Choices { default, .. } => default.clone().map(Value::from),
        }
    }

    /// Returns `None` for empty text.
    fn coerce(&self, typed: &Value) -> Option<Value> {
        let Value::String(text) = typed else {
            return Some(match (&self.kind, typed) {
                (FieldKind::Choices { options, .. }, Value::Array(items)) => {
                    items.iter().map(|item| value_of_option(options, item)).collect()
                }
                _ => typed.clone(),
            });
        };
        let trimmed = text.trim();
        Some(match &self.kind {
            FieldKind::Text { .. } => typed.clone(),
            _ if trimmed.is_empty() => return None,
            FieldKind::Number { .. } => {
                trimmed.parse::<Number>().map_or_else(|_| typed.clone(), Value::Number)
            }
            FieldKind::Boolean { .. } => match trimmed.to_lowercase().as_str() {
                "y" | "yes" | "true" => Value::Bool(true),
                "n" | "no" | "false" => Value::Bool(false),
                _ => typed.clone(),
            },
            FieldKind::Choice { options, .. } => value_of_option(options, typed),
            FieldKind::Choices { options, .. } => {
                let items = trimmed.split(',').map(|item| Value::from(item.trim()));
                items.map(|item| value_of_option(options, &item)).collect()
            }
        })
    }
}

/// Returns the value of the option with this value, or else with this title.
fn value_of_option(options: &[ChoiceOption], typed: &Value) -> Value {
    let Some(text) = typed.as_str().map(str::trim) else { return typed.clone() };
    let by_value = options.iter().find(|option| option.value == text);
    let by_title = || options.iter().find(|option| option.title.as_deref() == Some(text));
    by_value.or_else(by_title).map_or_else(|| typed.clone(), |option| option.value.as_str().into())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn form() -> FormSchema {
        serde_json::from_value(json!({ "type": "object", "properties": {
            "name": { "type": "string", "default": "Ada" },
            "people": { "type": "integer", "default": 2 },
            "rate": { "type": "number" },
            "quiet": { "type": "boolean", "default": false },
            "place": { "type": "string", "oneOf": [
                { "const": "in", "title": "Inside" }, { "const": "Inside", "title": "out" },
            ], "default": "in" },
            "diets": { "type": "array", "items": { "anyOf": [
                { "const": "v", "title": "Vegan" }, { "const": "n", "title": "No nuts" },
            ] }, "default": ["v"] },
        } }))
        .unwrap()
    }

    #[test]
    fn defaults_are_those_of_the_fields_that_have_one() {
        let defaults = Value::Object(form().defaults());
        let expected =
            json!({ "name": "Ada", "people": 2, "quiet": false, "place": "in", "diets": ["v"] });
        assert_eq!(defaults, expected);
        form().validate(form().defaults()).unwrap();
    }

    #[test]
    fn coerce_converts_typed_text_to_the_types_of_the_fields() {
        for (typed, held) in [
            (json!({ "people": " 3 ", "rate": "1.5" }), json!({ "people": 3, "rate": 1.5 })),
            (json!({ "people": 3, "rate": "many" }), json!({ "people": 3, "rate": "many" })),
            (json!({ "quiet": "Yes" }), json!({ "quiet": true })),
            (json!({ "quiet": "no" }), json!({ "quiet": false })),
            (json!({ "quiet": "perhaps" }), json!({ "quiet": "perhaps" })),
            // A value takes precedence over a title.
            (json!({ "place": "Inside" }), json!({ "place": "Inside" })),
            (json!({ "place": "out" }), json!({ "place": "Inside" })),
            (json!({ "diets": "Vegan, n" }), json!({ "diets": ["v", "n"] })),
            (json!({ "diets": ["No nuts", 5] }), json!({ "diets": ["n", 5] })),
            (json!({ "name": "", "people": "", "quiet": " ", "diets": "" }), json!({ "name": "" })),
            (json!({ "name": "12", "other": "3" }), json!({ "name": "12", "other": "3" })),
        ] {
            let Value::Object(content) = typed.clone() else { unreachable!("it is an object") };
            assert_eq!(Value::Object(form().coerce(content)), held, "{typed}");
        }
    }
}
