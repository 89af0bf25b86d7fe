//! Whether an answer fits its form.

use std::cmp::Ordering;
use std::fmt;

use serde_json::{Number, Value};

use super::{ChoiceOption, Field, FieldKind, FormSchema, Format};
use crate::Object;

/// What is wrong with one field of an answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Problem {
    /// The field.
    pub field: String,
    /// What is wrong, in words for a person.
    pub message: String,
}

/// Everything that is wrong with an answer.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub struct Problems(pub Vec<Problem>);

impl fmt::Display for Problems {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, Problem { field, message }) in self.0.iter().enumerate() {
            write!(f, "{}{field}: {message}", if at == 0 { "" } else { "; " })?;
        }
        Ok(())
    }
}

impl FormSchema {
    /// Checks an answer, and returns it without fields that were not asked for. `null` counts as not
    /// filled in.
    ///
    /// # Errors
    ///
    /// Every field that does not fit.
    pub fn check(&self, mut content: Object) -> Result<Object, Problems> {
        let mut problems = Vec::new();
        for field in &self.fields {
            match content.get_mut(&field.name).filter(|value| !value.is_null()) {
                None if field.required => problems.push(field.problem("is missing")),
                None => {}
                Some(value) => match field.check(value) {
                    Ok(()) => field.normalize(value),
                    Err(message) => problems.push(field.problem(message)),
                },
            }
        }
        content.retain(|name, value| {
            !value.is_null() && self.fields.iter().any(|field| field.name == *name)
        });
        if problems.is_empty() { Ok(content) } else { Err(Problems(problems)) }
    }
}

impl Field {
    fn problem(&self, message: impl Into<String>) -> Problem {
        Problem { field: self.name.clone(), message: message.into() }
    }

    /// A whole number that was written as `2.0` becomes `2`, so that it reads as an integer.
    #[expect(clippy::cast_possible_truncation, reason = "the number is whole and within the range")]
    fn normalize(&self, value: &mut Value) {
        if let (FieldKind::Number { integer: true, .. }, Some(number)) =
            (&self.kind, value.as_f64())
            && value.is_f64()
            && number.abs() <= 2f64.powi(53)
        {
            *value = Value::from(number as i64);
        }
    }

    fn check(&self, value: &Value) -> Result<(), String> {
        match &self.kind {
            FieldKind::Text { min_length, max_length, format, .. } => {
                let text = value.as_str().ok_or("must be text")?;
                let length = text.chars().count() as u64;
                if min_length.is_some_and(|least| length < least) {
                    return Err(format!(
                        "must have at least {} characters",
                        min_length.unwrap_or(0)
                    ));
                }
                if let Some(most) = max_length.filter(|most| length > *most) {
                    return Err(format!("must have at most {most} characters"));
                }
                format.map_or(Ok(()), |format| check_format(format, text))
            }
            FieldKind::Number { integer, minimum, maximum, .. } => {
                let number = value.as_number().ok_or("must be a number")?;
                let whole =
                    int(number).is_some() || number.as_f64().is_some_and(|f| f.fract() == 0.0);
                if *integer && !whole {
                    return Err("must be a whole number".to_owned());
                }
                let is = |side, bound: &&Number| compare(number, bound) == Some(side);
                if let Some(least) = minimum.as_ref().filter(|m| is(Ordering::Less, m)) {
                    return Err(format!("must be at least {least}"));
                }
                if let Some(most) = maximum.as_ref().filter(|m| is(Ordering::Greater, m)) {
                    return Err(format!("must be at most {most}"));
                }
                Ok(())
            }
            FieldKind::Boolean { .. } => {
                value.is_boolean().then_some(()).ok_or_else(|| "must be true or false".to_owned())
            }
            FieldKind::Choice { options, .. } => check_option(options, value),
            FieldKind::Choices { options, min_items, max_items, .. } => {
                let chosen = value.as_array().ok_or("must be a list")?;
                if let Some(least) = min_items.filter(|least| (chosen.len() as u64) < *least) {
                    return Err(format!("needs at least {least} choices"));
                }
                if let Some(most) = max_items.filter(|most| chosen.len() as u64 > *most) {
                    return Err(format!("allows at most {most} choices"));
                }
                chosen.iter().try_for_each(|one| check_option(options, one))
            }
        }
    }
}

fn int(number: &Number) -> Option<i128> {
    number.as_i64().map(i128::from).or_else(|| number.as_u64().map(i128::from))
}

/// Integers exactly: as doubles, neighbours beyond 2⁵³ would be equal.
fn compare(a: &Number, b: &Number) -> Option<Ordering> {
    match (int(a), int(b)) {
        (Some(a), Some(b)) => Some(a.cmp(&b)),
        _ => a.as_f64()?.partial_cmp(&b.as_f64()?),
    }
}

