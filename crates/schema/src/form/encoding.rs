//! Serialization of forms as JSON Schema.

use std::collections::HashSet;

use serde::de::Error as _;
use serde::ser::SerializeMap;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::{Value, json};

use super::{ChoiceOption, Field, FieldKind, FormSchema, Format};
use crate::Object;
use crate::json::take_member;

impl Serialize for FormSchema {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let properties: Object =
            self.fields.iter().map(|f| (f.name.clone(), Value::Object(property(f)))).collect();
        let required: Vec<&str> =
            self.fields.iter().filter(|f| f.required).map(|f| f.name.as_str()).collect();
        let mut map = serializer.serialize_map(None)?;
        map.serialize_entry("type", "object")?;
        map.serialize_entry("properties", &properties)?;
        if !required.is_empty() {
            map.serialize_entry("required", &required)?;
        }
        map.end()
    }
}

/// Returns the JSON Schema of a field.
fn property(field: &Field) -> Object {
    let mut out = Object::new();
    let mut put = |key: &str, value: Option<Value>| {
        if let Some(value) = value {
            out.insert(key.to_owned(), value);
        }
    };
    let kind = match &field.kind {
        FieldKind::Text { .. } | FieldKind::Choice { .. } => "string",
        FieldKind::Number { integer: true, .. } => "integer",
        FieldKind::Number { integer: false, .. } => "number",
        FieldKind::Boolean { .. } => "boolean",
        FieldKind::Choices { .. } => "array",
    };
    put("type", Some(kind.into()));
    put("title", field.title.clone().map(Value::from));
    put("description", field.description.clone().map(Value::from));
    match &field.kind {
        FieldKind::Text { min_length, max_length, format, default } => {
            put("minLength", min_length.map(Value::from));
            put("maxLength", max_length.map(Value::from));
            put("format", format.map(|f| f.as_str().into()));
            put("default", default.clone().map(Value::from));
        }
        FieldKind::Number { minimum, maximum, default, .. } => {
            put("minimum", minimum.clone().map(Value::Number));
            put("maximum", maximum.clone().map(Value::Number));
            put("default", default.clone().map(Value::Number));
        }
        FieldKind::Boolean { default } => put("default", default.map(Value::from)),
        FieldKind::Choice { options, default, enum_names } => {
            if *enum_names {
                put("enum", Some(options.iter().map(|o| o.value.as_str()).collect()));
                put("enumNames", Some(options.iter().map(title_of).collect()));
            } else {
                let (key, value) = write_options(options, "oneOf");
                put(key, Some(value));
            }
            put("default", default.clone().map(Value::from));
        }
        FieldKind::Choices { options, min_items, max_items, default } => {
            put("minItems", min_items.map(Value::from));
            put("maxItems", max_items.map(Value::from));
            let items = match write_options(options, "anyOf") {
                ("enum", values) => json!({ "type": "string", "enum": values }),
                (key, values) => json!({ key: values }),
            };
            put("items", Some(items));
            put("default", default.clone().map(Value::from));
        }
    }
    out
}

/// Returns the keyword and the value for options: `titled` if any has a title, otherwise `enum`.
fn write_options(options: &[ChoiceOption], titled: &'static str) -> (&'static str, Value) {
    if options.iter().all(|o| o.title.is_none()) {
        return ("enum", options.iter().map(|o| o.value.as_str()).collect());
    }
    (titled, options.iter().map(|o| json!({ "const": o.value, "title": title_of(o) })).collect())
}

fn title_of(option: &ChoiceOption) -> &str {
    option.title.as_deref().unwrap_or(&option.value)
}

impl<'de> Deserialize<'de> for FormSchema {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        read_form(Object::deserialize(deserializer)?).map_err(D::Error::custom)
    }
}

