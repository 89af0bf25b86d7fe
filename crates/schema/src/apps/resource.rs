//! `_meta.ui` of resources.

use serde::{Deserialize, Serialize};

use super::{ContentSecurityPolicy, read, write};
use crate::setters::setters;
use crate::{InvalidValue, Object};

/// `_meta.ui` of a resource and of its contents (specification: MCP Apps, "UI Resource Format").
///
/// # Example
///
/// ```
/// use mrtr_schema::apps::{ContentSecurityPolicy, ResourceUiMeta};
/// use serde_json::json;
///
/// let csp = ContentSecurityPolicy::default().with_connect_domains(["https://api.example.com"]);
/// let mut meta = mrtr_schema::Object::new();
/// ResourceUiMeta::default().with_csp(csp).with_prefers_border(true).write_to(&mut meta);
/// let csp = json!({ "connectDomains": ["https://api.example.com"] });
/// assert_eq!(json!(meta), json!({ "ui": { "csp": csp, "prefersBorder": true } }));
/// ```
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct ResourceUiMeta {
    /// The origins that the UI resource uses. Default: none but its own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub csp: Option<ContentSecurityPolicy>,
    /// The features of the browser that it would like to use. Default: none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub permissions: Option<ResourcePermissions>,
    /// A dedicated origin for the view, in a form that the host defines.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub domain: Option<String>,
    /// True for a visible border and a background, false for neither. Default: the host decides.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub prefers_border: Option<bool>,
}

setters!(ResourceUiMeta {
    with_csp(csp: ContentSecurityPolicy),
    with_permissions(permissions: ResourcePermissions),
    with_domain(domain: String),
    with_prefers_border(prefers_border: bool),
});

impl ResourceUiMeta {
    /// Reads the `_meta` of a resource, or of its contents. `None` if it has none of this
    /// extension.
    ///
    /// # Errors
    ///
    /// [`InvalidValue`] if the metadata has the wrong type.
    pub fn from_meta(meta: Option<&Object>) -> Result<Option<Self>, InvalidValue> {
        read(meta)
    }

    /// Writes the metadata into the `_meta` of a resource or of its contents. What it does not set
    /// is kept.
    pub fn write_to(&self, meta: &mut Object) {
        write(self, meta);
    }

    /// Checks the origins of the content security policy.
    ///
    /// # Errors
    ///
    /// [`InvalidValue`], with the offending origin.
    pub fn validate(&self) -> Result<(), InvalidValue> {
        let csp = self.csp.as_ref().map_or(Ok(()), ContentSecurityPolicy::validate);
        csp.map_err(|error| error.at("csp").at("ui").at("_meta"))
    }
}

/// Features of the browser that a UI resource asks for. A host may refuse them.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct ResourcePermissions {
    /// The camera.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub camera: Option<Object>,
    /// The microphone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub microphone: Option<Object>,
    /// The location.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub geolocation: Option<Object>,
    /// Writing to the clipboard.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub clipboard_write: Option<Object>,
}

macro_rules! permission_setters {
    ($($method:ident($field:ident)),+) => {
        impl ResourcePermissions {$(
            #[doc = concat!("Asks for [`", stringify!($field), "`](Self::", stringify!($field), ").")]
            pub fn $method(mut self) -> Self {
                self.$field = Some(Object::new());
                self
            }
        )+}
    };
}

permission_setters!(
    with_camera(camera),
    with_microphone(microphone),
    with_geolocation(geolocation),
    with_clipboard_write(clipboard_write)
);

impl ResourcePermissions {
    /// Returns the `allow` attribute of the `iframe` that grants all of them, such as
    /// `camera; clipboard-write`.
    pub fn to_allow(&self) -> String {
        let features = [
            (&self.camera, "camera"),
            (&self.microphone, "microphone"),
            (&self.geolocation, "geolocation"),
            (&self.clipboard_write, "clipboard-write"),
        ];
        let wanted = features.iter().filter(|(wanted, _)| wanted.is_some());
        wanted.map(|(_, feature)| *feature).collect::<Vec<_>>().join("; ")
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn permissions_become_an_attribute() {
        let text = r#"{"clipboardWrite":{},"camera":{},"usb":{}}"#;
        let permissions: ResourcePermissions = serde_json::from_str(text).unwrap();
        assert_eq!(permissions.to_allow(), "camera; clipboard-write");
        assert_eq!(ResourcePermissions::default().to_allow(), "");
    }

    #[test]
    fn meta_of_other_extensions_is_none_of_this_one() {
        let meta = |meta: serde_json::Value| meta.as_object().unwrap().clone();
        assert_eq!(ResourceUiMeta::from_meta(None), Ok(None));
        assert_eq!(ResourceUiMeta::from_meta(Some(&meta(json!({ "com.example/a": 1 })))), Ok(None));
        let error = ResourceUiMeta::from_meta(Some(&meta(json!({ "ui": { "csp": [7] } }))));
        assert!(error.unwrap_err().to_string().starts_with("/_meta/ui: "));
        let csp = json!({ "frameDomains": ["*"] });
        let ui = ResourceUiMeta::from_meta(Some(&meta(json!({ "ui": { "csp": csp } })))).unwrap();
        let error = ui.unwrap().validate().unwrap_err();
        assert_eq!(error.path(), "/_meta/ui/csp/frameDomains/0");
    }
}
