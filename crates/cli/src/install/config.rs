//! Changes of one entry in the text of a configuration. All other bytes stay as they are.

use std::fmt;
use std::ops::Range;

use serde::Deserializer as _;
use serde::de::{MapAccess, Visitor};
use serde_json::Value;
use serde_json::value::RawValue;

/// A configuration with another entry.
pub(super) struct Change {
    pub(super) text: String,
    /// The entry that is replaced.
    pub(super) old: Option<Value>,
}

impl Change {
    /// Makes `entry` the member `name` of the object `section`, which is created if it is missing.
    /// Returns the reason if this is not possible.
    pub(super) fn new(
        text: &str,
        section: &str,
        name: &str,
        entry: &Value,
    ) -> Result<Self, String> {
        let content = text.strip_prefix(BYTE_ORDER_MARK).unwrap_or(text);
        let text = if content.trim_matches(WHITESPACE).is_empty() { "{}\n" } else { text };
        let content = text.strip_prefix(BYTE_ORDER_MARK).unwrap_or(text);
        let start = text.len() - content.trim_start_matches(WHITESPACE).len();
        let whole = start..text.trim_end_matches(WHITESPACE).len();
        let top = Members::read(text, whole, "it")?;
        let indent = indent(text);
        let (text, old) = match top.find(section)? {
            None => {
                let value =
                    format!("{{\n{0}{0}{1}\n{0}}}", indent, member(name, entry, &indent, 2));
                let quoted = Value::from(section).to_string();
                (top.insert(text, &format!("{quoted}: {value}"), &indent, 1), None)
            }
            Some(span) => {
                let servers = Members::read(text, span, &format!("{section:?}"))?;
                match servers.find(name)? {
                    Some(span) => {
                        let old = text.get(span.clone()).unwrap_or_default();
                        let old = serde_json::from_str(old).unwrap_or_default();
                        (replaced(text, span, &pretty(entry, &indent, 2)), Some(old))
                    }
                    None => {
                        (servers.insert(text, &member(name, entry, &indent, 2), &indent, 2), None)
                    }
                }
            }
        };
        Ok(Self { text, old })
    }
}

/// Returns the indentation of the first indented line; otherwise, two spaces.
fn indent(text: &str) -> String {
    let is_space = |c: char| c == ' ' || c == '\t';
    let mut indents = text.lines().filter_map(|line| {
        let content = line.trim_start_matches(is_space);
        let length = line.len() - content.len();
        (length > 0 && !content.is_empty()).then(|| line.get(..length).unwrap_or_default())
    });
    indents.next().unwrap_or("  ").to_owned()
}

fn member(name: &str, entry: &Value, indent: &str, depth: usize) -> String {
    format!("{}: {}", Value::from(name), pretty(entry, indent, depth))
}

/// Returns the value on several lines, all but the first of which are indented to the depth.
fn pretty(value: &Value, indent: &str, depth: usize) -> String {
    // Two spaces per level, which are replaced: strings have no line breaks in JSON.
    let lines = format!("{value:#}");
    let lines = lines.lines().enumerate().map(|(at, line)| {
        let content = line.trim_start();
        let levels = (line.len() - content.len()) / 2;
        if at == 0 { line.to_owned() } else { indent.repeat(depth + levels) + content }
    });
    lines.collect::<Vec<_>>().join("\n")
}

/// Replaces a part of the text, with its kind of line breaks.
fn replaced(text: &str, span: Range<usize>, by: &str) -> String {
    let by = if text.contains("\r\n") { by.replace('\n', "\r\n") } else { by.to_owned() };
    let mut text = text.to_owned();
    text.replace_range(span, &by);
    text
}

/// What JSON has between values.
const WHITESPACE: [char; 4] = [' ', '\t', '\r', '\n'];

/// Some programs write it at the beginning of a file.
const BYTE_ORDER_MARK: char = '\u{feff}';

/// The members of an object in a text: their names, and where their values are.
struct Members {
    /// The object itself.
    span: Range<usize>,
    members: Vec<(String, Range<usize>)>,
}

impl Members {
    /// Reads the object in a part of the text, which is called `name` in errors.
    fn read(text: &str, span: Range<usize>, name: &str) -> Result<Self, String> {
        let object = text.get(span.clone()).unwrap_or_default();
        let mut json = serde_json::Deserializer::from_str(object);
        let members = json.deserialize_map(Pairs).and_then(|pairs| json.end().map(|()| pairs));
        let members = members.map_err(|error| {
            let before = text.get(..span.start).unwrap_or_default().matches('\n').count();
            let line = before + error.line().max(1);
            // The error has its place in the part.
            let error = error.to_string();
            let why = error.split(" at line ").next().unwrap_or_default();
            format!("cannot be read as JSON without comments: {name} must be an object (line {line}: {why})")
        })?;
        // The values are parts of the text.
        let at = |value: &RawValue| {
            let offset = value.get().as_ptr() as usize - text.as_ptr() as usize;
            offset..offset + value.get().len()
        };
        let members = members.into_iter().map(|(name, value)| (name, at(value))).collect();
        Ok(Self { span, members })
    }

