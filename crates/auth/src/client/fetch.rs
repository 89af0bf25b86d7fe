//! Sends the requests of a login, in bounded memory and time.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use reqwest::dns::{Addrs, Name, Resolve, Resolving};
use reqwest::redirect::Policy;
use url::{Host, Url};

use super::message::{HttpRequest, HttpResponse};
use crate::address::AddressPolicy;
use crate::identifier::is_loopback;
use crate::metadata::MAX_DOCUMENT;

/// The longest time that a request takes.
const TIMEOUT: Duration = Duration::from_secs(10);

pub(crate) struct Fetcher {
    http: reqwest::Client,
    /// For the loopback interface, whose traffic must not leave this machine.
    without_proxy: reqwest::Client,
    policy: AddressPolicy,
}

impl Fetcher {
    pub(crate) fn new(policy: AddressPolicy) -> Result<Self, reqwest::Error> {
        let builder = || {
            reqwest::Client::builder()
                .redirect(Policy::none())
                .timeout(TIMEOUT)
                .dns_resolver(Arc::new(FilteredResolver(policy)))
        };
        let (http, without_proxy) = (builder().build()?, builder().no_proxy().build()?);
        Ok(Self { http, without_proxy, policy })
    }

    /// Sends a request. The error is a text that names the reason, but not the URL.
    pub(crate) async fn fetch(&self, request: HttpRequest) -> Result<HttpResponse, String> {
        self.check(&request.url)?;
        let HttpRequest { method, url, headers, body } = request;
        let http = if is_loopback(&url) { &self.without_proxy } else { &self.http };
        let sent = http.request(method, url).headers(headers).body(body).send();
        let mut response = sent.await.map_err(|error| reason(&error))?;
        let (status, headers) = (response.status(), response.headers().clone());
        let mut body = Vec::new();
        while let Some(chunk) = response.chunk().await.map_err(|error| reason(&error))? {
            if body.len() + chunk.len() > MAX_DOCUMENT {
                return Err(format!("the response is longer than {MAX_DOCUMENT} bytes"));
            }
            body.extend_from_slice(&chunk);
        }
        Ok(HttpResponse::new(status, headers, body))
    }

    /// Checks a host that is an address, which is not resolved.
    fn check(&self, url: &Url) -> Result<(), String> {
        let address = match url.host() {
            Some(Host::Ipv4(address)) => address.into(),
            Some(Host::Ipv6(address)) => address.into(),
            _ => return Ok(()),
        };
        if self.policy.allows(address) { Ok(()) } else { Err(not_allowed(&address.to_string())) }
    }
}

fn not_allowed(host: &str) -> String {
    format!("{host} is not a public address; allow private networks if it is meant to be one")
}

/// Returns the innermost error, which says the most, and no URL.
fn reason(error: &reqwest::Error) -> String {
    let mut innermost: &dyn std::error::Error = error;
    while let Some(source) = innermost.source() {
        innermost = source;
    }
    if error.is_timeout() { "the request timed out".to_owned() } else { innermost.to_string() }
}

/// Resolves names to the addresses that are allowed. The connection is made to one of them, so a
/// second answer of the name server cannot replace them.
struct FilteredResolver(AddressPolicy);

impl Resolve for FilteredResolver {
    fn resolve(&self, name: Name) -> Resolving {
        let policy = self.0;
        Box::pin(async move {
            let host = name.as_str();
            let found = tokio::net::lookup_host((host, 0)).await?;
            let allowed: Vec<SocketAddr> =
                found.filter(|address| policy.allows(address.ip())).collect();
            if allowed.is_empty() {
                return Err(not_allowed(host).into());
            }
            Ok(Box::new(allowed.into_iter()) as Addrs)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn literal_addresses_are_checked() {
        let fetcher = Fetcher::new(AddressPolicy { loopback: true, private: false }).unwrap();
        for url in ["https://169.254.169.254/", "https://10.0.0.1/", "https://[::ffff:10.0.0.1]/"] {
            let error = fetcher.fetch(HttpRequest::get(Url::parse(url).unwrap())).await;
            let error = error.unwrap_err();
            assert!(error.contains("is not a public address"), "{url}: {error}");
        }
    }

    #[tokio::test]
    async fn names_are_resolved_to_allowed_addresses_only() {
        let resolve = |policy| FilteredResolver(policy).resolve("localhost".parse().unwrap());
        let error = resolve(AddressPolicy::default()).await.err().unwrap();
        assert!(error.to_string().contains("localhost is not a public address"), "{error}");
        let policy = AddressPolicy { loopback: true, private: false };
        assert!(resolve(policy).await.unwrap().all(|address| address.ip().is_loopback()));
        // The client uses this resolver.
        let fetcher = Fetcher::new(AddressPolicy::default()).unwrap();
        let url = Url::parse("http://localhost:9/").unwrap();
        let error = fetcher.fetch(HttpRequest::get(url)).await.unwrap_err();
        assert!(error.contains("not a public address"), "{error}");
    }
}
