//! Substrings of one shared string.

use std::borrow::Borrow;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::ops::{Deref, Range};
use std::sync::Arc;

/// A substring of a reference-counted string.
///
/// All keys and values of an unpacked journal share one allocation.
#[derive(Clone)]
pub(crate) struct SharedStr {
    text: Arc<str>,
    range: Range<usize>,
}

impl SharedStr {
    /// Creates the substring of `text` at `range`, in bytes.
    pub(super) fn slice(text: &Arc<str>, range: Range<usize>) -> Self {
        Self { text: Arc::clone(text), range }
    }

    /// Returns the bytes. Faster than those of the `&str`, which is checked for whole characters.
    pub(super) fn as_bytes(&self) -> &[u8] {
        self.text.as_bytes().get(self.range.clone()).unwrap_or_default()
    }

    /// Returns the length in bytes.
    pub(super) fn len(&self) -> usize {
        self.range.len()
    }
}

impl Deref for SharedStr {
    type Target = str;

    fn deref(&self) -> &str {
        self.text.get(self.range.clone()).unwrap_or_default()
    }
}

impl From<&str> for SharedStr {
    fn from(text: &str) -> Self {
        Self { text: text.into(), range: 0..text.len() }
    }
}

impl From<&Arc<str>> for SharedStr {
    fn from(text: &Arc<str>) -> Self {
        Self::slice(text, 0..text.len())
    }
}

impl From<String> for SharedStr {
    fn from(text: String) -> Self {
        Self { range: 0..text.len(), text: text.into() }
    }
}

impl PartialEq for SharedStr {
    fn eq(&self, other: &Self) -> bool {
        self.as_bytes() == other.as_bytes()
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
