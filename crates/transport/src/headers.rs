//! The headers that mirror a request's body, and content negotiation (specification: streamable
//! HTTP, "Sending Messages" and "Request Metadata").
//!
//! A request repeats its protocol version, method and name in headers, so that proxies can route it
//! without reading the body. A server rejects a request whose headers and body differ.

mod param;

use std::borrow::Cow;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header};
use mrtr_schema::jsonrpc::{ErrorObject, code};
use mrtr_schema::method;
use mrtr_schema::peer_text::quote;
use mrtr_schema::request_head::RequestHead;

use crate::granted_scopes::scope_challenge;
use crate::too_many_requests::retry_after;

pub use param::{ParamHeader, ParamHeaderError, check_param_headers, param_headers};

/// `MCP-Protocol-Version`: the `_meta` field of that name.
pub const PROTOCOL_VERSION: HeaderName = HeaderName::from_static("mcp-protocol-version");
/// `Mcp-Method`: the method of the request.
pub const METHOD: HeaderName = HeaderName::from_static("mcp-method");
/// `Mcp-Name`: the name of the tool or prompt, the URI of the resource, or the id of the task.
pub const NAME: HeaderName = HeaderName::from_static("mcp-name");

const BASE64_PREFIX: &str = "=?base64?";
const BASE64_SUFFIX: &str = "?=";

/// Encodes `value` as a header value: unchanged where that is possible, otherwise as Base64 between
/// `=?base64?` and `?=`.
///
/// ```
/// use mrtr_transport::headers;
///
/// assert_eq!(headers::encode("Zurich"), "Zurich");
/// assert_eq!(headers::encode("Zürich"), "=?base64?WsO8cmljaA==?=");
/// assert_eq!(headers::decode("=?base64?WsO8cmljaA==?=").as_deref(), Some("Zürich"));
/// ```
pub fn encode(value: &str) -> Cow<'_, str> {
    // Proxies trim white space around values, and a value that looks encoded would be decoded.
    let looks_encoded = value.starts_with(BASE64_PREFIX) && value.ends_with(BASE64_SUFFIX);
    let is_padded = value.starts_with([' ', '\t']) || value.ends_with([' ', '\t']);
    let is_ascii = value.bytes().all(|b| matches!(b, b'\t' | b' '..=b'~'));
    if is_ascii && !is_padded && !looks_encoded {
        value.into()
    } else {
        [BASE64_PREFIX, &STANDARD.encode(value), BASE64_SUFFIX].concat().into()
    }
}

/// Decodes a value that [`encode`] wrote. Returns `None` if the text between the markers is not the
/// Base64 form of UTF-8.
pub fn decode(value: &str) -> Option<Cow<'_, str>> {
    match value.strip_prefix(BASE64_PREFIX).and_then(|rest| rest.strip_suffix(BASE64_SUFFIX)) {
        None => Some(value.into()),
        Some(encoded) => String::from_utf8(STANDARD.decode(encoded).ok()?).ok().map(Cow::Owned),
    }
}

/// The part of the body that `Mcp-Name` mirrors.
#[derive(Clone, Copy)]
enum Mirrored {
    Name,
    Uri,
    TaskId,
}

impl Mirrored {
    /// Returns the part that requests of this method mirror; `None` if they have no `Mcp-Name`.
    ///
    /// `tasks/result` and `tasks/list` have none: no revision with this header has these methods.
    fn of(request_method: &str) -> Option<Self> {
        match request_method {
            method::TOOLS_CALL | method::PROMPTS_GET => Some(Self::Name),
            method::RESOURCES_READ => Some(Self::Uri),
            method::TASKS_GET | method::TASKS_UPDATE | method::TASKS_CANCEL => Some(Self::TaskId),
            _ => None,
        }
    }

    fn in_body<'a>(self, body: &'a RequestHead<'_>) -> Option<&'a str> {
        match self {
            Self::Name => body.name.as_deref(),
            Self::Uri => body.uri.as_deref(),
            Self::TaskId => body.task_id.as_deref(),
        }
    }
}

/// Returns the headers that a client sends with a request.
///
/// Not part of the public API: only the workspace's own crates need it.
#[doc(hidden)]
pub fn request_headers(
    request_method: &str,
    body: &RequestHead<'_>,
) -> Vec<(HeaderName, HeaderValue)> {
    let version = body.meta.as_ref().and_then(|meta| meta.protocol_version.as_deref());
    let name = Mirrored::of(request_method).and_then(|part| part.in_body(body)).map(encode);
    // `Mcp-Method` has no encoded form. A method that is not a valid header value is left out, and
    // the server rejects the request.
    [
        (PROTOCOL_VERSION, version.map(Cow::from)),
        (METHOD, Some(request_method.into())),
        (NAME, name),
    ]
    .into_iter()
    .filter_map(|(header, value)| Some((header, HeaderValue::from_str(&value?).ok()?)))
    .collect()
}

