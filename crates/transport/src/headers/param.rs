//! `Mcp-Param-*`: arguments of tools in headers (specification: streamable HTTP, "Custom Headers from
//! Tool Parameters").

use std::collections::HashSet;

use http::{HeaderMap, HeaderName};
use mrtr_schema::Object;
use mrtr_schema::jsonrpc::ErrorObject;
use mrtr_schema::peer_text::quote;
use serde_json::Value;

use super::{decode, mismatch, single};

/// The keyword of a schema.
const KEYWORD: &str = "x-mcp-header";

/// The largest integer that every JSON implementation keeps exact.
const SAFE: i64 = (1 << 53) - 1;

/// An argument that is mirrored in a header.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ParamHeader {
    /// What follows `Mcp-Param-` in the header's name.
    pub name: String,
    /// Where the argument is: the names of properties from the outside in.
    path: Vec<String>,
}

impl ParamHeader {
    /// Reads the annotations of a tool's input schema.
    ///
    /// # Errors
    ///
    /// If one of them is not allowed, with the reason. Such a tool is invalid as a whole.
    pub fn of_schema(schema: &Object) -> Result<Vec<Self>, String> {
        let mut found = Vec::new();
        walk(schema, Some(&mut Vec::new()), &mut found)?;
        let mut names = HashSet::new();
        match found.iter().find(|header| !names.insert(header.name.to_ascii_lowercase())) {
            Some(twice) => Err(format!("two parameters have the header {:?}", twice.name)),
            None => Ok(found),
        }
    }

    /// The header's value for these arguments: `None` if there is nothing to mirror.
    ///
    /// # Errors
    ///
    /// If the argument is an integer that not every implementation keeps exact.
    pub fn value(&self, arguments: &Value) -> Result<Option<String>, String> {
        let value = self.path.iter().try_fold(arguments, |value, name| value.get(name));
        Ok(match value {
            Some(Value::String(text)) => Some(text.clone()),
            Some(Value::Bool(flag)) => Some(flag.to_string()),
            Some(Value::Number(number)) => {
                let safe = number.as_i64().is_some_and(|n| (-SAFE..=SAFE).contains(&n));
                let whole = number.as_f64().filter(|f| f.fract() == 0.0 && f.abs() < 2f64.powi(53));
                match (safe, whole) {
                    (true, _) => Some(number.to_string()),
                    (false, Some(whole)) => Some(format!("{whole:.0}")),
                    (false, None) => {
                        return Err(format!(
                            "{} is {number}, which a header cannot carry",
                            self.path.join(".")
                        ));
                    }
                }
            }
            _ => None,
        })
    }

    /// Compares the header with the arguments.
    fn check(&self, headers: &HeaderMap, arguments: &Value) -> Result<(), ErrorObject> {
        let header = format!("mcp-param-{}", self.name.to_ascii_lowercase());
        // Annotations were checked, so the name is one.
        let Ok(header) = HeaderName::from_bytes(header.as_bytes()) else { return Ok(()) };
        let expected = self.value(arguments).map_err(|why| mismatch(&why))?;
        let Some(expected) = expected else {
            if headers.contains_key(&header) {
                return Err(mismatch(&format!(
                    "{header} is there, but the body has no such value"
                )));
            }
            return Ok(());
        };
        let value = decode(single(headers, &header)?);
        let value = value.ok_or_else(|| mismatch(&format!("{header} is not valid base64")))?;
        let same_number = || {
            let (a, b) = (value.parse::<f64>().ok()?, expected.parse::<f64>().ok()?);
            Some(a.is_finite() && (a - b).abs() == 0.0)
        };
        let number = self.path.iter().try_fold(arguments, |value, name| value.get(name));
        let numeric = number.is_some_and(Value::is_number) && same_number() == Some(true);
        if value == expected || numeric {
            return Ok(());
        }
        let (value, expected) = (quote(&value), quote(&expected));
        Err(mismatch(&format!("{header} is {value}, but the body says {expected}")))
    }
}

/// Compares the `Mcp-Param-*` headers of a request with its arguments.
///
/// # Errors
///
/// [`HEADER_MISMATCH`](mrtr_schema::jsonrpc::code::HEADER_MISMATCH) if one is missing, repeated, malformed
/// or differs, or has no value in the body.
pub fn check_params(
    headers: &HeaderMap,
    params: &[ParamHeader],
    arguments: &Value,
) -> Result<(), ErrorObject> {
    params.iter().try_for_each(|param| param.check(headers, arguments))
}

