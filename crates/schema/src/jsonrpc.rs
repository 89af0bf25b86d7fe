//! The JSON-RPC 2.0 envelope and the error codes that MCP allows (specification: basic, "Messages"
//! and "Error Codes").

mod error;
mod request_params;

use std::fmt;

use serde::de::{DeserializeOwned, Error as _, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::value::RawValue;

use crate::Object;
use crate::json::scan::{self, Outline};
use crate::json::validate;
use crate::json::{CowStr, ObjectWriter, RawJson, read, read_value};
use crate::jsonrpc::error::shorten;
pub use crate::jsonrpc::error::{ErrorObject, code};
pub use crate::jsonrpc::request_params::Params;

/// The id of a request: a string or an integer, never null.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum RequestId {
    /// An integer id.
    Number(i64),
    /// A string id.
    String(String),
}

/// For a line of a log: a peer chose it, so it is cut to 128 characters, and what would break the line is escaped.
impl fmt::Display for RequestId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Number(n) => n.fmt(f),
            Self::String(s) => shorten(s).escape_debug().fmt(f),
        }
    }
}

impl Serialize for RequestId {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Number(n) => serializer.serialize_i64(*n),
            Self::String(s) => serializer.serialize_str(s),
        }
    }
}

impl<'de> Deserialize<'de> for RequestId {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct IdVisitor;
        impl Visitor<'_> for IdVisitor {
            type Value = RequestId;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a string or an integer")
            }

            fn visit_i64<E>(self, n: i64) -> Result<RequestId, E> {
                Ok(RequestId::Number(n))
            }

            fn visit_u64<E: serde::de::Error>(self, n: u64) -> Result<RequestId, E> {
                i64::try_from(n)
                    .map(RequestId::Number)
                    .map_err(|_| E::custom("integer beyond 64 bits"))
            }

            fn visit_str<E>(self, s: &str) -> Result<RequestId, E> {
                Ok(RequestId::String(s.to_owned()))
            }
        }
        deserializer.deserialize_any(IdVisitor)
    }
}

/// The literal `"2.0"`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Version;

impl Serialize for Version {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str("2.0")
    }
}

impl<'de> Deserialize<'de> for Version {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        match CowStr::deserialize(deserializer)? {
            CowStr(version) if version == "2.0" => Ok(Self),
            CowStr(other) => {
                Err(D::Error::custom(format_args!("`jsonrpc` is {other:?}, expected \"2.0\"")))
            }
        }
    }
}

/// A request.
#[derive(Debug, Clone, Serialize)]
pub struct Request {
    /// Always `"2.0"`.
    pub jsonrpc: Version,
    /// Unique among the sender's requests that still wait for a response.
    pub id: RequestId,
    /// The method's name.
    pub method: String,
    /// The parameters, unread.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub params: Option<Params>,
}

impl Request {
    /// The request that an outline is one of. `None` says nothing.
    fn outlined(outline: Outline<'_>) -> Option<Self> {
        let Outline { jsonrpc, id, method, params } = outline;
        let method = method?.strip_prefix('"')?.strip_suffix('"').filter(|m| !m.contains('\\'))?;
        Some(Self {
            jsonrpc: jsonrpc.filter(|version| *version == "\"2.0\"").map(|_| Version)?,
            id: serde_json::from_str(id?).ok()?,
            method: method.to_owned(),
            params: params.map(|(text, members)| Params::outlined(text, members)),
        })
    }
}

/// A notification: a message that gets no response.
#[derive(Debug, Clone, Serialize)]
pub struct Notification {
    /// Always `"2.0"`.
    pub jsonrpc: Version,
    /// The method's name.
    pub method: String,
    /// The parameters, unread.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub params: Option<Box<RawValue>>,
}

impl Notification {
    /// A notification with parameters.
    ///
    /// # Errors
    ///
    /// If `params` cannot be written as JSON.
    pub fn new(
        method: impl Into<String>,
        params: &impl Serialize,
    ) -> Result<Self, serde_json::Error> {
        Ok(Self { jsonrpc: Version, method: method.into(), params: Some(raw(params)?) })
    }

    /// Reads the parameters as `T`. Absent parameters read as `{}`.
    ///
    /// # Errors
    ///
    /// [`code::INVALID_PARAMS`] that names the field.
    pub fn params<T: DeserializeOwned>(&self) -> Result<T, ErrorObject> {
        read_params(self.params.as_deref().map(RawValue::get))
    }

    /// Writes it; this takes less than to serialize it.
    pub fn write(&self) -> RawJson {
        let params = self.params.as_deref().map(RawValue::get);
        let length = self.method.len() + params.map_or(0, str::len);
        let object = ObjectWriter::with_capacity(ENVELOPE + length);
        let object = object.text("jsonrpc", "2.0").text("method", &self.method);
        match params {
            Some(params) => object.json("params", params).end(),
            None => object.end(),
        }
    }
}

