//! Pieces of one long text.

use std::borrow::Borrow;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::ops::{Deref, Range};
use std::sync::Arc;

/// A piece of a text that others have pieces of: a journal is read at once, and not piece by piece.
#[derive(Clone)]
pub(crate) struct SharedStr {
    of: Arc<str>,
    at: Range<usize>,
}

impl SharedStr {
    /// `at` is where it begins and ends in `of`.
    pub(super) fn piece(of: &Arc<str>, at: Range<usize>) -> Self {
        Self { of: Arc::clone(of), at }
    }
}

impl Deref for SharedStr {
    type Target = str;

    fn deref(&self) -> &str {
        self.of.get(self.at.clone()).unwrap_or_default()
    }
}

impl From<&str> for SharedStr {
    fn from(text: &str) -> Self {
        Self { of: text.into(), at: 0..text.len() }
    }
}

impl From<&Arc<str>> for SharedStr {
    fn from(text: &Arc<str>) -> Self {
        Self::piece(text, 0..text.len())
    }
}

impl From<String> for SharedStr {
    fn from(text: String) -> Self {
        Self { at: 0..text.len(), of: text.into() }
    }
}

impl PartialEq for SharedStr {
    fn eq(&self, other: &Self) -> bool {
        **self == **other
    }
}

impl Eq for SharedStr {}

impl Hash for SharedStr {
    fn hash<H: Hasher>(&self, state: &mut H) {
        (**self).hash(state);
    }
}

impl Borrow<str> for SharedStr {
    fn borrow(&self) -> &str {
        self
    }
}

impl fmt::Debug for SharedStr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&**self, f)
    }
}
