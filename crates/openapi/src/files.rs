//! Files in the schema of a multipart form.
//!
//! In the arguments of a tool, which are JSON, a file is an object with its name and its content.

use std::collections::HashSet;

use mrtr_schema::Object;
use serde_json::{Value, json};

use crate::budget::{Budget, TooLong};
use crate::document::Document;
use crate::media_type::{essence, is_json};
use crate::multipart::MultipartEncoding;
use crate::schema::MAX_SCHEMA;

/// The maximum number of nested compositions (`allOf`, `anyOf`, `oneOf`) that are followed.
const MAX_COMPOSITIONS: usize = 4;

/// Marks the fields that are files, and returns the schema of the argument. Returns `None` if there
/// are no files: the schema of the document then applies unchanged.
pub(crate) fn schema_with_files(
    document: &Document,
    schema: &Value,
    encoding: &mut MultipartEncoding,
) -> Result<Option<Value>, String> {
    // What is copied may be referred to many times.
    let mut budget = Budget(MAX_SCHEMA);
    let form = form_with_files(document, schema, encoding, &mut budget, 0)?;
    Ok(form.map(Value::Object))
}

/// Returns the schema of a form, or of a part of it in `allOf`, if it has files.
fn form_with_files(
    document: &Document,
    schema: &Value,
    encoding: &mut MultipartEncoding,
    budget: &mut Budget,
    level: usize,
) -> Result<Option<Object>, String> {
    let resolved = document.resolve(schema)?;
    // The parts of a schema are counted with it.
    let is_reference = schema.get("$ref").is_some();
    if level == 0 || is_reference {
        take(budget, resolved)?;
    }
    let mut form = resolved.as_object().cloned().unwrap_or_default();
    if is_reference {
        take(budget, schema)?;
        add_siblings(&mut form, schema);
    }
    let mut has_files = false;
    if let Some(Value::Object(properties)) = form.get_mut("properties") {
        for (name, property) in properties {
            if let Some(file) = file_schema(document, property, || encoding.add_file(name), budget)?
            {
                has_files = true;
                *property = file;
            }
        }
    }
    if let Some(Value::Array(parts)) = form.get_mut("allOf").filter(|_| level < MAX_COMPOSITIONS) {
        for part in parts {
            if let Some(form) = form_with_files(document, part, encoding, budget, level + 1)? {
                has_files = true;
                *part = form.into();
            }
        }
    }
    Ok(has_files.then_some(form))
}

fn take(budget: &mut Budget, value: &Value) -> Result<(), String> {
    let too_long = |TooLong| format!("the input schema has more than {MAX_SCHEMA} bytes");
    budget.take_json(value).map_err(too_long)
}

/// Merges the keywords beside a `$ref`, which apply as well (JSON Schema 2020-12).
fn add_siblings(form: &mut Object, schema: &Value) {
    let mut others = Object::new();
    for (key, value) in schema.as_object().into_iter().flatten().filter(|(key, _)| *key != "$ref") {
        match (key.as_str(), form.get_mut(key), value) {
            ("properties", Some(Value::Object(own)), Value::Object(more)) => {
                own.extend(more.clone());
            }
            ("required", Some(Value::Array(own)), Value::Array(more)) => {
                let known = own.iter().filter_map(Value::as_str).map(str::to_owned);
                let known: HashSet<String> = known.collect();
                let is_new = |name: &&Value| name.as_str().is_some_and(|n| !known.contains(n));
                own.extend(more.iter().filter(is_new).cloned());
            }
            (_, Some(_), _) if !["title", "description"].contains(&key.as_str()) => {
                others.insert(key.clone(), value.clone());
            }
            _ => drop(form.insert(key.clone(), value.clone())),
        }
    }
    if !others.is_empty() {
        let all = form.entry("allOf").or_insert_with(|| json!([]));
        if let Value::Array(all) = all {
            all.push(others.into());
        }
    }
}

