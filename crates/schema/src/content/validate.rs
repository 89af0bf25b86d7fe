//! What the specification asks of content beyond its shape (server, "Prompts": data types; "Resources":
//! annotations).

use super::{Annotations, ContentBlock, ResourceContents};
use crate::uri;

impl ContentBlock {
    /// Checks a block as one that is sent: base64 is base64, media types and URIs are such, an embedded
    /// resource says its media type and holds either text or bytes.
    ///
    /// # Errors
    ///
    /// What is wrong with it.
    pub fn check(&self) -> Result<(), String> {
        let annotations = match self {
            Self::Text(content) => &content.annotations,
            Self::Image(content) | Self::Audio(content) => {
                check_base64(&content.data)?;
                check_media_type(&content.mime_type)?;
                &content.annotations
            }
            Self::ResourceLink(link) => {
                uri::check(&link.uri)?;
                &link.annotations
            }
            Self::Resource(embedded) => {
                if embedded.resource.mime_type.is_none() {
                    return Err("an embedded resource says its media type".to_owned());
                }
                embedded.resource.check()?;
                &embedded.annotations
            }
        };
        annotations.as_ref().map_or(Ok(()), Annotations::check)
    }
}

impl ResourceContents {
    /// Checks contents as ones that are sent: a URI, either text or base64, and a media type that is one.
    ///
    /// # Errors
    ///
    /// What is wrong with them.
    pub fn check(&self) -> Result<(), String> {
        uri::check(&self.uri)?;
        if let Some(mime_type) = &self.mime_type {
            check_media_type(mime_type)?;
        }
        match (&self.text, &self.blob) {
            (Some(_), None) => Ok(()),
            (None, Some(blob)) => check_base64(blob),
            _ => Err("contents are either text or bytes".to_owned()),
        }
    }
}

impl Annotations {
    /// Checks that the priority is from 0 to 1, and the time one of ISO 8601.
    ///
    /// # Errors
    ///
    /// What is wrong with them.
    pub fn check(&self) -> Result<(), String> {
        if self.priority.is_some_and(|priority| !(0.0..=1.0).contains(&priority)) {
            return Err("a priority is from 0 to 1".to_owned());
        }
        match &self.last_modified {
            Some(time) if !is_time(time) => Err(format!("{time:.40?} is no time of ISO 8601")),
            _ => Ok(()),
        }
    }
}

pub(crate) fn check_base64(text: &str) -> Result<(), String> {
    let (body, padding) = match text.as_bytes() {
        [body @ .., b'=', b'='] => (body, 2),
        [body @ .., b'='] => (body, 1),
        body => (body, 0),
    };
    let fits = |c: &u8| c.is_ascii_alphanumeric() || matches!(c, b'+' | b'/');
    if (body.len() + padding) % 4 == 0 && body.iter().all(fits) {
        return Ok(());
    }
    Err("bytes are written in base64, with its padding".to_owned())
}

/// `type/subtype`, and parameters behind a semicolon.
pub(crate) fn check_media_type(text: &str) -> Result<(), String> {
    let (name, _) = text.split_once(';').unwrap_or((text, ""));
    let token = |text: &str| {
        let fits = |c: u8| c.is_ascii_alphanumeric() || b"!#$&-^_.+*".contains(&c);
        !text.is_empty() && text.bytes().all(fits)
    };
    match name.trim_end().split_once('/') {
        Some((kind, subtype)) if token(kind) && token(subtype) => Ok(()),
        _ => Err(format!("{text:.40?} is no media type")),
    }
}

/// `2026-07-28`, or with a time behind a `T`.
fn is_time(text: &str) -> bool {
    let (date, time) = text.split_once('T').map_or((text, None), |(date, time)| (date, Some(time)));
    let like = |text: &str, form: &str| {
        text.len() == form.len()
            && text.bytes().zip(form.bytes()).all(|(c, like)| match like {
                b'0' => c.is_ascii_digit(),
                _ => c == like,
            })
    };
    let Some(time) = time else { return like(date, "0000-00-00") };
    let (clock, zone) = time.split_at(time.find(['Z', '+', '-']).unwrap_or(time.len()));
    let (clock, fraction) = clock.split_once('.').unwrap_or((clock, "0"));
    like(date, "0000-00-00")
        && (like(clock, "00:00") || like(clock, "00:00:00"))
        && !fraction.is_empty()
        && fraction.bytes().all(|c| c.is_ascii_digit())
        && (matches!(zone, "" | "Z") || like(zone.split_at(1).1, "00:00"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    #[test]
    fn blocks_are_checked_before_they_are_sent() {
        let check =
            |block: &Value| serde_json::from_value::<ContentBlock>(block.clone()).unwrap().check();
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
            (embedded(json!({ "uri": "a:1", "text": "x" })), "media type"),
            (embedded(json!({ "uri": "x", "text": "x", "mimeType": "a/b" })), "scheme"),
            (embedded(json!({ "uri": "a:1", "blob": "A", "mimeType": "a/b" })), "base64"),
            (noted(json!({ "priority": 1.1 })), "from 0 to 1"),
            (noted(json!({ "priority": -0.1 })), "from 0 to 1"),
            (noted(json!({ "lastModified": "yesterday" })), "ISO 8601"),
            (noted(json!({ "lastModified": "2026-7-28" })), "ISO 8601"),
            (noted(json!({ "lastModified": "2026-07-28T12" })), "ISO 8601"),
            (noted(json!({ "lastModified": "2026-07-28T12:00+2" })), "ISO 8601"),
        ] {
            let why = check(&wrong).unwrap_err();
            assert!(why.contains(part), "{wrong}: {why}");
        }
        let both = ResourceContents {
            uri: "a:1".to_owned(),
            mime_type: None,
            text: Some(String::new()),
            blob: Some(String::new()),
            meta: None,
        };
        assert!(both.check().is_err());
        assert!(ResourceContents { text: None, blob: None, ..both }.check().is_err());
    }
}