/// Looks for annotations in a schema. `path` is the way to it by properties alone, if there is one.
fn walk(
    schema: &Object,
    path: Option<&mut Vec<String>>,
    found: &mut Vec<ParamHeader>,
) -> Result<(), String> {
    if let Some(annotation) = schema.get(KEYWORD) {
        let at = path.as_deref().filter(|path| !path.is_empty());
        let at = at.ok_or(format!("{KEYWORD} stands where no chain of properties leads"))?;
        found.push(ParamHeader { name: name_of(annotation, schema)?, path: at.clone() });
    }
    let mut path = path;
    for (keyword, value) in schema {
        match (keyword.as_str(), value) {
            // Data, not schemas.
            ("const" | "default" | "enum" | "examples", _) => {}
            ("properties", Value::Object(properties)) => {
                for (name, property) in properties {
                    let Value::Object(property) = property else { continue };
                    match path.as_deref_mut() {
                        Some(path) => {
                            path.push(name.clone());
                            walk(property, Some(path), found)?;
                            path.pop();
                        }
                        None => walk(property, None, found)?,
                    }
                }
            }
            (
                "$defs" | "definitions" | "patternProperties" | "dependentSchemas",
                Value::Object(all),
            ) => {
                for schema in all.values().filter_map(Value::as_object) {
                    walk(schema, None, found)?;
                }
            }
            (_, Value::Object(schema)) => walk(schema, None, found)?,
            (_, Value::Array(schemas)) => {
                for schema in schemas.iter().filter_map(Value::as_object) {
                    walk(schema, None, found)?;
                }
            }
            _ => {}
        }
    }
    Ok(())
}

