//! Validation of the content of a form.

use std::cmp::Ordering;
use std::collections::HashSet;
use std::fmt;

use serde_json::{Number, Value};

use super::{ChoiceOption, Field, FieldKind, FormSchema, Format};
use crate::Object;
use crate::json::whole_float;

/// A field whose value breaks a rule of the form.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct FieldError {
    /// The name of the field.
    pub field: String,
    /// The broken rule, in words for the user: `must be at least 1`.
    pub message: String,
}

/// The content of a form breaks rules of the form.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub struct FormError {
    fields: Vec<FieldError>,
}

impl FormError {
    /// Returns the invalid fields, at least one, in the order of the form.
    pub fn fields(&self) -> &[FieldError] {
        &self.fields
    }
}

impl fmt::Display for FormError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (n, FieldError { field, message }) in self.fields.iter().enumerate() {
            let separator = if n == 0 { "" } else { "; " };
            write!(f, "{separator}{field}: {message}")?;
        }
        Ok(())
    }
}

impl FormSchema {
    /// Validates the content of a form. Returns it without members that the form does not ask for
    /// and without `null`, which counts as not filled in.
    ///
    /// # Errors
    ///
    /// [`FormError`], with all invalid fields.
    pub fn validate(&self, mut content: Object) -> Result<Object, FormError> {
        let mut errors = Vec::new();
        for field in &self.fields {
            match content.get_mut(&field.name).filter(|value| !value.is_null()) {
                None if field.required => errors.push(field.error("is missing")),
                None => {}
                Some(value) => match field.validate(value) {
                    Ok(()) => field.normalize(value),
                    Err(message) => errors.push(field.error(message)),
                },
            }
        }
        let names: HashSet<_> = self.fields.iter().map(|field| field.name.as_str()).collect();
        content.retain(|name, value| !value.is_null() && names.contains(name.as_str()));
        if errors.is_empty() { Ok(content) } else { Err(FormError { fields: errors }) }
    }
}

impl Field {
    fn error(&self, message: impl Into<String>) -> FieldError {
        FieldError { field: self.name.clone(), message: message.into() }
    }

    /// Replaces an integer that is written as `2.0` by `2`, so that it decodes as an integer.
    fn normalize(&self, value: &mut Value) {
        if let (FieldKind::Number { integer: true, .. }, Value::Number(number)) =
            (&self.kind, value)
            && let Some(whole) = whole_float(number)
        {
            *number = whole.into();
        }
    }

    fn validate(&self, value: &Value) -> Result<(), String> {
        match &self.kind {
            FieldKind::Text { min_length, max_length, format, .. } => {
                validate_text(*min_length, *max_length, *format, value)
            }
            FieldKind::Number { integer, minimum, maximum, .. } => {
                validate_number(*integer, minimum.as_ref(), maximum.as_ref(), value)
            }
            FieldKind::Boolean { .. } if value.is_boolean() => Ok(()),
            FieldKind::Boolean { .. } => Err("must be true or false".to_owned()),
            FieldKind::Choice { options, .. } => validate_option(options, value),
            FieldKind::Choices { options, min_items, max_items, .. } => {
                validate_options(options, *min_items, *max_items, value)
            }
        }
    }
}

fn validate_text(
    min_length: Option<u64>,
    max_length: Option<u64>,
    format: Option<Format>,
    value: &Value,
) -> Result<(), String> {
    let text = value.as_str().ok_or("must be text")?;
    let length = text.chars().count() as u64;
    if let Some(min) = min_length.filter(|min| length < *min) {
        return Err(format!("must have at least {min} characters"));
    }
    if let Some(max) = max_length.filter(|max| length > *max) {
        return Err(format!("must have at most {max} characters"));
    }
    format.map_or(Ok(()), |format| validate_format(format, text))
}

fn validate_number(
    integer: bool,
    minimum: Option<&Number>,
    maximum: Option<&Number>,
    value: &Value,
) -> Result<(), String> {
    let number = value.as_number().ok_or("must be a number")?;
    let is_whole = integer_value(number).is_some()
        || number.as_f64().is_some_and(|number| number.fract() == 0.0);
    if integer && !is_whole {
        return Err("must be a whole number".to_owned());
    }
    if let Some(min) = minimum.filter(|min| compare(number, min) == Some(Ordering::Less)) {
        return Err(format!("must be at least {min}"));
    }
    if let Some(max) = maximum.filter(|max| compare(number, max) == Some(Ordering::Greater)) {
        return Err(format!("must be at most {max}"));
    }
    Ok(())
}

