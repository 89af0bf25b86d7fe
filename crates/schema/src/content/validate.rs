//! Checks of content before it is sent: the rules of the specification that the types do not
//! express (server, "Prompts": data types; "Resources": annotations).

use super::{Annotations, ContentBlock, ResourceContents};
use crate::prompt::PromptMessage;
use crate::{InvalidValue, peer_text, uri};

impl ContentBlock {
    /// Checks a block before it is sent.
    ///
    /// # Errors
    ///
    /// [`InvalidValue`] if data is not padded base64, a media type or a URI is malformed, or by
    /// the rules of [`ResourceContents::validate`] and [`Annotations::validate`].
    pub fn validate(&self) -> Result<(), InvalidValue> {
        let annotations = match self {
            Self::Text(content) => &content.annotations,
            Self::Image(content) | Self::Audio(content) => {
                validate_base64(&content.data).map_err(|e| e.at("data"))?;
                validate_media_type(&content.mime_type).map_err(|e| e.at("mimeType"))?;
                &content.annotations
            }
            Self::ResourceLink(link) => {
                uri::validate(&link.uri).map_err(|e| e.at("uri"))?;
                &link.annotations
            }
            Self::Resource(embedded) => {
                embedded.resource.validate().map_err(|e| e.at("resource"))?;
                &embedded.annotations
            }
        };
        match annotations {
            Some(annotations) => annotations.validate().map_err(|e| e.at("annotations")),
            None => Ok(()),
        }
    }
}

impl PromptMessage {
    /// Checks a message before it is sent: by the rules of [`ContentBlock::validate`], and that an
    /// embedded resource has a media type (server, "Prompts": "Embedded Resources").
    ///
    /// # Errors
    ///
    /// [`InvalidValue`] if a rule is broken.
    pub fn validate(&self) -> Result<(), InvalidValue> {
        if let ContentBlock::Resource(embedded) = &self.content
            && embedded.resource.mime_type.is_none()
        {
            let missing = InvalidValue::new("an embedded resource needs a media type");
            return Err(missing.at("mimeType").at("resource"));
        }
        self.content.validate()
    }
}

impl ResourceContents {
    /// Checks contents before they are sent.
    ///
    /// # Errors
    ///
    /// [`InvalidValue`] if the URI or the media type is malformed, the blob is not padded base64,
    /// or not exactly one of `text` and `blob` is present.
    pub fn validate(&self) -> Result<(), InvalidValue> {
        uri::validate(&self.uri).map_err(|e| e.at("uri"))?;
        if let Some(mime_type) = &self.mime_type {
            validate_media_type(mime_type).map_err(|e| e.at("mimeType"))?;
        }
        match (&self.text, &self.blob) {
            (Some(_), None) => Ok(()),
            (None, Some(blob)) => validate_base64(blob).map_err(|e| e.at("blob")),
            _ => Err(InvalidValue::new("exactly one of `text` and `blob` must be present")),
        }
    }
}

impl Annotations {
    /// Checks annotations before they are sent.
    ///
    /// # Errors
    ///
    /// [`InvalidValue`] if the priority is not between 0 and 1, or the time is not in ISO 8601.
    pub fn validate(&self) -> Result<(), InvalidValue> {
        if self.priority.is_some_and(|priority| !(0.0..=1.0).contains(&priority)) {
            return Err(InvalidValue::new("must be between 0 and 1").at("priority"));
        }
        match &self.last_modified {
            Some(time) if !is_time(time) => {
                let reason = format!("invalid ISO 8601 time {}", peer_text::quote(time));
                Err(InvalidValue::new(reason).at("lastModified"))
            }
            _ => Ok(()),
        }
    }
}

pub(crate) fn validate_base64(text: &str) -> Result<(), InvalidValue> {
    let (body, padding) = match text.as_bytes() {
        [body @ .., b'=', b'='] => (body, 2),
        [body @ .., b'='] => (body, 1),
        body => (body, 0),
    };
    let is_digit = |c: &u8| c.is_ascii_alphanumeric() || matches!(c, b'+' | b'/');
    if (body.len() + padding) % 4 == 0 && body.iter().all(is_digit) {
        return Ok(());
    }
    Err(InvalidValue::new("invalid base64 (standard alphabet, with padding)"))
}

