//! Icons (specification: basic, "Icons").

use serde::{Deserialize, Serialize};

use crate::setters::setters;
use crate::{InvalidValue, peer_text, uri};

/// An icon of an implementation, tool, prompt or resource.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct Icon {
    /// An `https:` or `data:` URI.
    pub src: String,
    /// The media type, if the server of the image gives none or a generic one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mime_type: Option<String>,
    /// The sizes: each `WxH` in pixels, such as `48x48`, or `any`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sizes: Option<Vec<String>>,
    /// The background that the icon is made for: `light` or `dark`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub theme: Option<String>,
}

setters!(Icon {
    with_mime_type(mime_type: String),
    with_sizes(sizes: Vec<String>),
    with_theme(theme: String),
});

impl Icon {
    /// Creates an icon from an `https:` or `data:` URI.
    pub fn new(src: impl Into<String>) -> Self {
        Self { src: src.into(), mime_type: None, sizes: None, theme: None }
    }

    /// Returns true if a client may load the icon: its scheme is `https` or `data`. A client must
    /// ignore every other icon.
    pub fn is_safe(&self) -> bool {
        let scheme = self.src.split_once(':').map_or("", |(scheme, _)| scheme);
        scheme.eq_ignore_ascii_case("https") || scheme.eq_ignore_ascii_case("data")
    }

    /// Checks an icon before a server sends it.
    ///
    /// # Errors
    ///
    /// [`InvalidValue`] if `src` is not an `https:` or `data:` URI, a size is neither `any` nor of
    /// the form `48x48`, or the theme is neither `light` nor `dark`.
    pub fn validate(&self) -> Result<(), InvalidValue> {
        uri::validate(&self.src).map_err(|e| e.at("src"))?;
        if !self.is_safe() {
            let src = peer_text::quote(&self.src);
            let reason = format!("the scheme of {src} is neither https nor data");
            return Err(InvalidValue::new(reason).at("src"));
        }
        for (n, size) in self.sizes.iter().flatten().enumerate() {
            if !is_size(size) {
                let reason = format!("size {size:?} is neither \"any\" nor of the form 48x48");
                return Err(InvalidValue::new(reason).at(n).at("sizes"));
            }
        }
        match self.theme.as_deref() {
            None | Some("light" | "dark") => Ok(()),
            Some(theme) => {
                let reason = format!("theme {theme:?} is neither \"light\" nor \"dark\"");
                Err(InvalidValue::new(reason).at("theme"))
            }
        }
    }
}

fn is_size(size: &str) -> bool {
    let is_number = |text: &str| !text.is_empty() && text.bytes().all(|c| c.is_ascii_digit());
    size == "any"
        || size.split_once('x').is_some_and(|(width, height)| is_number(width) && is_number(height))
}
