//! Messages: the JSON-RPC envelope, read from the wire.

use std::collections::HashMap;
use std::fmt;

use serde::Deserialize;
use serde_json::value::RawValue;

use crate::json::scan::{self, MessageOutline};
use crate::json::{self, CowStr, MAX_DEPTH, validate};
use crate::jsonrpc::request::Version;
use crate::jsonrpc::{ErrorObject, Notification, Params, Request, RequestId, Response, code};
use crate::known_meta::KnownMeta;

/// A message on the wire. Batches are not part of the protocol.
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
    /// - [`code::PARSE_ERROR`] if `body` is not one JSON value, repeats a key, contains a lone
    ///   surrogate or is nested deeper than 128;
    /// - [`code::INVALID_REQUEST`] if it is not a JSON-RPC message. See [`Message::salvage_id`] for
    ///   the id of the error response.
    ///
    /// # Example
    ///
    /// ```
    /// use mrtr_schema::jsonrpc::{Message, code};
    ///
    /// let message = Message::parse(br#"{"jsonrpc":"2.0","id":1,"method":"tools/list"}"#)?;
    /// let Message::Request(request) = message else { panic!("not a request") };
    /// assert_eq!(request.method, "tools/list");
    ///
    /// // Two parsers could read this message differently.
    /// let error = Message::parse(br#"{"jsonrpc":"2.0","id":1,"id":2,"method":"x"}"#).unwrap_err();
    /// assert_eq!(error.code, code::PARSE_ERROR);
    /// assert!(error.message.contains("duplicate key \"id\""));
    /// # Ok::<(), mrtr_schema::jsonrpc::ErrorObject>(())
    /// ```
    pub fn parse(body: &[u8]) -> Result<Self, ErrorObject> {
        Self::parse_within(body, MAX_DEPTH)
    }

    /// Reads one message that is nested at most `depth` deep. The limit of 128 applies as well.
    ///
    /// # Errors
    ///
    /// The errors of [`Message::parse`]; too deep a message is a [`code::PARSE_ERROR`].
    pub fn parse_within(body: &[u8], depth: usize) -> Result<Self, ErrorObject> {
        Self::parse_with_known_meta(body, depth, &KnownMeta::default())
    }

    /// Checks the maximum nesting depth like [`Message::parse_within`], for a body that is parsed
    /// elsewhere. For the HTTP transport; not covered by semantic versioning.
    ///
    /// # Errors
    ///
    /// [`code::PARSE_ERROR`] if the body is nested more deeply.
    #[doc(hidden)]
    pub fn check_depth(body: &[u8], depth: usize) -> Result<(), ErrorObject> {
        // All parsers have the limit `MAX_DEPTH`.
        if depth >= MAX_DEPTH || validate::nesting_depth(body) <= depth {
            return Ok(());
        }
        let why = format!("Parse error: recursion limit of {depth} exceeded");
        Err(ErrorObject::new(code::PARSE_ERROR, why))
    }

    /// Reads one message like [`Message::parse_within`], but does not validate `params._meta` again
    /// if it matches `known_meta`, which must come from a request that was parsed with the same
    /// `depth`. For the HTTP transport; not covered by semantic versioning.
    ///
    /// # Errors
    ///
    /// The errors of [`Message::parse_within`].
    #[doc(hidden)]
    pub fn parse_with_known_meta(
        body: &[u8],
        depth: usize,
        known_meta: &KnownMeta,
    ) -> Result<Self, ErrorObject> {
        Self::check_depth(body, depth)?;
        let body = str::from_utf8(body).map_err(|error| parse_error(&error))?;
        scan::scan_message(body, &|text| known_meta.strip_from(text))
            .and_then(message_from_outline)
            .map_or_else(|| Self::parse_uncommon(body), Ok)
    }

    /// Reads a message in a form that the scanner does not accept.
    fn parse_uncommon(body: &str) -> Result<Self, ErrorObject> {
        validate(body).map_err(|error| parse_error(&error))?;
        let invalid = |why: String| ErrorObject::invalid_request(format!("Invalid request: {why}"));
        if !body.trim_ascii_start().starts_with('{') {
            let why = "the body must be one JSON-RPC object (batches are not supported)";
            return Err(invalid(why.to_owned()));
        }
        let envelope: Envelope<'_> =
            json::from_str(body).map_err(|error| invalid(error.to_string()))?;
        envelope.into_message().map_err(invalid)
    }

    /// Returns the id of a message that [`Message::parse`] rejected, if it is readable.
    pub fn salvage_id(body: &[u8]) -> Option<RequestId> {
        #[derive(Deserialize)]
        struct OnlyId {
            id: RequestId,
        }
        // A derived `Deserialize` would also accept an array with an id as its first item.
        if !body.trim_ascii_start().starts_with(b"{") {
            return None;
        }
        serde_json::from_slice::<OnlyId>(body).ok().map(|m| m.id)
    }

    /// Returns true if a message that [`Message::parse`] rejected was meant as a notification: it
    /// has a `method` and no `id`. Such a message gets no error response.
    pub fn was_notification(body: &[u8]) -> bool {
        let members = str::from_utf8(body).ok().and_then(|body| serde_json::from_str(body).ok());
        // The values are skipped: one that was refused must not become a tree.
        members.is_some_and(|members: HashMap<String, &RawValue>| {
            members.contains_key("method") && !members.contains_key("id")
        })
    }
}

