//! Bodies of the type `multipart/form-data` (RFC 7578).

use std::collections::HashMap;
use std::fmt::Write as _;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use http::HeaderValue;
use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};

use crate::document::Document;
use crate::form::fields;
use crate::media_type::essence;
use crate::parameter::scalar;

/// The most parts of a body. Each has headers, so that short arguments could make a long body.
const MAX_PARTS: usize = 256;

const OCTET_STREAM: &str = "application/octet-stream";

/// The fields of a form of which the document says something.
#[derive(Debug, Default)]
pub(crate) struct MultipartEncoding(HashMap<String, Field>);

#[derive(Debug, Default)]
struct Field {
    /// The value is a file, or a list of files.
    is_file: bool,
    /// The media types that the document allows. They may have wildcards.
    media_types: Vec<String>,
}

/// A file as the model writes it, with the member names of MCP's resource contents.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct File {
    name: String,
    mime_type: Option<String>,
    text: Option<String>,
    blob: Option<String>,
}

impl MultipartEncoding {
    /// Reads the encoding of a media type object. Returns also the schema of the argument, in which
    /// files are objects, since JSON has no binary strings.
    pub(crate) fn new(document: &Document, media: &Value) -> Result<(Self, Value), String> {
        let mut all = HashMap::<String, Field>::new();
        let encodings = media.get("encoding").and_then(Value::as_object).into_iter().flatten();
        for (name, encoding) in encodings {
            if let Some(key) = ["explode", "style"].iter().find(|key| encoding.get(key).is_some()) {
                return Err(format!(
                    "the field {name:?} of the body: {key:?} is not supported in multipart/form-data"
                ));
            }
            let kinds = encoding.get("contentType").and_then(Value::as_str).unwrap_or_default();
            let kinds = kinds.split(',').map(|kind| kind.trim().to_owned());
            let media_types = kinds.filter(|kind| !kind.is_empty()).collect();
            all.insert(name.clone(), Field { media_types, ..Field::default() });
        }
        let schema = media.get("schema").unwrap_or(&Value::Bool(true));
        let resolved = document.resolve(schema)?;
        let Some(Value::Object(properties)) = resolved.get("properties") else {
            return Ok((Self(all), schema.clone()));
        };
        let mut converted = properties.clone();
        for (name, property) in properties {
            let property = document.resolve(property)?;
            let items = property.get("items").map(|items| document.resolve(items)).transpose()?;
            let media_types = all.get(name).map_or(&[][..], |field| &field.media_types);
            let file = if is_file(property) {
                file_schema(property, media_types)
            } else if let Some(items) = items.filter(|items| is_file(items)) {
                with_member(property, "items", file_schema(items, media_types))
            } else {
                continue;
            };
            all.entry(name.clone()).or_default().is_file = true;
            converted.insert(name.clone(), file);
        }
        Ok((Self(all), with_member(resolved, "properties", converted.into())))
    }

    /// Writes the fields. Returns the media type with the boundary, and the body.
    ///
    /// An array is a part for each element. An object is JSON.
    pub(crate) fn write(&self, body: &RawValue) -> Result<(HeaderValue, Bytes), String> {
        let mut parts = Parts::default();
        for (name, value) in fields(body)? {
            let field = self.0.get(&name);
            let of_field = |why: String| format!("is invalid: its field {name:?} {why}");
            let elements = if value.get().starts_with('[') {
                serde_json::from_str(value.get()).map_err(|error| error.to_string())?
            } else {
                vec![value]
            };
            for element in elements {
                let written = match field {
                    Some(field) if field.is_file => field.write_file(&name, element, &mut parts),
                    _ => write_value(&name, field, element, &mut parts),
                };
                written.map_err(of_field)?;
            }
        }
        parts.finish()
    }
}

/// Returns true if the values of a schema are bytes: `format: binary` or, since OpenAPI 3.1, a
/// media type without an encoding as text.
fn is_file(schema: &Value) -> bool {
    let kind = schema.get("type");
    let is_string = kind.is_none_or(|kind| match kind {
        Value::Array(kinds) => kinds.iter().any(|kind| kind == "string"),
        kind => kind == "string",
    });
    let is_binary = schema.get("format").is_some_and(|format| format == "binary");
    let is_raw =
        schema.get("contentMediaType").is_some() && schema.get("contentEncoding").is_none();
    is_string && (is_binary || is_raw)
}

/// Returns a copy of an object in which a member has another value.
fn with_member(object: &Value, name: &str, value: Value) -> Value {
    let mut object = object.as_object().cloned().unwrap_or_default();
    object.insert(name.to_owned(), value);
    object.into()
}

