//! Capabilities of clients and servers, and the names of implementations (specification: schema,
//! `ClientCapabilities`, `ServerCapabilities`, `Implementation`).

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::Object;
use crate::icon::Icon;
use crate::setters::setters;

/// The client's capabilities, declared with every request.
///
/// # Example
///
/// ```
/// use mrtr_schema::capabilities::{
///     ClientCapabilities, ElicitationCapability, SamplingCapability,
/// };
///
/// let capabilities = ClientCapabilities::new()
///     .with_elicitation(ElicitationCapability::form_and_url())
///     .with_sampling(SamplingCapability::new().with_tools(serde_json::Map::new()));
/// assert!(capabilities.has_form() && capabilities.has_sampling_tools());
///
/// // An elicitation capability without modes means form mode.
/// let capabilities: ClientCapabilities = serde_json::from_str(r#"{"elicitation":{}}"#)?;
/// assert!(capabilities.has_form() && !capabilities.has_url());
/// # Ok::<(), serde_json::Error>(())
/// ```
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct ClientCapabilities {
    /// The client shows forms or opens URLs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub elicitation: Option<ElicitationCapability>,
    /// The client calls a language model for the server. Deprecated in this revision.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sampling: Option<SamplingCapability>,
    /// The client lists roots. Deprecated in this revision.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub roots: Option<RootsCapability>,
    /// Extensions, by identifier.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub extensions: Option<Object>,
    /// Non-standard capabilities.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub experimental: Option<Object>,
}

setters!(ClientCapabilities {
    with_elicitation(elicitation: ElicitationCapability),
    with_sampling(sampling: SamplingCapability),
    with_roots(roots: RootsCapability),
    with_extensions(extensions: Object),
    with_experimental(experimental: Object),
});

/// The modes of elicitation that a client supports. If both are absent, it supports form mode.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct ElicitationCapability {
    /// Form mode.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub form: Option<Object>,
    /// URL mode.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub url: Option<Object>,
}

impl ElicitationCapability {
    /// Declares form mode only.
    pub fn form() -> Self {
        Self { form: Some(Object::new()), url: None }
    }

    /// Declares URL mode only.
    pub fn url() -> Self {
        Self { form: None, url: Some(Object::new()) }
    }

    /// Declares both modes.
    pub fn form_and_url() -> Self {
        Self { form: Some(Object::new()), url: Some(Object::new()) }
    }
}

/// The optional parts of sampling that a client supports.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct SamplingCapability {
    /// Support for `includeContext` other than `none`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub context: Option<Object>,
    /// Support for `tools` and `toolChoice`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tools: Option<Object>,
}

setters!(SamplingCapability {
    with_context(context: Object),
    with_tools(tools: Object),
});

impl SamplingCapability {
    /// Declares sampling without tools and without the context of servers.
    pub const fn new() -> Self {
        Self { context: None, tools: None }
    }
}

/// Declares that the client lists roots.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct RootsCapability {}

impl ClientCapabilities {
    /// Declares no capabilities.
    pub const fn new() -> Self {
        Self {
            elicitation: None,
            sampling: None,
            roots: None,
            extensions: None,
            experimental: None,
        }
    }

    /// Returns true if the client shows forms: it declares `elicitation`, and not URL mode alone.
    pub fn has_form(&self) -> bool {
        self.elicitation.as_ref().is_some_and(|e| e.form.is_some() || e.url.is_none())
    }

    /// Returns true if the client opens URLs.
    pub fn has_url(&self) -> bool {
        self.elicitation.as_ref().is_some_and(|e| e.url.is_some())
    }

    /// Returns true if the client supports sampling.
    pub fn has_sampling(&self) -> bool {
        self.sampling.is_some()
    }

    /// Returns true if the client supports sampling with tools.
    pub fn has_sampling_tools(&self) -> bool {
        self.sampling.as_ref().is_some_and(|s| s.tools.is_some())
    }

    /// Returns true if the client supports sampling with the context of servers.
    pub fn has_sampling_context(&self) -> bool {
        self.sampling.as_ref().is_some_and(|s| s.context.is_some())
    }

    /// Returns true if the client lists roots.
    pub fn has_roots(&self) -> bool {
        self.roots.is_some()
    }

    /// Returns true if the client declares the extension with this identifier. Settings other than
    /// an object declare nothing.
    pub fn has_extension(&self, identifier: &str) -> bool {
        declares(self.extensions.as_ref(), identifier)
    }

