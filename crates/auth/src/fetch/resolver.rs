//! Connections to allowed addresses only.

use std::net::SocketAddr;
use std::sync::Arc;

use reqwest::dns::{Addrs, Name, Resolve, Resolving};
use url::{Host, Url};

use super::address::AddressPolicy;
use super::{Fetcher, HttpSettings, NoResponse};

impl Fetcher {
    /// Creates a client that connects to allowed addresses only. A proxy resolves names itself.
    ///
    /// # Errors
    ///
    /// If TLS cannot be initialized.
    pub(crate) fn restricted(
        settings: &HttpSettings,
        policy: AddressPolicy,
    ) -> reqwest::Result<Self> {
        let proxies = settings.proxy_hosts();
        let resolver = Arc::new(FilteredResolver { policy, proxies });
        let fetcher = Self::build(settings, |client| client.dns_resolver(Arc::clone(&resolver)))?;
        Ok(Self { addresses: Some(policy), ..fetcher })
    }

    /// Checks a host that is an address, which is not resolved.
    pub(super) fn check_address(&self, url: &Url) -> Result<(), NoResponse> {
        let address = match url.host() {
            Some(Host::Ipv4(address)) => address.into(),
            Some(Host::Ipv6(address)) => address.into(),
            _ => return Ok(()),
        };
        match self.addresses {
            Some(policy) if !policy.allows(address) => {
                Err(NoResponse::Address(address.to_string()))
            }
            _ => Ok(()),
        }
    }
}

/// Resolves names to the addresses that are allowed. The connection is made to one of them, so a
/// second answer of the name server cannot replace them.
struct FilteredResolver {
    policy: AddressPolicy,
    /// The operator's proxies, which may be at any address. Their names are resolved here, too.
    proxies: Vec<String>,
}

impl Resolve for FilteredResolver {
    fn resolve(&self, name: Name) -> Resolving {
        let policy = self.policy;
        let is_proxy = self.proxies.iter().any(|proxy| proxy.eq_ignore_ascii_case(name.as_str()));
        Box::pin(async move {
            let host = name.as_str();
            let found = tokio::net::lookup_host((host, 0)).await?;
            let allowed: Vec<SocketAddr> =
                found.filter(|address| is_proxy || policy.allows(address.ip())).collect();
            if allowed.is_empty() {
                return Err(NoResponse::Address(host.to_owned()).into());
            }
            Ok(Box::new(allowed.into_iter()) as Addrs)
        })
    }
}

#[cfg(test)]
mod tests {
    use http::{HeaderMap, Method};

    use super::*;

    async fn error(policy: AddressPolicy, url: &str) -> String {
        let fetcher = Fetcher::restricted(&HttpSettings::default(), policy).unwrap();
        let url = Url::parse(url).unwrap();
        fetcher.send(Method::GET, url, HeaderMap::new(), "").await.unwrap_err().to_string()
    }

    #[tokio::test]
    async fn literal_addresses_are_checked() {
        let policy = AddressPolicy { loopback: true, private: false };
        for url in ["https://169.254.169.254/", "https://10.0.0.1/", "https://[::ffff:10.0.0.1]/"] {
            let error = error(policy, url).await;
            assert!(error.contains("is not a public address"), "{url}: {error}");
        }
    }

    #[tokio::test]
    async fn names_are_resolved_to_allowed_addresses_only() {
        let resolver = |policy, proxies: &[&str]| FilteredResolver {
            policy,
            proxies: proxies.iter().map(|&proxy| proxy.to_owned()).collect(),
        };
        let resolve = |policy| resolver(policy, &[]).resolve("localhost".parse().unwrap());
        let proxy = resolver(AddressPolicy::default(), &["Localhost"]);
        assert!(proxy.resolve("localhost".parse().unwrap()).await.is_ok());
        let refused = resolve(AddressPolicy::default()).await.err().unwrap();
        assert!(refused.to_string().contains("localhost is not a public address"), "{refused}");
        let policy = AddressPolicy { loopback: true, private: false };
        assert!(resolve(policy).await.unwrap().all(|address| address.ip().is_loopback()));
        // The client uses this resolver.
        let error = error(AddressPolicy::default(), "http://localhost:9/").await;
        assert!(error.contains("not a public address"), "{error}");
    }
}
