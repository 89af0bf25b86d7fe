//! Parameters, and how their values are written (OpenAPI 3.1, section 4.8.12).

use std::collections::BTreeMap;
use std::fmt::{self, Write as _};

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use serde_json::Value;
use serde_json::value::RawValue;

use crate::media_type::is_json;

/// All but the unreserved characters (RFC 3986, section 2.3).
const ENCODED: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');

pub(crate) fn encode(text: &str) -> String {
    utf8_percent_encode(text, ENCODED).to_string()
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Location {
    Path,
    Query,
    Header,
}

impl Location {
    /// Returns the location with the name; `None` for cookies.
    pub(crate) fn new(name: &str) -> Option<Self> {
        match name {
            "path" => Some(Self::Path),
            "query" => Some(Self::Query),
            "header" => Some(Self::Header),
            _ => None,
        }
    }

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Path => "path",
            Self::Query => "query",
            Self::Header => "header",
        }
    }
}

/// The maximum length in bytes of a path, and of an array or object that is written as one value. A
/// name can be repeated for each value, so short arguments could make a text of any length.
pub(crate) const MAX_JOINED: usize = 64 << 10;

/// How arrays and objects are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Style {
    /// Values separated by this character.
    Separated(char),
    /// A parameter for each value, or for each property.
    Exploded,
    /// After a dot, separated by commas or, exploded, by dots.
    Label,
    /// After a semicolon and the name, separated by commas; or, exploded, `;name=value` for each.
    Matrix,
    /// `name[property]=value`, also for nested values.
    DeepObject,
    /// JSON text.
    Json,
}

#[derive(Debug)]
pub(crate) struct Parameter {
    /// The name of the argument.
    pub(crate) argument: String,
    /// The name in the request.
    pub(crate) name: String,
    pub(crate) location: Location,
    pub(crate) style: Style,
    /// Objects are written as `name=value`, not `name,value`.
    pub(crate) explode: bool,
    pub(crate) is_required: bool,
}

impl Parameter {
    /// Returns the style of a parameter, or of a field of a form, and whether it explodes.
    pub(crate) fn style(parameter: &Value, location: Location) -> Result<(Style, bool), String> {
        if let Some(content) = parameter.get("content").and_then(Value::as_object) {
            let is_json = content.keys().next().is_some_and(|kind| is_json(kind));
            return Ok((if is_json { Style::Json } else { Style::Separated(',') }, false));
        }
        let default = if location == Location::Query { "form" } else { "simple" };
        let style = parameter.get("style").and_then(Value::as_str).unwrap_or(default);
        let explode = parameter.get("explode").and_then(Value::as_bool).unwrap_or(style == "form");
        let style = match (style, location, explode) {
            ("simple", Location::Path | Location::Header, _) | ("form", Location::Query, false) => {
                Style::Separated(',')
            }
            ("label", Location::Path, _) => Style::Label,
            ("matrix", Location::Path, _) => Style::Matrix,
            ("form", Location::Query, true) => Style::Exploded,
            ("spaceDelimited", Location::Query, false) => Style::Separated(' '),
            ("pipeDelimited", Location::Query, false) => Style::Separated('|'),
            ("deepObject", Location::Query, _) => Style::DeepObject,
            _ => return Err(format!("style {style:?} with explode={explode} is not supported")),
        };
        Ok((style, explode))
    }

    /// Writes the value as one text, for a path or a header. `write` encodes single values.
    /// Returns `None` for a value that is not sent: `null`, or an array or an object without any
    /// other (RFC 6570, section 2.3).
    pub(crate) fn joined(
        &self,
        value: &RawValue,
        write: impl Fn(&str) -> String,
    ) -> Result<Option<String>, String> {
        let (prefix, separator) = match (self.style, self.explode) {
            (Style::Json, _) => return Ok(Some(write(value.get()))),
            (Style::Label, true) => (".", '.'),
            (Style::Label, false) => (".", ','),
            (Style::Matrix, true) => (";", ';'),
            (Style::Matrix, false) => (";", ','),
            (Style::Separated(separator), _) => ("", separator),
            (Style::Exploded | Style::DeepObject, _) => ("", ','),
        };
        // These are written without percent-encoding.
        let separator_text = if [',', '.', ';'].contains(&separator) {
            separator.to_string()
        } else {
            encode(&separator.to_string())
        };
        let parts = parts(value)?;
        if self.location == Location::Path && parts.iter().all(|(_, value)| value.is_empty()) {
            // An empty segment would name another resource, such as the whole collection.
            return Err("is empty, or has only empty values".to_owned());
        }
        if parts.is_empty() {
            return Ok(None);
        }
        let mut text = prefix.to_owned();
        if self.style == Style::Matrix && !self.explode {
            let _ = write!(text, "{}=", write(&self.name));
        }
        for (at, (name, value)) in parts.into_iter().enumerate() {
            if at > 0 {
                text += &separator_text;
            }
            let own = || (self.style == Style::Matrix && self.explode).then(|| self.name.clone());
            if let Some(name) = name.or_else(own) {
                let between = if self.explode { "=" } else { &separator_text };
                let _ = write!(text, "{}{between}", write(&name));
            }
            text += &write(&value);
            if text.len() > MAX_JOINED {
                return Err(format!("takes more than {MAX_JOINED} bytes in the request"));
            }
        }
        Ok(Some(text))
    }

