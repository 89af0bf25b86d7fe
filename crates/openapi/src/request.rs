//! Requests to the API.

use std::fmt::Write as _;

use bytes::Bytes;
use http::{HeaderName, HeaderValue, Request, header};
use mrtr_server::{Error, Result};
use serde_json::value::RawValue;
use url::Url;

use crate::arguments::Arguments;
use crate::parameter::{Location, encode};
use crate::plan::{Plan, has_dot_segments};

/// How much of a body is shown to the user.
const MAX_SHOWN: usize = 1_000;

impl Plan {
    /// Builds the request of a call.
    pub(crate) fn request(&self, base: &Url, arguments: &Arguments) -> Result<Request<Bytes>> {
        let mut path = self.operation.path.clone();
        let mut query = Vec::new();
        let mut request = Request::new(Bytes::new());
        for parameter in &self.parameters {
            let Some(value) = arguments.0.get(&parameter.argument) else {
                if parameter.location == Location::Path {
                    return Err(invalid(&parameter.argument, "is missing"));
                }
                continue;
            };
            let of_argument = |why: String| invalid(&parameter.argument, &why);
            match parameter.location {
                Location::Path => {
                    let text = parameter.joined(value, encode).map_err(of_argument)?;
                    // An empty segment would name another resource, such as the whole collection.
                    if text.is_empty() {
                        return Err(invalid(&parameter.argument, "is empty"));
                    }
                    path = path.replace(&format!("{{{}}}", parameter.name), &text);
                }
                Location::Query => {
                    let pairs = parameter.pairs(value).map_err(of_argument)?;
                    query.extend(pairs.into_iter().map(|(name, value)| format!("{name}={value}")));
                }
                Location::Header => {
                    let text = parameter.joined(value, str::to_owned).map_err(of_argument)?;
                    let value = HeaderValue::from_str(&text).map_err(|_| {
                        invalid(
                            &parameter.argument,
                            "contains characters that are not allowed in a header",
                        )
                    })?;
                    let name = HeaderName::try_from(&parameter.name).map_err(Error::internal)?;
                    request.headers_mut().insert(name, value);
                }
            }
        }
        if has_dot_segments(&path) {
            return Err(Error::invalid(
                "the arguments of the path must not make a segment `.` or `..`",
            ));
        }
        let mut url = format!("{}{path}", base.as_str().trim_end_matches('/'));
        if !query.is_empty() {
            url = format!("{url}?{}", query.join("&"));
        }
        *request.method_mut() = self.operation.method.clone();
        let too_long = |_| Error::invalid("the arguments make a URL that is too long");
        *request.uri_mut() = url.parse().map_err(too_long)?;
        let accepted = HeaderValue::from_static("application/json, text/*;q=0.5, */*;q=0.1");
        request.headers_mut().insert(header::ACCEPT, accepted);
        if let Some(body) = &self.body
            && let Some(value) = arguments.0.get(&body.argument)
        {
            let kind = HeaderValue::from_str(&body.content_type).map_err(Error::internal)?;
            request.headers_mut().insert(header::CONTENT_TYPE, kind);
            *request.body_mut() = Bytes::copy_from_slice(value.get().as_bytes());
        }
        request.extensions_mut().insert(self.operation.clone());
        Ok(request)
    }

    /// Describes a request to the user who has to agree to it.
    pub(crate) fn question(&self, request: &Request<Bytes>, arguments: &Arguments) -> String {
        let uri = request.uri();
        let host = uri.authority().map_or("", |authority| authority.as_str());
        let path = uri.path_and_query().map_or("", |path| path.as_str());
        let mut text = format!("Send this request to {host}?\n\n{} {path}", request.method());
        for parameter in self.parameters.iter().filter(|p| p.location == Location::Header) {
            if let Some(value) = arguments.0.get(&parameter.argument) {
                let _ = write!(text, "\n{}: {}", parameter.name, shown(value));
            }
        }
        if let Some(value) = self.body.as_ref().and_then(|body| arguments.0.get(&body.argument)) {
            let _ = write!(text, "\n\n{}", shown(value));
        }
        text
    }
}

/// Returns the JSON text of a value as it is sent, on one line, and cut if it is long. Characters
/// that could hide others are escaped.
fn shown(value: &RawValue) -> String {
    let text = value.get();
    let mut line = String::new();
    for (at, c) in text.chars().enumerate() {
        if at == MAX_SHOWN {
            let _ = write!(line, "… ({} bytes in total)", text.len());
            break;
        }
        match c {
            // Outside of strings: JSON strings have no line breaks.
            '\n' | '\r' | '\t' => line.push(' '),
            c if is_invisible(c) => line.extend(c.escape_unicode()),
            c => line.push(c),
        }
    }
    line
}

/// Returns true for characters without a shape, such as those that change the direction of text.
fn is_invisible(c: char) -> bool {
    c.is_control()
        || matches!(c, '\u{ad}' | '\u{61c}' | '\u{180e}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{feff}' | '\u{e0000}'..='\u{e007f}')
}

fn invalid(argument: &str, why: &str) -> Error {
    Error::invalid(format!("the argument {argument:?} {why}"))
}
