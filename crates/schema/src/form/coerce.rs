//! Filling in a form: what stands there at first, and what typed text stands for.

use serde_json::{Number, Value};

use super::{ChoiceOption, Field, FieldKind, FormSchema};
use crate::Object;

impl FormSchema {
    /// What stands in the fields at first. A client that shows the form shows these (specification: elicitation, "Requested
    /// Schema"); one that submits a form unseen may submit them.
    pub fn defaults(&self) -> Object {
        let default = |field: &Field| Some((field.name.clone(), field.default()?));
        self.fields.iter().filter_map(default).collect()
    }

    /// Makes of what was typed what the fields hold: `"3"` becomes 3 in a field for numbers, `"yes"` becomes true, and the title
    /// of a choice its value. A text that is empty leaves a field empty, unless it is one for text. What stands for nothing stays
    /// as it is, so that [`check`](Self::check) says what is wrong with it. Nothing is filled in.
    pub fn coerce(&self, mut typed: Object) -> Object {
        for field in &self.fields {
            let Some(value) = typed.get_mut(&field.name) else { continue };
            match field.coerce(value) {
                Some(coerced) => *value = coerced,
                None => drop(typed.shift_remove(&field.name)),
            }
        }
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

    /// `None` if nothing was filled in.
    fn coerce(&self, typed: &Value) -> Option<Value> {
        let Value::String(text) = typed else {
            let each = match (&self.kind, typed) {
                (FieldKind::Choices { options, .. }, Value::Array(all)) => {
                    all.iter().map(|one| choice(options, one)).collect()
                }
                _ => typed.clone(),
            };
            return Some(each);
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
            FieldKind::Choice { options, .. } => choice(options, typed),
            FieldKind::Choices { options, .. } => {
                let one = |text: &str| choice(options, &Value::from(text.trim()));
                trimmed.split(',').map(one).collect()
            }
        })
    }
}

/// The value that is meant, by its title too if no value is the same.
fn choice(options: &[ChoiceOption], typed: &Value) -> Value {
    let text = typed.as_str().map(str::trim);
    let by_value = options.iter().find(|option| Some(option.value.as_str()) == text);
    let by_title =
        || options.iter().find(|option| option.title.as_deref() == text && text.is_some());
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
    fn defaults_are_what_stands_there_at_first() {
        let defaults = Value::Object(form().defaults());
        let expected =
            json!({ "name": "Ada", "people": 2, "quiet": false, "place": "in", "diets": ["v"] });
        assert_eq!(defaults, expected);
        form().check(form().defaults()).unwrap();
    }

    #[test]
    fn what_is_typed_becomes_what_the_fields_hold() {
        for (typed, held) in [
            (json!({ "people": " 3 ", "rate": "1.5" }), json!({ "people": 3, "rate": 1.5 })),
            (json!({ "people": 3, "rate": "many" }), json!({ "people": 3, "rate": "many" })),
            (json!({ "quiet": "Yes" }), json!({ "quiet": true })),
            (json!({ "quiet": "no" }), json!({ "quiet": false })),
            (json!({ "quiet": "perhaps" }), json!({ "quiet": "perhaps" })),
            // A value goes before a title.
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
