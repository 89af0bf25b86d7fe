//! What the two sides say they can do, and who they are (specification: schema,
//! `ClientCapabilities`, `ServerCapabilities`, `Implementation`).

use serde::{Deserialize, Serialize};

use crate::{Object, uri};

/// The client's capabilities, declared on every request.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct ClientCapabilities {
    /// The client can show forms or open URLs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub elicitation: Option<ElicitationCapability>,
    /// The client can call a language model. Deprecated in this revision.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sampling: Option<SamplingCapability>,
    /// The client can list roots. Deprecated in this revision.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub roots: Option<RootsCapability>,
    /// Extensions by identifier.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub extensions: Option<Object>,
    /// Non-standard capabilities.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub experimental: Option<Object>,
}

/// Which modes of elicitation a client supports. Neither named means form mode only.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct ElicitationCapability {
    /// Form mode.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub form: Option<Object>,
    /// URL mode.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub url: Option<Object>,
}

/// What a client's sampling supports.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct SamplingCapability {
    /// `includeContext` other than `"none"`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub context: Option<Object>,
    /// `tools` and `toolChoice`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tools: Option<Object>,
}

/// Present if the client can list roots.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct RootsCapability {}

impl ClientCapabilities {
    /// Whether the client shows forms: `elicitation` is declared, and not for URLs alone.
    pub fn has_form(&self) -> bool {
        self.elicitation.as_ref().is_some_and(|e| e.form.is_some() || e.url.is_none())
    }

    /// Whether the client opens URLs.
    pub fn has_url(&self) -> bool {
        self.elicitation.as_ref().is_some_and(|e| e.url.is_some())
    }

    /// Whether the client samples.
    pub fn has_sampling(&self) -> bool {
        self.sampling.is_some()
    }

    /// Whether the client samples with tools.
    pub fn has_sampling_tools(&self) -> bool {
        self.sampling.as_ref().is_some_and(|s| s.tools.is_some())
    }

    /// Whether the client gives the context of servers to the model that it samples.
    pub fn has_sampling_context(&self) -> bool {
        self.sampling.as_ref().is_some_and(|s| s.context.is_some())
    }

    /// Whether the client lists roots.
    pub fn has_roots(&self) -> bool {
        self.roots.is_some()
    }
}

/// The server's capabilities, told by `server/discover`.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
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
    /// The server suggests values for arguments.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub completions: Option<Object>,
    /// The server sends log messages to clients that ask for them. Deprecated in this revision.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub logging: Option<Object>,
    /// Extensions by identifier.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub extensions: Option<Object>,
    /// Non-standard capabilities.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub experimental: Option<Object>,
}

/// Whether changes of resources are announced.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ResourcesCapability {
    /// Changes of single resources are announced to `subscriptions/listen`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub subscribe: Option<bool>,
    /// Changes of the list are announced to `subscriptions/listen`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub list_changed: Option<bool>,
}

/// Whether changes of a list are announced.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ListCapability {
    /// Announced to `subscriptions/listen`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub list_changed: Option<bool>,
}

/// Who an implementation says it is. Not verified: for display and logs.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Implementation {
    /// A name for programs.
    pub name: String,
    /// A name for people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub title: Option<String>,
    /// Its version.
    pub version: String,
    /// What it does.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    /// Where to read about it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub website_url: Option<String>,
    /// Icons.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub icons: Vec<Icon>,
}

impl Implementation {
    /// A name and a version.
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

/// A picture for an implementation, tool, prompt or resource.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Icon {
    /// An `https:` or `data:` URI.
    pub src: String,
    /// Its media type, if the server's is missing or generic.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mime_type: Option<String>,
    /// Sizes such as `48x48` or `any`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sizes: Option<Vec<String>>,
    /// `light` or `dark`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub theme: Option<String>,
}

impl Icon {
    /// Whether the URI is one that may be shown: `https:` or `data:`. Any other is to be thrown away
    /// (specification: basic, "Icons").
    pub fn is_safe(&self) -> bool {
        let scheme = self.src.split_once(':').map_or("", |(scheme, _)| scheme);
        scheme.eq_ignore_ascii_case("https") || scheme.eq_ignore_ascii_case("data")
    }

    /// Checks the icon as one that a server sends.
    ///
    /// # Errors
    ///
    /// What is wrong with it.
    pub fn check(&self) -> Result<(), String> {
        uri::check(&self.src)?;
        if !self.is_safe() {
            return Err(format!("clients show {:?} only by https: or data:", self.src));
        }
        let is_size = |size: &String| {
            let number = |text: &str| !text.is_empty() && text.bytes().all(|c| c.is_ascii_digit());
            size == "any" || size.split_once('x').is_some_and(|(w, h)| number(w) && number(h))
        };
        if let Some(size) = self.sizes.iter().flatten().find(|size| !is_size(size)) {
            return Err(format!("the size {size:?} is neither like 48x48 nor any"));
        }
        match self.theme.as_deref() {
            None | Some("light" | "dark") => Ok(()),
            Some(other) => Err(format!("the theme {other:?} is neither light nor dark")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_empty_elicitation_capability_means_forms_only() {
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