    /// Declares an extension with its settings.
    pub fn with_extension(mut self, identifier: impl Into<String>, settings: Object) -> Self {
        let extensions = self.extensions.get_or_insert_default();
        extensions.insert(identifier.into(), Value::Object(settings));
        self
    }
}

/// The server's capabilities, as `server/discover` returns them.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct ServerCapabilities {
    /// The server has tools.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tools: Option<ListCapability>,
    /// The server has prompts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub prompts: Option<ListCapability>,
    /// The server has resources.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resources: Option<ResourcesCapability>,
    /// The server completes arguments.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub completions: Option<Object>,
    /// The server sends log messages on request. Deprecated in this revision.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub logging: Option<Object>,
    /// Extensions, by identifier.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub extensions: Option<Object>,
    /// Non-standard capabilities.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub experimental: Option<Object>,
}

setters!(ServerCapabilities {
    with_tools(tools: ListCapability),
    with_prompts(prompts: ListCapability),
    with_resources(resources: ResourcesCapability),
    with_completions(completions: Object),
    with_logging(logging: Object),
    with_extensions(extensions: Object),
    with_experimental(experimental: Object),
});

impl ServerCapabilities {
    /// Returns true if the server declares the extension with this identifier. Settings other than
    /// an object declare nothing.
    pub fn has_extension(&self, identifier: &str) -> bool {
        declares(self.extensions.as_ref(), identifier)
    }

    /// Declares an extension with its settings.
    pub fn with_extension(mut self, identifier: impl Into<String>, settings: Object) -> Self {
        let extensions = self.extensions.get_or_insert_default();
        extensions.insert(identifier.into(), Value::Object(settings));
        self
    }
}

fn declares(extensions: Option<&Object>, identifier: &str) -> bool {
    extensions.and_then(|all| all.get(identifier)).is_some_and(Value::is_object)
}

/// The changes of resources that a server announces.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct ResourcesCapability {
    /// Changes of single resources are announced to `subscriptions/listen`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub subscribe: Option<bool>,
    /// Changes of the list are announced to `subscriptions/listen`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub list_changed: Option<bool>,
}

setters!(ResourcesCapability {
    with_subscribe(subscribe: bool),
    with_list_changed(list_changed: bool),
});

/// The changes of a list that a server announces.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct ListCapability {
    /// Changes are announced to `subscriptions/listen`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub list_changed: Option<bool>,
}

setters!(ListCapability { with_list_changed(list_changed: bool) });

/// The name and version of an implementation. Self-reported and not verified: for display and logs.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct Implementation {
    /// The name for programs.
    pub name: String,
    /// The display name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub title: Option<String>,
    /// The version.
    pub version: String,
    /// The description.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    /// The URL of its website.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub website_url: Option<String>,
    /// Icons.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub icons: Vec<Icon>,
}

setters!(Implementation {
    with_title(title: String),
    with_description(description: String),
    with_website_url(website_url: String),
});

impl Implementation {
    /// Creates an implementation from its name and version.
    pub fn new(name: impl Into<String>, version: impl Into<String>) -> Self {
        Self {
            name: name.into(),
            title: None,
            version: version.into(),
            description: None,
            website_url: None,
            icons: Vec::new(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn extension_is_declared_by_an_object() {
        let id = "io.modelcontextprotocol/tasks";
        let declared = ClientCapabilities::new().with_extension(id, Object::new());
        assert!(declared.has_extension(id) && !declared.has_extension("com.example/x"));
        let text = r#"{"extensions":{"io.modelcontextprotocol/tasks":{}},"tasks":{}}"#;
        assert!(serde_json::from_str::<ServerCapabilities>(text).unwrap().has_extension(id));
        for text in [
            "{}",
            r#"{"tasks":{"requests":{}}}"#,
            r#"{"extensions":{"io.modelcontextprotocol/tasks":null}}"#,
        ] {
            let read: ClientCapabilities = serde_json::from_str(text).unwrap();
            assert!(!read.has_extension(id), "{text}");
        }
    }

    #[test]
    fn empty_elicitation_capability_means_form_mode_only() {
        let read = |text| serde_json::from_str::<ClientCapabilities>(text).unwrap();
        for (text, form, url) in [
            ("{}", false, false),
            (r#"{"elicitation":{}}"#, true, false),
            (r#"{"elicitation":{"form":{}}}"#, true, false),
            (r#"{"elicitation":{"url":{}}}"#, false, true),
            (r#"{"elicitation":{"form":{},"url":{}}}"#, true, true),
        ] {
            assert_eq!((read(text).has_form(), read(text).has_url()), (form, url), "{text}");
        }
    }
}
