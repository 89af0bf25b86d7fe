//! The dialect `multi-turn-sse`: the events of a turn, and the array of answers.

use std::fmt::{self, Write as _};

use mrtr_schema::RawJson;
use mrtr_schema::json::ObjectWriter;
use mrtr_schema::jsonrpc::{ErrorObject, Message, RequestId};
use serde::de::{Deserialize, Deserializer, Error as _, SeqAccess, Visitor};
use serde_json::value::RawValue;

use super::call::id_json;
use super::members;

/// The event after which a client keeps its answers.
pub const BUFFER_INPUT: &str = "buffer_input";

/// The event that ends a stream. Its id comes back in `Last-Event-ID`, with the answers.
pub const INPUT_REQUIRED: &str = "input_required";

/// The greatest number of answers in an array.
pub const MAX_ANSWERS: usize = 256;

/// Returns the id of a question of a turn. The first has the number 1.
fn question_id(turn: &str, number: usize) -> RequestId {
    RequestId::String(format!("{turn}-{number}"))
}

/// Writes the events of a turn: `buffer_input`, the questions, and `input_required` with the id
/// `event_id`. `turn` is the beginning of the ids of questions, unique in its session.
///
/// # Errors
///
/// If a question is not an object with a method.
pub fn write_turn(
    turn: &str,
    questions: &[(String, Box<RawValue>)],
    event_id: &str,
) -> Result<String, serde_json::Error> {
    let mut events = format!("event: {BUFFER_INPUT}\nid: {turn}-0\n\n");
    for (number, (_, question)) in (1..).zip(questions) {
        let id = question_id(turn, number);
        let mut object = ObjectWriter::message(question.get().len() + 64).raw("id", &id_json(&id));
        for (name, value) in members::read(question.get())? {
            object = match name.as_str() {
                "params" => object.raw(&name, &question_params(turn, number, &value)?),
                _ => object.raw(&name, &members::raw(&value)),
            };
        }
        let text = String::from(object.end());
        // JSON that was read may have line ends between its tokens.
        let text = text.replace(['\r', '\n'], " ");
        // Writing to a string cannot fail.
        let _ = write!(events, "id: {turn}-{number}\ndata: {text}\n\n");
    }
    let _ = write!(events, "event: {INPUT_REQUIRED}\nid: {event_id}\n\n");
    Ok(events)
}

/// Adds the `elicitationId` that revision 2025-11-25 requires to an elicitation with a URL.
fn question_params(
    turn: &str,
    number: usize,
    params: &RawValue,
) -> Result<RawJson, serde_json::Error> {
    let mut all = members::read(params.get())?;
    if all.iter().any(|(name, value)| name == "mode" && value.get() == "\"url\"") {
        let id = RawValue::from_string(format!("\"{turn}-{number}\""))?;
        all.push(("elicitationId".to_owned(), id));
    }
    Ok(members::write(&all))
}

/// The answer to a question: a result, or the client's error.
pub type Answer = Result<Box<RawValue>, ErrorObject>;

/// Reads an array of answers to the `keys` of a turn. Answers to anything else, and second answers,
/// are ignored.
///
/// # Errors
///
/// `-32700` if the body is not JSON, `-32600` if it is not an array of at most [`MAX_ANSWERS`]
/// responses.
pub fn read_answers<'k>(
    body: &[u8],
    turn: &str,
    keys: &'k [String],
) -> Result<Vec<(&'k str, Answer)>, ErrorObject> {
    let invalid = |why: &str| ErrorObject::invalid_request(format!("Invalid request: {why}"));
    let items: Items<'_> = serde_json::from_slice(body).map_err(|error| {
        let is_array = body.trim_ascii_start().starts_with(b"[");
        if is_array && error.is_data() {
            invalid(&format!("more than {MAX_ANSWERS} answers"))
        } else if is_array {
            let code = mrtr_schema::jsonrpc::code::PARSE_ERROR;
            ErrorObject::new(code, format!("Parse error: {error}"))
        } else {
            invalid("the answers must be a JSON array of responses")
        }
    })?;
    let mut answers: Vec<(&str, _)> = Vec::new();
    for item in items.0 {
        let Message::Response(response) = Message::parse(item.get().as_bytes())? else {
            return Err(invalid("each answer must be a response"));
        };
        let key = (1..).zip(keys).find_map(|(number, key)| {
            (response.id.as_ref() == Some(&question_id(turn, number))).then_some(key.as_str())
        });
        match key {
            Some(key) if !answers.iter().any(|(other, _)| *other == key) => {
                answers.push((key, response.outcome));
            }
            _ => tracing::debug!(
                target: "mrtr::dialects",
                "an answer to no question of the turn was ignored"
            ),
        }
    }
    Ok(answers)
}

/// The elements of an array of at most [`MAX_ANSWERS`]. A longer array is not read to its end.
struct Items<'a>(Vec<&'a RawValue>);

impl<'de> Deserialize<'de> for Items<'de> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_seq(ItemsVisitor)
    }
}

struct ItemsVisitor;

impl<'de> Visitor<'de> for ItemsVisitor {
    type Value = Items<'de>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an array")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut array: A) -> Result<Self::Value, A::Error> {
        let mut items = Vec::new();
        while let Some(item) = array.next_element()? {
            if items.len() == MAX_ANSWERS {
                return Err(A::Error::custom("too many elements"));
            }
            items.push(item);
        }
        Ok(Items(items))
    }
}

/// Writes an array of answers, each with the id of its question.
pub fn write_answers<'a>(
    answers: impl IntoIterator<Item = (&'a RequestId, &'a RawValue)>,
) -> String {
    let mut array = String::from("[");
    for (id, result) in answers {
        if array.len() > 1 {
            array.push(',');
        }
        let answer = super::call::write_response(id, &members::raw(result));
        array.push_str(answer.as_str());
    }
    array.push(']');
    array
}
