//! Who may call a server at all: the `Host` and `Origin` of a request (specification: streamable
//! HTTP, "Security & Endpoint").
//!
//! A web page can make a browser call a server on the same machine. The browser says in `Origin` which
//! page it was, and, where the page's name was made to point at this machine, says so in `Host`. So
//! both are checked, and unless told otherwise only this machine's own names are let through.

use http::{HeaderMap, Uri, header};

/// Which hosts and origins may call. The default is this machine: `localhost`, `127.0.0.1` and
/// `[::1]`, on any port.
#[derive(Debug, Clone, Default)]
pub struct HostPolicy {
    hosts: Vec<String>,
    origins: Vec<String>,
    any_host: bool,
}

/// Why a request may not pass. The text is fit for the caller.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct AccessDenied(String);

impl HostPolicy {
    /// Only this machine.
    pub fn loopback() -> Self {
        Self::default()
    }

    /// Also lets requests through that name `host`, without a port: the server's public name.
    pub fn allow_host(mut self, host: impl Into<String>) -> Self {
        self.hosts.push(host.into().to_ascii_lowercase());
        self
    }

    /// Lets any `Host` through: something in front of the server has checked it.
    pub fn allow_any_host(mut self) -> Self {
        self.any_host = true;
        self
    }

    /// Also lets browsers through on pages of `origin`, such as `https://app.example`.
    pub fn allow_origin(mut self, origin: impl Into<String>) -> Self {
        self.origins.push(origin.into().trim_end_matches('/').to_ascii_lowercase());
        self
    }

    /// Checks a request.
    ///
    /// # Errors
    ///
    /// If its host or origin may not call. Answer with 403.
    pub fn check(&self, uri: &Uri, headers: &HeaderMap) -> Result<(), AccessDenied> {
        self.check_host(uri, headers)?;
        for origin in headers.get_all(header::ORIGIN) {
            let origin =
                origin.to_str().map_err(|_| AccessDenied("Origin is not ASCII".to_owned()))?;
            let allowed = self.origins.contains(&origin.to_ascii_lowercase())
                || origin.parse().is_ok_and(|origin: Uri| {
                    matches!(origin.scheme_str(), Some("http" | "https"))
                        && matches!(origin.path(), "" | "/")
                        && origin.host().is_some_and(is_loopback)
                });
            if !allowed {
                return Err(AccessDenied(format!("Origin {origin:.128?} is not allowed")));
            }
        }
        Ok(())
    }

    fn check_host(&self, uri: &Uri, headers: &HeaderMap) -> Result<(), AccessDenied> {
        if self.any_host {
            return Ok(());
        }
        let mut all = headers.get_all(header::HOST).iter();
        let host = match (all.next(), all.next()) {
            (Some(_), Some(_)) => return Err(AccessDenied("more than one Host".to_owned())),
            (Some(host), None) => {
                host.to_str().map_err(|_| AccessDenied("Host is not ASCII".to_owned()))?
            }
            // HTTP/2 says it in the URI.
            (None, _) => uri.authority().map(http::uri::Authority::as_str).unwrap_or_default(),
        };
        // This machine's own name as it is most often written.
        let plain =
            host.rsplit_once(':').filter(|(_, port)| port.bytes().all(|b| b.is_ascii_digit()));
        if is_loopback(plain.map_or(host, |(name, _)| name)) {
            return Ok(());
        }
        let name = host.parse().ok().map(|a: http::uri::Authority| a.host().to_ascii_lowercase());
        if name.is_some_and(|name| is_loopback(&name) || self.hosts.contains(&name)) {
            Ok(())
        } else {
            Err(AccessDenied(format!("Host {host:.128?} is not allowed")))
        }
    }
}

fn is_loopback(host: &str) -> bool {
    ["localhost", "127.0.0.1", "[::1]"].iter().any(|own| host.eq_ignore_ascii_case(own))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn verdict(access: &HostPolicy, host: Option<&str>, origin: Option<&str>) -> bool {
        let mut headers = HeaderMap::new();
        for (name, value) in [(header::HOST, host), (header::ORIGIN, origin)] {
            if let Some(value) = value {
                headers.insert(name, value.parse().unwrap());
            }
        }
        access.check(&Uri::from_static("/mcp"), &headers).is_ok()
    }

    #[test]
    fn only_this_machine_unless_told_otherwise() {
        let access = HostPolicy::loopback();
        for host in ["localhost", "LOCALHOST:3000", "127.0.0.1:80", "[::1]:3000", "[::1]"] {
            assert!(verdict(&access, Some(host), None), "{host}");
        }
        for host in [
            "evil.example",
            "localhost.evil.example",
            "127.0.0.1.evil.example",
            "localhost@evil.example",
            "",
            "0.0.0.0",
        ] {
            assert!(!verdict(&access, Some(host), None), "{host}");
        }
        assert!(!verdict(&access, None, None), "no host at all");
        for origin in ["http://localhost:5173", "https://127.0.0.1", "http://[::1]:1"] {
            assert!(verdict(&access, Some("localhost"), Some(origin)), "{origin}");
        }
        for origin in [
            "http://evil.example",
            "null",
            "file://localhost",
            "http://localhost.evil.example",
            "http://localhost/x",
            "http://evil.example#localhost",
        ] {
            assert!(!verdict(&access, Some("localhost"), Some(origin)), "{origin}");
        }
    }

    #[test]
    fn more_hosts_and_origins_by_name() {
        let access =
            HostPolicy::loopback().allow_host("MCP.example").allow_origin("https://app.example/");
        assert!(verdict(&access, Some("mcp.example:443"), Some("https://app.example")));
        assert!(!verdict(&access, Some("mcp.example"), Some("http://app.example")));
        assert!(!verdict(&access, Some("other.example"), None));
        assert!(verdict(&HostPolicy::loopback().allow_any_host(), Some("other.example"), None));
        assert!(!verdict(
            &HostPolicy::loopback().allow_any_host(),
            Some("x"),
            Some("https://evil.example")
        ));
    }

    #[test]
    fn two_hosts_are_one_too_many() {
        let mut headers = HeaderMap::new();
        headers.append(header::HOST, "localhost".parse().unwrap());
        headers.append(header::HOST, "evil.example".parse().unwrap());
        assert!(HostPolicy::loopback().check(&Uri::from_static("/"), &headers).is_err());
    }
}