    /// Returns where the value of a member is.
    fn find(&self, name: &str) -> Result<Option<Range<usize>>, String> {
        let mut found = self.members.iter().filter(|(other, _)| other == name);
        match (found.next(), found.next()) {
            (_, Some(_)) => Err(format!("has {name:?} twice in one object")),
            (member, None) => Ok(member.map(|(_, span)| span.clone())),
        }
    }

    /// Adds a member at the end.
    fn insert(&self, text: &str, member: &str, indent: &str, depth: usize) -> String {
        let inner = indent.repeat(depth);
        match self.members.last() {
            Some((_, last)) => replaced(text, last.end..last.end, &format!(",\n{inner}{member}")),
            None => {
                let outer = indent.repeat(depth - 1);
                replaced(text, self.span.clone(), &format!("{{\n{inner}{member}\n{outer}}}"))
            }
        }
    }
}

struct Pairs;

impl<'de> Visitor<'de> for Pairs {
    type Value = Vec<(String, &'de RawValue)>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let mut pairs = Vec::new();
        while let Some(pair) = map.next_entry()? {
            pairs.push(pair);
        }
        Ok(pairs)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn added(text: &str) -> Result<String, String> {
        let entry = json!({ "command": "a", "args": ["b"] });
        Change::new(text, "mcpServers", "new", &entry).map(|change| change.text)
    }

    #[test]
    fn other_bytes_stay() {
        for (before, after) in [
            (
                "",
                "{\n  \"mcpServers\": {\n    \"new\": {\n      \"command\": \"a\",\n      \"args\": [\n        \"b\"\n      ]\n    }\n  }\n}\n",
            ),
            (
                "{\n\t\"x\":1e5 ,\n\t\"mcpServers\": { \"old\":{ } }\n}",
                "{\n\t\"x\":1e5 ,\n\t\"mcpServers\": { \"old\":{ },\n\t\t\"new\": {\n\t\t\t\"command\": \"a\",\n\t\t\t\"args\": [\n\t\t\t\t\"b\"\n\t\t\t]\n\t\t} }\n}",
            ),
            (
                "{\"mcpServers\":{\"new\":{\"é\":[]}},\"y\":0.10}\n",
                "{\"mcpServers\":{\"new\":{\n      \"command\": \"a\",\n      \"args\": [\n        \"b\"\n      ]\n    }},\"y\":0.10}\n",
            ),
        ] {
            assert_eq!(added(before).as_deref(), Ok(after), "{before}");
        }
    }

    #[test]
    fn byte_order_mark_and_line_breaks_stay() {
        let after = added("\u{feff}{\r\n \"mcpServers\": {}\r\n}\r\n").unwrap_or_default();
        assert!(
            after.starts_with("\u{feff}{\r\n \"mcpServers\": {\r\n  \"new\": {\r\n   \"command\"")
        );
        assert_eq!(after.matches('\n').count(), after.matches("\r\n").count(), "{after:?}");
    }

    #[test]
    fn every_object_gets_the_entry_and_keeps_the_rest() {
        for before in [
            "{}",
            " \n{ }\n\n",
            r#"{"a":{"mcpServers":{}},"mcpServers":{}}"#,
            "{\"mcpServers\":{\"a\":null,\"b\":[{\"c\":\"}\\\"\"}]}}",
            "{\"\\u006dcpServers\":{}}",
        ] {
            let text = added(before).unwrap_or_default();
            let mut after: Value = serde_json::from_str(&text).unwrap_or_default();
            let servers = after["mcpServers"].as_object_mut();
            let entry = servers.and_then(|servers| servers.remove("new"));
            assert_eq!(entry, Some(json!({ "command": "a", "args": ["b"] })), "{text}");
            let mut expected: Value = serde_json::from_str(before).unwrap_or_default();
            if !expected["mcpServers"].is_object() {
                expected["mcpServers"] = json!({});
            }
            assert_eq!(after, expected, "{text}");
        }
    }

    #[test]
    fn other_texts_are_refused() {
        for (text, why) in [
            ("[]", "line 1: invalid type: sequence, expected an object)"),
            ("\u{a0}{}", "line 1"),
            ("{\n  // servers\n}", "line 2"),
            ("{\n\"mcpServers\":\n[]}", "\"mcpServers\" must be an object (line 3"),
            ("\n\n[]", "line 3"),
            ("{\n\n\"mcpServers\": {\n\"a\": 1,}}", "line 4"),
            ("{} {}", "trailing"),
            ("{\"mcpServers\":{},\"mcpServers\":{}}", "twice"),
            ("{\"mcpServers\":{\"new\":1,\"new\":2}}", "twice"),
        ] {
            let refused = added(text).err().unwrap_or_default();
            assert!(refused.contains(why), "{text}: {refused}");
        }
    }
}
