//! Bodies of the type `multipart/form-data` (RFC 7578).

use std::collections::HashMap;
use std::fmt::Write as _;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use http::HeaderValue;
use serde::Deserialize;
use serde_json::value::RawValue;
use sha2::{Digest as _, Sha256};

use crate::form::fields;
use crate::media_type::{essence, is_json};
use crate::parameter::scalar;

/// The maximum number of parts of a body, and the maximum total length in bytes of their names,
/// file names and media types. Each element of an array repeats the name of its field, so short
/// arguments could make a long body.
const MAX_PARTS: usize = 256;
const MAX_HEADERS: usize = 1 << 20;

const OCTET_STREAM: &str = "application/octet-stream";

/// The fields of a form that are files, or that have an `encoding` in the document.
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
    /// Reads the encoding of a media type object.
    ///
    /// In OpenAPI 3.0, `style` and `explode` have no effect. In later versions, only their defaults
    /// are supported.
    pub(crate) fn new(media: &serde_json::Value, is_3_0: bool) -> Result<Self, String> {
        let mut all = HashMap::<String, Field>::new();
        let encodings = media.get("encoding").and_then(|all| all.as_object());
        for (name, encoding) in encodings.into_iter().flatten() {
            let is_default = |key, default: serde_json::Value| {
                encoding.get(key).is_none_or(|value| *value == default)
            };
            let is_supported =
                is_3_0 || is_default("style", "form".into()) && is_default("explode", true.into());
            if !is_supported {
                return Err(format!(
                    "the field {name:?} of the body: only style \"form\" with explode=true is \
                     supported in multipart/form-data"
                ));
            }
            let kinds = encoding.get("contentType").and_then(|kinds| kinds.as_str());
            let kinds = kinds.unwrap_or_default().split(',').map(str::trim);
            let media_types: Vec<_> =
                kinds.filter(|kind| !kind.is_empty()).map(ToOwned::to_owned).collect();
            if let Some(kind) = media_types.iter().find(|kind| !is_media_type(kind)) {
                return Err(format!(
                    "the field {name:?} of the body: the media type {kind:?} is invalid"
                ));
            }
            all.insert(name.clone(), Field { media_types, ..Field::default() });
        }
        Ok(Self(all))
    }

    /// Marks a field as a file, or a list of files, and returns the media types that the document
    /// allows.
    pub(crate) fn add_file(&mut self, name: &str) -> &[String] {
        let field = self.0.entry(name.to_owned()).or_default();
        field.is_file = true;
        &field.media_types
    }

    /// Writes the fields. Returns the media type with the boundary, and the body.
    ///
    /// An array becomes one part per element, an object becomes JSON, and `null` is omitted.
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
            for element in elements.into_iter().filter(|element| element.get() != "null") {
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

impl Field {
    fn write_file(&self, name: &str, value: &RawValue, parts: &mut Parts) -> Result<(), String> {
        let file: File =
            serde_json::from_str(value.get()).map_err(|error| format!("is not a file: {error}"))?;
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
            Some(own) if !is_media_type(own) => {
                return Err(format!("has an invalid `mimeType`: {own:?} is not a media type"));
            }
            Some(own) if !self.allows(own) => {
                let allowed = self.media_types.join(", ");
                return Err(format!("must have a `mimeType` that the API accepts: {allowed}"));
            }
            Some(own) => own,
            None => match self.specific_types().next() {
                Some(first) => first,
                None if self.allows(default) => default,
                None => {
                    let allowed = self.media_types.join(", ");
                    return Err(format!("must have a `mimeType` that the API accepts: {allowed}"));
                }
            },
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

    /// Returns the media types without wildcards.
    fn specific_types(&self) -> impl Iterator<Item = &str> {
        self.media_types.iter().map(String::as_str).filter(|kind| !kind.contains('*'))
    }
}

/// Writes a value that is not a file.
fn write_value(
    name: &str,
    field: Option<&Field>,
    value: &RawValue,
    parts: &mut Parts,
) -> Result<(), String> {
    let is_nested = value.get().starts_with(['{', '[']);
    let mut types = field.into_iter().flat_map(Field::specific_types);
    let media_type = if is_nested {
        let json = types.find(|kind| is_json(kind)).or(Some("application/json"));
        if let Some(field) = field
            && json.is_some_and(|json| !field.allows(json))
        {
            let allowed = field.media_types.join(", ");
            return Err(format!(
                "cannot be an object or a nested array: the API expects {allowed}"
            ));
        }
        json
    } else {
        types.next()
    };
    let text = if media_type.is_some_and(is_json) {
        value.get().to_owned()
    } else {
        scalar(value)?.unwrap_or_default()
    };
    parts.push(name, None, media_type, text.into_bytes())
}

fn is_media_type(text: &str) -> bool {
    HeaderValue::from_str(text).is_ok() && text.contains('/')
}

/// The parts of a body.
#[derive(Default)]
struct Parts {
    all: Vec<(String, Vec<u8>)>,
    /// The total length of names, file names and media types in bytes, before escaping.
    headers: usize,
}

impl Parts {
    fn push(
        &mut self,
        name: &str,
        file_name: Option<&str>,
        media_type: Option<&str>,
        content: Vec<u8>,
    ) -> Result<(), String> {
        if self.all.len() == MAX_PARTS {
            return Err(format!("makes a request of more than {MAX_PARTS} parts"));
        }
        self.headers +=
            [Some(name), file_name, media_type].into_iter().flatten().map(str::len).sum::<usize>();
        if self.headers > MAX_HEADERS {
            return Err(format!("makes a request with more than {MAX_HEADERS} bytes of headers"));
        }
        let mut head = format!("Content-Disposition: form-data; name=\"{}\"", quoted(name)?);
        if let Some(file_name) = file_name {
            let _ = write!(head, "; filename=\"{}\"", quoted(file_name)?);
        }
        if let Some(media_type) = media_type {
            let _ = write!(head, "\r\nContent-Type: {media_type}");
        }
        self.all.push((head, content));
        Ok(())
    }

    /// Joins the parts. The boundary is a digest of all parts, so that no part can contain it and a
    /// repeated request has the same boundary.
    fn finish(self) -> Result<(HeaderValue, Bytes), String> {
        let mut digest = Sha256::new();
        for (head, content) in &self.all {
            for bytes in [head.as_bytes(), content] {
                digest.update(bytes.len().to_be_bytes());
                digest.update(bytes);
            }
        }
        let digest = digest.finalize();
        let mut boundary = String::new();
        for byte in digest.iter().take(16) {
            let _ = write!(boundary, "{byte:02x}");
        }
        let mut body = Vec::new();
        for (head, content) in self.all {
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

/// Escapes the name of a field or a file as browsers do. Readers disagree about backslashes.
fn quoted(name: &str) -> Result<String, String> {
    if name.contains(|c: char| c == '\\' || c.is_control()) {
        return Err(format!("must not have control characters or backslashes in a name: {name:?}"));
    }
    Ok(name.replace('"', "%22"))
}
