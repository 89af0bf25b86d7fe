//! Requests to the API.

use std::fmt::Write as _;
use std::str::Chars;

use bytes::Bytes;
use http::{HeaderName, HeaderValue, Request, header};
use mrtr_server::{Error, Result};
use url::Url;

use crate::arguments::Arguments;
use crate::form;
use crate::parameter::{Location, MAX_JOINED, Pairs, encode};
use crate::plan::{BodyFormat, Plan, leaves};

/// The longest string of a body that is shown in full, in characters.
const MAX_STRING: usize = 200;

/// The longest description of a request that a user is asked to approve, in characters.
const MAX_QUESTION: usize = 4_000;

/// The fault of a required argument that cannot be sent.
const NOTHING: &str = "is required, but has no value that can be sent";

impl Plan {
    /// Builds the request of a call.
    pub(crate) fn request(&self, base: &Url, arguments: &Arguments) -> Result<Request<Bytes>> {
        let mut path = self.operation.path.clone();
        let mut query = Pairs::default();
        let mut request = Request::new(Bytes::new());
        let of_query = self.parameters.iter().filter(|other| other.location == Location::Query);
        let of_query = of_query.map(|other| encode(&other.name));
        let of_query: Vec<_> = of_query.chain(self.credentials.of_query()).collect();
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
                    let text = text.unwrap_or_default();
                    let variable = format!("{{{}}}", parameter.name);
                    let added = path.matches(&variable).count().saturating_mul(text.len());
                    if path.len().saturating_add(added) > MAX_JOINED {
                        let why =
                            format!("the arguments make a path of more than {MAX_JOINED} bytes");
                        return Err(Error::invalid(why));
                    }
                    path = path.replace(&variable, &text);
                }
                Location::Query => {
                    let before = query.all().len();
                    parameter.write(value, &mut query).map_err(of_argument)?;
                    if parameter.is_required && query.all().len() == before {
                        return Err(of_argument(NOTHING.to_owned()));
                    }
                    // Members of an object are parameters, too.
                    let own = encode(&parameter.name);
                    let is_of_other = |name: &String| {
                        let sets = |other: &String| {
                            // The own name may be a part of another parameter's.
                            let is_own = contains(other, &own) && contains(&own, name);
                            *other != own
                                && !is_own
                                && (contains(other, name) || contains(name, other))
                        };
                        *name != own && of_query.iter().any(sets)
                    };
                    let mut names = query.all().iter().skip(before).map(|(name, _)| name);
                    if names.any(is_of_other) {
                        let why = "must not have a member with the name of another parameter";
                        return Err(invalid(&parameter.argument, why));
                    }
                }
                Location::Header => {
                    let text = parameter.joined(value, str::to_owned).map_err(of_argument)?;
                    let Some(text) = text else {
                        if parameter.is_required {
                            return Err(of_argument(NOTHING.to_owned()));
                        }
                        continue;
                    };
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
        if leaves(&path) {
            return Err(Error::invalid(
                "the arguments of the path must not make a segment `.` or `..`",
            ));
        }
        let mut url = format!("{}{path}", base.as_str().trim_end_matches('/'));
        if !query.all().is_empty() {
            url = format!("{url}?{query}");
        }
        *request.method_mut() = self.operation.method.clone();
        let too_long = |_| Error::invalid("the arguments make a URL that is too long");
        *request.uri_mut() = url.parse().map_err(too_long)?;
        let accepted = HeaderValue::from_static("application/json, text/*;q=0.5, */*;q=0.1");
        request.headers_mut().insert(header::ACCEPT, accepted);
        if let Some(body) = &self.body
            && let Some(value) = arguments.0.get(&body.argument)
        {
            let of_body = |why: String| invalid(&body.argument, &why);
            let (content_type, bytes) = match &body.format {
                BodyFormat::Json => (body.content_type.clone(), value.get().to_owned().into()),
                BodyFormat::Form(encoding) => {
                    (body.content_type.clone(), encoding.write(value).map_err(of_body)?.into())
                }
                BodyFormat::Multipart(encoding) => encoding.write(value).map_err(of_body)?,
            };
            request.headers_mut().insert(header::CONTENT_TYPE, content_type);
            *request.body_mut() = bytes;
        }
        request.extensions_mut().insert(self.operation.clone());
        Ok(request)
    }

