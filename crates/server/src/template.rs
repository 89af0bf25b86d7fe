//! URI templates (RFC 6570): matches a URI against a template, and extracts the variables.
//!
//! Supported expressions are `{name}`, which matches one segment; `{+name}`, which may contain
//! slashes; and `{?one,two}`, a query at the end. Any other expression is a build error.
//!
//! Handlers often use values as paths. So a URI does not match if a value, also one in the query,
//! has a `.` or `..` segment or a zero byte, or is an absolute path.

use std::collections::BTreeMap;

use mrtr_schema::uri::{is_traversal, percent_decode, percent_decode_lossy, validate_characters};

/// A template that URIs are matched against.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Template {
    parts: Vec<Part>,
    query: Vec<String>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Part {
    Literal(String),
    /// A variable; true if it may contain reserved characters.
    Variable(String, bool),
}

impl Template {
    /// Parses a template.
    ///
    /// # Errors
    ///
    /// The reason why the template is invalid or not supported.
    pub(crate) fn parse(template: &str) -> Result<Self, String> {
        let (mut parts, mut query, mut rest) = (Vec::new(), Vec::new(), template);
        while !rest.is_empty() {
            if !query.is_empty() {
                return Err("the query must be at the end".to_owned());
            }
            let Some((literal, after)) = rest.split_once('{') else {
                validate_characters(rest)?;
                parts.push(Part::Literal(rest.to_owned()));
                break;
            };
            validate_characters(literal)?;
            if !literal.is_empty() {
                parts.push(Part::Literal(literal.to_owned()));
            }
            let (expression, after) = after.split_once('}').ok_or("a brace is not closed")?;
            rest = after;
            if let Some(names) = expression.strip_prefix('?') {
                query = names.split(',').map(name).collect::<Result<_, _>>()?;
                continue;
            }
            let (text, reserved) = match expression.strip_prefix('+') {
                Some(text) => (text, true),
                None => (expression, false),
            };
            if matches!(parts.last(), Some(Part::Variable(..))) {
                return Err(format!(
                    "no text separates {{{expression}}} from the variable before it"
                ));
            }
            parts.push(Part::Variable(name(text)?, reserved));
        }
        let has_mark = |part: &Part| matches!(part, Part::Literal(text) if text.contains('?'));
        if !query.is_empty() && parts.iter().any(has_mark) {
            return Err("it has a query before `{?`: name all parameters there".to_owned());
        }
        Ok(Self { parts, query })
    }

    /// Creates a template without variables.
    pub(crate) fn of_text(text: String) -> Self {
        Self { parts: vec![Part::Literal(text)], query: Vec::new() }
    }

    /// Returns what is before and after the question mark in the text, the latter by parameter.
    /// `None` if there is none.
    pub(crate) fn split_query(&self) -> Option<(Self, Vec<Self>)> {
        let is_end = |part: &Part| matches!(part, Part::Literal(text) if text.contains('?'));
        let end = self.parts.iter().position(is_end)?;
        let (mut path, mut pairs) = (Self::default(), vec![Self::default()]);
        path.parts.extend(self.parts.get(..end)?.iter().cloned());
        for (n, part) in self.parts.get(end..)?.iter().enumerate() {
            let Part::Literal(text) = part else {
                pairs.last_mut()?.parts.push(part.clone());
                continue;
            };
            let mut query = text.as_str();
            if n == 0 {
                let (before, after) = text.split_once('?')?;
                path.push_text(before);
                query = after;
            }
            for (n, text) in query.split('&').enumerate() {
                if n > 0 {
                    pairs.push(Self::default());
                }
                pairs.last_mut()?.push_text(text);
            }
        }
        Some((path, pairs))
    }

    /// Adds text. A variable would end at an empty one.
    fn push_text(&mut self, text: &str) {
        if !text.is_empty() {
            self.parts.push(Part::Literal(text.to_owned()));
        }
    }

    /// Returns true if the template has a variable before its query.
    pub(crate) fn has_path_variables(&self) -> bool {
        self.parts.iter().any(|part| matches!(part, Part::Variable(..)))
    }

