//! Requests to the API.

use std::fmt::Write as _;

use bytes::Bytes;
use http::{HeaderName, HeaderValue, Request, header};
use mrtr_server::{Error, Result};
use serde_json::Value;
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
                    let value = HeaderValue::from_str(&text)
                        .map_err(|_| invalid(&parameter.argument, "is no value of a header"))?;
                    let name = HeaderName::try_from(&parameter.name).map_err(Error::internal)?;
                    request.headers_mut().insert(name, value);
                }
            }
        }
        if has_dot_segments(&path) {
            return Err(Error::invalid("the arguments of the path would lead out of it"));
        }
        let mut url = format!("{}{path}", base.as_str().trim_end_matches('/'));
        if !query.is_empty() {
            url = format!("{url}?{}", query.join("&"));
        }
        *request.method_mut() = self.operation.method.clone();
        let too_long = |_| Error::invalid("the arguments are too long for a URL");
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

/// Returns a value as JSON on one line, cut if it is long.
fn shown(value: &RawValue) -> String {
    let text = serde_json::from_str::<Value>(value.get()).unwrap_or_default().to_string();
    match text.char_indices().nth(MAX_SHOWN) {
        Some((at, _)) => {
            format!("{}… ({} bytes in total)", text.get(..at).unwrap_or_default(), text.len())
        }
        None => text,
    }
}

fn invalid(argument: &str, why: &str) -> Error {
    Error::invalid(format!("the argument {argument:?} {why}"))
}
