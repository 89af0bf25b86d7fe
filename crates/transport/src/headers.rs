//! The headers that mirror a request's body, and content negotiation (specification: streamable HTTP,
//! "Sending Messages", "Request Metadata").

mod param;

use std::borrow::Cow;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use http::{HeaderMap, HeaderName, HeaderValue, header};
use mrtr_schema::jsonrpc::{ErrorObject, code};
use mrtr_schema::method;
use mrtr_schema::peer_text::quote;
use mrtr_schema::request_head::RequestHead;

pub use param::{ParamHeader, check_params};

/// `MCP-Protocol-Version`: the `_meta` field of that name.
pub const PROTOCOL_VERSION: HeaderName = HeaderName::from_static("mcp-protocol-version");
/// `Mcp-Method`: the request's method.
pub const METHOD: HeaderName = HeaderName::from_static("mcp-method");
/// `Mcp-Name`: the tool's or prompt's name, or the resource's URI.
pub const NAME: HeaderName = HeaderName::from_static("mcp-name");

const SENTINEL: (&str, &str) = ("=?base64?", "?=");

/// Writes `value` so that it survives as a header value: as it is if it can be, else in base64
/// between `=?base64?` and `?=`.
pub fn encode(value: &str) -> Cow<'_, str> {
    let sentinel = value.starts_with(SENTINEL.0) && value.ends_with(SENTINEL.1);
    let padded = value.starts_with([' ', '\t']) || value.ends_with([' ', '\t']);
    let ascii = value.bytes().all(|b| matches!(b, b'\t' | b' '..=b'~'));
    let plain = ascii && !padded && !sentinel;
    if plain {
        value.into()
    } else {
        [SENTINEL.0, &STANDARD.encode(value), SENTINEL.1].concat().into()
    }
}

/// Reads what [`encode`] wrote. `None` if it stands between the marks but is not base64 of UTF-8.
pub fn decode(value: &str) -> Option<Cow<'_, str>> {
    match value.strip_prefix(SENTINEL.0).and_then(|rest| rest.strip_suffix(SENTINEL.1)) {
        None => Some(value.into()),
        Some(encoded) => String::from_utf8(STANDARD.decode(encoded).ok()?).ok().map(Cow::Owned),
    }
}

/// Whether requests of this method have the header `Mcp-Name`.
fn has_name(request_method: &str) -> bool {
    matches!(request_method, method::TOOLS_CALL | method::PROMPTS_GET | method::RESOURCES_READ)
}

/// What `Mcp-Name` mirrors, where there is such a header.
fn name_of<'a>(request_method: &str, body: &'a RequestHead<'_>) -> Option<&'a str> {
    let name = if request_method == method::RESOURCES_READ { &body.uri } else { &body.name };
    name.as_deref().filter(|_| has_name(request_method))
}

/// The headers that a client sends with a request.
pub fn mirror(request_method: &str, body: &RequestHead<'_>) -> Vec<(HeaderName, HeaderValue)> {
    let version = body.meta.as_ref().and_then(|meta| meta.protocol_version.as_deref());
    let name = name_of(request_method, body).map(encode);
    // `method` has no sentinel form; a method that is no header value is left out, and refused.
    [
        (PROTOCOL_VERSION, version.map(Cow::from)),
        (METHOD, Some(request_method.into())),
        (NAME, name),
    ]
    .into_iter()
    .filter_map(|(header, value)| Some((header, HeaderValue::from_str(&value?).ok()?)))
    .collect()
}

/// The `Mcp-Param-*` headers for arguments, given as name and value.
pub fn param_headers(params: &[(String, String)]) -> Vec<(HeaderName, HeaderValue)> {
    let one = |(name, value): &(String, String)| {
        let name = HeaderName::from_bytes(format!("mcp-param-{name}").as_bytes()).ok()?;
        Some((name, HeaderValue::from_str(&encode(value)).ok()?))
    };
    params.iter().filter_map(one).collect()
}

/// Compares the headers of a request with its body.
///
/// A value that is missing in the body is not reported here: the method's own check says so better.
///
/// # Errors
///
/// [`code::HEADER_MISMATCH`] if a header is missing, repeated, malformed or differs. Answer with 400.
pub fn check(
    headers: &HeaderMap,
    request_method: &str,
    body: &RequestHead<'_>,
) -> Result<(), ErrorObject> {
    let version = body.meta.as_ref().and_then(|meta| meta.protocol_version.as_deref());
    compare("MCP-Protocol-Version", single(headers, &PROTOCOL_VERSION)?, version)?;
    compare("Mcp-Method", single(headers, &METHOD)?, Some(request_method))?;
    if has_name(request_method) {
        let value = decode(single(headers, &NAME)?)
            .ok_or_else(|| mismatch("Mcp-Name is not valid base64"))?;
        compare("Mcp-Name", &value, name_of(request_method, body))?;
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

/// The one value of a header.
fn single<'a>(headers: &'a HeaderMap, name: &HeaderName) -> Result<&'a str, ErrorObject> {
    let mut values = headers.get_all(name).iter();
    let value = values.next().ok_or_else(|| mismatch(&format!("{name} is missing")))?;
    if values.next().is_some() {
        return Err(mismatch(&format!("{name} appears more than once")));
    }
    value.to_str().map_err(|_| mismatch(&format!("{name} has invalid characters")))
}

fn mismatch(why: &str) -> ErrorObject {
    ErrorObject::new(code::HEADER_MISMATCH, format!("Header mismatch: {why}"))
}

