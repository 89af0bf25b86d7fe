//! The content security policy of a UI resource.

use std::fmt::Write as _;

use serde::{Deserialize, Serialize};

use crate::{InvalidValue, peer_text};

/// The origins that a UI resource uses (specification: MCP Apps, "Content Security Policy
/// Enforcement").
///
/// An origin is a scheme (`https`, `http`, `wss` or `ws`), a host and perhaps a port:
/// `https://api.example.com`. The host may begin with `*.`, for all its subdomains.
///
/// # Example
///
/// ```
/// use mrtr_schema::apps::ContentSecurityPolicy;
///
/// let csp = ContentSecurityPolicy::default().with_connect_domains(["https://api.example.com"]);
/// csp.validate()?;
/// assert!(csp.to_header().contains("connect-src https://api.example.com;"));
/// // A server cannot add directives.
/// let csp = ContentSecurityPolicy::default().with_connect_domains(["https://a.example; x"]);
/// assert!(csp.validate().is_err());
/// assert_eq!(csp.to_header(), ContentSecurityPolicy::default().to_header());
/// # Ok::<(), mrtr_schema::InvalidValue>(())
/// ```
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct ContentSecurityPolicy {
    /// The origins of requests and WebSockets. Default: none.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub connect_domains: Vec<String>,
    /// The origins of images, scripts, style sheets, fonts and media. Default: none.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub resource_domains: Vec<String>,
    /// The origins of nested frames. Default: none.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub frame_domains: Vec<String>,
    /// The origins of the document's base URI. Default: its own.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub base_uri_domains: Vec<String>,
}

macro_rules! domain_setters {
    ($($method:ident($field:ident)),+) => {
        impl ContentSecurityPolicy {$(
            #[doc = concat!("Sets [`", stringify!($field), "`](Self::", stringify!($field), ").")]
            pub fn $method(
                mut self,
                origins: impl IntoIterator<Item = impl Into<String>>,
            ) -> Self {
                self.$field = origins.into_iter().map(Into::into).collect();
                self
            }
        )+}
    };
}

domain_setters!(
    with_connect_domains(connect_domains),
    with_resource_domains(resource_domains),
    with_frame_domains(frame_domains),
    with_base_uri_domains(base_uri_domains)
);

impl ContentSecurityPolicy {
    /// Checks that all origins are valid.
    ///
    /// # Errors
    ///
    /// [`InvalidValue`], with the first that is not.
    pub fn validate(&self) -> Result<(), InvalidValue> {
        for (name, origins) in [
            ("connectDomains", &self.connect_domains),
            ("resourceDomains", &self.resource_domains),
            ("frameDomains", &self.frame_domains),
            ("baseUriDomains", &self.base_uri_domains),
        ] {
            if let Some((at, origin)) =
                origins.iter().enumerate().find(|(_, origin)| !is_origin(origin))
            {
                let origin = peer_text::quote(origin);
                let error = InvalidValue::new(format!("{origin} is not an origin"));
                return Err(error.at(at).at(name));
            }
        }
        Ok(())
    }

    /// Returns the `Content-Security-Policy` header with which a host must serve the HTML. Origins
    /// that are not valid are left out.
    ///
    /// The default allows inline scripts and styles, and no requests to other origins. The document
    /// can load resources of the origin that serves it, so nothing else should be there. Forms
    /// cannot be submitted.
    ///
    /// Three ways out remain. No policy of a document keeps it from navigating its own frame: the
    /// document that embeds the frame needs a policy, too, with the origin of the view alone in
    /// `frame-src`. A browser that does not know the directive `webrtc`, such as Chromium, allows
    /// WebRTC. And no policy governs `dns-prefetch` and `preconnect`: data can be in the name of a
    /// host. `X-DNS-Prefetch-Control: off` is a header that some browsers respect.
    pub fn to_header(&self) -> String {
        let resources = sources(&self.resource_domains);
        let or = |origins: &[String], default: &str| match sources(origins) {
            none if none.is_empty() => format!(" {default}"),
            some => some,
        };
        let connect = or(&self.connect_domains, "'none'");
        let frame = or(&self.frame_domains, "'none'");
        let base = or(&self.base_uri_domains, "'self'");
        format!(
            "default-src 'none'; script-src 'self' 'unsafe-inline'{resources}; \
             style-src 'self' 'unsafe-inline'{resources}; img-src 'self' data:{resources}; \
             font-src 'self'{resources}; media-src 'self' data:{resources}; \
             connect-src{connect}; frame-src{frame}; object-src 'none'; base-uri{base}; \
             form-action 'none'; webrtc 'block'"
        )
    }
}

