//! `_meta.ui` of tools.

use serde::{Deserialize, Serialize};

use super::{RESOURCE_URI_KEY, read, write};
use crate::setters::setters;
use crate::tool::Tool;
use crate::{InvalidValue, Object};

/// `_meta.ui` of a tool (specification: MCP Apps, "Resource Discovery").
///
/// # Example
///
/// ```
/// use mrtr_schema::apps::{ToolUiMeta, ToolVisibility};
/// use mrtr_schema::{Object, tool::Tool};
///
/// let mut tool = Tool::new("refresh", Object::new());
/// assert!(ToolUiMeta::of(&tool)?.is_for_model());
///
/// let ui = ToolUiMeta::default()
///     .with_resource_uri("ui://orders/list.html")
///     .with_visibility([ToolVisibility::App]);
/// ui.write_to(tool.meta.get_or_insert_default());
/// let ui = ToolUiMeta::of(&tool)?;
/// assert!(ui.is_for_app() && !ui.is_for_model());
/// # Ok::<(), mrtr_schema::InvalidValue>(())
/// ```
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct ToolUiMeta {
    /// The URI of the UI resource that shows the results.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resource_uri: Option<String>,
    /// What may call the tool. Default: the model and views.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub visibility: Option<Vec<ToolVisibility>>,
}

setters!(ToolUiMeta {
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

impl ToolUiMeta {
    /// Reads the metadata of a tool. A tool without any has the default.
    ///
    /// The URI is as the server sent it: see [`validate_uri`](super::validate_uri).
    ///
    /// # Errors
    ///
    /// [`InvalidValue`] if the metadata has the wrong type.
    pub fn of(tool: &Tool) -> Result<Self, InvalidValue> {
        let meta = tool.meta.as_ref();
        let mut ui = read::<Self>(meta)?.unwrap_or_default();
        if ui.resource_uri.is_none() {
            let uri = meta.and_then(|meta| meta.get(RESOURCE_URI_KEY)?.as_str());
            ui.resource_uri = uri.map(str::to_owned);
        }
        Ok(ui)
    }

    /// Writes the metadata into the `_meta` of a tool. What it does not set is kept.
    pub fn write_to(&self, meta: &mut Object) {
        write(self, meta);
        if self.resource_uri.is_some() {
            meta.shift_remove(RESOURCE_URI_KEY);
        }
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

    fn of(meta: &Value) -> Result<ToolUiMeta, InvalidValue> {
        let tool = Tool::new("refresh", Object::new());
        ToolUiMeta::of(&tool.with_meta(meta.as_object().unwrap().clone()))
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
        for invalid in [
            json!({ "ui": "ui://x" }),
            json!({ "ui": { "resourceUri": 7 } }),
            json!({ "ui": { "visibility": "app" } }),
        ] {
            assert!(error(&invalid).starts_with("/_meta/ui: "), "{}", error(&invalid));
        }
        let long = error(&json!({ "ui": "x".repeat(10_000) }));
        assert!(long.len() < 200, "{long}");
    }

    #[test]
    fn writing_keeps_the_rest() {
        let mut meta = json!({ "a": 1, "ui": { "b": 2, "visibility": ["robot"] }, "ui/resourceUri": "ui://old" });
        let meta = meta.as_object_mut().unwrap();
        ToolUiMeta::default().with_resource_uri("ui://new").write_to(meta);
        let ui = json!({ "b": 2, "visibility": ["robot"], "resourceUri": "ui://new" });
        assert_eq!(json!(meta), json!({ "a": 1, "ui": ui }));
    }
}
