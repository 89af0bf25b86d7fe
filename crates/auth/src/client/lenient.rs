//! Members that authorization servers write in several ways.

use serde::{Deserialize as _, Deserializer};
use serde_json::Number;
use serde_json::value::RawValue;

/// Reads a whole number, which may be written as text or with a fraction. `None` if it is absent,
/// `null`, negative or something else.
pub(super) fn number<'a, D: Deserializer<'a>>(from: D) -> Result<Option<u64>, D::Error> {
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "in range")]
    let whole = |number: f64| (0.0..9e15).contains(&number).then_some(number as u64);
    let value = Box::<RawValue>::deserialize(from)?;
    Ok(match serde_json::from_str::<Number>(value.get()) {
        Ok(number) => number.as_u64().or_else(|| whole(number.as_f64()?)),
        Err(_) => serde_json::from_str::<String>(value.get())
            .ok()
            .and_then(|text| text.trim().parse().ok()),
    })
}