/// Returns the valid origins, each after a space.
fn sources(origins: &[String]) -> String {
    origins.iter().filter(|origin| is_origin(origin)).fold(String::new(), |mut all, origin| {
        let _ = write!(all, " {origin}");
        all
    })
}

/// Returns true for a scheme, a host and perhaps a port, as a content security policy has them.
fn is_origin(text: &str) -> bool {
    let Some((scheme, authority)) = text.split_once("://") else { return false };
    let (host, port) = match authority.split_once(':') {
        Some((host, port)) => (host, Some(port)),
        None => (authority, None),
    };
    let is_label = |label: &str| {
        !label.is_empty() && label.bytes().all(|c| c.is_ascii_alphanumeric() || c == b'-')
    };
    matches!(scheme, "https" | "http" | "wss" | "ws")
        && host.strip_prefix("*.").unwrap_or(host).split('.').all(is_label)
        && port.is_none_or(|port| port.parse::<u16>().is_ok() && !port.starts_with('+'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn origins_are_a_scheme_a_host_and_a_port() {
        for origin in [
            "https://api.example.com",
            "wss://realtime.example.com:8443",
            "https://*.example.com",
            "http://127.0.0.1:3000",
            "http://localhost",
        ] {
            assert!(is_origin(origin), "{origin}");
        }
        for other in [
            "",
            "*",
            "https:",
            "https://",
            "https://*",
            "https://*.",
            "https://a.*.example.com",
            "data:",
            "'unsafe-eval'",
            "example.com",
            "javascript://example.com",
            "https://example.com/",
            "https://example.com;script-src *",
            "https://example.com https://evil.example",
            "https://user@example.com",
            "https://example.com:",
            "https://example.com:+80",
            "https://example.com:port",
            "https://éxample.com",
            "https://example.com\r\nX: y",
        ] {
            assert!(!is_origin(other), "{other}");
        }
    }

    #[test]
    fn undeclared_origins_are_blocked() {
        let header = ContentSecurityPolicy::default().to_header();
        assert_eq!(
            header.split("; ").collect::<Vec<_>>(),
            [
                "default-src 'none'",
                "script-src 'self' 'unsafe-inline'",
                "style-src 'self' 'unsafe-inline'",
                "img-src 'self' data:",
                "font-src 'self'",
                "media-src 'self' data:",
                "connect-src 'none'",
                "frame-src 'none'",
                "object-src 'none'",
                "base-uri 'self'",
                "form-action 'none'",
                "webrtc 'block'",
            ]
        );
    }

    #[test]
    fn declared_origins_are_in_their_directives_alone() {
        let policy = ContentSecurityPolicy::default()
            .with_connect_domains(["https://c.example"])
            .with_resource_domains(["https://r.example", "*"])
            .with_frame_domains(["https://f.example"])
            .with_base_uri_domains(["https://b.example"]);
        let error = policy.validate().unwrap_err();
        assert_eq!(error.to_string(), r#"/resourceDomains/1: "*" is not an origin"#);
        let header = policy.to_header();
        let with = |origin: &str| {
            let directives = header.split("; ").filter(|one| one.contains(origin));
            directives.map(|one| one.split(' ').next().unwrap()).collect::<Vec<_>>().join(" ")
        };
        assert_eq!(with("https://c.example"), "connect-src");
        assert_eq!(with("https://r.example"), "script-src style-src img-src font-src media-src");
        assert_eq!(with("https://f.example"), "frame-src");
        assert_eq!(with("https://b.example"), "base-uri");
        assert_eq!(with("*"), "");
    }
}
