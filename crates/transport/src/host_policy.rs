//! The hosts and origins that may call a server (specification: streamable HTTP, "Security &
//! Endpoint").
//!
//! A web page can make a browser call a server on the same machine. The browser names the page in
//! `Origin`; if the page's host name was made to resolve to this machine (DNS rebinding), it names
//! that host in `Host`. Both are checked, and by default only this machine's own names are
//! accepted.

use http::uri::Authority;
use http::{HeaderMap, HeaderValue, Uri, header};
use mrtr_schema::peer_text::quote;

/// The hosts and origins that may call a server.
///
/// The default accepts only this machine's names: `localhost`, `127.0.0.1` and `[::1]`, on any
/// port. A request without `Origin` does not come from a web page and passes the origin check.
///
/// ```
/// use http::{HeaderMap, HeaderValue, Uri};
/// use mrtr_transport::host_policy::HostPolicy;
///
/// let policy = HostPolicy::loopback()
///     .allow_host("mcp.example.com")
///     .allow_origin("https://app.example.com");
///
/// let uri = Uri::from_static("/mcp");
/// let mut headers = HeaderMap::new();
/// headers.insert("host", HeaderValue::from_static("mcp.example.com"));
/// headers.insert("origin", HeaderValue::from_static("https://app.example.com"));
/// assert!(policy.check(&uri, &headers).is_ok());
///
/// headers.insert("origin", HeaderValue::from_static("https://evil.example"));
/// let denied = policy.check(&uri, &headers).unwrap_err();
/// assert_eq!(denied.to_string(), r#"Origin "https://evil.example" is not allowed"#);
/// ```
#[derive(Debug, Clone, Default)]
pub struct HostPolicy {
    hosts: Vec<String>,
    origins: Vec<String>,
    any_host: bool,
}

/// The error of a request that a [`HostPolicy`] does not allow. Its text is safe to send to the
/// client.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct AccessDenied(String);

impl HostPolicy {
    /// Creates a policy that allows only this machine's own names.
    pub fn loopback() -> Self {
        Self::default()
    }

    /// Allows requests whose `Host` is `host`, on any port: the public name of the server, without
    /// a port.
    pub fn allow_host(mut self, host: impl Into<String>) -> Self {
        self.hosts.push(host.into().to_ascii_lowercase());
        self
    }

    /// Allows any `Host`. Use it only behind a proxy that has checked the header.
    pub fn allow_any_host(mut self) -> Self {
        self.any_host = true;
        self
    }

    /// Allows browser requests from pages of `origin`, such as `https://app.example.com`.
    pub fn allow_origin(mut self, origin: impl Into<String>) -> Self {
        self.origins.push(origin.into().trim_end_matches('/').to_ascii_lowercase());
        self
    }

    /// Checks the `Host` and `Origin` of a request. Over HTTP/2, the authority of `uri` replaces a
    /// missing `Host`.
    ///
    /// # Errors
    ///
    /// If the host or an origin is not allowed, or there is more than one `Host`. Answer with HTTP
    /// 403.
    pub fn check(&self, uri: &Uri, headers: &HeaderMap) -> Result<(), AccessDenied> {
        self.check_host(uri, headers)?;
        headers.get_all(header::ORIGIN).iter().try_for_each(|origin| self.check_origin(origin))
    }

    fn check_host(&self, uri: &Uri, headers: &HeaderMap) -> Result<(), AccessDenied> {
        let mut values = headers.get_all(header::HOST).iter();
        let host = match (values.next(), values.next()) {
            (Some(_), Some(_)) => return Err(AccessDenied("more than one Host".to_owned())),
            _ if self.any_host => return Ok(()),
            (Some(host), None) => {
                host.to_str().map_err(|_| AccessDenied("Host is not ASCII".to_owned()))?
            }
            (None, _) => uri.authority().map(Authority::as_str).unwrap_or_default(),
        };
        // Fast path: a loopback name with or without a port, which needs no parser.
        let without_port =
            host.rsplit_once(':').filter(|(_, port)| port.bytes().all(|b| b.is_ascii_digit()));
        if is_loopback(without_port.map_or(host, |(name, _)| name)) {
            return Ok(());
        }
        let name = host.parse().ok().map(|a: Authority| a.host().to_ascii_lowercase());
        if name.is_some_and(|name| is_loopback(&name) || self.hosts.contains(&name)) {
            Ok(())
        } else {
            Err(AccessDenied(format!("Host {} is not allowed", quote(host))))
        }
    }

