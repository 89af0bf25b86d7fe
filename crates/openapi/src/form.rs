//! Bodies of the type `application/x-www-form-urlencoded`.

use std::collections::{HashMap, HashSet};

use mrtr_schema::json::{read_pairs, write_pairs};
use serde_json::Value;
use serde_json::value::RawValue;

use crate::media_type::is_json;
use crate::parameter::{Location, Pairs, Parameter, Style};

/// The style of each field for which the document sets one, and whether it explodes (OpenAPI 3.1,
/// section 4.8.15).
#[derive(Debug)]
pub(crate) struct FormEncoding(HashMap<String, (Style, bool)>);

impl FormEncoding {
    /// Reads the encoding of a media type object.
    pub(crate) fn new(media: &Value) -> Result<Self, String> {
        let mut styles = HashMap::new();
        let encodings = media.get("encoding").and_then(Value::as_object).into_iter().flatten();
        for (name, encoding) in encodings {
            let kinds = encoding.get("contentType").and_then(Value::as_str).unwrap_or_default();
            if encoding.get("style").is_some() || encoding.get("explode").is_some() {
                let style = Parameter::style(encoding, Location::Query)
                    .map_err(|why| format!("the field {name:?} of the body: {why}"))?;
                styles.insert(name.clone(), style);
            } else if kinds.split(',').any(is_json) {
                styles.insert(name.clone(), (Style::Json, false));
            }
        }
        Ok(Self(styles))
    }

    /// Returns true if the document says that a field is JSON.
    pub(crate) fn is_json(&self, name: &str) -> bool {
        matches!(self.0.get(name), Some((Style::Json, _)))
    }

    /// Writes the fields. If the document does not say how, an array is written as a field for each
    /// element, and an object as JSON.
    pub(crate) fn write(&self, body: &RawValue) -> Result<String, String> {
        let mut pairs = Pairs::default();
        for (name, value) in fields(body)? {
            let wrong = |why: &str| format!("is invalid: its field {name:?} {why}");
            let is_object = value.get().starts_with('{');
            let default = if is_object { (Style::Json, false) } else { (Style::Exploded, true) };
            let (style, explode) = self.0.get(&name).copied().unwrap_or(default);
            if is_object && style == Style::Exploded {
                // Its members would be fields, too.
                return Err(wrong("must not be an object"));
            }
            let (argument, location) = (String::new(), Location::Query);
            let (name, is_required) = (name.clone(), false);
            let field = Parameter { argument, name, location, style, explode, is_required };
            field.write(value, &mut pairs).map_err(|why| wrong(&why))?;
        }
        Ok(pairs.to_string())
    }
}

/// Returns the fields that are sent as JSON, for the user. Those that are `null` are not sent,
/// except for the ones that `sends_null`.
pub(crate) fn to_json(
    body: &RawValue,
    sends_null: impl Fn(&str) -> bool,
) -> Result<String, String> {
    let mut fields = fields(body)?;
    fields.retain(|(name, value)| value.get() != "null" || sends_null(name));
    let mut json = Vec::new();
    write_pairs(&mut serde_json::Serializer::new(&mut json), &fields)
        .map_err(|error| error.to_string())?;
    String::from_utf8(json).map_err(|error| error.to_string())
}

/// Returns the fields of a form in their order, which some APIs depend on.
pub(crate) fn fields(body: &RawValue) -> Result<Vec<(String, &RawValue)>, String> {
    let expected = "an object, whose members are the fields of a form";
    let fields: Vec<(String, &RawValue)> =
        read_pairs(&mut serde_json::Deserializer::from_str(body.get()), expected)
            .map_err(|_| format!("must be {expected}"))?;
    let mut names = HashSet::new();
    match fields.iter().find(|(name, _)| !names.insert(name)) {
        Some((name, _)) => Err(format!("is invalid: its field {name:?} occurs more than once")),
        None => Ok(fields),
    }
}
