//! Requests of the current revision, as legacy servers expect them.

use mrtr_schema::Object;
use mrtr_schema::RawJson;
use mrtr_schema::input::InputResponses;
use mrtr_schema::json::{ObjectWriter, read_pairs};
use mrtr_schema::jsonrpc::{ErrorObject, Notification, Params, Request, RequestId};
use mrtr_schema::meta::{RequestMeta, key};
use mrtr_schema::notification::{Progress, name};
use serde_json::value::RawValue;

/// What a request is of: its caller if there are several, its method, and the JSON of the name or
/// the URI in its parameters.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Target {
    pub(super) caller: Option<String>,
    method: String,
    subject: Option<String>,
}

/// A request of the current revision, taken apart.
pub(super) struct ModernRequest {
    pub(super) meta: RequestMeta,
    pub(super) target: Target,
    /// The request state, and the responses that arrived with it.
    pub(super) state: Option<String>,
    pub(super) responses: InputResponses,
    /// The request without what only the current revision has.
    pub(super) legacy: Request,
}

impl ModernRequest {
    pub(super) fn parse(request: Request, caller: Option<&str>) -> Result<Self, ErrorObject> {
        let Request { id, method, params, .. } = request;
        let mut this = Self {
            meta: RequestMeta::default(),
            target: Target {
                caller: caller.map(str::to_owned),
                method: method.clone(),
                subject: None,
            },
            state: None,
            responses: InputResponses::default(),
            legacy: Request::new(id, method, None),
        };
        let Some(params) = params else { return Ok(this) };
        let invalid = |error: serde_json::Error| {
            ErrorObject::invalid_params(format!("Invalid params: {error}"))
        };
        let mut deserializer = serde_json::Deserializer::from_str(params.as_str());
        let members: Vec<(String, Box<RawValue>)> =
            read_pairs(&mut deserializer, "parameters").map_err(invalid)?;
        let mut object = ObjectWriter::with_capacity(params.as_str().len());
        let mut is_empty = true;
        for (name, value) in members {
            match name.as_str() {
                "requestState" => {
                    this.state = serde_json::from_str(value.get()).map_err(invalid)?;
                }
                "inputResponses" => {
                    this.responses = serde_json::from_str(value.get()).map_err(invalid)?;
                }
                "_meta" => {
                    this.meta = serde_json::from_str(value.get()).map_err(invalid)?;
                    let kept = legacy_meta(&this.meta);
                    if !kept.is_empty() {
                        object = object.member("_meta", &kept).map_err(invalid)?;
                        is_empty = false;
                    }
                }
                _ => {
                    if matches!(name.as_str(), "name" | "uri") {
                        this.target.subject = Some(value.get().to_owned());
                    }
                    object = object.raw(&name, &RawJson::from(value));
                    is_empty = false;
                }
            }
        }
        if !is_empty {
            this.legacy.params = Some(Params::new(&object.end()).map_err(invalid)?);
        }
        Ok(this)
    }
}

/// Returns the members of `_meta` that legacy revisions have.
fn legacy_meta(meta: &RequestMeta) -> Object {
    let mut kept = meta.other.clone();
    if let Some(token) = &meta.progress_token {
        kept.insert(key::PROGRESS_TOKEN.to_owned(), serde_json::json!(token));
    }
    kept
}

/// Replaces the token of a progress notification by that of the current round.
///
/// A legacy server knows the token of the first round only.
pub(super) fn with_token(notification: Notification, token: Option<&RequestId>) -> Notification {
    if notification.method != name::PROGRESS {
        return notification;
    }
    let renamed = notification.decode_params::<Progress>().ok().zip(token).and_then(|it| {
        let (mut progress, token) = it;
        progress.progress_token = token.clone();
        Notification::new(name::PROGRESS, &progress).ok()
    });
    renamed.unwrap_or(notification)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn legacy_request_has_no_members_of_the_current_revision() {
        let params = json!({
            "name": "book",
            "arguments": { "n": 1 },
            "requestState": "s",
            "inputResponses": { "q": { "action": "cancel" } },
            "_meta": {
                key::PROTOCOL_VERSION: "2026-07-28",
                key::CLIENT_CAPABILITIES: { "roots": {} },
                "progressToken": 7,
                "traceparent": "00-x",
            },
        });
        let params = Params::new(&params).unwrap();
        let request = Request::new(RequestId::Number(7), "tools/call", Some(params));
        let parsed = ModernRequest::parse(request, None).unwrap();
        assert_eq!(parsed.state.as_deref(), Some("s"));
        assert!(parsed.responses.get("q").is_some());
        assert!(parsed.meta.client_capabilities.unwrap().has_roots());
        let legacy: serde_json::Value =
            serde_json::from_str(parsed.legacy.params.unwrap().as_str()).unwrap();
        let mut expected = json!({ "name": "book", "arguments": { "n": 1 } });
        expected["_meta"] = json!({ "traceparent": "00-x", "progressToken": 7 });
        assert_eq!(legacy, expected);

        let meta = json!({ "_meta": { key::PROTOCOL_VERSION: "2026-07-28" } });
        let params = Params::new(&meta).unwrap();
        let request = Request::new(RequestId::Number(1), "tools/list", Some(params));
        assert!(ModernRequest::parse(request, None).unwrap().legacy.params.is_none());
    }
}
