//! URI templates (RFC 6570), read backwards: from a URI to the values of the variables.
//!
//! A value that leads elsewhere as a path (`..` and `.` between slashes, or a zero byte) matches nothing: what
//! handlers make of values are paths, often enough.
//!
//! Supported are `{name}`, which stands for one segment; `{+name}`, which may hold slashes; and at the
//! end `{?one,two}`, a query. Anything else is refused when the server is built.

use mrtr_schema::uri::{check_characters, is_traversal, percent_decode};

/// A template that URIs are matched against.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Template {
    parts: Vec<Part>,
    query: Vec<String>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Part {
    Literal(String),
    /// A variable; `true` if it may hold reserved characters.
    Variable(String, bool),
}

impl Template {
    pub(crate) fn parse(template: &str) -> Result<Self, String> {
        let (mut parts, mut query, mut rest) = (Vec::new(), Vec::new(), template);
        while !rest.is_empty() {
            if !query.is_empty() {
                return Err("a query has to be at the end".to_owned());
            }
            let Some((literal, after)) = rest.split_once('{') else {
                check_characters(rest)?;
                parts.push(Part::Literal(rest.to_owned()));
                break;
            };
            check_characters(literal)?;
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
                    "nothing stands between {{{expression}}} and the variable before it"
                ));
            }
            parts.push(Part::Variable(name(text)?, reserved));
        }
        Ok(Self { parts, query })
    }

    /// The names of the variables.
    pub(crate) fn names(&self) -> impl Iterator<Item = &str> {
        let path = self.parts.iter().filter_map(|part| match part {
            Part::Variable(name, _) => Some(name.as_str()),
            Part::Literal(_) => None,
        });
        path.chain(self.query.iter().map(String::as_str))
    }

    /// The variables' values, decoded, if the URI is one of this template's. A variable ends where the
    /// text after it stands for the first time.
    pub(crate) fn matches(&self, uri: &str) -> Option<Vec<(String, String)>> {
        let (path, query) = if self.query.is_empty() {
            (uri, "")
        } else {
            uri.split_once('?').unwrap_or((uri, ""))
        };
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
                    if value.is_empty() || (!reserved && value.contains(['/', '?', '#'])) {
                        return None;
                    }
                    let value = percent_decode(value).filter(|value| !is_traversal(value))?;
                    values.push((name.clone(), value));
                    rest = after;
                }
            }
        }
        if !rest.is_empty() {
            return None;
        }
        for (key, value) in query.split('&').filter_map(|pair| pair.split_once('=')) {
            if self.query.iter().any(|name| name == key) {
                values.push((key.to_owned(), percent_decode(value)?));
            }
        }
        Some(values)
    }
}

fn name(text: &str) -> Result<String, String> {
    let fits = |c: char| c.is_ascii_alphanumeric() || c == '_';
    if text.is_empty() || !text.chars().all(fits) {
        return Err(format!("{{{text}}} is no variable that is supported here"));
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
    fn uris_give_the_values_of_variables() {
        for (template, uri, expected) in [
            ("test://template/{id}/data", "test://template/123/data", Some("id=123")),
            ("test://template/{id}/data", "test://template/1/2/data", None),
            ("test://template/{id}/data", "test://template//data", None),
            ("test://template/{id}/data", "test://template/1/data/more", None),
            ("file:///{+path}", "file:///a/b/c.txt", Some("path=a/b/c.txt")),
            ("x://{a}/{b}", "x://z%C3%BCrich/%2F", Some("a=zürich b=/")),
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
    fn templates_that_cannot_be_read_backwards_are_refused() {
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
        ] {
            assert!(Template::parse(template).is_err(), "{template}");
        }
    }
}
