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
        let error = |why| Err(format!("`$ref` {} {why}", peer_text::quote(target)));
        let (document, fragment) = target.split_once('#').unwrap_or((target, ""));
        if !self.is_own(document) {
            return error("is external; nothing is fetched");
        }
        let found = uri::percent_decode(fragment).and_then(|place| {
            let is_pointer = place.is_empty() || place.starts_with('/');
            if is_pointer { self.root.pointer(&place) } else { self.anchors.get(&*place).copied() }
        });
        found.map_or_else(|| error("does not exist"), Ok)
    }

    /// Returns true if a URI reference leads to the schema itself.
    fn is_own(&self, document: &str) -> bool {
        let (own_path, own_name) = match self.own.split_once("://") {
            Some((_, rest)) => {
                (rest.find('/').and_then(|start| rest.get(start..)), rest.rsplit('/').next())
            }
            None => (None, None),
        };
        document.is_empty()
            || document == self.own
            || own_path == Some(document)
            || own_path.is_some() && own_name == Some(document)
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