    /// Returns the template with other text between its variables.
    pub(crate) fn map_text(&self, change: impl Fn(&str) -> String) -> Self {
        let parts = self.parts.iter().map(|part| match part {
            Part::Literal(text) => Part::Literal(change(text)),
            variable @ Part::Variable(..) => variable.clone(),
        });
        Self { parts: parts.collect(), query: self.query.clone() }
    }

    /// Returns the path of a URI that has the form of the template, with decoded text and other
    /// values, and its query with those of the parameters that the template names.
    ///
    /// `change` gets each value, and whether it may contain slashes.
    pub(crate) fn replace_values(
        &self,
        uri: &str,
        change: impl Fn(&str, bool) -> String,
    ) -> Option<(String, String)> {
        let (path, query) = self.path_and_query(uri);
        let mut values = self.split(path, false)?.into_iter();
        let path = self.parts.iter().map(|part| match part {
            Part::Literal(text) => percent_decode_lossy(text),
            Part::Variable(_, reserved) => {
                values.next().map(|(_, value)| change(value, *reserved)).unwrap_or_default()
            }
        });
        // A handler gets the last value of a parameter.
        let pairs = query.split('&').filter_map(|pair| self.named(pair));
        let pairs: BTreeMap<_, _> = pairs.map(|(key, value)| (key, change(value, false))).collect();
        let pairs: Vec<_> = pairs.iter().map(|(key, value)| format!("{key}={value}")).collect();
        let query = if pairs.is_empty() { String::new() } else { format!("?{}", pairs.join("&")) };
        Some((path.collect(), query))
    }

    /// Returns the name and the value of a parameter of the query, if the template names it.
    fn named<'q>(&self, pair: &'q str) -> Option<(&'q str, &'q str)> {
        pair.split_once('=').filter(|(key, _)| self.query.iter().any(|name| name == key))
    }

    /// Returns the names of the variables.
    pub(crate) fn names(&self) -> impl Iterator<Item = &str> {
        let path = self.parts.iter().filter_map(|part| match part {
            Part::Variable(name, _) => Some(name.as_str()),
            Part::Literal(_) => None,
        });
        path.chain(self.query.iter().map(String::as_str))
    }

    /// Returns the names and decoded values of the variables, if the URI matches. A variable ends
    /// at the first occurrence of the text that follows it in the template.
    pub(crate) fn matches(&self, uri: &str) -> Option<Vec<(String, String)>> {
        let (path, query) = self.path_and_query(uri);
        let values = self.split(path, false)?.into_iter();
        let values = values.map(|(name, value)| Some((name.to_owned(), decoded(value)?)));
        let mut values = values.collect::<Option<Vec<_>>>()?;
        for (key, value) in query.split('&').filter_map(|pair| self.named(pair)) {
            values.push((key.to_owned(), decoded(value)?));
        }
        Some(values)
    }

    /// Returns true if a URI has the form of the template, whatever the values are. With
    /// `any_delimiters`, every variable may contain reserved characters.
    pub(crate) fn covers(&self, uri: &str, any_delimiters: bool) -> bool {
        self.split(self.path_and_query(uri).0, any_delimiters).is_some()
    }

    /// Returns a URI without the query, if the template has one.
    pub(crate) fn path<'u>(&self, uri: &'u str) -> &'u str {
        self.path_and_query(uri).0
    }

    fn path_and_query<'u>(&self, uri: &'u str) -> (&'u str, &'u str) {
        if self.query.is_empty() { (uri, "") } else { uri.split_once('?').unwrap_or((uri, "")) }
    }

    /// Returns the names of the variables of the path, and their values as they are in it.
    fn split<'u>(&self, path: &'u str, any_delimiters: bool) -> Option<Vec<(&str, &'u str)>> {
        let (mut values, mut rest) = (Vec::new(), path);
        let mut parts = self.parts.iter().peekable();
        while let Some(part) = parts.next() {
            match part {
                Part::Literal(text) => rest = rest.strip_prefix(text.as_str())?,
                Part::Variable(name, reserved) => {
                    let end = match parts.peek() {
                        Some(Part::Literal(next)) => rest.find(next.as_str())?,
                        _ => rest.len(),
                    };
                    let (value, after) = rest.split_at_checked(end)?;
                    let may_delimit = *reserved || any_delimiters;
                    if value.is_empty() || (!may_delimit && value.contains(['/', '?', '#'])) {
                        return None;
                    }
                    values.push((name.as_str(), value));
                    rest = after;
                }
            }
        }
        rest.is_empty().then_some(values)
    }
}

