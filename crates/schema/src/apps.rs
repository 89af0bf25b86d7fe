//! MCP Apps: HTML documents of a server, its *UI resources*, which show the results of its tools
//! (extension `io.modelcontextprotocol/ui`, revision 2026-01-26).
//!
//! The types of `_meta.ui`: [`ToolUiMeta`] of tools, and [`ResourceUiMeta`] of resources. A UI
//! resource that a host shows is a *view*. The messages between views and hosts are not part of
//! this crate.

mod csp;
mod resource;
mod tool;

use serde_json::{Value, json};

use crate::capabilities::ClientCapabilities;
use crate::{InvalidValue, Object, peer_text};

pub use csp::ContentSecurityPolicy;
pub use resource::{ResourcePermissions, ResourceUiMeta};
pub use tool::{ToolUiMeta, ToolVisibility};

/// The identifier of the extension, in the `extensions` of the client's and the server's
/// capabilities.
pub const EXTENSION: &str = "io.modelcontextprotocol/ui";

/// The media type of UI resources, as servers send it.
pub const MIME_TYPE: &str = "text/html;profile=mcp-app";

/// The scheme of the URIs of UI resources, with its separator.
pub const URI_PREFIX: &str = "ui://";

/// The member of `_meta` that has the metadata.
pub const META_KEY: &str = "ui";

/// The member of a tool's `_meta` that had the URI of its UI resource in drafts of the extension.
/// Deprecated: it is read if [`META_KEY`] has none, and never written.
pub const RESOURCE_URI_KEY: &str = "ui/resourceUri";

/// Returns the settings with which a client declares that it shows UI resources: the media types
/// that it supports.
pub fn client_settings() -> Object {
    Object::from_iter([("mimeTypes".to_owned(), json!([MIME_TYPE]))])
}

/// Returns true if the client declares that it shows UI resources of the media type [`MIME_TYPE`].
pub fn is_supported_by(capabilities: &ClientCapabilities) -> bool {
    let settings = capabilities.extensions.as_ref().and_then(|all| all.get(EXTENSION));
    let types = settings.and_then(|settings| settings.get("mimeTypes")?.as_array());
    types.is_some_and(|types| types.iter().any(|mime_type| mime_type == MIME_TYPE))
}

/// Returns true if `mime_type` is that of a UI resource: [`MIME_TYPE`], whatever its case and
/// spaces.
pub fn is_ui_media_type(mime_type: &str) -> bool {
    let mut parts = mime_type.split(';').map(str::trim);
    let is_profile = |part: &str| {
        part.split_once('=').is_some_and(|(name, value)| {
            name.eq_ignore_ascii_case("profile") && value.trim_matches('"') == "mcp-app"
        })
    };
    parts.next().is_some_and(|essence| essence.eq_ignore_ascii_case("text/html"))
        && parts.any(is_profile)
}

/// Checks that `uri` can be the URI of a UI resource: that it begins with `ui://` and has only
/// characters that a URI may contain.
///
/// # Errors
///
/// [`InvalidValue`], with the broken rule.
pub fn validate_uri(uri: &str) -> Result<(), InvalidValue> {
    let Some(rest) = uri.strip_prefix(URI_PREFIX) else {
        let uri = peer_text::quote(uri);
        return Err(InvalidValue::new(format!("the URI {uri} does not begin with `ui://`")));
    };
    if rest.is_empty() {
        return Err(InvalidValue::new("the URI has nothing after `ui://`"));
    }
    crate::uri::validate_characters(rest)
}

/// Reads the member `ui` of `_meta`.
fn read<T: serde::de::DeserializeOwned>(meta: Option<&Object>) -> Result<Option<T>, InvalidValue> {
    let Some(ui) = meta.and_then(|meta| meta.get(META_KEY)) else { return Ok(None) };
    crate::json::from_value(ui).map(Some).map_err(|error: crate::json::DecodeError| {
        InvalidValue::new(peer_text::truncate(&error.reason())).at(META_KEY).at("_meta")
    })
}

/// Writes members into the member `ui` of `_meta`. Its other members are kept.
fn write(ui: &impl serde::Serialize, meta: &mut Object) {
    let Ok(Value::Object(ui)) = serde_json::to_value(ui) else { return };
    match meta.get_mut(META_KEY) {
        Some(Value::Object(old)) => old.extend(ui),
        _ => drop(meta.insert(META_KEY.to_owned(), ui.into())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_clients_with_the_media_type_support_the_extension() {
        let declares = |extensions: &str| {
            let text = format!(r#"{{"extensions":{extensions}}}"#);
            is_supported_by(&serde_json::from_str(&text).unwrap())
        };
        assert!(declares(
            r#"{"io.modelcontextprotocol/ui":{"mimeTypes":["x/y","text/html;profile=mcp-app"]}}"#
        ));
        for other in [
            "{}",
            r#"{"io.modelcontextprotocol/ui":{}}"#,
            r#"{"io.modelcontextprotocol/ui":null}"#,
            r#"{"io.modelcontextprotocol/ui":{"mimeTypes":"text/html;profile=mcp-app"}}"#,
            r#"{"io.modelcontextprotocol/ui":{"mimeTypes":["text/html"]}}"#,
            r#"{"com.example/ui":{"mimeTypes":["text/html;profile=mcp-app"]}}"#,
        ] {
            assert!(!declares(other), "{other}");
        }
        assert!(!is_supported_by(&ClientCapabilities::new()));
        let ours = ClientCapabilities::new().with_extension(EXTENSION, client_settings());
        assert!(is_supported_by(&ours));
    }

    #[test]
    fn media_types_have_the_profile() {
        for valid in
            [MIME_TYPE, "Text/HTML; Profile=\"mcp-app\"", "text/html;charset=utf-8;profile=mcp-app"]
        {
            assert!(is_ui_media_type(valid), "{valid}");
        }
        for other in ["", "text/html", "text/plain;profile=mcp-app", "text/html;profile=mcp-apps"] {
            assert!(!is_ui_media_type(other), "{other}");
        }
    }

    #[test]
    fn uris_have_the_scheme() {
        assert!(validate_uri("ui://orders/list.html").is_ok());
        for other in ["", "ui:", "ui://", "https://example.com", "UI://x", "ui://a b", "ui://%zz"] {
            assert!(validate_uri(other).is_err(), "{other}");
        }
    }
}
