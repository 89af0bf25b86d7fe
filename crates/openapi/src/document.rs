//! An OpenAPI document, and its references.

use http::Method;
#[cfg(feature = "yaml")]
use mrtr_schema::json::Validated;
use mrtr_schema::json::validate;
use percent_encoding::percent_decode_str;
use serde_json::{Map, Value};

use crate::error::OpenApiError;
use crate::operation::Operation;

/// The maximum length of a chain of references.
const MAX_REFERENCES: usize = 16;

/// The maximum number of operations of a document and of tags of an operation, and the maximum
/// length of an id or a tag in characters. Many paths can refer to the same path item, so a short
/// document can have many operations with long names.
const MAX_OPERATIONS: usize = 10_000;
const MAX_TAGS: usize = 16;
const MAX_NAME: usize = 128;

const METHODS: [(&str, Method); 8] = [
    ("get", Method::GET),
    ("put", Method::PUT),
    ("post", Method::POST),
    ("delete", Method::DELETE),
    ("options", Method::OPTIONS),
    ("head", Method::HEAD),
    ("patch", Method::PATCH),
    ("trace", Method::TRACE),
];

/// A document of version 3.0, 3.1 or 3.2.
pub(crate) struct Document {
    root: Value,
    /// Its schemas are those of version 3.0, which are not JSON Schema.
    pub(crate) is_3_0: bool,
}

impl Document {
    pub(crate) fn parse(text: &str) -> Result<Self, OpenApiError> {
        let root = read(text)?;
        let version = root.get("openapi").and_then(Value::as_str);
        let version = version.ok_or(OpenApiError::MissingVersion)?;
        let is = |prefix: &str| version.starts_with(prefix);
        if !is("3.0.") && !is("3.1.") && !is("3.2.") {
            let version = version.chars().take(20).collect();
            return Err(OpenApiError::UnsupportedVersion(version));
        }
        let is_3_0 = is("3.0.");
        Ok(Self { root, is_3_0 })
    }

    /// Returns the operations, each with its path item and its operation object.
    pub(crate) fn operations(&self) -> impl Iterator<Item = (Operation, &Value, &Value)> {
        let paths = self.root.get("paths").and_then(Value::as_object);
        let items = paths.into_iter().flatten().filter(|(path, _)| path.starts_with('/'));
        let all = items.flat_map(move |(path, item)| {
            let item = self.resolve(item).unwrap_or(&Value::Null);
            METHODS.iter().filter_map(move |(key, method)| {
                let object = item.get(key).filter(|value| value.is_object())?;
                let id = object.get("operationId").and_then(Value::as_str);
                let tags = object.get("tags").and_then(Value::as_array).into_iter().flatten();
                let tags = tags.filter_map(Value::as_str).take(MAX_TAGS);
                let operation = Operation {
                    method: method.clone(),
                    path: path.clone(),
                    id: id.map(|id| id.chars().take(MAX_NAME).collect()),
                    tags: tags.map(|tag| tag.chars().take(MAX_NAME).collect()).collect(),
                    is_deprecated: object.get("deprecated") == Some(&Value::Bool(true)),
                };
                Some((operation, item, object))
            })
        });
        all.take(MAX_OPERATIONS)
    }

    /// Follows references in the document.
    pub(crate) fn resolve<'a>(&'a self, mut value: &'a Value) -> Result<&'a Value, String> {
        for _ in 0..MAX_REFERENCES {
            let Some(reference) = value.get("$ref").and_then(Value::as_str) else {
                return Ok(value);
            };
            value = self.at(reference)?;
        }
        Err(format!("more than {MAX_REFERENCES} references lead from one to the next"))
    }

    /// Returns what a reference names: a URI with a JSON Pointer as its fragment (RFC 6901, section
    /// 6).
    pub(crate) fn at(&self, reference: &str) -> Result<&Value, String> {
        let pointer = reference.strip_prefix('#').map(percent_decode_str);
        let pointer = pointer.and_then(|pointer| pointer.decode_utf8().ok());
        let found = pointer.and_then(|pointer| self.root.pointer(&pointer));
        // Some documents have references that are not encoded.
        let as_is = || self.root.pointer(reference.strip_prefix('#')?);
        let found = found.or_else(as_is);
        found.ok_or_else(|| format!("the reference {reference:?} has no target in this document"))
    }

    pub(crate) fn security_schemes(&self) -> impl Iterator<Item = &Value> {
        let schemes = self.root.pointer("/components/securitySchemes").and_then(Value::as_object);
        schemes.into_iter().flat_map(Map::values)
    }

    /// Returns the schema with a name, which is a part of a JSON Pointer.
    pub(crate) fn schema(&self, name: &str) -> Result<&Value, String> {
        let found = self.root.pointer(&format!("/components/schemas/{name}"));
        found.ok_or_else(|| format!("the document has no schema {name:?}"))
    }
}

/// How deeply YAML may be nested.
#[cfg(feature = "yaml")]
const MAX_YAML_DEPTH: usize = 64;

/// Reads a document in JSON or, with the feature `yaml`, in YAML.
fn read(text: &str) -> Result<Value, OpenApiError> {
    #[cfg(feature = "yaml")]
    if !text.trim_start().starts_with('{') {
        return read_yaml(text);
    }
    validate(text)?;
    Ok(serde_json::from_str(text)?)
}

/// Reads YAML 1.2, in which `NO` is a string. Unlike in YAML 1.2, integers such as `007`, which
/// would lose their zeros, and numbers that are not finite, which JSON does not have, are strings,
/// too.
///
/// Aliases are limited by what they expand to.
#[cfg(feature = "yaml")]
fn read_yaml(text: &str) -> Result<Value, OpenApiError> {
    let budget = serde_saphyr::budget! {
        // What fits on the stack of a thread, without optimization.
        max_depth: MAX_YAML_DEPTH,
        max_nodes: 1_000_000,
        max_events: 4_000_000,
        enforce_alias_anchor_ratio: false,
    };
    let options = serde_saphyr::options! {
        budget: budget,
        alias_limits: serde_saphyr::alias_limits! { max_total_replayed_events: 100_000 },
        strict_booleans: true,
        leading_zero_numbers_as_strings: true,
        underscored_numbers_as_strings: true,
        non_finite_float_policy: serde_saphyr::options::NonFiniteFloatPolicy::AsString,
        with_snippet: false,
    };
    let invalid = |error: serde_saphyr::Error| OpenApiError::InvalidYaml(error.into());
    serde_saphyr::from_str_with_options::<Validated>(text, options.clone()).map_err(invalid)?;
    serde_saphyr::from_str_with_options(text, options).map_err(invalid)
}
