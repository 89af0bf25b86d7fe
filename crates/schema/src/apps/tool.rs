//! `_meta.ui` of tools.

use serde::{Deserialize, Serialize};

use super::{RESOURCE_URI_KEY, read, validate_uri, write};
use crate::setters::setters;
use crate::tool::Tool;
use crate::{InvalidValue, Object};

/// `_meta.ui` of a tool (specification: MCP Apps, "Resource Discovery").
///
/// # Example
///
/// ```
/// use mrtr_schema::apps::{ToolUi, ToolVisibility};
/// use mrtr_schema::{Object, tool::Tool};
///
/// let mut tool = Tool::new("refresh", Object::new());
/// assert!(ToolUi::of(&tool)?.is_for_model());
///
/// let ui = ToolUi::default()
///     .with_resource_uri("ui://orders/list.html")
///     .with_visibility([ToolVisibility::App]);
/// ui.write_to(tool.meta.get_or_insert_default());
/// let ui = ToolUi::of(&tool)?;
/// assert!(ui.is_for_app() && !ui.is_for_model());
/// # Ok::<(), mrtr_schema::InvalidValue>(())
/// ```
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct ToolUi {
    /// The URI of the UI resource that shows the results.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resource_uri: Option<String>,
    /// What may call the tool. Default: the model and views.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub visibility: Option<Vec<ToolVisibility>>,
}

setters!(ToolUi {
    with_resource_uri(resource_uri: String),
    with_visibility(visibility: Vec<ToolVisibility>),
});

/// What may call a tool.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum ToolVisibility {
    /// The model.
    Model,
    /// Views of the same server.
    App,
    /// Something that this crate does not know.
    #[serde(other)]
    Unknown,
}

impl ToolUi {
    /// Reads the metadata of a tool. A tool without any has the default.
    ///
    /// # Errors
    ///
    /// [`InvalidValue`] if the metadata has the wrong type, or the URI does not begin with `ui://`.
    pub fn of(tool: &Tool) -> Result<Self, InvalidValue> {
        let meta = tool.meta.as_ref();
        let mut ui = read::<Self>(meta)?.unwrap_or_default();
        if ui.resource_uri.is_none() {
            let uri = meta.and_then(|meta| meta.get(RESOURCE_URI_KEY)?.as_str());
            ui.resource_uri = uri.map(str::to_owned);
        }
        if let Some(uri) = &ui.resource_uri {
            validate_uri(uri).map_err(|error| error.at("resourceUri").at("ui").at("_meta"))?;
        }
        Ok(ui)
    }

    /// Writes the metadata into the `_meta` of a tool.
    pub fn write_to(&self, meta: &mut Object) {
        write(self, meta);
    }

    /// Returns true if the model may call the tool. A host must not offer any other to its model.
    pub fn is_for_model(&self) -> bool {
        self.is_visible_to(ToolVisibility::Model)
    }

    /// Returns true if views of the tool's server may call it. A host must reject other calls of
    /// views.
    pub fn is_for_app(&self) -> bool {
        self.is_visible_to(ToolVisibility::App)
    }

    fn is_visible_to(&self, caller: ToolVisibility) -> bool {
        self.visibility.as_ref().is_none_or(|callers| callers.contains(&caller))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn of(meta: &Value) -> Result<ToolUi, InvalidValue> {
        let tool = Tool::new("refresh", Object::new());
        ToolUi::of(&tool.with_meta(meta.as_object().unwrap().clone()))
    }

    #[test]
    fn visibility_defaults_to_everyone() {
        let callers = |meta: &Value| {
            let ui = of(meta).unwrap();
            (ui.is_for_model(), ui.is_for_app())
        };
        assert_eq!(callers(&json!({})), (true, true));
        assert_eq!(callers(&json!({ "ui": {} })), (true, true));
        assert_eq!(callers(&json!({ "ui": { "visibility": [] } })), (false, false));
        assert_eq!(callers(&json!({ "ui": { "visibility": ["app"] } })), (false, true));
        assert_eq!(callers(&json!({ "ui": { "visibility": ["model"] } })), (true, false));
        assert_eq!(callers(&json!({ "ui": { "visibility": ["robot", "model"] } })), (true, false));
    }

    #[test]
    fn the_uri_may_be_in_the_deprecated_place() {
        let uri = |meta: &Value| of(meta).unwrap().resource_uri;
        let old = json!({ "ui/resourceUri": "ui://old" });
        assert_eq!(uri(&old).as_deref(), Some("ui://old"));
        let both = json!({ "ui/resourceUri": "ui://old", "ui": { "resourceUri": "ui://new" } });
        assert_eq!(uri(&both).as_deref(), Some("ui://new"));
    }

    #[test]
    fn errors_name_the_place() {
        let error = |meta: &Value| of(meta).unwrap_err().to_string();
        assert_eq!(
            error(&json!({ "ui": { "resourceUri": "https://example.com/" } })),
            r#"/_meta/ui/resourceUri: the URI "https://example.com/" does not begin with `ui://`"#
        );
        for invalid in [
            json!({ "ui": "ui://x" }),
            json!({ "ui": { "resourceUri": 7 } }),
            json!({ "ui": { "visibility": "app" } }),
        ] {
            assert!(error(&invalid).starts_with("/_meta/ui: "), "{}", error(&invalid));
        }
    }
}