fn read_form(mut object: Object) -> Result<FormSchema, String> {
    if take_member::<String>(&mut object, "type")?.as_deref() != Some("object") {
        return Err("`type` must be \"object\"".to_owned());
    }
    let properties: Object =
        take_member(&mut object, "properties")?.ok_or("missing field `properties`")?;
    let required: HashSet<String> = take_member(&mut object, "required")?.unwrap_or_default();
    let fields = properties.into_iter().map(|(name, schema)| {
        let required = required.contains(&name);
        read_field(name.clone(), schema, required).map_err(|why| format!("field {name:?}: {why}"))
    });
    Ok(FormSchema { fields: fields.collect::<Result<_, _>>()? })
}

/// Reads one property. Types outside the restricted schema are rejected rather than dropped, so
/// that the form never asks for less than the server checks.
fn read_field(name: String, schema: Value, required: bool) -> Result<Field, String> {
    let Value::Object(mut s) = schema else {
        return Err("its schema must be an object".to_owned());
    };
    let s = &mut s;
    let kind: String = take_member(s, "type")?.ok_or("missing `type`")?;
    let kind = match kind.as_str() {
        "string" => match read_options(s, "oneOf")? {
            Some(Options { options, enum_names }) => {
                FieldKind::Choice { options, default: take_member(s, "default")?, enum_names }
            }
            None => FieldKind::Text {
                min_length: take_member(s, "minLength")?,
                max_length: take_member(s, "maxLength")?,
                // In JSON Schema, an unknown format is an annotation, not a rule.
                format: take_member::<String>(s, "format")?
                    .and_then(|name| Format::from_name(&name)),
                default: take_member(s, "default")?,
            },
        },
        "number" | "integer" => FieldKind::Number {
            integer: kind == "integer",
            minimum: take_member(s, "minimum")?,
            maximum: take_member(s, "maximum")?,
            default: take_member(s, "default")?,
        },
        "boolean" => FieldKind::Boolean { default: take_member(s, "default")? },
        "array" => {
            let mut items: Object = take_member(s, "items")?.ok_or("missing `items`")?;
            FieldKind::Choices {
                options: read_options(&mut items, "anyOf")?
                    .ok_or("`items` must list the options")?
                    .options,
                min_items: take_member(s, "minItems")?,
                max_items: take_member(s, "maxItems")?,
                default: take_member(s, "default")?,
            }
        }
        other => return Err(format!("`type` {other:?} is not allowed in a form")),
    };
    Ok(Field {
        name,
        title: take_member(s, "title")?,
        description: take_member(s, "description")?,
        required,
        kind,
    })
}

/// The options of a field.
struct Options {
    options: Vec<ChoiceOption>,
    /// The titles were in `enumNames`.
    enum_names: bool,
}

