//! MCP Apps: UI resources, which show the results of tools (extension
//! `io.modelcontextprotocol/ui`).

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use mrtr_schema::apps::{self, ResourceUiMeta, ToolUiMeta};
use mrtr_schema::content::ResourceContents;
use mrtr_schema::peer_text;
use mrtr_schema::tool::Tool;
use mrtr_transport::Transport;

use crate::client::Client;
use crate::error::CallError;

/// A UI resource: an HTML document of a server, which shows the results of a tool. Returned by
/// [`Client::read_ui_resource`].
///
/// It is not trusted:
///
/// - Serve it at an origin of its own, with the header [`csp_header`](Self::csp_header).
/// - Show it in an `iframe` whose `sandbox` has `allow-scripts`.
/// - In the document around the `iframe`, allow that origin alone (`frame-src`).
/// - Let it call only tools of the same server, for which [`ToolUiMeta::is_for_app`] is true.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct UiResource {
    /// The URI.
    pub uri: String,
    /// The HTML document.
    pub html: String,
    /// Its origins, permissions and preferences.
    pub ui: ResourceUiMeta,
}

impl UiResource {
    /// Returns the `Content-Security-Policy` header with which a host must serve the document. See
    /// [`ContentSecurityPolicy::to_header`](mrtr_schema::apps::ContentSecurityPolicy::to_header).
    pub fn csp_header(&self) -> String {
        self.ui.csp.clone().unwrap_or_default().to_header()
    }
}

impl<T: Transport> Client<T> {
    /// Reads the UI resource that shows the results of a listed tool, with `resources/read`. `None`
    /// if the tool has none (MCP Apps, revision 2026-01-26).
    ///
    /// If the contents have no metadata, that of `resources/list` counts, as in the draft of the
    /// extension. A server that cannot list the resource declares nothing.
    ///
    /// # Errors
    ///
    /// See [`CallError`]. It is an error of the server if the metadata or the URI is invalid, or
    /// the contents are not exactly one document with the URI, which is HTML of MCP Apps in UTF-8.
    /// An invalid origin is no error: it is logged, and the policy leaves it out.
    pub async fn read_ui_resource(&self, tool: &Tool) -> Result<Option<UiResource>, CallError> {
        let ui = ToolUiMeta::of(tool).map_err(|error| {
            let name = peer_text::quote(&tool.name);
            CallError::protocol(format!("invalid metadata of the tool {name}: {error}"))
        })?;
        let Some(uri) = ui.resource_uri else { return Ok(None) };
        let quoted = peer_text::quote(&uri);
        let invalid =
            |why: String| CallError::protocol(format!("invalid UI resource {quoted}: {why}"));
        apps::validate_uri(&uri).map_err(|error| invalid(error.to_string()))?;
        let result = self.read_resource(&uri).await?;
        let mut contents = result.contents.into_iter().filter(|contents| contents.uri == uri);
        let (Some(contents), None) = (contents.next(), contents.next()) else {
            return Err(invalid("the server did not send it once".to_owned()));
        };
        if !contents.mime_type.as_deref().is_some_and(apps::is_ui_media_type) {
            let mime_type = peer_text::quote(&contents.mime_type.unwrap_or_default());
            return Err(invalid(format!("the media type is {mime_type}")));
        }
        let listed;
        let mut meta = contents.meta.as_ref();
        if !meta.is_some_and(|meta| meta.contains_key(apps::META_KEY)) {
            listed =
                self.list_resources().await.or_else(|error| match error.as_server_error() {
                    Some(_) => Ok(Vec::new()),
                    None => Err(error),
                })?;
            let resource = listed.iter().find(|resource| resource.uri == uri);
            meta = resource.and_then(|resource| resource.meta.as_ref());
        }
        let ui = ResourceUiMeta::from_meta(meta).map_err(|error| invalid(error.to_string()))?;
        let ui = ui.unwrap_or_default();
        if let Err(error) = ui.validate() {
            let why = error.to_string();
            tracing::warn!(target: "mrtr::client", uri = quoted, why, "ignoring invalid origins of a UI resource");
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