fn parse_error(why: &dyn fmt::Display) -> ErrorObject {
    ErrorObject::new(code::PARSE_ERROR, format!("Parse error: {why}"))
}

/// Builds a message from its outline. `None` leaves the decision to [`Envelope`].
fn message_from_outline(outline: MessageOutline<'_>) -> Option<Message> {
    let MessageOutline { jsonrpc, id, method, params, result } = outline;
    if jsonrpc != Some("\"2.0\"") {
        return None;
    }
    let id = id.map(serde_json::from_str).transpose().ok()?;
    if let Some(result) = result {
        let id = Some(id.filter(|_| method.is_none() && params.is_none())?);
        let result: &RawValue = serde_json::from_str(result).ok()?;
        return Some(Message::Response(Response { id, outcome: Ok(result.to_owned()) }));
    }
    let method = method?.strip_prefix('"')?.strip_suffix('"').filter(|m| !m.contains('\\'))?;
    let Some(id) = id else {
        let params = params.map(|(text, _)| serde_json::from_str::<&RawValue>(text));
        let params = params.transpose().ok()?.map(ToOwned::to_owned);
        return Some(Message::Notification(Notification::from_raw(method.to_owned(), params)));
    };
    let params = params.map(|(text, members)| Params::from_spans(text, members));
    Some(Message::Request(Request::new(id, method, params)))
}

#[derive(Deserialize)]
struct Envelope<'a> {
    #[serde(rename = "jsonrpc")]
    _jsonrpc: Version,
    #[serde(borrow, default, deserialize_with = "json::present")]
    id: Option<&'a RawValue>,
    #[serde(borrow)]
    method: Option<CowStr<'a>>,
    #[serde(borrow)]
    params: Option<&'a RawValue>,
    #[serde(borrow, default, deserialize_with = "json::present")]
    result: Option<&'a RawValue>,
    error: Option<ErrorObject>,
}

impl Envelope<'_> {
    fn into_message(self) -> Result<Message, String> {
        let Self { _jsonrpc: _, id, method, params, result, error } = self;
        let id = match id {
            None => Id::Absent,
            Some(id) if id.get() == "null" => Id::Null,
            Some(id) => {
                Id::Present(serde_json::from_str(id.get()).map_err(|e| format!("`id`: {e}"))?)
            }
        };
        match (method, result, error) {
            (Some(CowStr(method)), None, None) => {
                request_or_notification(id, method.into_owned(), params)
            }
            (None, Some(result), None) => match id {
                Id::Present(id) => {
                    Ok(Message::Response(Response { id: Some(id), outcome: Ok(result.to_owned()) }))
                }
                Id::Null | Id::Absent => Err("a result needs the `id` of its request".to_owned()),
            },
            (None, None, Some(error)) => {
                let id = if let Id::Present(id) = id { Some(id) } else { None };
                Ok(Message::Response(Response::error(id, error)))
            }
            (None, None, None) => Err("missing field `method`".to_owned()),
            _ => Err("only one of `method`, `result` and `error` may be present".to_owned()),
        }
    }
}

