//! MCP Apps: UI resources, which show the results of tools (extension
//! `io.modelcontextprotocol/ui`).

use std::sync::Arc;

use mrtr_schema::Object;
use mrtr_schema::apps::{self, ResourceUi, ToolUi, ToolVisibility};

use crate::build_error::BuildError;
use crate::resource::{Resource, ResourceTemplate};
use crate::tool::Tool;

impl Tool {
    /// Lets hosts show the results of this tool with a UI resource of this server (MCP Apps,
    /// revision 2026-01-26), such as [`Resource::app`]. Its URI begins with `ui://`.
    ///
    /// The view gets the arguments and the whole result. Hosts without MCP Apps give the result to
    /// the model alone, so its text must be complete. A call that the view makes has rounds like
    /// any other, and the host asks the user.
    ///
    /// A URI that no resource or resource template of the server has is a build error.
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
    pub fn app(mut self, uri: impl Into<String>) -> Self {
        let uri = uri.into();
        self.ui_resource = Some(uri.clone());
        self.edit_ui(|ui| ui.with_resource_uri(uri))
    }

    /// Offers this tool to views of this server, and not to the model.
    ///
    /// The tool is hidden from clients that do not declare MCP Apps, because their model would get
    /// it: see [`visible_to`](Self::visible_to). The declaration proves nothing: protect the tool
    /// like any other.
    pub fn app_only(self) -> Self {
        self.edit_ui(|ui| ui.with_visibility([ToolVisibility::App]))
            .visible_to(|caller| apps::is_supported_by(caller.capabilities()))
    }

    fn edit_ui(mut self, edit: impl FnOnce(ToolUi) -> ToolUi) -> Self {
        // Metadata that is not valid here comes from `definition`, and is replaced.
        let ui = edit(ToolUi::of(&self.wire).unwrap_or_default());
        ui.write_to(self.wire.meta.get_or_insert_default());
        self
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
        Self::new(uri, name, read).mime_type(apps::MIME_TYPE).ui(&ResourceUi::default())
    }
}

macro_rules! ui_setters {
    ($($kind:ident),*) => {$(
        impl $kind {
            /// Sets the origins, permissions and preferences of a UI resource (MCP Apps, "UI
            /// Resource Format"). Default: none.
            ///
            /// They are sent with its description, and with contents that have no `_meta` of their
            /// own. An invalid origin is a build error.
            pub fn ui(mut self, ui: &ResourceUi) -> Self {
                let own = ui.to_meta();
                self.wire.meta.get_or_insert_default().extend(own.clone());
                self.contents_meta = Some(own);
                self
            }
        }
    )*};
}
ui_setters!(Resource, ResourceTemplate);

/// Checks a resource or resource template, if it has the metadata of a UI resource.
pub(crate) fn check_resource(
    kind: &str,
    uri: &str,
    mime_type: Option<&str>,
    contents_meta: Option<&Object>,
) -> Result<(), BuildError> {
    let Some(meta) = contents_meta else { return Ok(()) };
    let error = |why: String| BuildError::App { of: format!("the {kind} {uri:?}"), why };
    if !uri.starts_with(apps::URI_PREFIX) {
        return Err(error("its URI does not begin with `ui://`".to_owned()));
    }
    if !mime_type.is_some_and(apps::is_ui_media_type) {
        return Err(error(format!("its media type must be {:?}", apps::MIME_TYPE)));
    }
    let ui = ResourceUi::from_meta(Some(meta));
    ui.and_then(|ui| ui.unwrap_or_default().validate()).map_err(|why| error(why.to_string()))
}

/// Checks the UI resource of a tool. `has_resource` says whether the server has a URI.
pub(crate) fn check_tool(
    tool: &Tool,
    has_resource: impl Fn(&str) -> bool,
) -> Result<(), BuildError> {
    let Some(uri) = &tool.ui_resource else { return Ok(()) };
    let error = |why: String| BuildError::App { of: format!("the tool {:?}", tool.wire.name), why };
    apps::validate_uri(uri).map_err(|why| error(why.to_string()))?;
    if has_resource(uri) {
        return Ok(());
    }
    Err(error(format!("the server has no resource {uri:?}")))
}
