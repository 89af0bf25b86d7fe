//! `Mcp-Param-*`: arguments of tools in headers (specification: streamable HTTP, "Custom Headers
//! from Tool Parameters").
//!
//! A tool's input schema may annotate properties with `x-mcp-header`. The client then repeats these
//! arguments in headers, and the server compares them with the body.

use std::collections::HashSet;
use std::sync::Arc;

use http::{HeaderMap, HeaderName, HeaderValue};
use mrtr_schema::Object;
use mrtr_schema::jsonrpc::ErrorObject;
use mrtr_schema::peer_text::quote;
use serde_json::Value;

use super::{decode, encode, mismatch, single};

/// The keyword of the annotation in a schema.
const KEYWORD: &str = "x-mcp-header";

/// The largest integer that every JSON implementation keeps exact, since many store numbers as
/// doubles: 2^53 - 1.
const MAX_SAFE_INTEGER: i64 = (1 << 53) - 1;

/// The most arguments of one tool that are mirrored: servers limit the headers of a request to
/// about a hundred.
const MAX_HEADERS: usize = 64;

/// An argument of a tool that is mirrored in a header.
///
/// Not part of the public API: only the workspace's own crates need it.
#[doc(hidden)]
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ParamHeader {
    /// The header's name without `Mcp-Param-`.
    pub name: String,
    /// The names of the properties that lead to the argument, outermost first.
    path: Vec<Arc<str>>,
}

/// An invalid `x-mcp-header` annotation, or an argument that a header cannot carry.
///
/// Not part of the public API: only the workspace's own crates need it.
#[doc(hidden)]
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ParamHeaderError {
    /// Two annotations with the same name, which is compared without regard to case.
    #[error("two parameters have the header {}", quote(.0))]
    Duplicate(String),
    /// More annotations than a request may have headers.
    #[error("more than {MAX_HEADERS} parameters have {KEYWORD}")]
    TooMany,
    /// An annotation on a schema that is not reached through `properties` alone.
    #[error("{KEYWORD} must be on a property that is reached through `properties` alone")]
    NotAProperty,
    /// An annotation whose value is not a string.
    #[error("{KEYWORD} must be a string")]
    NotAString,
    /// A name with characters that header names cannot have.
    #[error("{KEYWORD} {} is not valid in a header name", quote(.0))]
    InvalidName(String),
    /// An annotation on a parameter of another type.
    #[error("{KEYWORD} {} must be on a string, integer or boolean parameter", quote(.0))]
    UnsupportedType(String),
    /// A number that not every JSON implementation keeps exact.
    #[error("argument {path}: a header cannot carry the number {number}")]
    UnsafeNumber {
        /// The argument, as property names joined by dots.
        path: String,
        /// The number.
        number: String,
    },
}

impl ParamHeader {
    /// Reads the annotations of a tool's input schema.
    ///
    /// # Errors
    ///
    /// If an annotation is invalid. The specification declares such a tool invalid as a whole.
    pub fn from_schema(schema: &Object) -> Result<Vec<Self>, ParamHeaderError> {
        let mut found = Vec::new();
        collect(schema, Some(&mut Vec::new()), &mut found)?;
        let mut names = HashSet::new();
        match found.iter().find(|header| !names.insert(header.name.to_ascii_lowercase())) {
            Some(duplicate) => Err(ParamHeaderError::Duplicate(duplicate.name.clone())),
            None => Ok(found),
        }
    }

    /// Returns the header's value for these arguments; `None` if there is nothing to mirror.
    ///
    /// # Errors
    ///
    /// If the argument is a number that not every JSON implementation keeps exact.
    pub fn value_in(&self, arguments: &Value) -> Result<Option<String>, ParamHeaderError> {
        Ok(match self.argument(arguments) {
            Some(Value::String(text)) => Some(text.clone()),
            Some(Value::Bool(flag)) => Some(flag.to_string()),
            Some(Value::Number(number)) => match number_text(number) {
                Some(text) => Some(text),
                None => {
                    let path = self.path.join(".");
                    let number = number.to_string();
                    return Err(ParamHeaderError::UnsafeNumber { path, number });
                }
            },
            _ => None,
        })
    }

    fn argument<'a>(&self, arguments: &'a Value) -> Option<&'a Value> {
        self.path.iter().try_fold(arguments, |value, name| value.get(&**name))
    }

    /// Compares the header with the arguments.
    fn check(&self, headers: &HeaderMap, arguments: &Value) -> Result<(), ErrorObject> {
        // `from_schema` has checked that the name is valid in a header name.
        let Some(header) = header_name(&self.name) else { return Ok(()) };
        let expected = self.value_in(arguments).map_err(|error| mismatch(&error.to_string()))?;
        let Some(expected) = expected else {
            if headers.contains_key(&header) {
                let reason = format!("{header} is present, but the body has no such value");
                return Err(mismatch(&reason));
            }
            return Ok(());
        };
        let value = decode(single(headers, &header)?)
            .ok_or_else(|| mismatch(&format!("{header} is not valid Base64")))?;
        let is_number = self.argument(arguments).is_some_and(Value::is_number);
        if value == expected || (is_number && is_same_number(&value, &expected)) {
            return Ok(());
        }
        Err(mismatch(&format!(
            "{header} is {}, but the body says {}",
            quote(&value),
            quote(&expected)
        )))
    }
}