/// Builds a request or a notification, depending on the `id`.
fn request_or_notification(
    id: Id,
    method: String,
    params: Option<&RawValue>,
) -> Result<Message, String> {
    if params.is_some_and(|p| !p.get().starts_with('{')) {
        return Err("`params` must be an object".to_owned());
    }
    match id {
        Id::Present(id) => {
            let params = params.map(|params| Params::from_text(params.get().to_owned()));
            let params = params.transpose().map_err(|e| format!("`params`: {e}"))?;
            Ok(Message::Request(Request::new(id, method, params)))
        }
        Id::Null => Err("`id` must not be null".to_owned()),
        Id::Absent => {
            let params = params.map(RawValue::to_owned);
            Ok(Message::Notification(Notification::from_raw(method, params)))
        }
    }
}

enum Id {
    Absent,
    Null,
    Present(RequestId),
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn message_kind_follows_from_its_members() {
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
    fn parse_errors_name_the_rule_and_the_field() {
        for (body, code, part) in [
            ("{", code::PARSE_ERROR, "EOF"),
            (
                r#"{"jsonrpc":"2.0","id":1,"method":"m","params":{"_meta":{"x":{"$serde_json::private::RawValue":"1"}}}}"#,
                code::PARSE_ERROR,
                "reserved key",
            ),
            (
                r#"{"jsonrpc":"2.0","id":1,"result":{"\u0024serde_json::private::RawValue":"1"}}"#,
                code::PARSE_ERROR,
                "reserved key",
            ),
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

    /// Tries every text that is a byte away from a seed.
    #[test]
    fn common_forms_are_read_like_others() {
        let shown = |message: Message| match message {
            Message::Request(Request { id, method, params, .. }) => {
                format!("{id:?} {method} {:?}", params.as_ref().map(Params::as_str))
            }
            Message::Notification(Notification { method, params, .. }) => {
                format!("{method} {params:?}")
            }
            Message::Response(Response { id, outcome }) => format!("{id:?} {outcome:?}"),
        };
        let mut compared = 0;
        for seed in [
            r#"{"jsonrpc":"2.0","id":1,"method":"m","params":{"a":[1],"b":"x"}}"#,
            r#"{"jsonrpc":"2.0","method":"m","params":{"a":{}}}"#,
            r#"{"jsonrpc":"2.0","id":"1","result":{"a":[{"b":null}]}}"#,
            r#"{"jsonrpc":"2.0","id":1,"result":[],"method":"m","params":{}}"#,
        ] {
            for at in 0..seed.len() {
                for byte in b"\"\\{}[]:,.-0129n x\n".iter().copied() {
                    let mut text = seed.as_bytes().to_vec();
                    text[at] = byte;
                    let text = String::from_utf8(text).unwrap();
                    let outline = scan::scan_message(&text, &|_| None);
                    if let Some(message) = outline.and_then(message_from_outline) {
                        let other = Message::parse_uncommon(&text).expect(&text);
                        assert_eq!(shown(message), shown(other), "{text}");
                        compared += 1;
                    }
                }
            }
        }
        assert!(compared > 200, "{compared}");
    }

    #[test]
    fn id_is_salvaged_from_an_invalid_request() {
        assert_eq!(Message::salvage_id(br#"{"id":5}"#), Some(RequestId::Number(5)));
        assert_eq!(Message::salvage_id(br#"{"id":null}"#), None);
    }

    #[test]
    fn unreadable_message_is_not_a_notification() {
        assert!(Message::was_notification(br#"{"jsonrpc":"1.0","method":"m"}"#));
        let reserved = br#"{"method":"m","x":{"$serde_json::private::RawValue":"["}}"#;
        assert!(Message::was_notification(reserved), "the inner text is not read");
        for body in [&b"{\"method\":\"m\xff\"}"[..], br#"{"method":"m","id":[]}"#, b"[]"] {
            assert!(!Message::was_notification(body), "{}", body.escape_ascii());
        }
    }
}
