//! MCP Apps: UI resources, which show the results of tools (extension
//! `io.modelcontextprotocol/ui`).

use std::sync::Arc;

use mrtr_schema::apps::{self, ResourceUiMeta, ToolUiMeta, ToolVisibility};
use mrtr_schema::{InvalidValue, Object};
use serde_json::Value;

use crate::build_error::BuildError;
use crate::request_parts::RequestParts;
use crate::resource::{Resource, ResourceTemplate};
use crate::tool::Tool;
use crate::visibility::VisibilityRule;

impl Tool {
    /// Lets hosts show the results of this tool with a UI resource of this server (MCP Apps,
    /// revision 2026-01-26), such as [`Resource::app`]. Its URI begins with `ui://`.
    ///
    /// The view gets the arguments and the whole result. Hosts without MCP Apps give the result to
    /// the model alone, so its text must be complete. A call that the view makes has rounds like
    /// any other, and the host asks the user.
    ///
    /// `build` fails unless a resource or resource template of the server has this URI and the
    /// media type of MCP Apps. If the tool is enabled, they must be, too.
    ///
    /// ```
    /// use mrtr_server::{Resource, Server, Tool};
    ///
    /// const LIST: &str = "ui://orders/list.html";
    ///
    /// async fn orders() -> String {
    ///     "No orders".to_owned()
    /// }
    ///
    /// async fn archive() -> String {
    ///     "Archived".to_owned()
    /// }
    ///
    /// let server = Server::builder("orders", "1.0.0")
    ///     .resource(Resource::app(LIST, "orders", "<!doctype html><title>Orders</title>"))
    ///     .tool(Tool::new("orders", "Lists the orders", orders).app(LIST))
    ///     .tool(Tool::new("archive", "Archives old orders", archive).app(LIST).app_only())
    ///     .allow_anonymous()
    ///     .ephemeral_key()
    ///     .build()?;
    /// # Ok::<(), mrtr_server::BuildError>(())
    /// ```
    pub fn app(self, uri: impl Into<String>) -> Self {
        self.edit_ui(&ToolUiMeta::default().with_resource_uri(uri))
    }

    /// Offers this tool to views of this server, and not to the model.
    ///
    /// The tool is hidden from clients that do not declare MCP Apps, because they would offer it to
    /// their model: see [`visible_to`](Self::visible_to). The declaration proves nothing: protect
    /// the tool like any other.
    pub fn app_only(self) -> Self {
        self.edit_ui(&ToolUiMeta::default().with_visibility([ToolVisibility::App]))
    }

    /// Offers this tool to the model, and not to views.
    pub fn model_only(self) -> Self {
        self.edit_ui(&ToolUiMeta::default().with_visibility([ToolVisibility::Model]))
    }

    fn edit_ui(mut self, ui: &ToolUiMeta) -> Self {
        ui.write_to(self.wire.meta.get_or_insert_default());
        self
    }

    /// Returns true if a host with MCP Apps treats it differently.
    pub(crate) fn has_ui(&self) -> bool {
        self.ui_resource.is_some()
            || self.wire.meta.as_ref().is_some_and(|meta| meta.contains_key(apps::META_KEY))
    }

    /// Reads the metadata, wherever it comes from. A tool that is not for the model is hidden from
    /// clients that do not know what it is for.
    pub(crate) fn prepare_ui(&mut self) -> Result<(), BuildError> {
        let error = |why: InvalidValue| BuildError::App {
            of: format!("the tool {:?}", self.wire.name),
            why: why.to_string(),
        };
        let ui = ToolUiMeta::of(&self.wire).map_err(error)?;
        ui.resource_uri.as_deref().map_or(Ok(()), apps::validate_uri).map_err(error)?;
        if !ui.is_for_model() {
            let rule = |caller: &RequestParts| apps::is_supported_by(caller.capabilities());
            self.options.visibility.push(VisibilityRule::new(rule));
        }
        self.ui_resource = ui.resource_uri;
        Ok(())
    }
}

impl Resource {
    /// Creates a UI resource: an HTML document that shows the results of [tools](Tool::app) (MCP
    /// Apps, revision 2026-01-26). Its URI begins with `ui://`.
    ///
    /// Hosts show the document in a sandbox, where it can reach no other origin than those that
    /// [`ui`](Self::ui) declares. Keep data out of it: it is the same for all callers, and hosts
    /// keep it. Data is in the results of tools.
    pub fn app(uri: impl Into<String>, name: impl Into<String>, html: impl Into<Arc<str>>) -> Self {
        let html = html.into();
        let read = move || {
            let html = Arc::clone(&html);
            async move { String::from(&*html) }
        };
        Self::new(uri, name, read).mime_type(apps::MIME_TYPE).ui(ResourceUiMeta::default())
    }
}

macro_rules! ui_setters {
    ($($kind:ident),*) => {$(
        impl $kind {
            /// Sets the origins, permissions and preferences of a UI resource (MCP Apps, "UI
            /// Resource Format"). Default: none.
            ///
            /// They are sent with its description, and with contents that have none of their own.
            /// An invalid origin is a build error.
            pub fn ui(mut self, ui: ResourceUiMeta) -> Self {
                ui.write_to(self.wire.meta.get_or_insert_default());
                self
            }
        }
    )*};
}
ui_setters!(Resource, ResourceTemplate);

/// Returns the member `ui` of the `_meta` of a resource or resource template, for its contents.
/// `None` if it has none, and is no UI resource.
pub(crate) fn ui_of_resource(
    kind: &str,
    uri: &str,
    mime_type: Option<&str>,
    meta: Option<&Object>,
) -> Result<Option<Value>, BuildError> {
    let Some(ui) = meta.and_then(|meta| meta.get(apps::META_KEY)) else { return Ok(None) };
    let error = |why: String| BuildError::App { of: format!("the {kind} {uri:?}"), why };
    if !uri.starts_with(apps::URI_PREFIX) {
        return Err(error("its URI does not begin with `ui://`".to_owned()));
    }
    if mime_type != Some(apps::MIME_TYPE) {
        return Err(error(format!("its media type must be {:?}", apps::MIME_TYPE)));
    }
    let checked = ResourceUiMeta::from_meta(meta);
    let checked = checked.and_then(|checked| checked.unwrap_or_default().validate());
    checked.map(|()| Some(ui.clone())).map_err(|why| error(why.to_string()))
}
