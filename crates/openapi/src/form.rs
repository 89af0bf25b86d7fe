//! Bodies that are HTML forms: `application/x-www-form-urlencoded`.

use std::collections::{BTreeMap, HashMap};
use std::fmt::Write as _;

use percent_encoding::percent_decode_str;
use serde_json::Value;
use serde_json::value::RawValue;

use crate::media_type::is_json;
use crate::parameter::{Location, Parameter, Style, encode};

/// How the fields of a form are written, and whether they explode, for those that the document sets
/// it for (OpenAPI 3.1, section 4.8.15).
#[derive(Debug)]
pub(crate) struct FormEncoding(HashMap<String, (Style, bool)>);

impl FormEncoding {
    /// Reads the encoding of a media type object.
    pub(crate) fn new(media: &Value) -> Result<Self, String> {
        let encodings = media.get("encoding").and_then(Value::as_object).into_iter().flatten();
        let styles = encodings.map(|(name, encoding)| {
            let has_style = encoding.get("style").is_some() || encoding.get("explode").is_some();
            let style = match encoding.get("contentType").and_then(Value::as_str) {
                Some(kind) if !has_style && is_json(kind) => (Style::Json, false),
                _ => Parameter::style(encoding, Location::Query)
                    .map_err(|why| format!("field {name:?} of the body: {why}"))?,
            };
            Ok((name.clone(), style))
        });
        styles.collect::<Result<_, String>>().map(Self)
    }

    /// Writes an object as a form. If the document does not say how, an array is written as a field
    /// for each element, and an object as JSON.
    pub(crate) fn write(&self, object: &RawValue) -> Result<String, String> {
        let fields: BTreeMap<String, &RawValue> = serde_json::from_str(object.get())
            .map_err(|_| "must be an object: its members are the fields of a form".to_owned())?;
        let mut pairs = Vec::new();
        for (name, value) in &fields {
            let of_object = (Style::Json, false);
            let default =
                if value.get().starts_with('{') { of_object } else { (Style::Exploded, true) };
            let (style, explode) = self.0.get(name).copied().unwrap_or(default);
            let (argument, location) = (String::new(), Location::Query);
            let field = Parameter { argument, name: name.clone(), location, style, explode };
            let own = encode(name);
            for (key, value) in field.pairs(value).map_err(|why| format!("{why} in {name:?}"))? {
                // Members of an object are fields, too.
                if key != own && fields.keys().any(|other| encode(other) == key) {
                    return Err(format!("{name:?} must not have a member that is another field"));
                }
                pairs.push(format!("{key}={value}"));
            }
        }
        Ok(pairs.join("&"))
    }
}

/// Returns a form as lines `name = value`, for the user. Names stay encoded except for brackets, so
/// that none looks like a value; `show` makes a value fit to be shown.
pub(crate) fn lines(form: &str, show: impl Fn(&str) -> String) -> String {
    form.split('&').fold(String::new(), |mut lines, pair| {
        let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
        let name = name.replace("%5B", "[").replace("%5D", "]");
        let value = show(&percent_decode_str(value).decode_utf8_lossy());
        let line_break = if lines.is_empty() { "" } else { "\n" };
        let _ = write!(lines, "{line_break}{name} = {value}");
        lines
    })
}
