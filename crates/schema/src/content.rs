//! Content blocks of tool results and prompts (specification: schema, `ContentBlock`).

pub(crate) mod validate;

use serde::{Deserialize, Serialize};

use crate::Object;
use crate::icon::Icon;
use crate::setters::setters;

/// A block of a tool result or of a prompt message. The variant is picked by `type`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
#[non_exhaustive]
pub enum ContentBlock {
    /// Text.
    Text(TextContent),
    /// An image.
    Image(MediaContent),
    /// Audio.
    Audio(MediaContent),
    /// A link to a resource.
    ResourceLink(ResourceLink),
    /// The contents of a resource.
    Resource(EmbeddedResource),
}

impl ContentBlock {
    /// Creates a text block.
    pub fn text(text: impl Into<String>) -> Self {
        Self::Text(TextContent::new(text))
    }

    /// Returns the text of a text block.
    pub fn as_text(&self) -> Option<&str> {
        match self {
            Self::Text(content) => Some(&content.text),
            _ => None,
        }
    }
}

/// Text.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct TextContent {
    /// The text.
    pub text: String,
    /// Hints for the client.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub annotations: Option<Annotations>,
    /// Metadata.
    #[serde(rename = "_meta", default, skip_serializing_if = "Option::is_none")]
    pub meta: Option<Object>,
}

setters!(TextContent { with_annotations(annotations: Annotations), with_meta(meta: Object) });

impl TextContent {
    /// Creates text content.
    pub fn new(text: impl Into<String>) -> Self {
        Self { text: text.into(), annotations: None, meta: None }
    }
}

/// An image or audio.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct MediaContent {
    /// The bytes, in padded base64.
    pub data: String,
    /// The media type.
    pub mime_type: String,
    /// Hints for the client.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub annotations: Option<Annotations>,
    /// Metadata.
    #[serde(rename = "_meta", default, skip_serializing_if = "Option::is_none")]
    pub meta: Option<Object>,
}

setters!(MediaContent { with_annotations(annotations: Annotations), with_meta(meta: Object) });

impl MediaContent {
    /// Creates media content from base64 data and its media type.
    pub fn new(data: impl Into<String>, mime_type: impl Into<String>) -> Self {
        Self { data: data.into(), mime_type: mime_type.into(), annotations: None, meta: None }
    }
}

/// A link to a resource.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct ResourceLink {
    /// The URI of the resource.
    pub uri: String,
    /// The name for programs.
    pub name: String,
    /// The display name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub title: Option<String>,
    /// The description.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    /// The media type.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mime_type: Option<String>,
    /// The size in bytes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub size: Option<u64>,
    /// Icons.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub icons: Vec<Icon>,
    /// Hints for the client.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub annotations: Option<Annotations>,
    /// Metadata.
    #[serde(rename = "_meta", default, skip_serializing_if = "Option::is_none")]
    pub meta: Option<Object>,
}

setters!(ResourceLink {
    with_title(title: String),
    with_description(description: String),
    with_mime_type(mime_type: String),
    with_size(size: u64),
    with_annotations(annotations: Annotations),
    with_meta(meta: Object),
});

impl ResourceLink {
    /// Creates a link from the URI and the name of a resource.
    pub fn new(uri: impl Into<String>, name: impl Into<String>) -> Self {
        Self {
            uri: uri.into(),
            name: name.into(),
            title: None,
            description: None,
            mime_type: None,
            size: None,
            icons: Vec::new(),
            annotations: None,
            meta: None,
        }
    }
}

/// The contents of a resource inside a result.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct EmbeddedResource {
    /// The contents.
    pub resource: ResourceContents,
    /// Hints for the client.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub annotations: Option<Annotations>,
    /// Metadata.
    #[serde(rename = "_meta", default, skip_serializing_if = "Option::is_none")]
    pub meta: Option<Object>,
}

setters!(EmbeddedResource { with_annotations(annotations: Annotations), with_meta(meta: Object) });

impl EmbeddedResource {
    /// Embeds the contents of a resource.
    pub fn new(resource: ResourceContents) -> Self {
        Self { resource, annotations: None, meta: None }
    }
}

/// The contents of a resource: exactly one of `text` and `blob`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", try_from = "UncheckedResourceContents")]
#[non_exhaustive]
pub struct ResourceContents {
    /// The URI of the resource.
    pub uri: String,
    /// The media type.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mime_type: Option<String>,
    /// Text contents.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub text: Option<String>,
    /// Binary contents, in padded base64.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub blob: Option<String>,
    /// Metadata.
    #[serde(rename = "_meta", default, skip_serializing_if = "Option::is_none")]
    pub meta: Option<Object>,
}

setters!(ResourceContents { with_mime_type(mime_type: String), with_meta(meta: Object) });

impl ResourceContents {
    /// Creates text contents.
    pub fn text(uri: impl Into<String>, text: impl Into<String>) -> Self {
        Self { uri: uri.into(), mime_type: None, text: Some(text.into()), blob: None, meta: None }
    }

    /// Creates binary contents from padded base64.
    pub fn blob(uri: impl Into<String>, base64: impl Into<String>) -> Self {
        Self { uri: uri.into(), mime_type: None, text: None, blob: Some(base64.into()), meta: None }
    }
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct UncheckedResourceContents {
    uri: String,
    mime_type: Option<String>,
    text: Option<String>,
    blob: Option<String>,
    #[serde(rename = "_meta")]
    meta: Option<Object>,
}

impl TryFrom<UncheckedResourceContents> for ResourceContents {
    type Error = &'static str;

    fn try_from(unchecked: UncheckedResourceContents) -> Result<Self, Self::Error> {
        let UncheckedResourceContents { uri, mime_type, text, blob, meta } = unchecked;
        match (&text, &blob) {
            (Some(_), None) | (None, Some(_)) => Ok(Self { uri, mime_type, text, blob, meta }),
            (None, None) => Err("resource contents need `text` or `blob`"),
            (Some(_), Some(_)) => Err("resource contents have both `text` and `blob`"),
        }
    }
}

/// Hints for the client about a piece of content.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct Annotations {
    /// The intended audience.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub audience: Option<Vec<Role>>,
    /// The importance, from 0 (optional) to 1 (required).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub priority: Option<f64>,
    /// The time of the last change, in ISO 8601.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_modified: Option<String>,
}

setters!(Annotations {
    with_audience(audience: Vec<Role>),
    with_priority(priority: f64),
    with_last_modified(last_modified: String),
});

/// The sender or the audience of content.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Role {
    /// The user.
    User,
    /// The model.
    Assistant,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unknown_content_block_type_is_named_in_the_error() {
        let error =
            serde_json::from_str::<ContentBlock>(r#"{"type":"video"}"#).unwrap_err().to_string();
        assert!(error.contains("unknown variant `video`"), "{error}");
    }

    #[test]
    fn resource_contents_have_either_text_or_blob() {
        let read = serde_json::from_str::<ContentBlock>;
        assert!(read(r#"{"type":"resource","resource":{"uri":"x:y","text":"t"}}"#).is_ok());
        assert!(read(r#"{"type":"resource","resource":{"uri":"x:y"}}"#).is_err());
        assert!(
            read(r#"{"type":"resource","resource":{"uri":"x:y","text":"t","blob":""}}"#).is_err()
        );
    }
}