/// A response: the result's JSON, as it was read or written, or an error.
#[derive(Debug, Clone)]
pub struct Response<R = Box<RawValue>> {
    /// The id of the request. `None` only in an error about a message whose id could not be read.
    pub id: Option<RequestId>,
    /// What the request came to.
    pub outcome: Result<R, ErrorObject>,
}

impl<R> Response<R> {
    /// An error response.
    pub fn error(id: Option<RequestId>, error: ErrorObject) -> Self {
        Self { id, outcome: Err(error) }
    }
}

impl Response<RawJson> {
    /// Writes it; this takes less than to serialize it.
    pub fn write(&self) -> RawJson {
        let length = self.outcome.as_ref().map_or(0, |result| result.get().len());
        let mut object = ObjectWriter::with_capacity(ENVELOPE + length).text("jsonrpc", "2.0");
        match &self.id {
            Some(RequestId::Number(id)) => object = object.number("id", *id),
            Some(RequestId::String(id)) => object = object.text("id", id),
            None => {}
        }
        match &self.outcome {
            Ok(result) => object = object.written("result", result),
            // An error is plain data, which is always JSON.
            Err(error) => {
                if let Ok(error) = RawJson::new(error) {
                    object = object.written("error", &error);
                }
            }
        }
        object.end()
    }
}

/// Room for what is around a result, or parameters.
const ENVELOPE: usize = 128;

impl<R: Serialize> Serialize for Response<R> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        use serde::ser::SerializeMap;
        let mut map = serializer.serialize_map(None)?;
        map.serialize_entry("jsonrpc", "2.0")?;
        if let Some(id) = &self.id {
            map.serialize_entry("id", id)?;
        }
        match &self.outcome {
            Ok(result) => map.serialize_entry("result", result)?,
            Err(error) => map.serialize_entry("error", error)?,
        }
        map.end()
    }
}

/// The deepest nesting of JSON that is ever read.
pub const MAX_DEPTH: usize = 128;

/// Any message that may stand alone on the wire. Batches are not part of the protocol.
#[derive(Debug, Clone)]
pub enum Message {
    /// Has a `method` and an `id`.
    Request(Request),
    /// Has a `method` and no `id`.
    Notification(Notification),
    /// Has a `result` or an `error`.
    Response(Response),
}

impl Message {
    /// Reads one message.
    ///
    /// # Errors
    ///
    /// [`code::PARSE_ERROR`] if `body` is not one JSON value, repeats a key, holds a lone surrogate
    /// or nests deeper than 128; [`code::INVALID_REQUEST`] if it is not a JSON-RPC message. To answer
    /// the latter with the id of the offending request, see [`Message::salvage_id`].
    pub fn parse(body: &[u8]) -> Result<Self, ErrorObject> {
        Self::parse_within(body, MAX_DEPTH)
    }

    /// As [`Message::parse`], for JSON that nests no deeper than `depth`, if that is less than [`MAX_DEPTH`].
    ///
    /// # Errors
    ///
    /// As [`Message::parse`].
    pub fn parse_within(body: &[u8], depth: usize) -> Result<Self, ErrorObject> {
        Self::parse_knowing(body, depth, "")
    }

    /// As [`Message::parse_within`], for clients that say the same of themselves with every request. `known` is what stood as
    /// `params._meta` in a request that was read within the same `depth`, or nothing; where it stands there again, it is not
    /// read again.
    ///
    /// # Errors
    ///
    /// As [`Message::parse`].
    pub fn parse_knowing(body: &[u8], depth: usize, known: &str) -> Result<Self, ErrorObject> {
        if depth < MAX_DEPTH && validate::depth(body) > depth {
            let why = format!("Parse error: recursion limit of {depth} exceeded");
            return Err(ErrorObject::new(code::PARSE_ERROR, why));
        }
        let refused = |why: &dyn fmt::Display| {
            ErrorObject::new(code::PARSE_ERROR, format!("Parse error: {why}"))
        };
        let body = str::from_utf8(body).map_err(|error| refused(&error))?;
        if let Some(request) = scan::of_request(body, known).and_then(Request::outlined) {
            return Ok(Self::Request(request));
        }
        validate::check(body).map_err(|error| refused(&error))?;
        if !body.trim_ascii_start().starts_with('{') {
            return Err(ErrorObject::invalid_request(
                "Invalid request: the body must be one JSON-RPC object (batches are not supported)",
            ));
        }
        let invalid = |why: String| ErrorObject::invalid_request(format!("Invalid request: {why}"));
        let fields: Envelope<'_> = read(body).map_err(|error| invalid(error.to_string()))?;
        fields.into_message().map_err(invalid)
    }