/// Writes a number, if every JSON implementation keeps it exact. `42.0` is the integer 42. A
/// fraction is mirrored as well: it fits no type that may be annotated, which is for the validation
/// of the arguments to say.
fn number_text(number: &serde_json::Number) -> Option<String> {
    if number.as_i64().is_some_and(|n| (-MAX_SAFE_INTEGER..=MAX_SAFE_INTEGER).contains(&n)) {
        return Some(number.to_string());
    }
    // 2^53 itself is excluded: 2^53 + 1 rounds to it.
    let value = number.as_f64().filter(|f| f.abs() < 2f64.powi(53))?;
    Some(if value.fract() == 0.0 { format!("{value:.0}") } else { number.to_string() })
}

/// Compares numbers by value, as proxies may write `42` as `42.0`.
fn is_same_number(a: &str, b: &str) -> bool {
    match (a.parse::<f64>(), b.parse::<f64>()) {
        (Ok(a), Ok(b)) => a.is_finite() && (a - b).abs() == 0.0,
        _ => false,
    }
}

/// Returns the full name of a header, if `name` is valid in one.
fn header_name(name: &str) -> Option<HeaderName> {
    HeaderName::from_bytes(format!("mcp-param-{name}").as_bytes()).ok()
}

/// Returns the `Mcp-Param-*` headers for arguments, given as name and value.
///
/// Not part of the public API: only the workspace's own crates need it.
#[doc(hidden)]
pub fn param_headers(params: &[(String, String)]) -> Vec<(HeaderName, HeaderValue)> {
    let header = |(name, value): &(String, String)| {
        Some((header_name(name)?, HeaderValue::from_str(&encode(value)).ok()?))
    };
    params.iter().filter_map(header).collect()
}

/// Compares the `Mcp-Param-*` headers of a request with its arguments.
///
/// Not part of the public API: only the workspace's own crates need it.
///
/// # Errors
///
/// [`HEADER_MISMATCH`](mrtr_schema::jsonrpc::code::HEADER_MISMATCH) if a header is missing,
/// repeated, malformed or different, or has no value in the body.
#[doc(hidden)]
pub fn check_param_headers(
    headers: &HeaderMap,
    params: &[ParamHeader],
    arguments: &Value,
) -> Result<(), ErrorObject> {
    params.iter().try_for_each(|param| param.check(headers, arguments))
}

/// Collects the annotations of a schema and its subschemas. `path` leads to the schema through
/// `properties` alone, and is `None` if no such path exists.
fn collect(
    schema: &Object,
    mut path: Option<&mut Vec<Arc<str>>>,
    found: &mut Vec<ParamHeader>,
) -> Result<(), ParamHeaderError> {
    if let Some(annotation) = schema.get(KEYWORD) {
        let path = path.as_deref().filter(|path| !path.is_empty());
        let path = path.ok_or(ParamHeaderError::NotAProperty)?.clone();
        if found.len() == MAX_HEADERS {
            return Err(ParamHeaderError::TooMany);
        }
        found.push(ParamHeader { name: annotated_name(annotation, schema)?, path });
    }
    for (keyword, value) in schema {
        match (keyword.as_str(), value) {
            // Their values are data, not schemas.
            ("const" | "default" | "enum" | "examples", _) => {}
            ("properties", Value::Object(properties)) => {
                for (name, property) in properties {
                    let Value::Object(property) = property else { continue };
                    match path.as_deref_mut() {
                        Some(path) => {
                            path.push(name.as_str().into());
                            collect(property, Some(path), found)?;
                            path.pop();
                        }
                        None => collect(property, None, found)?,
                    }
                }
            }
            (
                "$defs" | "definitions" | "patternProperties" | "dependentSchemas",
                Value::Object(schemas),
            ) => {
                for schema in schemas.values().filter_map(Value::as_object) {
                    collect(schema, None, found)?;
                }
            }
            (_, Value::Object(schema)) => collect(schema, None, found)?,
            (_, Value::Array(schemas)) => {
                for schema in schemas.iter().filter_map(Value::as_object) {
                    collect(schema, None, found)?;
                }
            }
            _ => {}
        }
    }
    Ok(())
}