fn validate_options(
    options: &[ChoiceOption],
    min_items: Option<u64>,
    max_items: Option<u64>,
    value: &Value,
) -> Result<(), String> {
    let chosen = value.as_array().ok_or("must be a list")?;
    if let Some(min) = min_items.filter(|min| (chosen.len() as u64) < *min) {
        return Err(format!("needs at least {min} choices"));
    }
    if let Some(max) = max_items.filter(|max| chosen.len() as u64 > *max) {
        return Err(format!("allows at most {max} choices"));
    }
    let values: HashSet<_> = options.iter().map(|option| option.value.as_str()).collect();
    let is_known = |choice: &Value| choice.as_str().is_some_and(|value| values.contains(value));
    chosen.iter().all(is_known).then_some(()).ok_or_else(|| unknown_option(options))
}

fn integer_value(number: &Number) -> Option<i128> {
    number.as_i64().map(i128::from).or_else(|| number.as_u64().map(i128::from))
}

/// Compares integers exactly: as doubles, neighbours beyond 2⁵³ would be equal.
fn compare(a: &Number, b: &Number) -> Option<Ordering> {
    match (integer_value(a), integer_value(b)) {
        (Some(a), Some(b)) => Some(a.cmp(&b)),
        _ => a.as_f64()?.partial_cmp(&b.as_f64()?),
    }
}

/// Maximum number of options that an error lists.
const MAX_NAMED_OPTIONS: usize = 20;

fn validate_option(options: &[ChoiceOption], value: &Value) -> Result<(), String> {
    let is_known = value.as_str().is_some_and(|v| options.iter().any(|o| o.value == v));
    is_known.then_some(()).ok_or_else(|| unknown_option(options))
}

fn unknown_option(options: &[ChoiceOption]) -> String {
    let names: Vec<_> = options.iter().take(MAX_NAMED_OPTIONS).map(|o| o.value.as_str()).collect();
    format!("must be one of: {}", names.join(", "))
}

/// Checks the form only, not whether an address exists.
fn validate_format(format: Format, text: &str) -> Result<(), String> {
    let (is_valid, expected) = match format {
        Format::Email => (is_email(text), "an e-mail address"),
        Format::Uri => (is_uri(text), "a URI"),
        Format::Date => (is_date(text), "a date such as 2026-07-28"),
        Format::DateTime => (is_date_time(text), "a date and time such as 2026-07-28T09:30:00Z"),
    };
    is_valid.then_some(()).ok_or_else(|| format!("must be {expected}"))
}

fn is_email(text: &str) -> bool {
    let is_clean = !text.chars().any(|c| c.is_whitespace() || c.is_control());
    is_clean
        && text.rsplit_once('@').is_some_and(|(local, domain)| {
            !local.is_empty()
                && !domain.is_empty()
                && !domain.starts_with('.')
                && !domain.ends_with('.')
        })
}

fn is_uri(text: &str) -> bool {
    let is_clean = text.chars().all(|c| c.is_ascii_graphic() && !"\"<>\\^`{|}".contains(c));
    is_clean
        && text.split_once(':').is_some_and(|(scheme, _)| {
            scheme.starts_with(|c: char| c.is_ascii_alphabetic())
                && scheme.chars().all(|c| c.is_ascii_alphanumeric() || "+-.".contains(c))
        })
}

fn is_date(text: &str) -> bool {
    let Some([year, month, day]) = digits(text, '-', [4, 2, 2]) else {
        return false;
    };
    let is_leap = year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
    let days = match month {
        1 | 3 | 5 | 7 | 8 | 10 | 12 => 31,
        4 | 6 | 9 | 11 => 30,
        2 => 28 + u32::from(is_leap),
        _ => return false,
    };
    (1..=days).contains(&day)
}

fn is_date_time(text: &str) -> bool {
    let Some((date, rest)) = text.split_once(['T', 't']) else {
        return false;
    };
    let Some(zone) = rest.find(['Z', 'z', '+', '-']) else {
        return false;
    };
    let (time, zone) = rest.split_at(zone);
    let (time, fraction) = time.split_once('.').unwrap_or((time, "0"));
    let is_time = digits(time, ':', [2, 2, 2]).is_some_and(|[h, m, s]| h < 24 && m < 60 && s <= 60);
    let is_fraction = !fraction.is_empty() && fraction.bytes().all(|b| b.is_ascii_digit());
    let is_zone = zone.eq_ignore_ascii_case("z")
        || zone
            .strip_prefix(['+', '-'])
            .and_then(|z| digits(z, ':', [2, 2]))
            .is_some_and(|[h, m]| h < 24 && m < 60);
    is_date(date) && is_time && is_fraction && is_zone
}

