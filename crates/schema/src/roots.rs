//! `roots/list` as an input request (specification: client, "Roots"). Deprecated in this revision.

use serde::{Deserialize, Serialize};

use crate::setters::setters;
use crate::{InvalidValue, Object, uri};

/// The client's roots.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct ListRootsResult {
    /// The roots.
    pub roots: Vec<Root>,
}

impl ListRootsResult {
    /// Creates a result from the roots.
    pub fn new(roots: Vec<Root>) -> Self {
        Self { roots }
    }
}

/// A directory or file that the server may work on.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Root {
    /// A `file://` URI.
    pub uri: String,
    /// The display name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Metadata.
    #[serde(rename = "_meta", default, skip_serializing_if = "Option::is_none")]
    pub meta: Option<Object>,
}

setters!(Root { with_name(name: String), with_meta(meta: Object) });

impl Root {
    /// Creates a root from a `file://` URI.
    pub fn new(uri: impl Into<String>) -> Self {
        Self { uri: uri.into(), name: None, meta: None }
    }

    /// Checks that the URI names a file, without `.` and `..` segments.
    ///
    /// # Errors
    ///
    /// [`InvalidValue`], with the rule that the URI breaks.
    pub fn validate(&self) -> Result<(), InvalidValue> {
        validate_file_uri(&self.uri).map_err(|e| e.at("uri"))
    }
}

fn validate_file_uri(text: &str) -> Result<(), InvalidValue> {
    uri::validate(text)?;
    let path = text
        .strip_prefix("file://")
        .ok_or_else(|| InvalidValue::new("a root must begin with `file://`"))?;
    match uri::percent_decode(path) {
        Some(path) if !uri::is_traversal(&path) => Ok(()),
        _ => Err(InvalidValue::new("the path must be UTF-8 without `.` and `..` segments")),
    }
}