fn read_options(schema: &mut Object, titled: &str) -> Result<Option<Options>, String> {
    #[derive(Deserialize)]
    struct Titled {
        r#const: String,
        title: Option<String>,
    }
    let options = |options, enum_names| {
        Ok(Some(Options { options: all_titled_or_none(options), enum_names }))
    };
    if let Some(all) = take_member::<Vec<Titled>>(schema, titled)? {
        let option = |t: Titled| ChoiceOption { value: t.r#const, title: t.title };
        return options(all.into_iter().map(option).collect(), false);
    }
    let Some(values) = take_member::<Vec<String>>(schema, "enum")? else {
        return Ok(None);
    };
    let names = take_member::<Vec<String>>(schema, "enumNames")?.filter(|names| !names.is_empty());
    let enum_names = names.is_some();
    let mut names = names.unwrap_or_default().into_iter();
    let option = |value| ChoiceOption { value, title: names.next() };
    options(values.into_iter().map(option).collect(), enum_names)
}

/// If any option has a title, sets the value of each other option as its title.
fn all_titled_or_none(mut options: Vec<ChoiceOption>) -> Vec<ChoiceOption> {
    if options.iter().any(|option| option.title.is_some()) {
        for option in &mut options {
            option.title.get_or_insert_with(|| option.value.clone());
        }
    }
    options
}

#[cfg(test)]
mod tests {
    use super::*;

    /// One field of every kind, in the notation of the specification.
    const ALL: &str = r##"{"type":"object","properties":{
        "name":{"type":"string","title":"Name","description":"d","minLength":3,"maxLength":50,"format":"email","default":"a@b.example"},
        "n":{"type":"number","minimum":0.5,"maximum":100},
        "i":{"type":"integer","default":3},
        "b":{"type":"boolean","default":false},
        "c":{"type":"string","enum":["red","green"],"default":"red"},
        "t":{"type":"string","oneOf":[{"const":"#f00","title":"Red"},{"const":"#0f0","title":"Green"}]},
        "m":{"type":"array","minItems":1,"maxItems":2,"items":{"type":"string","enum":["x","y"]},"default":["x"]},
        "mt":{"type":"array","items":{"anyOf":[{"const":"x","title":"X"}]}}
    },"required":["name","b"]}"##;

    #[test]
    fn form_schema_with_every_kind_of_field_round_trips() {
        let form: FormSchema = serde_json::from_str(ALL).unwrap();
        let written = serde_json::to_value(&form).unwrap();
        assert_eq!(written, serde_json::from_str::<Value>(ALL).unwrap());
        assert_eq!(
            form.fields.iter().map(|f| f.name.as_str()).collect::<Vec<_>>(),
            ["name", "n", "i", "b", "c", "t", "m", "mt"]
        );
    }

    /// Numbers must not lose a bit.
    #[test]
    fn form_schema_numbers_round_trip() {
        for number in [
            "1111111111111110000000000017938878571701105096",
            "0.1",
            "2.2250738585072014e-308",
            "9007199254740993",
        ] {
            let form = format!(
                r#"{{"type":"object","properties":{{"n":{{"type":"number","default":{number}}}}}}}"#
            );
            let read: FormSchema = serde_json::from_str(&form).unwrap();
            let written = serde_json::to_value(&read).unwrap();
            let default = written.pointer("/properties/n/default").and_then(Value::as_f64);
            assert_eq!(default, number.parse().ok(), "{number}: {written}");
            let written = written.to_string();
            assert_eq!(serde_json::from_str::<FormSchema>(&written).unwrap(), read, "{number}");
        }
    }

    #[test]
    fn form_schema_outside_the_restricted_schema_is_rejected_with_the_field() {
        for (schema, part) in [
            (r#"{"type":"string"}"#, "`type` must be \"object\""),
            (
                r#"{"type":"object","properties":{"a":{"type":"object"}}}"#,
                "field \"a\": `type` \"object\" is not allowed",
            ),
            (r#"{"type":"object","properties":{"a":{}}}"#, "field \"a\": missing `type`"),
            (
                r#"{"type":"object","properties":{"a":{"type":"array","items":{"type":"string"}}}}"#,
                "must list the options",
            ),
            (
                r#"{"type":"object","properties":{"a":{"type":"string","maxLength":"3"}}}"#,
                "`maxLength`",
            ),
        ] {
            let error = serde_json::from_str::<FormSchema>(schema).unwrap_err().to_string();
            assert!(error.contains(part), "{error}");
        }
    }

    #[test]
    fn form_schema_reads_enum_names_as_titles() {
        let text = r#"{"type":"object","properties":{"c":{"type":"string","enum":["a"],"enumNames":["A"]}}}"#;
        let form: FormSchema = serde_json::from_str(text).unwrap();
        let FieldKind::Choice { options, .. } = &form.fields[0].kind else { panic!() };
        assert_eq!(options[0].title.as_deref(), Some("A"));
        // Also with fewer display names than values.
        let few = text.replace(r#"["a"]"#, r#"["a","b"]"#);
        let titled = r#"{"type":"object","properties":{"c":{"type":"string","oneOf":[{"const":"a","title":"A"},{"const":"b"}]}}}"#;
        for text in [few.as_str(), titled] {
            let form: FormSchema = serde_json::from_str(text).unwrap();
            let written = serde_json::to_string(&form).unwrap();
            assert_eq!(serde_json::from_str::<FormSchema>(&written).unwrap(), form);
        }
    }
}
