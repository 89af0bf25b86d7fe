//! Content blocks: what tools, prompts and models say (specification: schema, `ContentBlock`).

pub(crate) mod validate;

use serde::{Deserialize, Serialize};

use crate::Object;
use crate::capabilities::Icon;

/// One block of a tool's result or of a prompt message. The variant is picked by `type`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
#[non_exhaustive]
pub enum ContentBlock {
    /// Text.
    Text(TextContent),
    /// A picture.
    Image(MediaContent),
    /// Sound.
    Audio(MediaContent),
    /// A resource that can be read.
    ResourceLink(ResourceLink),
    /// A resource's contents, embedded.
    Resource(EmbeddedResource),
}

impl ContentBlock {
    /// A text block.
    pub fn text(text: impl Into<String>) -> Self {
        Self::Text(TextContent { text: text.into(), annotations: None, meta: None })
    }

    /// The text, if this is a text block.
    pub fn as_text(&self) -> Option<&str> {
        match self {
            Self::Text(content) => Some(&content.text),
            _ => None,
        }
    }
}

/// Text for or from a model.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
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

/// A picture or sound.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct MediaContent {
    /// The bytes, in base64.
    pub data: String,
    /// Their media type.
    pub mime_type: String,
    /// Hints for the client.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub annotations: Option<Annotations>,
    /// Metadata.
    #[serde(rename = "_meta", default, skip_serializing_if = "Option::is_none")]
    pub meta: Option<Object>,
}

/// A pointer to a resource.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ResourceLink {
    /// The resource's URI.
    pub uri: String,
    /// A name for programs.
    pub name: String,
    /// A name for people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub title: Option<String>,
    /// What it is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    /// Its media type.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mime_type: Option<String>,
    /// Its size in bytes.
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

/// A resource's contents inside a result.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
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

/// The contents of a resource: exactly one of `text` and `blob`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", try_from = "RawResourceContents")]
pub struct ResourceContents {
    /// The resource's URI.
    pub uri: String,
    /// Its media type.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mime_type: Option<String>,
    /// Text contents.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub text: Option<String>,
    /// Binary contents, in base64.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub blob: Option<String>,
    /// Metadata.
    #[serde(rename = "_meta", default, skip_serializing_if = "Option::is_none")]
    pub meta: Option<Object>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct RawResourceContents {
    uri: String,
    mime_type: Option<String>,
    text: Option<String>,
    blob: Option<String>,
    #[serde(rename = "_meta")]
    meta: Option<Object>,
}

impl TryFrom<RawResourceContents> for ResourceContents {
    type Error = &'static str;

    fn try_from(raw: RawResourceContents) -> Result<Self, Self::Error> {
        let RawResourceContents { uri, mime_type, text, blob, meta } = raw;
        match (&text, &blob) {
            (Some(_), None) | (None, Some(_)) => Ok(Self { uri, mime_type, text, blob, meta }),
            (None, None) => Err("resource contents need `text` or `blob`"),
            (Some(_), Some(_)) => Err("resource contents have both `text` and `blob`"),
        }
    }
}

/// Hints about content.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Annotations {
    /// For whom it is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub audience: Option<Vec<Role>>,
    /// From 0 (optional) to 1 (required).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub priority: Option<f64>,
    /// An ISO 8601 time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_modified: Option<String>,
}

/// Who speaks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Role {
    /// The person.
    User,
    /// The model.
    Assistant,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unknown_block_type_is_named() {
        let error =
            serde_json::from_str::<ContentBlock>(r#"{"type":"video"}"#).unwrap_err().to_string();
        assert!(error.contains("unknown variant `video`"), "{error}");
    }

    #[test]
    fn embedded_resources_hold_one_kind_of_contents() {
        let read = serde_json::from_str::<ContentBlock>;
        assert!(read(r#"{"type":"resource","resource":{"uri":"x:y","text":"t"}}"#).is_ok());
        assert!(read(r#"{"type":"resource","resource":{"uri":"x:y"}}"#).is_err());
        assert!(
            read(r#"{"type":"resource","resource":{"uri":"x:y","text":"t","blob":""}}"#).is_err()
        );
    }
}