/// The name in an annotation, if it is one, on a property that may have one.
fn name_of(annotation: &Value, schema: &Object) -> Result<String, String> {
    let name = annotation.as_str().ok_or(format!("{KEYWORD} must be a string"))?;
    let tchar = |c: u8| c.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&c);
    if name.is_empty() || !name.bytes().all(tchar) {
        return Err(format!("{KEYWORD} {name:?} is no part of a header's name"));
    }
    let primitive = |kind: &Value| matches!(kind.as_str(), Some("string" | "integer" | "boolean"));
    let fits = match schema.get("type") {
        // One that may be null as well is left out then.
        Some(Value::Array(kinds)) => {
            let mut kinds = kinds.iter().filter(|kind| kind.as_str() != Some("null"));
            kinds.next().is_some_and(primitive) && kinds.next().is_none()
        }
        Some(kind) => primitive(kind),
        None => false,
    };
    if fits {
        Ok(name.to_owned())
    } else {
        Err(format!(
            "{KEYWORD} {name:?} stands on a parameter that is no string, integer or boolean"
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::HeaderValue;
    use serde_json::json;

    fn of(schema: Value) -> Result<Vec<ParamHeader>, String> {
        let Value::Object(schema) = schema else { panic!("an object") };
        ParamHeader::of_schema(&schema)
    }

    #[expect(clippy::needless_pass_by_value, reason = "reads better in the table")]
    fn annotated(property: Value) -> Value {
        json!({ "type": "object", "properties": { "p": property } })
    }

    #[test]
    fn annotations_are_read_with_their_paths() {
        let headers = of(json!({ "type": "object", "properties": {
            "region": { "type": "string", "x-mcp-header": "Region" },
            "deep": { "type": "object", "properties": { "n": { "type": ["integer", "null"], "x-mcp-header": "N" } } },
            "x-mcp-header": { "type": "string" },
            "other": { "type": "string", "default": { "x-mcp-header": "data" } },
        } }))
        .unwrap();
        let arguments = json!({ "region": "eu", "deep": { "n": 42.0 } });
        let values: Vec<_> = headers
            .iter()
            .map(|h| (h.name.as_str(), h.value(&arguments).unwrap().unwrap()))
            .collect();
        assert_eq!(values, [("Region", "eu".to_owned()), ("N", "42".to_owned())]);
        assert_eq!(headers[0].value(&json!({ "region": null })), Ok(None));
        assert_eq!(headers[1].value(&json!({})), Ok(None));
        assert!(headers[1].value(&json!({ "deep": { "n": 9_007_199_254_740_992_u64 } })).is_err());
    }

    #[test]
    fn annotations_that_are_not_allowed_make_the_tool_invalid() {
        for (schema, part) in [
            (annotated(json!({ "type": "string", "x-mcp-header": "" })), "no part of a header"),
            (annotated(json!({ "type": "string", "x-mcp-header": "a b" })), "no part of a header"),
            (annotated(json!({ "type": "string", "x-mcp-header": "a:b" })), "no part of a header"),
            (annotated(json!({ "type": "string", "x-mcp-header": "é" })), "no part of a header"),
            (
                annotated(json!({ "type": "string", "x-mcp-header": "a\r\nb" })),
                "no part of a header",
            ),
            (annotated(json!({ "type": "string", "x-mcp-header": 5 })), "must be a string"),
            (
                annotated(json!({ "type": "number", "x-mcp-header": "a" })),
                "no string, integer or boolean",
            ),
            (
                annotated(json!({ "type": "object", "x-mcp-header": "a" })),
                "no string, integer or boolean",
            ),
            (
                annotated(json!({ "type": "null", "x-mcp-header": "a" })),
                "no string, integer or boolean",
            ),
            (annotated(json!({ "x-mcp-header": "a" })), "no string, integer or boolean"),
            (
                annotated(
                    json!({ "type": "array", "items": { "type": "string", "x-mcp-header": "a" } }),
                ),
                "no chain",
            ),
            (
                annotated(json!({ "anyOf": [{ "type": "string", "x-mcp-header": "a" }] })),
                "no chain",
            ),
            (
                annotated(json!({ "oneOf": [{ "type": "string", "x-mcp-header": "a" }] })),
                "no chain",
            ),
            (
                annotated(json!({ "allOf": [{ "type": "string", "x-mcp-header": "a" }] })),
                "no chain",
            ),
            (
                annotated(json!({ "prefixItems": [{ "type": "string", "x-mcp-header": "a" }] })),
                "no chain",
            ),
            (annotated(json!({ "not": { "type": "string", "x-mcp-header": "a" } })), "no chain"),
            (annotated(json!({ "then": { "type": "string", "x-mcp-header": "a" } })), "no chain"),
            (annotated(json!({ "else": { "type": "string", "x-mcp-header": "a" } })), "no chain"),
            (
                annotated(json!({ "contains": { "type": "string", "x-mcp-header": "a" } })),
                "no chain",
            ),
            (
                annotated(
                    json!({ "additionalProperties": { "type": "string", "x-mcp-header": "a" } }),
                ),
                "no chain",
            ),
            (json!({ "type": "object", "x-mcp-header": "a" }), "no chain"),
            (
                json!({ "type": "object", "$defs": { "d": { "type": "string", "x-mcp-header": "a" } } }),
                "no chain",
            ),
            (
                json!({ "type": "object", "if": { "properties": { "p": { "type": "string", "x-mcp-header": "a" } } } }),
                "no chain",
            ),
            (
                json!({ "type": "object", "properties": {
                    "p": { "type": "string", "x-mcp-header": "Same" },
                    "q": { "type": "string", "x-mcp-header": "same" },
                } }),
                "two parameters",
            ),
        ] {
            let error = of(schema.clone()).expect_err(&schema.to_string());
            assert!(error.contains(part), "{schema}: {error}");
        }
    }

    #[test]
    fn headers_are_held_against_arguments() {
        let params = of(json!({ "type": "object", "properties": {
            "s": { "type": "string", "x-mcp-header": "S" },
            "n": { "type": "integer", "x-mcp-header": "N" },
        } }))
        .unwrap();
        let check = |headers: &[(&'static str, &str)], arguments: Value| {
            let map = headers.iter().map(|(k, v)| {
                (HeaderName::from_static(k), HeaderValue::from_bytes(v.as_bytes()).unwrap())
            });
            check_params(&map.collect(), &params, &arguments).map_err(|e| e.message)
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
        for (headers, arguments, part) in [
            (&[][..], json!({ "s": "x" }), "mcp-param-s is missing"),
            (&[("mcp-param-s", "y")], json!({ "s": "x" }), "the body says \"x\""),
            (&[("mcp-param-s", "1.0")], json!({ "s": "1" }), "the body says \"1\""),
            (&[("mcp-param-n", "43")], json!({ "n": 42 }), "the body says \"42\""),
            (&[("mcp-param-n", "x")], json!({ "n": 42 }), "the body says \"42\""),
            (&[("mcp-param-s", "x")], json!({}), "the body has no such value"),
            (&[("mcp-param-s", "=?base64?!?=")], json!({ "s": "x" }), "base64"),
            (&[("mcp-param-s", "é")], json!({ "s": "é" }), "invalid characters"),
        ] {
            let error = check(headers, arguments).expect_err(part);
            assert!(error.contains(part), "{error}");
        }
    }
}