    /// Appends the value as pairs of a query, encoded: none, for a value that is not sent.
    pub(crate) fn write(&self, value: &RawValue, pairs: &mut Pairs) -> Result<(), String> {
        let own = encode(&self.name);
        match self.style {
            Style::Separated(_) | Style::Label | Style::Matrix | Style::Json => {
                let joined = self.joined(value, encode)?;
                joined.map_or(Ok(()), |text| pairs.push(own, text))
            }
            Style::Exploded => parts(value)?.into_iter().try_for_each(|(name, value)| {
                let name = name.map_or_else(|| own.clone(), |name| encode(&name));
                pairs.push(name, encode(&value))
            }),
            Style::DeepObject if !value.get().starts_with(['{', '[', 'n']) => {
                Err("must be an object or an array".to_owned())
            }
            Style::DeepObject => pairs.push_deep(own, value),
        }
    }
}

/// The most bytes of a query or a form. A name is repeated for each value below it, so that short
/// arguments could make a text of any length.
const MAX_PAIRS: usize = 1 << 20;

/// The pairs of a query or a form, encoded.
#[derive(Default)]
pub(crate) struct Pairs {
    all: Vec<(String, String)>,
    length: usize,
}

impl Pairs {
    pub(crate) fn all(&self) -> &[(String, String)] {
        &self.all
    }

    fn push(&mut self, name: String, value: String) -> Result<(), String> {
        self.count(name.len() + value.len() + 2)?;
        self.all.push((name, value));
        Ok(())
    }

    fn count(&mut self, bytes: usize) -> Result<(), String> {
        self.length += bytes;
        if self.length > MAX_PAIRS {
            return Err(format!("makes a request of more than {MAX_PAIRS} bytes"));
        }
        Ok(())
    }

    /// Counts the name of an array or an object without elements, which has taken work, too.
    fn count_if_empty(&mut self, name: &str, elements: usize) -> Result<(), String> {
        if elements == 0 { self.count(name.len()) } else { Ok(()) }
    }

    /// Appends the values in an object or an array, as `name[member][0]=value`. OpenAPI leaves
    /// nested ones undefined; this is how they are commonly read.
    fn push_deep(&mut self, name: String, value: &RawValue) -> Result<(), String> {
        let inner = |key: &str| format!("{name}{}{}{}", encode("["), encode(key), encode("]"));
        match value.get().as_bytes().first() {
            Some(b'[') => {
                let all: Vec<&RawValue> = from_raw(value)?;
                self.count_if_empty(&name, all.len())?;
                let mut all = all.into_iter().enumerate();
                all.try_for_each(|(at, value)| self.push_deep(inner(&at.to_string()), value))
            }
            Some(b'{') => {
                let all: BTreeMap<String, &RawValue> = from_raw(value)?;
                self.count_if_empty(&name, all.len())?;
                all.iter().try_for_each(|(key, value)| self.push_deep(inner(key), value))
            }
            _ => match scalar(value)? {
                Some(text) => self.push(name, encode(&text)),
                None => self.count(name.len()),
            },
        }
    }
}

/// Writes `name=value&…`.
impl fmt::Display for Pairs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, (name, value)) in self.all.iter().enumerate() {
            let separator = if at == 0 { "" } else { "&" };
            write!(f, "{separator}{name}={value}")?;
        }
        Ok(())
    }
}

/// Returns the single values of an argument: itself, its elements, or its members with their names.
/// Each `null` is left out.
fn parts(value: &RawValue) -> Result<Vec<(Option<String>, String)>, String> {
    match value.get().as_bytes().first() {
        Some(b'[') => {
            let all: Vec<&RawValue> = from_raw(value)?;
            all.into_iter().filter_map(|value| part(None, value)).collect()
        }
        Some(b'{') => {
            let all: BTreeMap<String, &RawValue> = from_raw(value)?;
            all.into_iter().filter_map(|(name, value)| part(Some(name), value)).collect()
        }
        _ => part(None, value).into_iter().collect(),
    }
}

fn part(
    name: Option<String>,
    value: &RawValue,
) -> Option<Result<(Option<String>, String), String>> {
    let text = scalar(value).transpose()?;
    Some(text.map(|text| (name, text)))
}

/// Returns a string, number or boolean as it is written in a URL, and `None` for `null`.
pub(crate) fn scalar(value: &RawValue) -> Result<Option<String>, String> {
    match value.get().as_bytes().first() {
        Some(b'"') => from_raw(value).map(Some),
        Some(b'[' | b'{') => Err("must not contain nested arrays or objects".to_owned()),
        Some(b'n') => Ok(None),
        _ => Ok(Some(value.get().to_owned())),
    }
}

fn from_raw<'a, T: serde::Deserialize<'a>>(value: &'a RawValue) -> Result<T, String> {
    serde_json::from_str(value.get()).map_err(|error| format!("is invalid: {error}"))
}