/// Returns the schema of a file, with the description of the document's schema.
fn file_schema(schema: &Value, media_types: &[String]) -> Value {
    let mut mime_type = json!({ "type": "string", "description": "The media type of the file" });
    if !media_types.is_empty() && !media_types.iter().any(|kind| kind.contains('*')) {
        mime_type = with_member(&mime_type, "enum", json!(media_types));
    }
    let file = json!({
        "type": "object",
        "properties": {
            "name": { "type": "string", "description": "The name of the file" },
            "mimeType": mime_type,
            "text": { "type": "string", "description": "The content, if it is text" },
            "blob": {
                "type": "string",
                "contentEncoding": "base64",
                "description": "The content in base64, if it is not text",
            },
        },
        "required": ["name"],
        "oneOf": [{ "required": ["text"] }, { "required": ["blob"] }],
        "additionalProperties": false,
    });
    let kept = ["title", "description", "nullable", "readOnly", "writeOnly"];
    let kept = kept.iter().filter_map(|key| Some((key, schema.get(key)?)));
    kept.fold(file, |file, (key, value)| with_member(&file, key, value.clone()))
}

impl Field {
    fn write_file(&self, name: &str, value: &RawValue, parts: &mut Parts) -> Result<(), String> {
        let file: File =
            serde_json::from_str(value.get()).map_err(|error| format!("is no file: {error}"))?;
        let is_text = file.text.is_some();
        let content = match (file.text, file.blob) {
            (Some(text), None) => text.into_bytes(),
            (None, Some(blob)) => STANDARD
                .decode(blob)
                .map_err(|error| format!("has a `blob` that is not base64: {error}"))?,
            _ => return Err("must have either `text` or `blob`".to_owned()),
        };
        let default = if is_text { "text/plain;charset=utf-8" } else { OCTET_STREAM };
        let media_type = match &file.mime_type {
            Some(own) if self.allows(own) => own,
            Some(_) => {
                let allowed = self.media_types.join(", ");
                return Err(format!("must have a `mimeType` that the API accepts: {allowed}"));
            }
            None => self.media_type().unwrap_or(default),
        };
        parts.push(name, Some(&file.name), Some(media_type), content)
    }

    fn allows(&self, media_type: &str) -> bool {
        let media_type = essence(media_type);
        let is_allowed = |allowed: &String| {
            let allowed = essence(allowed);
            let range = allowed.strip_suffix('*').filter(|range| range.ends_with('/'));
            allowed == "*/*"
                || allowed == media_type
                || range.is_some_and(|range| media_type.starts_with(range))
        };
        self.media_types.is_empty() || self.media_types.iter().any(is_allowed)
    }

    /// Returns the first media type without a wildcard.
    fn media_type(&self) -> Option<&str> {
        self.media_types.iter().map(String::as_str).find(|kind| !kind.contains('*'))
    }
}

/// Writes a value that is no file.
fn write_value(
    name: &str,
    field: Option<&Field>,
    value: &RawValue,
    parts: &mut Parts,
) -> Result<(), String> {
    let is_json = value.get().starts_with(['{', '[']);
    let text = if is_json { value.get().to_owned() } else { scalar(value)? };
    let media_type = field.and_then(Field::media_type).or(is_json.then_some("application/json"));
    parts.push(name, None, media_type, text.into_bytes())
}

/// The parts of a body.
#[derive(Default)]
struct Parts(Vec<(String, Vec<u8>)>);

impl Parts {
    fn push(
        &mut self,
        name: &str,
        file_name: Option<&str>,
        media_type: Option<&str>,
        content: Vec<u8>,
    ) -> Result<(), String> {
        if self.0.len() == MAX_PARTS {
            return Err(format!("makes a request of more than {MAX_PARTS} parts"));
        }
        let mut head = format!("Content-Disposition: form-data; name=\"{}\"", quoted(name));
        if let Some(file_name) = file_name {
            let _ = write!(head, "; filename=\"{}\"", quoted(file_name));
        }
        if let Some(media_type) = media_type {
            if HeaderValue::from_str(media_type).is_err() || !media_type.contains('/') {
                return Err(format!("has a `mimeType` that is no media type: {media_type:?}"));
            }
            let _ = write!(head, "\r\nContent-Type: {media_type}");
        }
        self.0.push((head, content));
        Ok(())
    }

    /// Puts the parts together. The boundary depends on all of them, so that none can contain it,
    /// and a request that is repeated has the same one.
    fn finish(self) -> Result<(HeaderValue, Bytes), String> {
        let mut digest = Sha256::new();
        for (head, content) in &self.0 {
            digest.update(head);
            digest.update(content.len().to_be_bytes());
            digest.update(content);
        }
        let digest = digest.finalize();
        let mut boundary = String::new();
        for byte in digest.iter().take(16) {
            let _ = write!(boundary, "{byte:02x}");
        }
        let mut body = Vec::new();
        for (head, content) in self.0 {
            body.extend_from_slice(format!("--{boundary}\r\n{head}\r\n\r\n").as_bytes());
            body.extend_from_slice(&content);
            body.extend_from_slice(b"\r\n");
        }
        body.extend_from_slice(format!("--{boundary}--\r\n").as_bytes());
        let content_type = format!("multipart/form-data; boundary={boundary}");
        let content_type = HeaderValue::from_str(&content_type).map_err(|e| e.to_string())?;
        Ok((content_type, body.into()))
    }
}

/// Escapes a name as browsers do.
fn quoted(name: &str) -> String {
    name.replace('"', "%22").replace('\r', "%0D").replace('\n', "%0A")
}