    /// The id of a message that [`Message::parse`] refused, if it can still be read.
    pub fn salvage_id(body: &[u8]) -> Option<RequestId> {
        #[derive(Deserialize)]
        struct OnlyId {
            id: RequestId,
        }
        // A derived reader would take the first item of an array.
        if !body.trim_ascii_start().starts_with(b"{") {
            return None;
        }
        serde_json::from_slice::<OnlyId>(body).ok().map(|m| m.id)
    }

    /// Whether a message that [`Message::parse`] refused was meant as a notification, which nobody answers:
    /// it has a `method` and no `id`.
    pub fn was_notification(body: &[u8]) -> bool {
        let object = str::from_utf8(body).ok().and_then(|body| serde_json::from_str(body).ok());
        object.is_some_and(|object: Object| {
            object.contains_key("method") && !object.contains_key("id")
        })
    }
}

#[derive(Deserialize)]
struct Envelope<'a> {
    jsonrpc: Version,
    #[serde(borrow, default, deserialize_with = "raw_present")]
    id: Option<&'a RawValue>,
    #[serde(borrow)]
    method: Option<CowStr<'a>>,
    #[serde(borrow)]
    params: Option<&'a RawValue>,
    #[serde(borrow, default, deserialize_with = "raw_present")]
    result: Option<&'a RawValue>,
    error: Option<ErrorObject>,
}

/// Reads a member that is there: unlike `Option`, `null` counts.
fn raw_present<'de, D: Deserializer<'de>>(d: D) -> Result<Option<&'de RawValue>, D::Error> {
    <&RawValue>::deserialize(d).map(Some)
}

impl Envelope<'_> {
    fn into_message(self) -> Result<Message, String> {
        let Self { jsonrpc, id, method, params, result, error } = self;
        let id = match id {
            Some(id) if id.get() == "null" => Id::Null,
            Some(id) => Id::Is(serde_json::from_str(id.get()).map_err(|e| format!("`id`: {e}"))?),
            None => Id::Absent,
        };
        let method = method.map(|CowStr(method)| method.into_owned());
        match (method, result, error) {
            (Some(method), None, None) => {
                if params.is_some_and(|p| !p.get().starts_with('{')) {
                    return Err("`params` must be an object".to_owned());
                }
                match id {
                    Id::Is(id) => {
                        let params = params.map(|params| Params::of(params.get().to_owned()));
                        let params = params.transpose().map_err(|e| format!("`params`: {e}"))?;
                        Ok(Message::Request(Request { jsonrpc, id, method, params }))
                    }
                    Id::Null => Err("`id` must not be null".to_owned()),
                    Id::Absent => {
                        let params = params.map(RawValue::to_owned);
                        Ok(Message::Notification(Notification { jsonrpc, method, params }))
                    }
                }
            }
            (None, Some(result), None) => match id {
                Id::Is(id) => {
                    let outcome = Ok(result.to_owned());
                    Ok(Message::Response(Response { id: Some(id), outcome }))
                }
                _ => Err("a result needs the `id` of its request".to_owned()),
            },
            (None, None, Some(error)) => {
                let id = if let Id::Is(id) = id { Some(id) } else { None };
                Ok(Message::Response(Response { id, outcome: Err(error) }))
            }
            (None, None, None) => Err("missing field `method`".to_owned()),
            _ => Err("only one of `method`, `result` and `error` may be present".to_owned()),
        }
    }
}

enum Id {
    Is(RequestId),
    Null,
    Absent,
}

/// Reads the parameters of `request` as `T`. Absent parameters read as `{}`.
///
/// # Errors
///
/// [`code::INVALID_PARAMS`] that names the field.
pub fn params<'r, T: Deserialize<'r>>(request: &'r Request) -> Result<T, ErrorObject> {
    read_params(request.params.as_ref().map(Params::get))
}

fn read_params<'r, T: Deserialize<'r>>(params: Option<&'r str>) -> Result<T, ErrorObject> {
    read(params.unwrap_or("{}"))
        .map_err(|e| ErrorObject::invalid_params(format!("Invalid params: {e}")))
}

/// Serializes `value` as raw JSON.
///
/// # Errors
///
/// If `value` cannot be written as JSON (a map with keys that are no strings, for example).
pub fn raw<T: Serialize>(value: &T) -> Result<Box<RawValue>, serde_json::Error> {
    serde_json::value::to_raw_value(value)
}

