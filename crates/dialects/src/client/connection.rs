//! Messages over HTTP.

use ::http::{HeaderMap, HeaderValue, Method, StatusCode, header};
use bytes::Bytes;
use mrtr_schema::peer_text::quote;
use mrtr_transport::TransportError;
use mrtr_transport::http::{HttpClient, RawResponse};

use crate::wire::sse::{Decoder, Event};

/// Sends a message.
pub(super) async fn post(
    http: &HttpClient,
    mut headers: HeaderMap,
    text: String,
    long_lived: bool,
) -> Result<RawResponse, TransportError> {
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    let both = HeaderValue::from_static("application/json, text/event-stream");
    headers.insert(header::ACCEPT, both);
    http.exchange(Method::POST, headers, Bytes::from(text), long_lived).await
}

/// Reads the events of a response until `on_event` returns a value. A JSON body counts as the data
/// of one event. Returns `None` if the server has accepted the message and says nothing: with 202,
/// 204, or an empty body.
///
/// The error of `on_event` continues a sentence whose subject is the server.
pub(super) async fn read<T>(
    mut response: RawResponse,
    mut on_event: impl FnMut(Event) -> Result<Option<T>, String>,
) -> Result<Option<T>, TransportError> {
    let status = response.status();
    if matches!(status, StatusCode::ACCEPTED | StatusCode::NO_CONTENT) {
        return Ok(None);
    }
    if matches!(status.as_u16(), 429 | 502..=504) {
        return Err(response.rejection(""));
    }
    match media_type(response.headers()).as_str() {
        "application/json" => {
            let body = response.body().await?;
            if body.is_empty() && status.is_success() {
                return Ok(None);
            }
            let Ok(data) = String::from_utf8(body) else {
                return Err(response.violation("sent a body that is not UTF-8"));
            };
            let event = Event { data, ..Event::default() };
            match on_event(event) {
                Ok(Some(value)) => Ok(Some(value)),
                Ok(None) => Err(response.violation("sent no response to the request")),
                // Gateways may write JSON, too: the status says more.
                Err(_) if !status.is_success() => Err(response.rejection("")),
                Err(why) => Err(response.violation(&why)),
            }
        }
        "text/event-stream" if status.is_success() => {
            let mut decoder = Decoder::new(response.max_length());
            let mut events = Vec::new();
            let mut length = 0;
            while let Some(chunk) = response.chunk().await? {
                length += chunk.len();
                if length > response.max_length() {
                    let max = response.max_length();
                    let why = format!("sent a response of more than {max} bytes");
                    return Err(response.violation(&why));
                }
                if decoder.push(&chunk, |event| events.push(event)).is_err() {
                    return Err(response.violation("sent an event that is too long or not UTF-8"));
                }
                for event in events.drain(..) {
                    match on_event(event) {
                        Ok(Some(value)) => return Ok(Some(value)),
                        Ok(None) => {}
                        Err(why) => return Err(response.violation(&why)),
                    }
                }
            }
            Err(response.interrupted("ended the stream before the response"))
        }
        _ if !status.is_success() => Err(response.rejection("")),
        "" if response.body().await?.is_empty() => Ok(None),
        other => {
            let why = format!("answered {status} with {} instead of JSON", quote(other));
            Err(response.violation(&why))
        }
    }
}

/// Returns the media type of a response without its parameters, in lower case.
fn media_type(headers: &HeaderMap) -> String {
    let value = headers.get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok());
    let media_type = value.and_then(|value| value.split(';').next()).unwrap_or_default();
    media_type.trim().to_ascii_lowercase()
}
