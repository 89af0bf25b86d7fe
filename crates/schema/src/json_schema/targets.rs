//! The subschemas that references name.

use std::collections::HashMap;

use serde_json::Value;

use super::in_place::MAX_DEPTH;
use crate::{peer_text, uri};

/// Keywords whose value is a subschema, or an array of them.
const SUBSCHEMAS: [&str; 15] = [
    "additionalItems",
    "additionalProperties",
    "allOf",
    "anyOf",
    "contains",
    "else",
    "if",
    "items",
    "not",
    "oneOf",
    "prefixItems",
    "propertyNames",
    "then",
    "unevaluatedItems",
    "unevaluatedProperties",
];

/// Keywords whose value is an object of subschemas by name.
const NAMED_SUBSCHEMAS: [&str; 6] =
    ["$defs", "definitions", "dependencies", "dependentSchemas", "patternProperties", "properties"];

/// The subschemas that references name.
pub(super) struct Targets<'a> {
    root: &'a Value,
    /// Its URI, or an empty string.
    own: &'a str,
    /// The subschemas with an anchor, by its name.
    anchors: HashMap<&'a str, &'a Value>,
}

impl<'a> Targets<'a> {
    pub(super) fn of(root: &'a Value, id: &str) -> Result<Self, String> {
        // A schema may name itself.
        let own = root.get(id).and_then(Value::as_str).unwrap_or_default();
        let own = own.trim_end_matches('#');
        let mut anchors = HashMap::new();
        find_anchors(root, &mut anchors, 0)?;
        Ok(Self { root, own, anchors })
    }

    /// Returns the subschema that a reference names: by a JSON Pointer, or by an anchor.
    pub(super) fn find(&self, target: &str) -> Result<&'a Value, String> {
        let quoted = || peer_text::quote(target);
        let place = target
            .strip_prefix(self.own)
            .filter(|place| matches!(place.get(..1), None | Some("#")));
        let place = place.unwrap_or(target);
        if place.is_empty() && !target.is_empty() {
            return Ok(self.root);
        }
        let Some(fragment) = place.strip_prefix('#') else {
            return Err(format!("`$ref` {} is external; nothing is fetched", quoted()));
        };
        let fragment = uri::percent_decode(fragment).unwrap_or_default();
        let found = if fragment.is_empty() || fragment.starts_with('/') {
            self.root.pointer(&fragment)
        } else {
            self.anchors.get(&*fragment).copied()
        };
        found.ok_or_else(|| format!("`$ref` {} does not exist", quoted()))
    }
}

/// Finds the subschemas with an anchor, as deep as subschemas may be nested.
///
/// # Errors
///
/// If two have the same: it is undefined which one a reference names (JSON Schema 2020-12, section
/// 8.2.2).
fn find_anchors<'a>(
    schema: &'a Value,
    anchors: &mut HashMap<&'a str, &'a Value>,
    depth: usize,
) -> Result<(), String> {
    if depth > MAX_DEPTH {
        return Ok(());
    }
    match schema {
        Value::Object(members) => {
            for keyword in ["$anchor", "$dynamicAnchor"] {
                if let Some(Value::String(name)) = members.get(keyword) {
                    let former = anchors.insert(name, schema);
                    if former.is_some_and(|former| !std::ptr::eq(former, schema)) {
                        return Err(format!("the anchor {} occurs twice", peer_text::quote(name)));
                    }
                }
            }
            for (keyword, value) in members {
                if SUBSCHEMAS.contains(&keyword.as_str()) {
                    find_anchors(value, anchors, depth + 1)?;
                } else if let Value::Object(named) = value
                    && NAMED_SUBSCHEMAS.contains(&keyword.as_str())
                {
                    for value in named.values() {
                        find_anchors(value, anchors, depth + 1)?;
                    }
                }
            }
        }
        Value::Array(items) => {
            for item in items {
                find_anchors(item, anchors, depth + 1)?;
            }
        }
        _ => {}
    }
    Ok(())
}