/// Accepts `type/subtype`, with any parameters after a semicolon.
pub(crate) fn validate_media_type(text: &str) -> Result<(), InvalidValue> {
    let (name, _) = text.split_once(';').unwrap_or((text, ""));
    let is_token = |text: &str| {
        let is_allowed = |c: u8| c.is_ascii_alphanumeric() || b"!#$&-^_.+*".contains(&c);
        !text.is_empty() && text.bytes().all(is_allowed)
    };
    match name.trim_end().split_once('/') {
        Some((kind, subtype)) if is_token(kind) && is_token(subtype) => Ok(()),
        _ => Err(InvalidValue::new(format!("invalid media type {}", peer_text::quote(text)))),
    }
}

/// Returns true if `text` can be an ISO 8601 date, with or without a time: it begins with a year,
/// and has only characters of ISO 8601. The standard has many forms, and the value is a hint.
fn is_time(text: &str) -> bool {
    let begins_with_year =
        text.len() >= 4 && text.bytes().take(4).all(|year| year.is_ascii_digit());
    begins_with_year && text.bytes().all(|c| c.is_ascii_digit() || b"TWZ:.,+-".contains(&c))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    #[test]
    fn content_block_validation_names_the_broken_rule() {
        let check = |block: &Value| {
            serde_json::from_value::<ContentBlock>(block.clone()).unwrap().validate()
        };
        let embedded = |resource: Value| json!({ "type": "resource", "resource": resource });
        let media =
            |data: &str, mime: &str| json!({ "type": "image", "data": data, "mimeType": mime });
        let noted =
            |annotations: Value| json!({ "type": "text", "text": "x", "annotations": annotations });
        for fine in [
            media("", "image/png"),
            media("AAAA", "image/svg+xml"),
            media("AAA=", "text/plain; charset=utf-8"),
            json!({ "type": "audio", "data": "AA==", "mimeType": "audio/wav" }),
            json!({ "type": "resource_link", "uri": "a:1", "name": "n" }),
            embedded(json!({ "uri": "a:1", "text": "x", "mimeType": "text/plain" })),
            embedded(json!({ "uri": "a:1", "blob": "AA==", "mimeType": "a/b" })),
            noted(json!({ "priority": 0, "lastModified": "2026-07-28" })),
            noted(json!({ "priority": 1, "lastModified": "2026-07-28T12:00:00Z" })),
            noted(json!({ "lastModified": "2026-07-28T12:00:00.123+02:00" })),
            noted(json!({ "lastModified": "2026-07-28T12:00:00,1+02" })),
            noted(json!({ "lastModified": "20260728T120000Z" })),
            noted(json!({ "lastModified": "2026-W31-2" })),
        ] {
            assert_eq!(check(&fine), Ok(()), "{fine}");
        }
        for (wrong, part) in [
            (media("AAA", "image/png"), "base64"),
            (media("AA\nA", "image/png"), "base64"),
            (media("A===", "image/png"), "base64"),
            (media("AAAA", "png"), "media type"),
            (media("AAAA", ""), "media type"),
            (media("AAAA", "image/"), "media type"),
            (json!({ "type": "audio", "data": "é", "mimeType": "audio/wav" }), "base64"),
            (json!({ "type": "audio", "data": "", "mimeType": "wav" }), "media type"),
            (json!({ "type": "resource_link", "uri": "no uri", "name": "n" }), "scheme"),
            (embedded(json!({ "uri": "x", "text": "x", "mimeType": "a/b" })), "scheme"),
            (embedded(json!({ "uri": "a:1", "blob": "A", "mimeType": "a/b" })), "base64"),
            (noted(json!({ "priority": 1.1 })), "between 0 and 1"),
            (noted(json!({ "priority": -0.1 })), "between 0 and 1"),
            (noted(json!({ "lastModified": "yesterday" })), "ISO 8601"),
            (noted(json!({ "lastModified": "12:00" })), "ISO 8601"),
            (noted(json!({ "lastModified": "28 July 2026" })), "ISO 8601"),
        ] {
            let error = check(&wrong).unwrap_err().to_string();
            assert!(error.contains(part), "{wrong}: {error}");
        }
        let both = ResourceContents {
            uri: "a:1".to_owned(),
            mime_type: None,
            text: Some(String::new()),
            blob: Some(String::new()),
            meta: None,
        };
        assert!(both.validate().is_err());
        assert!(ResourceContents { text: None, blob: None, ..both }.validate().is_err());
    }
}