/// Compares the headers of a request with its body.
///
/// A value that is missing from the body is not reported here: the method's own validation names it
/// more precisely.
///
/// Not part of the public API: only the workspace's own crates need it.
///
/// # Errors
///
/// [`code::HEADER_MISMATCH`] if a header is missing, repeated, malformed or different. Answer with
/// HTTP 400.
#[doc(hidden)]
pub fn check_request(
    headers: &HeaderMap,
    request_method: &str,
    body: &RequestHead<'_>,
) -> Result<(), ErrorObject> {
    let version = body.meta.as_ref().and_then(|meta| meta.protocol_version.as_deref());
    compare("MCP-Protocol-Version", single(headers, &PROTOCOL_VERSION)?, version)?;
    // Other revisions may have other headers. A handler rejects them with the versions it has.
    let is_other = version.is_some_and(|version| version != mrtr_schema::PROTOCOL_VERSION);
    let is_left_out = |name: &HeaderName| is_other && !headers.contains_key(name);
    if !is_left_out(&METHOD) {
        compare("Mcp-Method", single(headers, &METHOD)?, Some(request_method))?;
    }
    if let Some(part) = Mirrored::of(request_method)
        && !is_left_out(&NAME)
    {
        let value = decode(single(headers, &NAME)?)
            .ok_or_else(|| mismatch("Mcp-Name is not valid Base64"))?;
        compare("Mcp-Name", &value, part.in_body(body))?;
    }
    Ok(())
}

fn compare(header: &str, value: &str, body: Option<&str>) -> Result<(), ErrorObject> {
    match body {
        Some(body) if body != value => Err(mismatch(&format!(
            "{header} is {}, but the body says {}",
            quote(value),
            quote(body)
        ))),
        _ => Ok(()),
    }
}

/// Returns the only value of a header.
fn single<'a>(headers: &'a HeaderMap, name: &HeaderName) -> Result<&'a str, ErrorObject> {
    let mut values = headers.get_all(name).iter();
    let value = values.next().ok_or_else(|| mismatch(&format!("{name} is missing")))?;
    if values.next().is_some() {
        return Err(mismatch(&format!("{name} appears more than once")));
    }
    value.to_str().map_err(|_| mismatch(&format!("{name} has invalid characters")))
}

fn mismatch(reason: &str) -> ErrorObject {
    ErrorObject::new(code::HEADER_MISMATCH, format!("Header mismatch: {reason}"))
}

/// Returns true if `Accept` lets the server choose between JSON and an event stream, as the
/// specification requires of every request.
///
/// Not part of the public API: only the workspace's own crates need it.
#[doc(hidden)]
pub fn accepts_json_and_sse(headers: &HeaderMap) -> bool {
    let mut values = headers.get_all(header::ACCEPT).iter();
    // Fast path: the specification's example, which nearly every client sends.
    if let (Some(value), None) = (values.next(), values.next())
        && value == "application/json, text/event-stream"
    {
        return true;
    }
    accepts(headers, "application", "json") && accepts(headers, "text", "event-stream")
}

/// Returns true if `Accept` allows a media type. The most specific range decides (RFC 9110, section
/// 12.5.1).
fn accepts(headers: &HeaderMap, kind: &str, subtype: &str) -> bool {
    let mut best = (0, 0.0);
    for value in headers.get_all(header::ACCEPT).iter().filter_map(|v| v.to_str().ok()) {
        for range in value.split(',') {
            let mut parts = range.split(';').map(str::trim);
            let (k, s) = parts.next().and_then(|r| r.split_once('/')).unwrap_or_default();
            let specificity = match (k, s) {
                ("*", "*") => 1,
                (k, "*") if k.eq_ignore_ascii_case(kind) => 2,
                (k, s) if k.eq_ignore_ascii_case(kind) && s.eq_ignore_ascii_case(subtype) => 3,
                _ => continue,
            };
            let quality = parts
                .filter_map(|p| p.split_once('='))
                .find(|(name, _)| name.eq_ignore_ascii_case("q"))
                .map_or(1.0, |(_, q)| q.parse().unwrap_or(0.0));
            if specificity > best.0 {
                best = (specificity, quality);
            }
        }
    }
    best.1 > 0.0
}

