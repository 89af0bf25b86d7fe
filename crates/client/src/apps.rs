//! MCP Apps: UI resources, which show the results of tools (extension
//! `io.modelcontextprotocol/ui`).

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use mrtr_schema::apps::{self, ResourceUi, ToolUi};
use mrtr_schema::content::ResourceContents;
use mrtr_schema::tool::Tool;
use mrtr_transport::Transport;

use crate::client::Client;
use crate::error::CallError;

/// A UI resource: an HTML document of a server, which shows the results of a tool. Returned by
/// [`Client::read_ui_resource`].
///
/// It is not trusted. Show it in a sandboxed `iframe` of an origin of its own, with the header of
/// its [policy](mrtr_schema::apps::ContentSecurityPolicy::to_header), in a document whose own
/// policy has `frame-src` with that origin alone. The view asks the host for tool calls and more by
/// messages; [`ToolUi::is_for_app`] says which tools it may call.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct UiResource {
    /// The URI.
    pub uri: String,
    /// The HTML document.
    pub html: String,
    /// Its origins, permissions and preferences.
    pub ui: ResourceUi,
}

impl<T: Transport> Client<T> {
    /// Reads the UI resource that shows the results of a listed tool, with `resources/read`. `None`
    /// if the tool has none (MCP Apps, revision 2026-01-26).
    ///
    /// If the contents have no metadata, that of `resources/list` counts.
    ///
    /// # Errors
    ///
    /// See [`CallError`]. It is an error of the server if the metadata is invalid, the contents
    /// are not exactly one document with the URI, or not HTML of MCP Apps in UTF-8. An invalid
    /// origin is no error: it is logged, and the policy leaves it out.
    pub async fn read_ui_resource(&self, tool: &Tool) -> Result<Option<UiResource>, CallError> {
        let ui = ToolUi::of(tool).map_err(|error| {
            CallError::protocol(format!("invalid metadata of the tool {:?}: {error}", tool.name))
        })?;
        let Some(uri) = ui.resource_uri else { return Ok(None) };
        let invalid =
            |why: String| CallError::protocol(format!("invalid UI resource {uri:?}: {why}"));
        let result = self.read_resource(&uri).await?;
        let mut contents = result.contents.into_iter().filter(|contents| contents.uri == uri);
        let (Some(contents), None) = (contents.next(), contents.next()) else {
            return Err(invalid("the server did not send it once".to_owned()));
        };
        if !contents.mime_type.as_deref().is_some_and(apps::is_ui_media_type) {
            let mime_type = contents.mime_type.unwrap_or_default();
            return Err(invalid(format!("the media type is {mime_type:?}")));
        }
        let listed;
        let mut meta = contents.meta.as_ref();
        if !meta.is_some_and(|meta| meta.contains_key(apps::META_KEY)) {
            listed = self.list_resources().await?;
            let resource = listed.iter().find(|resource| resource.uri == uri);
            meta = resource.and_then(|resource| resource.meta.as_ref());
        }
        let ui = ResourceUi::from_meta(meta).map_err(|error| invalid(error.to_string()))?;
        let ui = ui.unwrap_or_default();
        if let Err(error) = ui.validate() {
            let why = error.to_string();
            tracing::warn!(target: "mrtr::client", uri, why, "ignoring invalid origins of a UI resource");
        }
        let html = html(contents).map_err(|why| invalid(why.to_owned()))?;
        Ok(Some(UiResource { uri, html, ui }))
    }
}

/// Returns the text of contents, or their decoded bytes.
fn html(contents: ResourceContents) -> Result<String, &'static str> {
    match (contents.text, contents.blob) {
        (Some(text), _) => Ok(text),
        (None, blob) => {
            let bytes = STANDARD.decode(blob.unwrap_or_default());
            String::from_utf8(bytes.map_err(|_| "invalid base64")?).map_err(|_| "invalid UTF-8")
        }
    }
}