    fn check_origin(&self, origin: &HeaderValue) -> Result<(), AccessDenied> {
        let origin = origin.to_str().map_err(|_| AccessDenied("Origin is not ASCII".to_owned()))?;
        if self.origins.contains(&origin.to_ascii_lowercase()) || is_loopback_origin(origin) {
            Ok(())
        } else {
            Err(AccessDenied(format!("Origin {} is not allowed", quote(origin))))
        }
    }
}

fn is_loopback_origin(origin: &str) -> bool {
    origin.parse().is_ok_and(|origin: Uri| {
        matches!(origin.scheme_str(), Some("http" | "https"))
            && matches!(origin.path(), "" | "/")
            && origin.host().is_some_and(is_loopback)
    })
}

fn is_loopback(host: &str) -> bool {
    ["localhost", "127.0.0.1", "[::1]"].iter().any(|own| host.eq_ignore_ascii_case(own))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn allows(policy: &HostPolicy, host: Option<&str>, origin: Option<&str>) -> bool {
        let mut headers = HeaderMap::new();
        for (name, value) in [(header::HOST, host), (header::ORIGIN, origin)] {
            if let Some(value) = value {
                headers.insert(name, value.parse().unwrap());
            }
        }
        policy.check(&Uri::from_static("/mcp"), &headers).is_ok()
    }

    #[test]
    fn default_allows_only_loopback_hosts_and_origins() {
        let policy = HostPolicy::loopback();
        for host in ["localhost", "LOCALHOST:3000", "127.0.0.1:80", "[::1]:3000", "[::1]"] {
            assert!(allows(&policy, Some(host), None), "{host}");
        }
        for host in [
            "evil.example",
            "localhost.evil.example",
            "127.0.0.1.evil.example",
            "localhost@evil.example",
            "",
            "0.0.0.0",
        ] {
            assert!(!allows(&policy, Some(host), None), "{host}");
        }
        assert!(!allows(&policy, None, None), "there is no host");
        for origin in ["http://localhost:5173", "https://127.0.0.1", "http://[::1]:1"] {
            assert!(allows(&policy, Some("localhost"), Some(origin)), "{origin}");
        }
        for origin in [
            "http://evil.example",
            "null",
            "file://localhost",
            "http://localhost.evil.example",
            "http://localhost/x",
            "http://evil.example#localhost",
        ] {
            assert!(!allows(&policy, Some("localhost"), Some(origin)), "{origin}");
        }
    }

    #[test]
    fn allow_host_and_allow_origin_add_names() {
        let policy =
            HostPolicy::loopback().allow_host("MCP.example").allow_origin("https://app.example/");
        assert!(allows(&policy, Some("mcp.example:443"), Some("https://app.example")));
        assert!(!allows(&policy, Some("mcp.example"), Some("http://app.example")));
        assert!(!allows(&policy, Some("other.example"), None));
        assert!(allows(&HostPolicy::loopback().allow_any_host(), Some("other.example"), None));
        assert!(!allows(
            &HostPolicy::loopback().allow_any_host(),
            Some("x"),
            Some("https://evil.example")
        ));
    }

    #[test]
    fn more_than_one_host_is_denied() {
        let mut headers = HeaderMap::new();
        headers.append(header::HOST, "localhost".parse().unwrap());
        headers.append(header::HOST, "evil.example".parse().unwrap());
        for policy in [HostPolicy::loopback(), HostPolicy::loopback().allow_any_host()] {
            assert!(policy.check(&Uri::from_static("/"), &headers).is_err());
        }
    }
}