/// Whether `Accept` lets the server choose between JSON and an event stream, as every request must.
pub fn accepts_both(headers: &HeaderMap) -> bool {
    let mut values = headers.get_all(header::ACCEPT).iter();
    // What the specification shows, and nearly every client sends.
    if let (Some(value), None) = (values.next(), values.next())
        && value == "application/json, text/event-stream"
    {
        return true;
    }
    let accepts = |kind: &str, subtype: &str| {
        // The most specific range decides, as RFC 9110 has it.
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
    };
    accepts("application", "json") && accepts("text", "event-stream")
}

/// Whether the body is JSON, in UTF-8 and not compressed.
pub fn is_json(headers: &HeaderMap) -> bool {
    let plain =
        headers.get_all(header::CONTENT_ENCODING).iter().all(|v| v.as_bytes() == b"identity");
    plain && headers.get(header::CONTENT_TYPE).is_some_and(is_json_type)
}

fn is_json_type(kind: &HeaderValue) -> bool {
    // What nearly every client sends.
    if kind == "application/json" {
        return true;
    }
    let mut parts = kind.to_str().unwrap_or_default().split(';').map(str::trim);
    let json = parts.next().is_some_and(|kind| kind.eq_ignore_ascii_case("application/json"));
    let utf8 = parts.filter_map(|p| p.split_once('=')).all(|(name, value)| {
        !name.eq_ignore_ascii_case("charset")
            || value.trim_matches('"').eq_ignore_ascii_case("utf-8")
    });
    json && utf8
}

/// The HTTP status that goes with a JSON-RPC error.
///
/// Errors that are about the request itself have one of their own; all others, the server's failures
/// among them, are delivered with 200: the request was answered, and a proxy that takes a 5xx as a
/// reason to try another replica would make it run twice.
pub fn status_of(error: &ErrorObject) -> http::StatusCode {
    match error.code {
        code::PARSE_ERROR
        | code::INVALID_REQUEST
        | code::INVALID_PARAMS
        | code::HEADER_MISMATCH
        | code::MISSING_REQUIRED_CLIENT_CAPABILITY
        | code::UNSUPPORTED_PROTOCOL_VERSION => http::StatusCode::BAD_REQUEST,
        code::METHOD_NOT_FOUND => http::StatusCode::NOT_FOUND,
        _ => http::StatusCode::OK,
    }
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

    /// The table of the specification.
    #[test]
    fn values_that_are_no_header_values_are_encoded() {
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
            "the marks are case-sensitive"
        );
    }

    #[test]
    fn a_client_s_headers_pass_the_server_s_check() {
        let body = RequestHead {
            meta: Some(std::sync::Arc::new(mrtr_schema::meta::RequestMeta::new(
                "2026-07-28",
                mrtr_schema::capabilities::ClientCapabilities::new(),
            ))),
            name: Some("größe".into()),
            uri: Some("file:///ü".into()),
        };
        for method in
            [method::TOOLS_CALL, method::PROMPTS_GET, method::RESOURCES_READ, method::TOOLS_LIST]
        {
            let headers: HeaderMap = mirror(method, &body).into_iter().collect();
            assert_eq!(check(&headers, method, &body), Ok(()), "{method}");
        }
    }

    #[test]
    fn missing_repeated_malformed_and_differing_headers_are_named() {
        let body: RequestHead<'_> = serde_json::from_str(
            r#"{"name":"a","_meta":{"io.modelcontextprotocol/protocolVersion":"v"}}"#,
        )
        .unwrap();
        let good = [("mcp-protocol-version", "v"), ("mcp-method", "tools/call"), ("mcp-name", "a")];
        let message = |pairs: &[(&'static str, &str)]| {
            let error = check(&map(pairs), "tools/call", &body).unwrap_err();
            assert_eq!(error.code, code::HEADER_MISMATCH);
            error.message
        };
        assert_eq!(check(&map(&good), "tools/call", &body), Ok(()));
        assert!(message(&good[1..]).contains("mcp-protocol-version is missing"));
        assert!(message(&good[..2]).contains("mcp-name is missing"));
        assert!(message(&[good[0], good[2]]).contains("mcp-method is missing"));
        assert!(
            message(&[good[0], ("mcp-method", "TOOLS/CALL"), good[2]])
                .contains("the body says \"tools/call\"")
        );
        assert!(message(&[good[0], good[1], ("mcp-name", "A")]).contains("the body says \"a\""));
        assert!(message(&[good[0], good[1], ("mcp-name", "ü")]).contains("invalid characters"));
        assert!(message(&[good[0], good[1], ("mcp-name", "=?base64??!?=")]).contains("base64"));
        let mut twice = map(&good);
        twice.append(NAME, HeaderValue::from_static("a"));
        assert!(check(&twice, "tools/call", &body).unwrap_err().message.contains("more than once"));
    }

    #[test]
    fn accept_must_leave_both_open() {
        for (accept, verdict) in [
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
            assert_eq!(accepts_both(&map(&[("accept", accept)])), verdict, "{accept}");
        }
        assert!(!accepts_both(&HeaderMap::new()));
    }

    #[test]
    fn only_plain_json_is_json() {
        for (kind, verdict) in [
            ("application/json", true),
            ("Application/Json; charset=UTF-8", true),
            ("application/json; charset=\"utf-8\"", true),
            ("application/json; charset=latin1", false),
            ("text/plain", false),
            ("application/jsonx", false),
        ] {
            assert_eq!(is_json(&map(&[("content-type", kind)])), verdict, "{kind}");
        }
        assert!(!is_json(&HeaderMap::new()));
        assert!(!is_json(&map(&[
            ("content-type", "application/json"),
            ("content-encoding", "gzip")
        ])));
    }
}