/// Returns the name in an annotation, if it and the type of its property are valid.
fn annotated_name(annotation: &Value, schema: &Object) -> Result<String, ParamHeaderError> {
    let name = annotation.as_str().ok_or(ParamHeaderError::NotAString)?.to_owned();
    // `tchar` of RFC 9110, section 5.6.2.
    let tchar = |c: u8| c.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&c);
    if name.is_empty() || !name.bytes().all(tchar) {
        return Err(ParamHeaderError::InvalidName(name));
    }
    let primitive = |kind: &Value| matches!(kind.as_str(), Some("string" | "integer" | "boolean"));
    let is_supported = match schema.get("type") {
        // A nullable parameter is mirrored unless it is null.
        Some(Value::Array(kinds)) => {
            let mut kinds = kinds.iter().filter(|kind| kind.as_str() != Some("null"));
            kinds.next().is_some_and(primitive) && kinds.next().is_none()
        }
        Some(kind) => primitive(kind),
        None => false,
    };
    if is_supported { Ok(name) } else { Err(ParamHeaderError::UnsupportedType(name)) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::HeaderValue;
    use serde_json::json;

    fn parse(schema: Value) -> Result<Vec<ParamHeader>, ParamHeaderError> {
        let Value::Object(schema) = schema else { panic!("not an object") };
        ParamHeader::from_schema(&schema)
    }

    #[expect(clippy::needless_pass_by_value, reason = "calls in the table stay short")]
    fn annotated(property: Value) -> Value {
        json!({ "type": "object", "properties": { "p": property } })
    }

    #[test]
    fn from_schema_reads_annotations_with_their_paths() {
        let headers = parse(json!({ "type": "object", "properties": {
            "region": { "type": "string", "x-mcp-header": "Region" },
            "deep": { "type": "object", "properties": { "n": { "type": ["integer", "null"], "x-mcp-header": "N" } } },
            "x-mcp-header": { "type": "string" },
            "other": { "type": "string", "default": { "x-mcp-header": "data" } },
        } }))
        .unwrap();
        let arguments = json!({ "region": "eu", "deep": { "n": 42.0 } });
        let values: Vec<_> = headers
            .iter()
            .map(|h| (h.name.as_str(), h.value_in(&arguments).unwrap().unwrap()))
            .collect();
        assert_eq!(values, [("Region", "eu".to_owned()), ("N", "42".to_owned())]);
        assert_eq!(headers[0].value_in(&json!({ "region": null })), Ok(None));
        assert_eq!(headers[1].value_in(&json!({})), Ok(None));
        assert_eq!(headers[1].value_in(&json!({ "deep": { "n": 1.5 } })), Ok(Some("1.5".into())));
        assert!(
            headers[1].value_in(&json!({ "deep": { "n": 9_007_199_254_740_992_u64 } })).is_err()
        );
    }

    #[test]
    fn from_schema_rejects_invalid_annotations() {
        for (schema, part) in [
            (
                annotated(json!({ "type": "string", "x-mcp-header": "" })),
                "not valid in a header name",
            ),
            (
                annotated(json!({ "type": "string", "x-mcp-header": "a b" })),
                "not valid in a header name",
            ),
            (
                annotated(json!({ "type": "string", "x-mcp-header": "a:b" })),
                "not valid in a header name",
            ),
            (
                annotated(json!({ "type": "string", "x-mcp-header": "é" })),
                "not valid in a header name",
            ),
            (
                annotated(json!({ "type": "string", "x-mcp-header": "a\r\nb" })),
                "not valid in a header name",
            ),
            (annotated(json!({ "type": "string", "x-mcp-header": 5 })), "must be a string"),
            (
                annotated(json!({ "type": "number", "x-mcp-header": "a" })),
                "must be on a string, integer or boolean",
            ),
            (
                annotated(json!({ "type": "object", "x-mcp-header": "a" })),
                "must be on a string, integer or boolean",
            ),
            (
                annotated(json!({ "type": "null", "x-mcp-header": "a" })),
                "must be on a string, integer or boolean",
            ),
            (annotated(json!({ "x-mcp-header": "a" })), "must be on a string, integer or boolean"),
            (
                annotated(
                    json!({ "type": "array", "items": { "type": "string", "x-mcp-header": "a" } }),
                ),
                "through `properties` alone",
            ),
            (
                annotated(json!({ "anyOf": [{ "type": "string", "x-mcp-header": "a" }] })),
                "through `properties` alone",
            ),
            (
                annotated(json!({ "oneOf": [{ "type": "string", "x-mcp-header": "a" }] })),
                "through `properties` alone",
            ),
            (
                annotated(json!({ "allOf": [{ "type": "string", "x-mcp-header": "a" }] })),
                "through `properties` alone",
            ),
            (
                annotated(json!({ "prefixItems": [{ "type": "string", "x-mcp-header": "a" }] })),
                "through `properties` alone",
            ),
            (
                annotated(json!({ "not": { "type": "string", "x-mcp-header": "a" } })),
                "through `properties` alone",
            ),
            (
                annotated(json!({ "then": { "type": "string", "x-mcp-header": "a" } })),
                "through `properties` alone",
            ),
            (
                annotated(json!({ "else": { "type": "string", "x-mcp-header": "a" } })),
                "through `properties` alone",
            ),
            (
                annotated(json!({ "contains": { "type": "string", "x-mcp-header": "a" } })),
                "through `properties` alone",
            ),
            (
                annotated(
                    json!({ "additionalProperties": { "type": "string", "x-mcp-header": "a" } }),
                ),
                "through `properties` alone",
            ),
            (json!({ "type": "object", "x-mcp-header": "a" }), "through `properties` alone"),
            (
                json!({ "type": "object", "$defs": { "d": { "type": "string", "x-mcp-header": "a" } } }),
                "through `properties` alone",
            ),
            (
                json!({ "type": "object", "if": { "properties": { "p": { "type": "string", "x-mcp-header": "a" } } } }),
                "through `properties` alone",
            ),
            (
                json!({ "type": "object", "properties": {
                    "p": { "type": "string", "x-mcp-header": "Same" },
                    "q": { "type": "string", "x-mcp-header": "same" },
                } }),
                "two parameters",
            ),
        ] {
            let error = parse(schema.clone()).expect_err(&schema.to_string()).to_string();
            assert!(error.contains(part), "{schema}: {error}");
        }
    }

    /// A listing may have 16 MiB. The copies of a long property name would take a thousand times
    /// as much.
    #[test]
    fn from_schema_limits_what_annotations_cost() {
        let schema = |count: usize| {
            let inner: serde_json::Map<_, _> = (0..count)
                .map(|n| {
                    (format!("p{n}"), json!({ "type": "string", "x-mcp-header": format!("H{n}") }))
                })
                .collect();
            json!({ "properties": { "x".repeat(1 << 20): { "properties": inner } } })
        };
        let most = parse(schema(MAX_HEADERS)).unwrap();
        assert!(most.iter().all(|header| Arc::ptr_eq(&header.path[0], &most[0].path[0])));
        assert_eq!(parse(schema(MAX_HEADERS + 1)), Err(ParamHeaderError::TooMany));
        let name = "x y".repeat(1 << 20);
        let invalid = annotated(json!({ "type": "string", "x-mcp-header": name }));
        assert!(parse(invalid).unwrap_err().to_string().len() < 1_000);
    }

    #[test]
    fn check_param_headers_compares_headers_with_arguments() {
        let params = parse(json!({ "type": "object", "properties": {
            "s": { "type": "string", "x-mcp-header": "S" },
            "n": { "type": "integer", "x-mcp-header": "N" },
        } }))
        .unwrap();
        let check = |headers: &[(&'static str, &str)], arguments: Value| {
            let map = headers.iter().map(|(k, v)| {
                (HeaderName::from_static(k), HeaderValue::from_bytes(v.as_bytes()).unwrap())
            });
            check_param_headers(&map.collect(), &params, &arguments).map_err(|e| e.message)
        };
        assert_eq!(
            check(&[("mcp-param-s", "x"), ("mcp-param-n", "42.0")], json!({ "s": "x", "n": 42 })),
            Ok(())
        );
        assert_eq!(
            check(&[("mcp-param-s", "=?base64?w6k=?=")], json!({ "s": "é", "n": null })),
            Ok(())
        );
        assert_eq!(check(&[], json!({})), Ok(()));
        // The header is right. That the argument is not, is for the tool's result to say.
        assert_eq!(check(&[("mcp-param-n", "1.5")], json!({ "n": 1.5 })), Ok(()));
        for (headers, arguments, part) in [
            (&[][..], json!({ "s": "x" }), "mcp-param-s is missing"),
            (&[("mcp-param-s", "y")], json!({ "s": "x" }), "the body says \"x\""),
            (&[("mcp-param-s", "1.0")], json!({ "s": "1" }), "the body says \"1\""),
            (&[("mcp-param-n", "43")], json!({ "n": 42 }), "the body says \"42\""),
            (&[("mcp-param-n", "x")], json!({ "n": 42 }), "the body says \"42\""),
            (&[("mcp-param-s", "x")], json!({}), "the body has no such value"),
            (&[("mcp-param-s", "=?base64?!?=")], json!({ "s": "x" }), "Base64"),
            (&[("mcp-param-s", "é")], json!({ "s": "é" }), "invalid characters"),
        ] {
            let error = check(headers, arguments).expect_err(part);
            assert!(error.contains(part), "{error}");
        }
    }
}