/// Returns the schema of the argument for a property that is a file, or a list of files.
fn file_schema<'e>(
    document: &Document,
    property: &Value,
    media_types: impl FnOnce() -> &'e [String],
    budget: &mut Budget,
) -> Result<Option<Value>, String> {
    let inner = innermost(document, property)?;
    let items = inner.get("items").map(|items| innermost(document, items)).transpose()?;
    let is_list = !is_file(inner);
    if is_list && !items.is_some_and(is_file) {
        return Ok(None);
    }
    take(budget, inner)?;
    let mut schema = file(media_types());
    if is_list {
        schema = Object::from_iter([
            ("type".to_owned(), "array".into()),
            ("items".to_owned(), schema.into()),
        ]);
    }
    let kept: &[_] = &["title", "description", "readOnly", "writeOnly", "minItems", "maxItems"];
    for key in kept {
        if let Some(value) = property.get(key).or(inner.get(key)) {
            schema.insert((*key).to_owned(), value.clone());
        }
    }
    Ok(Some(schema.into()))
}

/// Follows references, and looks through compositions of one schema, with or without `null`.
fn innermost<'a>(document: &'a Document, schema: &'a Value) -> Result<&'a Value, String> {
    let mut schema = document.resolve(schema)?;
    for _ in 0..MAX_COMPOSITIONS {
        let composed =
            ["allOf", "anyOf", "oneOf"].iter().find_map(|key| schema.get(key)?.as_array());
        let is_null = |schema: &&Value| schema.get("type").is_some_and(|kind| kind == "null");
        let mut rest = composed.into_iter().flatten().filter(|schema| !is_null(schema));
        let (Some(only), None) = (rest.next(), rest.next()) else { break };
        schema = document.resolve(only)?;
    }
    Ok(schema)
}

/// Returns true if the values of a schema are bytes: it has `format: binary` or, since OpenAPI 3.1,
/// a media type without `contentEncoding`. With `type: string`, text and JSON are not bytes.
fn is_file(schema: &Value) -> bool {
    let kind = schema.get("type");
    let is_string = match kind {
        Some(Value::Array(kinds)) => kinds.iter().any(|kind| kind == "string"),
        Some(kind) => kind == "string",
        None => true,
    };
    let media_type = schema.get("contentMediaType").and_then(Value::as_str);
    let is_text =
        |media_type: &str| is_json(media_type) || essence(media_type).starts_with("text/");
    let is_raw = media_type.is_some_and(|media_type| kind.is_none() || !is_text(media_type))
        && schema.get("contentEncoding").is_none()
        && schema.get("contentSchema").is_none();
    let is_binary = schema.get("format").is_some_and(|format| format == "binary");
    is_string && (is_binary || is_raw)
}

/// Returns the schema of a file with one of these media types, which may have wildcards.
fn file(media_types: &[String]) -> Object {
    let is_range = |kind: &String| kind.contains('*');
    let mut description = "The media type of the file".to_owned();
    if media_types.iter().any(is_range) {
        description = format!("{description}, one of: {}", media_types.join(", "));
    }
    let mut mime_type = Object::new();
    mime_type.insert("type".to_owned(), "string".into());
    mime_type.insert("description".to_owned(), description.into());
    if !media_types.is_empty() && !media_types.iter().any(is_range) {
        mime_type.insert("enum".to_owned(), json!(media_types));
    }
    let is_needed = !media_types.is_empty() && media_types.iter().all(is_range);
    let required = if is_needed { json!(["name", "mimeType"]) } else { json!(["name"]) };
    let properties = json!({
        "name": { "type": "string", "description": "The name of the file" },
        "mimeType": mime_type,
        "text": { "type": "string", "description": "The content, if it is text" },
        "blob": {
            "type": "string",
            "contentEncoding": "base64",
            "description": "The content in base64, if it is not text",
        },
    });
    let members = [
        ("type", "object".into()),
        ("properties", properties),
        ("required", required),
        ("oneOf", json!([{ "required": ["text"] }, { "required": ["blob"] }])),
        ("additionalProperties", false.into()),
    ];
    members.into_iter().map(|(key, value)| (key.to_owned(), value)).collect()
}
