//! Issuers and resources: URLs that are compared byte by byte.

use std::fmt;

use url::{Host, Url};

use crate::quote::quote;

/// A URL that is not acceptable in its place.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("invalid {what} {}: {rule}", quote(url))]
pub struct InvalidUrl {
    what: &'static str,
    url: String,
    rule: &'static str,
}

impl InvalidUrl {
    fn new(what: &'static str, url: &str, rule: &'static str) -> Self {
        Self { what, url: shown(url), rule }
    }
}

/// Returns a URL without user, password, query and fragment, which may be secrets.
pub(crate) fn shown(url: &str) -> String {
    let Ok(mut parsed) = Url::parse(url) else {
        let place = url.split(['?', '#']).next().unwrap_or_default();
        return place.rsplit('@').next().unwrap_or_default().to_owned();
    };
    let _ = parsed.set_username("");
    let _ = parsed.set_password(None);
    parsed.set_query(None);
    parsed.set_fragment(None);
    parsed.into()
}

/// The identifier of an authorization server (RFC 8414, section 2).
///
/// It is kept as it was written: two issuers are the same only if all their bytes are
/// (RFC 9207, section 2.4).
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Issuer(String);

impl Issuer {
    /// Creates an issuer.
    ///
    /// # Errors
    ///
    /// If it is not an `https` URL without query and fragment. `http` is accepted for the loopback
    /// interface.
    pub fn new(url: impl Into<String>) -> Result<Self, InvalidUrl> {
        let url = url.into();
        let parsed = secure_url("issuer", &url)?;
        if parsed.query().is_some() || parsed.fragment().is_some() {
            let rule = "issuers have no query and no fragment";
            return Err(InvalidUrl::new("issuer", &url, rule));
        }
        Ok(Self(url))
    }

    /// Returns the URL as it was written.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Returns the places of the metadata, the preferred one first (specification: authorization
    /// server discovery).
    ///
    /// ```
    /// use mrtr_auth::Issuer;
    ///
    /// let urls = Issuer::new("https://login.example/tenant")?.metadata_urls();
    /// let expected = [
    ///     "https://login.example/.well-known/oauth-authorization-server/tenant",
    ///     "https://login.example/.well-known/openid-configuration/tenant",
    ///     "https://login.example/tenant/.well-known/openid-configuration",
    /// ];
    /// assert_eq!(urls.iter().map(|url| url.as_str()).collect::<Vec<_>>(), expected);
    /// # Ok::<_, mrtr_auth::InvalidUrl>(())
    /// ```
    pub fn metadata_urls(&self) -> Vec<Url> {
        let Ok(issuer) = Url::parse(&self.0) else { return Vec::new() };
        let mut urls = vec![
            well_known(&issuer, "oauth-authorization-server"),
            well_known(&issuer, "openid-configuration"),
        ];
        let path = issuer.path().trim_end_matches('/');
        if !path.is_empty() {
            let mut appended = issuer.clone();
            appended.set_path(&format!("{path}/.well-known/openid-configuration"));
            urls.push(appended);
        }
        urls
    }
}

impl fmt::Display for Issuer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// The identifier of a protected resource: the canonical URL of an MCP server (RFC 8707, section 2;
/// RFC 9728, section 1.2). It is kept as it was written.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ResourceId(String);

impl ResourceId {
    /// Creates an identifier.
    ///
    /// # Errors
    ///
    /// If it is not an `https` URL without fragment. `http` is accepted for the loopback interface.
    pub fn new(url: impl Into<String>) -> Result<Self, InvalidUrl> {
        let url = url.into();
        if secure_url("resource", &url)?.fragment().is_some() {
            return Err(InvalidUrl::new("resource", &url, "resources have no fragment"));
        }
        Ok(Self(url))
    }

    /// Returns the URL as it was written.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Returns the host name without a port, as `HostPolicy::allow_host` of `mrtr-transport` takes
    /// it.
    pub fn host(&self) -> String {
        let url = Url::parse(&self.0).ok();
        url.as_ref().and_then(Url::host_str).unwrap_or_default().to_owned()
    }

    /// Returns the place of the metadata: the well-known path goes between the host and the path
    /// of the resource (RFC 9728, section 3.1).
    ///
    /// ```
    /// use mrtr_auth::ResourceId;
    ///
    /// let id = ResourceId::new("https://booking.example/mcp")?;
    /// assert_eq!(id.host(), "booking.example");
    /// let url = id.metadata_url();
    /// let expected = "https://booking.example/.well-known/oauth-protected-resource/mcp";
    /// assert_eq!(url.as_str(), expected);
    /// # Ok::<_, mrtr_auth::InvalidUrl>(())
    /// ```
    #[expect(clippy::missing_panics_doc, clippy::expect_used, reason = "checked in `new`")]
    pub fn metadata_url(&self) -> Url {
        well_known(&Url::parse(&self.0).expect("a URL"), "oauth-protected-resource")
    }
}

