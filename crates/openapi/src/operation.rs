//! Operations of an API.

use std::fmt;

use http::Method;

/// An operation of the document: a method on a path.
#[derive(Debug, Clone)]
pub struct Operation {
    pub(crate) method: Method,
    pub(crate) path: String,
    pub(crate) id: Option<String>,
    pub(crate) tags: Vec<String>,
    pub(crate) is_deprecated: bool,
}

impl Operation {
    /// Returns the HTTP method.
    pub fn method(&self) -> &Method {
        &self.method
    }

    /// Returns the path as the document has it, such as `/users/{id}`.
    pub fn path(&self) -> &str {
        &self.path
    }

    /// Returns the `operationId`, or `None` if the operation has none.
    pub fn operation_id(&self) -> Option<&str> {
        self.id.as_deref()
    }

    /// Returns the tags.
    pub fn tags(&self) -> impl Iterator<Item = &str> {
        self.tags.iter().map(String::as_str)
    }

    /// Returns true if the document marks the operation as deprecated.
    pub fn is_deprecated(&self) -> bool {
        self.is_deprecated
    }

    /// Returns true for safe methods: GET, HEAD, OPTIONS and TRACE (RFC 9110, section 9.2.1).
    pub fn is_safe(&self) -> bool {
        self.method.is_safe()
    }

    /// Returns the name of the tool: the `operationId`, or the method in lower case and the path if
    /// it has none, or one without ASCII letters and digits. Characters other than ASCII
    /// letters, digits, `_`, `-` and `.` are replaced with `_`. The name is cut to 128 characters.
    pub fn tool_name(&self) -> String {
        let is_usable = |id: &String| id.contains(|c: char| c.is_ascii_alphanumeric());
        let name = self.id.clone().filter(is_usable).unwrap_or_else(|| {
            format!("{}{}", self.method.as_str().to_ascii_lowercase(), self.path)
        });
        let name: String = allowed_name(&name).take(128).collect();
        if name.is_empty() { "_".to_owned() } else { name }
    }
}

/// Replaces the characters that names of tools and arguments must not have.
pub(crate) fn allowed_name(text: &str) -> impl Iterator<Item = char> {
    let is_allowed = |c: char| c.is_ascii_alphanumeric() || "_-.".contains(c);
    text.chars().map(move |c| if is_allowed(c) { c } else { '_' })
}

/// Writes the method and the path, such as `GET /users/{id}`.
impl fmt::Display for Operation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.method, self.path)
    }
}

/// An operation that did not become a tool.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct SkippedOperation {
    /// The operation.
    pub operation: Operation,
    /// Why it cannot become a tool, for the operator.
    pub reason: String,
}