/// Decodes the value of a variable. Returns `None` for a path that is absolute or can lead out of
/// its root.
fn decoded(value: &str) -> Option<String> {
    percent_decode(value).filter(|value| {
        // Parsers of URLs remove tabs and line breaks.
        let value = value.replace(['\t', '\r', '\n'], "");
        !is_traversal(&value) && !is_absolute(&value)
    })
}

/// Returns true if a path is absolute on any operating system: joined to another path, it would
/// replace it.
fn is_absolute(path: &str) -> bool {
    let after_drive = path.split_once(':').filter(|(drive, _)| drive.len() == 1);
    let path = after_drive.map_or(path, |(_, path)| path);
    path.starts_with(['/', '\\'])
}

/// Validates the name of a variable.
fn name(text: &str) -> Result<String, String> {
    let is_valid = |c: char| c.is_ascii_alphanumeric() || c == '_';
    if text.is_empty() || !text.chars().all(is_valid) {
        return Err(format!("unsupported expression {{{text}}}"));
    }
    Ok(text.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn values(template: &str, uri: &str) -> Option<String> {
        let matched = Template::parse(template).unwrap().matches(uri)?;
        Some(matched.iter().map(|(k, v)| format!("{k}={v}")).collect::<Vec<_>>().join(" "))
    }

    #[test]
    fn matches_returns_decoded_variables() {
        for (template, uri, expected) in [
            ("test://template/{id}/data", "test://template/123/data", Some("id=123")),
            ("test://template/{id}/data", "test://template/1/2/data", None),
            ("test://template/{id}/data", "test://template//data", None),
            ("test://template/{id}/data", "test://template/1/data/more", None),
            ("file:///{+path}", "file:///a/b/c.txt", Some("path=a/b/c.txt")),
            ("x://{a}/{b}", "x://z%C3%BCrich/1%2F2", Some("a=zürich b=1/2")),
            ("x://{a}/{b}", "x://one/%2Fetc", None),
            ("x://{a}", "x://C:%5Cetc", None),
            ("x://{a}", "x://a:b", Some("a=a:b")),
            ("file:///{+path}", "file:////etc", None),
            ("x://s{?q}", "x://s?q=a/../b", None),
            ("x://s{?q}", "x://s?q=%2Fetc", None),
            ("x://s{?q}", "x://s?q=a%00", None),
            ("x://{a}", "x://a%2F.%09.%2Fb", None),
            ("x://{a}", "x://%0A%2Fetc", None),
            ("x://{a}", "x://a%09b", Some("a=a\tb")),
            ("x://{a}", "x://%zz", None),
            ("x://{a}", "x://%+1", None),
            ("x://{a}", "x://%ff", None),
            ("x://{a}.{b}", "x://one.two.three", Some("a=one b=two.three")),
            ("x://s{?q,n}", "x://s?n=2&q=a%20b&other=1", Some("n=2 q=a b")),
            ("x://s{?q}", "x://s", Some("")),
            ("x://all", "x://all", Some("")),
            ("x://all", "x://al", None),
        ] {
            assert_eq!(values(template, uri).as_deref(), expected, "{template} {uri}");
        }
    }

    #[test]
    fn parse_rejects_unsupported_templates() {
        for template in [
            "x://{a",
            "x://a}b",
            "x://a b/{c}",
            "x://{a}/é",
            "x://{}",
            "x://{a}{b}",
            "x://{#a}",
            "x://{a*}",
            "x://{?a}/b",
            "x://{a:3}",
            "x://a?b={b}{?c}",
        ] {
            assert!(Template::parse(template).is_err(), "{template}");
        }
    }
}