impl fmt::Display for ResourceId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Parses a URL that is `https`, or `http` on the loopback interface, without user and password.
///
/// # Errors
///
/// If it is another URL, or not one. `what` names it in the error.
pub(crate) fn secure_url(what: &'static str, text: &str) -> Result<Url, InvalidUrl> {
    let invalid = |rule| InvalidUrl::new(what, text, rule);
    let url = Url::parse(text).map_err(|_| invalid("not a URL"))?;
    match url.scheme() {
        "https" => {}
        "http" if is_loopback(&url) => {}
        "http" => return Err(invalid("must be https, except on the loopback interface")),
        _ => return Err(invalid("must be https")),
    }
    if !url.username().is_empty() || url.password().is_some() {
        return Err(invalid("must not contain a user or a password"));
    }
    Ok(url)
}

/// Returns true if the host of `url` is `localhost` or a loopback address.
pub(crate) fn is_loopback(url: &Url) -> bool {
    match url.host() {
        Some(Host::Domain(name)) => name == "localhost",
        Some(Host::Ipv4(address)) => address.is_loopback(),
        Some(Host::Ipv6(address)) => address.is_loopback(),
        None => false,
    }
}

/// Inserts a well-known path between the host and the path of a URL.
fn well_known(url: &Url, suffix: &str) -> Url {
    let mut url = url.clone();
    let path = format!("/.well-known/{suffix}{}", url.path().trim_end_matches('/'));
    url.set_path(&path);
    url
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn issuers_are_https_or_loopback() {
        for url in [
            "https://a.example",
            "https://a.example/x/",
            "http://127.0.0.1:1/",
            "http://[::1]",
            "http://localhost:3",
        ] {
            assert_eq!(Issuer::new(url).unwrap().as_str(), url);
        }
        for url in [
            "http://a.example",
            "http://localhost.a.example",
            "http://128.0.0.1",
            "javascript:alert(1)",
            "file:///etc/passwd",
            "https://user@a.example",
            "https://a.example?x=1",
            "https://a.example#x",
            "a.example",
            "",
        ] {
            assert!(Issuer::new(url).is_err(), "{url}");
        }
    }

    #[test]
    fn issuers_are_compared_by_bytes() {
        let issuer = |url| Issuer::new(url).unwrap();
        assert_ne!(issuer("https://a.example"), issuer("https://a.example/"));
        assert_ne!(issuer("https://a.example"), issuer("https://A.example"));
        assert_ne!(issuer("https://a.example"), issuer("https://a.example:443"));
    }

    #[test]
    fn metadata_of_an_issuer_without_path_is_at_two_places() {
        for issuer in ["https://a.example", "https://a.example/"] {
            let urls = Issuer::new(issuer).unwrap().metadata_urls();
            let urls: Vec<_> = urls.iter().map(Url::as_str).collect();
            assert_eq!(
                urls,
                [
                    "https://a.example/.well-known/oauth-authorization-server",
                    "https://a.example/.well-known/openid-configuration"
                ]
            );
        }
    }

    #[test]
    fn errors_show_no_password_and_no_query() {
        for url in ["http://user:secret@a.example/x?key=secret", "a.example/user:secret@x?secret"] {
            let error = ResourceId::new(url).unwrap_err().to_string();
            assert!(!error.contains("secret"), "{error}");
        }
    }

    #[test]
    fn metadata_of_an_issuer_with_path_is_at_three_places() {
        let urls = Issuer::new("https://a.example/x/y").unwrap().metadata_urls();
        let urls: Vec<_> = urls.iter().map(Url::as_str).collect();
        assert_eq!(
            urls,
            [
                "https://a.example/.well-known/oauth-authorization-server/x/y",
                "https://a.example/.well-known/openid-configuration/x/y",
                "https://a.example/x/y/.well-known/openid-configuration"
            ]
        );
    }

    #[test]
    fn metadata_url_of_a_resource_keeps_its_query() {
        let url = ResourceId::new("https://a.example/mcp?tenant=1").unwrap().metadata_url();
        let expected = "https://a.example/.well-known/oauth-protected-resource/mcp?tenant=1";
        assert_eq!(url.as_str(), expected);
    }
}