fn check_option(options: &[ChoiceOption], value: &Value) -> Result<(), String> {
    let known = value.as_str().is_some_and(|v| options.iter().any(|o| o.value == v));
    known.then_some(()).ok_or_else(|| {
        let names: Vec<_> = options.iter().take(20).map(|o| o.value.as_str()).collect();
        format!("must be one of: {}", names.join(", "))
    })
}

/// Shapes only: whether an address can be reached is for its user to find out.
fn check_format(format: Format, text: &str) -> Result<(), String> {
    let (fits, what) = match format {
        Format::Email => (is_email(text), "an e-mail address"),
        Format::Uri => (is_uri(text), "a URI"),
        Format::Date => (is_date(text), "a date such as 2026-07-28"),
        Format::DateTime => (is_date_time(text), "a date and time such as 2026-07-28T09:30:00Z"),
    };
    fits.then_some(()).ok_or_else(|| format!("must be {what}"))
}

fn is_email(text: &str) -> bool {
    let clean = !text.chars().any(|c| c.is_whitespace() || c.is_control());
    clean
        && text.rsplit_once('@').is_some_and(|(local, domain)| {
            !local.is_empty()
                && !domain.is_empty()
                && !domain.starts_with('.')
                && !domain.ends_with('.')
        })
}

fn is_uri(text: &str) -> bool {
    let clean = text.chars().all(|c| c.is_ascii_graphic() && !"\"<>\\^`{|}".contains(c));
    clean
        && text.split_once(':').is_some_and(|(scheme, _)| {
            scheme.starts_with(|c: char| c.is_ascii_alphabetic())
                && scheme.chars().all(|c| c.is_ascii_alphanumeric() || "+-.".contains(c))
        })
}

fn is_date(text: &str) -> bool {
    let Some([year, month, day]) = digits(text, '-', [4, 2, 2]) else {
        return false;
    };
    let leap = year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
    let days = match month {
        1 | 3 | 5 | 7 | 8 | 10 | 12 => 31,
        4 | 6 | 9 | 11 => 30,
        2 => 28 + u32::from(leap),
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
    let time_fits =
        digits(time, ':', [2, 2, 2]).is_some_and(|[h, m, s]| h < 24 && m < 60 && s <= 60);
    let fraction_fits = !fraction.is_empty() && fraction.bytes().all(|b| b.is_ascii_digit());
    let zone_fits = zone.eq_ignore_ascii_case("z")
        || zone
            .get(1..)
            .and_then(|z| digits(z, ':', [2, 2]))
            .is_some_and(|[h, m]| h < 24 && m < 60);
    is_date(date) && time_fits && fraction_fits && zone_fits
}

/// Numbers of exactly these widths, with `separator` between them.
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

    fn problems(property: &Value, answer: &Value) -> String {
        let schema =
            json!({ "type": "object", "properties": { "f": property }, "required": ["f"] });
        let form: FormSchema = serde_json::from_value(schema).unwrap();
        let Value::Object(content) = json!({ "f": answer }) else { panic!() };
        form.check(content).map_or_else(|p| p.to_string(), |_| "fits".to_owned())
    }

    #[test]
    fn answers_are_held_against_their_field() {
        for (property, answer, verdict) in [
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
            assert_eq!(problems(&property, &answer), verdict, "{property} {answer}");
        }
    }

    #[test]
    fn formats_are_checked_by_shape() {
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
                ],
            ),
        ] {
            let property = json!({ "type": "string", "format": format });
            for text in good {
                assert_eq!(problems(&property, &json!(text)), "fits", "{text}");
            }
            for text in bad {
                assert_ne!(problems(&property, &json!(text)), "fits", "{text}");
            }
        }
    }

    #[test]
    fn whole_numbers_read_as_integers_however_they_are_written() {
        let text = r#"{"type":"object","properties":{"n":{"type":"integer"}}}"#;
        let form: FormSchema = serde_json::from_str(text).unwrap();
        let checked = form.check(serde_json::from_str(r#"{"n":2.0}"#).unwrap()).unwrap();
        assert_eq!(Value::Object(checked).to_string(), r#"{"n":2}"#);
    }

    #[test]
    fn fields_that_were_not_asked_for_are_left_out() {
        let form = FormSchema::new([Field::text("a").optional()]);
        let Value::Object(content) = json!({ "a": "x", "admin": true }) else { panic!() };
        assert_eq!(Value::Object(form.check(content).unwrap()), json!({ "a": "x" }));
    }
}