/// Returns true if the headers declare a JSON body in UTF-8 that is not compressed.
///
/// Not part of the public API: only the workspace's own crates need it.
#[doc(hidden)]
pub fn has_json_content_type(headers: &HeaderMap) -> bool {
    let is_identity =
        headers.get_all(header::CONTENT_ENCODING).iter().all(|v| v.as_bytes() == b"identity");
    is_identity && headers.get(header::CONTENT_TYPE).is_some_and(is_json_type)
}

fn is_json_type(media_type: &HeaderValue) -> bool {
    // Fast path: nearly every client sends exactly this.
    if media_type == "application/json" {
        return true;
    }
    let mut parts = media_type.to_str().unwrap_or_default().split(';').map(str::trim);
    let is_json = parts.next().is_some_and(|kind| kind.eq_ignore_ascii_case("application/json"));
    let is_utf8 = parts.filter_map(|p| p.split_once('=')).all(|(name, value)| {
        !name.eq_ignore_ascii_case("charset")
            || value.trim_matches('"').eq_ignore_ascii_case("utf-8")
    });
    is_json && is_utf8
}

/// Returns the HTTP status of a response with this JSON-RPC error.
///
/// Errors in the request itself have a status of their own. All other errors, internal ones
/// included, are delivered with 200: the request was answered, and a proxy that takes a 5xx as a
/// reason to try another replica would run it twice.
///
/// Not part of the public API: only the workspace's own crates need it.
#[doc(hidden)]
pub fn status_for_error(error: &ErrorObject) -> StatusCode {
    match error.code {
        code::PARSE_ERROR
        | code::INVALID_REQUEST
        | code::INVALID_PARAMS
        | code::HEADER_MISMATCH
        | code::MISSING_REQUIRED_CLIENT_CAPABILITY
        | code::UNSUPPORTED_PROTOCOL_VERSION => StatusCode::BAD_REQUEST,
        code::METHOD_NOT_FOUND => StatusCode::NOT_FOUND,
        _ => StatusCode::OK,
    }
}

