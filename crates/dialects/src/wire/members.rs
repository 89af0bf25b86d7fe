//! The members of JSON objects, whose values stay as they are written.

use mrtr_schema::RawJson;
use mrtr_schema::json::{ObjectWriter, read_pairs};
use serde_json::value::RawValue;

/// The members of an object, in their order.
pub(crate) type Members = Vec<(String, Box<RawValue>)>;

/// Reads the members of an object.
pub(crate) fn read(text: &str) -> Result<Members, serde_json::Error> {
    let mut deserializer = serde_json::Deserializer::from_str(text);
    let members = read_pairs(&mut deserializer, "an object")?;
    deserializer.end()?;
    Ok(members)
}

/// Writes an object.
pub(crate) fn write(members: &[(String, Box<RawValue>)]) -> RawJson {
    let length = members.iter().map(|(name, value)| name.len() + value.get().len() + 8).sum();
    let object = ObjectWriter::with_capacity(length);
    members.iter().fold(object, |object, (name, value)| object.raw(name, &raw(value))).end()
}

/// Removes a member and returns its value.
pub(crate) fn take(members: &mut Members, name: &str) -> Option<Box<RawValue>> {
    let at = members.iter().position(|(other, _)| other == name)?;
    Some(members.remove(at).1)
}

/// Returns the text of a value.
pub(crate) fn raw(value: &RawValue) -> RawJson {
    RawJson::from(value.to_owned())
}

/// Returns JSON text as a value.
pub(crate) fn value(json: RawJson) -> Result<Box<RawValue>, serde_json::Error> {
    RawValue::from_string(json.into())
}

/// Returns true if a value is an object.
pub(crate) fn is_object(value: &RawValue) -> bool {
    value.get().starts_with('{')
}