/// Parses numbers of exactly these widths, separated by `separator`.
fn digits<const N: usize>(text: &str, separator: char, widths: [usize; N]) -> Option<[u32; N]> {
    let mut out = [0; N];
    let mut parts = text.split(separator);
    for (slot, width) in out.iter_mut().zip(widths) {
        let part =
            parts.next().filter(|p| p.len() == width && p.bytes().all(|b| b.is_ascii_digit()))?;
        *slot = part.parse().ok()?;
    }
    parts.next().is_none().then_some(out)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn validate(property: &Value, answer: &Value) -> String {
        let schema =
            json!({ "type": "object", "properties": { "f": property }, "required": ["f"] });
        let form: FormSchema = serde_json::from_value(schema).unwrap();
        let Value::Object(content) = json!({ "f": answer }) else { panic!() };
        form.validate(content).map_or_else(|e| e.to_string(), |_| "fits".to_owned())
    }

    #[test]
    fn form_validation_names_the_broken_rule_of_each_field() {
        for (property, answer, expected) in [
            (json!({"type":"string"}), json!("x"), "fits"),
            (json!({"type":"string"}), json!(5), "f: must be text"),
            (json!({"type":"string"}), json!(null), "f: is missing"),
            (
                json!({"type":"string","minLength":2}),
                json!("é"),
                "f: must have at least 2 characters",
            ),
            (
                json!({"type":"string","maxLength":2}),
                json!("日本語"),
                "f: must have at most 2 characters",
            ),
            (json!({"type":"integer","minimum":1,"maximum":9}), json!(9), "fits"),
            (json!({"type":"integer"}), json!(2.0), "fits"),
            (json!({"type":"integer"}), json!(2.5), "f: must be a whole number"),
            (json!({"type":"integer","minimum":1}), json!(0), "f: must be at least 1"),
            (json!({"type":"number","maximum":1.5}), json!(1.6), "f: must be at most 1.5"),
            (json!({"type":"number"}), json!("1"), "f: must be a number"),
            (
                json!({"type":"integer","maximum":9_007_199_254_740_992_u64}),
                json!(9_007_199_254_740_993_u64),
                "f: must be at most 9007199254740992",
            ),
            (json!({"type":"boolean"}), json!("true"), "f: must be true or false"),
            (json!({"type":"string","enum":["a","b"]}), json!("c"), "f: must be one of: a, b"),
            (
                json!({"type":"array","items":{"type":"string","enum":["a"]},"minItems":1}),
                json!([]),
                "f: needs at least 1 choices",
            ),
            (
                json!({"type":"array","items":{"type":"string","enum":["a"]},"maxItems":1}),
                json!(["a", "a"]),
                "f: allows at most 1 choices",
            ),
            (
                json!({"type":"array","items":{"type":"string","enum":["a"]}}),
                json!(["z"]),
                "f: must be one of: a",
            ),
        ] {
            assert_eq!(validate(&property, &answer), expected, "{property} {answer}");
        }
    }

    #[test]
    fn form_validation_checks_formats() {
        for (format, good, bad) in [
            ("email", vec!["a@b.example", "x+y@sub.host"], vec!["a", "@b", "a@", "a b@c", "a@.b"]),
            (
                "uri",
                vec!["https://a.example/x?y#z", "urn:x"],
                vec!["a", "/x", "ht tp://x", "1a:b", "http://\"x"],
            ),
            (
                "date",
                vec!["2024-02-29", "2026-12-31"],
                vec!["2023-02-29", "2026-13-01", "2026-1-1", "2026-04-31", "+026-01-01"],
            ),
            (
                "date-time",
                vec!["2026-07-28T09:30:00Z", "2026-07-28t09:30:00.25+02:00"],
                vec![
                    "2026-07-28",
                    "2026-07-28T25:00:00Z",
                    "2026-07-28T09:30:00",
                    "2026-07-28T09:30:00.Z",
                    "2026-07-28T09:30:00Z05:00",
                ],
            ),
        ] {
            let property = json!({ "type": "string", "format": format });
            for text in good {
                assert_eq!(validate(&property, &json!(text)), "fits", "{text}");
            }
            for text in bad {
                assert_ne!(validate(&property, &json!(text)), "fits", "{text}");
            }
        }
    }

    #[test]
    fn form_validation_normalizes_whole_numbers_to_integers() {
        let text = r#"{"type":"object","properties":{"n":{"type":"integer"}}}"#;
        let form: FormSchema = serde_json::from_str(text).unwrap();
        let checked = form.validate(serde_json::from_str(r#"{"n":2.0}"#).unwrap()).unwrap();
        assert_eq!(Value::Object(checked).to_string(), r#"{"n":2}"#);
    }

    #[test]
    fn form_validation_removes_unknown_members() {
        let form = FormSchema::new([Field::text("a").optional()]);
        let Value::Object(content) = json!({ "a": "x", "admin": true }) else { panic!() };
        assert_eq!(Value::Object(form.validate(content).unwrap()), json!({ "a": "x" }));
    }
}
