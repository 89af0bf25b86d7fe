//! Scopes of access tokens (RFC 6749, section 3.3).

use std::fmt;

use crate::quote::quote;

/// The longest list of scopes, in bytes.
const MAX_LENGTH: usize = 4 << 10;

/// A set of scopes, in the order in which they were added.
///
/// Its [`Display`](fmt::Display) form separates the scopes by spaces, as on the wire.
///
/// ```
/// use mrtr_auth::Scopes;
///
/// let asked = Scopes::parse("booking:read booking:pay")?;
/// let granted = Scopes::parse("booking:read")?;
/// assert_eq!(asked.without(&granted).to_string(), "booking:pay");
/// assert!(asked.contains_all(&granted));
/// # Ok::<_, mrtr_auth::InvalidScope>(())
/// ```
#[derive(Debug, Clone, Default)]
pub struct Scopes(Vec<String>);

/// A text that is not a scope or a list of scopes.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "invalid scope {}: scopes are printable ASCII without spaces, quotation marks and backslashes, at most 4 KiB in all",
    quote(.0)
)]
pub struct InvalidScope(String);

impl Scopes {
    /// Parses scopes that are separated by spaces.
    ///
    /// # Errors
    ///
    /// If a character is not allowed in scopes, or `text` is longer than 4 KiB.
    pub fn parse(text: &str) -> Result<Self, InvalidScope> {
        Self::new(text.split(' ').filter(|scope| !scope.is_empty()))
    }

    /// Creates a set of scopes.
    ///
    /// # Errors
    ///
    /// If a scope is empty or has a character that is not allowed, or all are longer than 4 KiB.
    pub fn new<S: Into<String>>(scopes: impl IntoIterator<Item = S>) -> Result<Self, InvalidScope> {
        let mut set = Self::default();
        let mut length = 0;
        for scope in scopes.into_iter().map(Into::into) {
            length += scope.len() + 1;
            if scope.is_empty() || length > MAX_LENGTH || !scope.bytes().all(is_scope_byte) {
                return Err(InvalidScope(scope));
            }
            set.insert(&scope);
        }
        Ok(set)
    }

    /// Returns true if there are none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns the scopes.
    pub fn iter(&self) -> impl Iterator<Item = &str> {
        self.0.iter().map(String::as_str)
    }

    /// Returns true if `scope` is in the set.
    pub fn contains(&self, scope: &str) -> bool {
        self.iter().any(|known| known == scope)
    }

    /// Returns true if all of `others` are in the set.
    pub fn contains_all(&self, others: &Self) -> bool {
        others.iter().all(|scope| self.contains(scope))
    }

    /// Returns the scopes of both sets.
    #[must_use]
    pub fn union(mut self, others: &Self) -> Self {
        others.iter().for_each(|scope| self.insert(scope));
        self
    }

    /// Returns the scopes that are not in `others`.
    #[must_use]
    pub fn without(&self, others: &Self) -> Self {
        Self(self.iter().filter(|scope| !others.contains(scope)).map(str::to_owned).collect())
    }

    fn insert(&mut self, scope: &str) {
        if !self.contains(scope) {
            self.0.push(scope.to_owned());
        }
    }
}

/// Equal sets have the same scopes in any order.
impl PartialEq for Scopes {
    fn eq(&self, other: &Self) -> bool {
        self.0.len() == other.0.len() && self.contains_all(other)
    }
}

impl Eq for Scopes {}

impl fmt::Display for Scopes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0.join(" "))
    }
}

fn is_scope_byte(byte: u8) -> bool {
    matches!(byte, b'!' | b'#'..=b'[' | b']'..=b'~')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scopes_are_a_set() {
        let scopes = Scopes::parse(" a b  a c").unwrap();
        assert_eq!(scopes.to_string(), "a b c");
        assert_eq!(scopes, Scopes::parse("c b a").unwrap());
        let more = scopes.union(&Scopes::parse("d a").unwrap());
        assert_eq!(more.to_string(), "a b c d");
    }

    #[test]
    fn other_characters_are_rejected() {
        for text in ["a\"", "a\\b", "é", "a\tb", "a\r\n"] {
            assert!(Scopes::parse(text).is_err(), "{text:?}");
        }
        assert!(Scopes::new([""]).is_err());
        assert!(Scopes::parse(&"a ".repeat(3000)).is_err());
    }
}