    /// Describes a request to the user who has to approve it: all of it, except for the rest of
    /// long strings.
    pub(crate) fn question(
        &self,
        request: &Request<Bytes>,
        arguments: &Arguments,
    ) -> Result<String> {
        let uri = request.uri();
        let host = uri.authority().map_or("", |authority| authority.as_str());
        let path = uri.path_and_query().map_or("", |path| path.as_str());
        let mut text = format!("Send this request to {host}?\n\n{} {path}", request.method());
        for parameter in self.parameters.iter().filter(|p| p.location == Location::Header) {
            if let Some(value) = request.headers().get(&parameter.name) {
                let value = String::from_utf8_lossy(value.as_bytes());
                let value: String = value.chars().map(visible).collect();
                let _ = write!(text, "\n{}: {value}", parameter.name);
            }
        }
        if let Some(body) = &self.body
            && let Some(value) = arguments.0.get(&body.argument)
        {
            let json = match &body.format {
                BodyFormat::Json => Ok(value.get().to_owned()),
                BodyFormat::Form(encoding) => form::to_json(value, |name| encoding.is_json(name)),
                BodyFormat::Multipart(_) => form::to_json(value, |_| false),
            };
            let json = json.map_err(|why| invalid(&body.argument, &why))?;
            let _ = write!(text, "\n\n{}", shown(&json));
        }
        if text.chars().count() > MAX_QUESTION {
            return Err(Error::new(
                "The request is too long to be shown to the user for approval. Nothing was sent.",
            ));
        }
        Ok(text)
    }
}

/// Returns a JSON text on one line, as it is sent, except that long strings are cut.
fn shown(json: &str) -> String {
    let mut line = String::new();
    let mut chars = json.chars();
    while let Some(c) = chars.next() {
        match c {
            '"' => shown_string(&mut chars, &mut line),
            // JSON has line breaks between values only.
            '\n' | '\r' | '\t' => line.push(' '),
            c => line.push(c),
        }
    }
    line
}

/// Appends a JSON string whose opening quote has been read.
fn shown_string(chars: &mut Chars<'_>, line: &mut String) {
    line.push('"');
    let (mut length, mut is_escaped) = (0_usize, false);
    for c in chars {
        if c == '"' && !is_escaped {
            break;
        }
        is_escaped = c == '\\' && !is_escaped;
        length += 1;
        if length <= MAX_STRING {
            line.push_str(&visible(c));
        }
    }
    line.push('"');
    if length > MAX_STRING {
        let _ = write!(line, " (cut; {length} characters)");
    }
}

/// Escapes characters that are invisible, or that change the direction of text.
fn visible(c: char) -> String {
    let is_invisible = c.is_control()
        || matches!(
            c,
            '\u{ad}' | '\u{34f}' | '\u{61c}' | '\u{115f}' | '\u{1160}' | '\u{17b4}' | '\u{17b5}'
                | '\u{180b}'..='\u{180f}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}'
                | '\u{2060}'..='\u{206f}' | '\u{3164}' | '\u{fe00}'..='\u{fe0f}' | '\u{feff}'
                | '\u{ffa0}' | '\u{fff0}'..='\u{fffb}' | '\u{1bca0}'..='\u{1bca3}'
                | '\u{1d173}'..='\u{1d17a}' | '\u{e0000}'..='\u{e0fff}'
        );
    if is_invisible { c.escape_unicode().to_string() } else { c.to_string() }
}

/// Returns true if servers may read the encoded name `inner` as `outer`, or as a part of it, such
/// as `outer[]` and `outer[member]`.
fn contains(outer: &str, inner: &str) -> bool {
    let rest = inner.strip_prefix(outer.strip_suffix("%5B%5D").unwrap_or(outer));
    rest.is_some_and(|rest| rest.is_empty() || rest.starts_with("%5B"))
}

fn invalid(argument: &str, why: &str) -> Error {
    Error::invalid(format!("the argument {argument:?} {why}"))
}