/// Reads an object member that may be absent, and says its name when it has the wrong type.
pub(crate) fn take<T: DeserializeOwned>(
    object: &mut Object,
    key: &str,
) -> Result<Option<T>, String> {
    match object.shift_remove(key) {
        None => Ok(None),
        Some(value) => read_value(&value).map(Some).map_err(|e| format!("`{key}`: {e}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_are_shown_on_one_line() {
        let id = |text: &str| RequestId::String(text.to_owned()).to_string();
        assert_eq!(id("a-1"), "a-1");
        assert_eq!(id("1\n WARN \u{1b}[2J"), r"1\n WARN \u{1b}[2J");
        assert_eq!(id(&"x".repeat(1 << 20)).chars().count(), 129);
    }

    #[test]
    fn what_is_written_is_what_is_serialized() {
        let ids = [RequestId::Number(i64::MIN), RequestId::String("a\"\n".to_owned())];
        let ids = ids.map(Some).into_iter().chain([None]);
        let outcomes = [Ok(RawJson::new(&[1]).unwrap()), Err(ErrorObject::internal("what\\?"))];
        for id in ids {
            for outcome in outcomes.clone() {
                let response = Response { id: id.clone(), outcome };
                assert_eq!(response.write().get(), serde_json::to_string(&response).unwrap());
            }
        }
        let with = Notification::new("notifications/\"x\"", &[()]).unwrap();
        let without = Notification { params: None, ..with.clone() };
        for notification in [with, without] {
            assert_eq!(notification.write().get(), serde_json::to_string(&notification).unwrap());
        }
    }

    #[test]
    fn tells_the_kinds_apart() {
        assert!(matches!(
            Message::parse(br#"{"jsonrpc":"2.0","id":"a","method":"m"}"#),
            Ok(Message::Request(_))
        ));
        assert!(matches!(
            Message::parse(br#"{"jsonrpc":"2.0","method":"m"}"#),
            Ok(Message::Notification(_))
        ));
        assert!(matches!(
            Message::parse(br#"{"jsonrpc":"2.0","id":1,"result":null}"#),
            Ok(Message::Response(_))
        ));
        assert!(matches!(
            Message::parse(br#"{"jsonrpc":"2.0","error":{"code":1,"message":"x"}}"#),
            Ok(Message::Response(Response { id: None, .. }))
        ));
    }

    #[test]
    fn says_what_is_wrong_and_where() {
        for (body, code, part) in [
            ("{", code::PARSE_ERROR, "EOF"),
            (
                r#"{"jsonrpc":"2.0","id":1,"id":2,"method":"m"}"#,
                code::PARSE_ERROR,
                "duplicate key \"id\"",
            ),
            ("[]", code::INVALID_REQUEST, "batches"),
            ("3", code::INVALID_REQUEST, "one JSON-RPC object"),
            (r#"{"id":1,"method":"m"}"#, code::INVALID_REQUEST, "missing field `jsonrpc`"),
            (r#"{"jsonrpc":"1.0","id":1,"method":"m"}"#, code::INVALID_REQUEST, "expected \"2.0\""),
            (
                r#"{"jsonrpc":"2.0","id":null,"method":"m"}"#,
                code::INVALID_REQUEST,
                "must not be null",
            ),
            (r#"{"jsonrpc":"2.0","id":1.5,"method":"m"}"#, code::INVALID_REQUEST, "id"),
            (
                r#"{"jsonrpc":"2.0","id":1,"method":"m","params":[]}"#,
                code::INVALID_REQUEST,
                "`params` must be an object",
            ),
            (r#"{"jsonrpc":"2.0","id":1}"#, code::INVALID_REQUEST, "missing field `method`"),
            (
                r#"{"jsonrpc":"2.0","id":1,"method":"m","result":1}"#,
                code::INVALID_REQUEST,
                "only one of",
            ),
        ] {
            let error = Message::parse(body.as_bytes()).expect_err(body);
            assert_eq!(error.code, code, "{body}");
            assert!(error.message.contains(part), "{body}: {}", error.message);
        }
        let error = Message::parse(b"{\"jsonrpc\":\"2.0\",\"id\":\"\xff\"}").unwrap_err();
        assert_eq!(error.code, code::PARSE_ERROR);
        assert!(error.message.contains("utf-8"), "{}", error.message);
    }

    #[test]
    fn an_id_survives_an_otherwise_invalid_request() {
        assert_eq!(Message::salvage_id(br#"{"id":5}"#), Some(RequestId::Number(5)));
        assert_eq!(Message::salvage_id(br#"{"id":null}"#), None);
    }

    #[test]
    fn what_cannot_be_read_was_no_notification() {
        assert!(Message::was_notification(br#"{"jsonrpc":"1.0","method":"m"}"#));
        for body in [&b"{\"method\":\"m\xff\"}"[..], br#"{"method":"m","id":[]}"#, b"[]"] {
            assert!(!Message::was_notification(body), "{}", body.escape_ascii());
        }
    }

    #[test]
    fn long_names_from_a_peer_are_cut() {
        assert!(ErrorObject::method_not_found(&"é".repeat(9000)).message.len() < 400);
    }
}