/// Returns the status of an error that tells the client how to continue, and the header with which
/// it does: 403 if the access token lacks scopes, and 429 if the caller has sent too many requests.
///
/// Not part of the public API: only the workspace's own crates need it.
#[doc(hidden)]
pub fn status_and_header(error: &ErrorObject) -> Option<(StatusCode, HeaderName, HeaderValue)> {
    if let Some(time) = retry_after(error) {
        let seconds = u64::try_from(time.as_millis().div_ceil(1_000).max(1)).unwrap_or(u64::MAX);
        return Some((StatusCode::TOO_MANY_REQUESTS, header::RETRY_AFTER, seconds.into()));
    }
    Some((StatusCode::FORBIDDEN, header::WWW_AUTHENTICATE, scope_challenge(error)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn map(pairs: &[(&'static str, &str)]) -> HeaderMap {
        pairs
            .iter()
            .map(|(k, v)| {
                (HeaderName::from_static(k), HeaderValue::from_bytes(v.as_bytes()).unwrap())
            })
            .collect()
    }

    /// The examples of the specification, and the errors of decoding.
    #[test]
    fn encode_escapes_values_that_headers_cannot_carry() {
        for (value, encoded) in [
            ("us-west1", "us-west1"),
            ("Hello, 世界", "=?base64?SGVsbG8sIOS4lueVjA==?="),
            (" padded ", "=?base64?IHBhZGRlZCA=?="),
            ("line1\nline2", "=?base64?bGluZTEKbGluZTI=?="),
            ("=?base64?literal?=", "=?base64?PT9iYXNlNjQ/bGl0ZXJhbD89?="),
            ("", ""),
        ] {
            assert_eq!(encode(value), encoded);
            assert_eq!(decode(encoded).as_deref(), Some(value));
        }
        assert_eq!(decode("=?base64?!!?="), None);
        assert_eq!(decode("=?base64?/w==?="), None, "not UTF-8");
        assert_eq!(
            decode("=?BASE64?YQ==?=").as_deref(),
            Some("=?BASE64?YQ==?="),
            "the markers are case-sensitive"
        );
    }

    #[test]
    fn headers_of_the_client_pass_the_check_of_the_server() {
        let body = RequestHead {
            meta: Some(std::sync::Arc::new(mrtr_schema::meta::RequestMeta::new(
                "2026-07-28",
                mrtr_schema::capabilities::ClientCapabilities::new(),
            ))),
            name: Some("größe".into()),
            uri: Some("file:///ü".into()),
            task_id: Some("kT9w".into()),
        };
        for (method, name) in [
            (method::TOOLS_CALL, Some("=?base64?Z3LDtsOfZQ==?=")),
            (method::PROMPTS_GET, Some("=?base64?Z3LDtsOfZQ==?=")),
            (method::RESOURCES_READ, Some("=?base64?ZmlsZTovLy/DvA==?=")),
            (method::TASKS_GET, Some("kT9w")),
            (method::TASKS_UPDATE, Some("kT9w")),
            (method::TASKS_CANCEL, Some("kT9w")),
            (method::TOOLS_LIST, None),
            ("tasks/result", None),
            ("tasks/list", None),
        ] {
            let headers: HeaderMap = request_headers(method, &body).into_iter().collect();
            assert_eq!(headers.get(NAME).map(|value| value.to_str().unwrap()), name, "{method}");
            assert_eq!(check_request(&headers, method, &body), Ok(()), "{method}");
        }
    }

    #[test]
    fn check_request_names_missing_repeated_malformed_and_different_headers() {
        let body: RequestHead<'_> = serde_json::from_str(
            r#"{"name":"a","_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28"}}"#,
        )
        .unwrap();
        let good = [
            ("mcp-protocol-version", "2026-07-28"),
            ("mcp-method", "tools/call"),
            ("mcp-name", "a"),
        ];
        let message = |pairs: &[(&'static str, &str)]| {
            let error = check_request(&map(pairs), "tools/call", &body).unwrap_err();
            assert_eq!(error.code, code::HEADER_MISMATCH);
            error.message
        };
        assert_eq!(check_request(&map(&good), "tools/call", &body), Ok(()));
        assert!(message(&good[1..]).contains("mcp-protocol-version is missing"));
        assert!(message(&good[..2]).contains("mcp-name is missing"));
        assert!(message(&[good[0], good[2]]).contains("mcp-method is missing"));
        assert!(
            message(&[good[0], ("mcp-method", "TOOLS/CALL"), good[2]])
                .contains("the body says \"tools/call\"")
        );
        assert!(message(&[good[0], good[1], ("mcp-name", "A")]).contains("the body says \"a\""));
        assert!(message(&[good[0], good[1], ("mcp-name", "ü")]).contains("invalid characters"));
        assert!(message(&[good[0], good[1], ("mcp-name", "=?base64??!?=")]).contains("Base64"));
        let mut twice = map(&good);
        twice.append(NAME, HeaderValue::from_static("a"));
        assert!(
            check_request(&twice, "tools/call", &body)
                .unwrap_err()
                .message
                .contains("more than once")
        );
    }

    #[test]
    fn name_of_a_task_request_is_the_task_id() {
        let body: RequestHead<'_> =
            serde_json::from_str(r#"{"taskId":"t1","name":"t2","uri":"t3"}"#).unwrap();
        for method in [method::TASKS_GET, method::TASKS_UPDATE, method::TASKS_CANCEL] {
            let check = |name| {
                let all =
                    [("mcp-protocol-version", "v"), ("mcp-method", method), ("mcp-name", name)];
                check_request(&map(&all), method, &body).map_err(|error| error.code)
            };
            assert_eq!(check("t1"), Ok(()), "{method}");
            for other in ["t2", "t3", ""] {
                assert_eq!(check(other), Err(code::HEADER_MISMATCH), "{method} {other}");
            }
            let without = map(&[("mcp-protocol-version", "v"), ("mcp-method", method)]);
            assert!(check_request(&without, method, &body).is_err(), "{method}");
        }
    }

    #[test]
    fn accept_must_allow_json_and_event_streams() {
        for (accept, expected) in [
            ("application/json, text/event-stream", true),
            ("text/event-stream;q=0.5,application/json", true),
            ("*/*", true),
            ("application/*, text/*", true),
            ("Application/JSON, TEXT/event-stream", true),
            ("application/json", false),
            ("text/event-stream", false),
            ("application/json, text/event-stream;q=0", false),
            ("*/*, text/event-stream;q=0.0", false),
            ("text/html", false),
            ("", false),
        ] {
            assert_eq!(accepts_json_and_sse(&map(&[("accept", accept)])), expected, "{accept}");
        }
        assert!(!accepts_json_and_sse(&HeaderMap::new()));
    }

    #[test]
    fn content_type_must_be_uncompressed_json_in_utf_8() {
        for (kind, expected) in [
            ("application/json", true),
            ("Application/Json; charset=UTF-8", true),
            ("application/json; charset=\"utf-8\"", true),
            ("application/json; charset=latin1", false),
            ("text/plain", false),
            ("application/jsonx", false),
        ] {
            assert_eq!(has_json_content_type(&map(&[("content-type", kind)])), expected, "{kind}");
        }
        assert!(!has_json_content_type(&HeaderMap::new()));
        assert!(!has_json_content_type(&map(&[
            ("content-type", "application/json"),
            ("content-encoding", "gzip")
        ])));
    }
}
