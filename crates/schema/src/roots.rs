//! `roots/list` as an input request (specification: client, "Roots"). Deprecated in this revision.

use serde::{Deserialize, Serialize};

use crate::{Object, uri};

/// The client's roots.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct ListRootsResult {
    /// The roots.
    pub roots: Vec<Root>,
}

/// A directory or file that the server may work on.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Root {
    /// A `file://` URI.
    pub uri: String,
    /// A name for people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Metadata.
    #[serde(rename = "_meta", default, skip_serializing_if = "Option::is_none")]
    pub meta: Option<Object>,
}

impl Root {
    /// Checks that the URI is one of a file, and leads nowhere else on its way.
    ///
    /// # Errors
    ///
    /// What is wrong with it.
    pub fn check(&self) -> Result<(), String> {
        uri::check(&self.uri)?;
        let path = self.uri.strip_prefix("file://").ok_or("a root begins with `file://`")?;
        match uri::percent_decode(path) {
            Some(path) if !uri::is_traversal(&path) => Ok(()),
            _ => Err("a root's path is UTF-8, without `.` and `..`".to_owned()),
        }
    }
}
