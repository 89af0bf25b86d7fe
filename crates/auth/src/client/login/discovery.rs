//! The search for the authorization server of an MCP server (specification: authorization server
//! discovery).

use std::collections::VecDeque;

use url::Url;

use crate::client::error::LoginError;
use crate::client::message::HttpResponse;
use crate::client::options::Options;
use crate::identifier::{Issuer, ResourceId, secure_url, shown};
use crate::metadata::{MetadataError, ResourceMetadata, ServerMetadata};
use crate::scope::Scopes;

/// How many authorization servers of a resource are tried.
const MAX_ISSUERS: usize = 4;

/// A search in progress: first for the metadata of the resource, then for that of its authorization
/// servers.
pub(in crate::client) struct Discovery {
    /// The places of the document that is searched for. The first one was fetched.
    urls: VecDeque<Url>,
    resource: Option<String>,
    /// The authorization servers. The first one is searched for.
    pub(super) issuers: Vec<Issuer>,
    pub(super) scopes: Scopes,
    failure: Option<LoginError>,
    /// There was no document of an authorization server at any place.
    is_missing: bool,
    /// Usable metadata of the first authorization server that does not say that it supports PKCE.
    /// Another document of it may say so.
    without_pkce: Option<ServerMetadata>,
}

/// The next step of a search.
pub(in crate::client) enum Found {
    /// Fetch a document.
    Fetch(Discovery, Url),
    /// The resource is known. Its authorization servers come next.
    Resource(Discovery, Box<ResourceMetadata>),
    /// The authorization server is known.
    Server { resource: String, issuer: Issuer, metadata: ServerMetadata, scopes: Scopes },
}

impl Discovery {
    /// Starts with the metadata of a resource: at the place that its challenge has named, or at the
    /// well-known ones.
    pub(super) fn of_resource(
        server: &ResourceId,
        named: Option<&str>,
    ) -> Result<Found, LoginError> {
        let urls = match named {
            Some(url) => {
                let no_metadata = |reason| LoginError::NoResourceMetadata {
                    server: shown(server.as_str()),
                    reason,
                };
                let url = secure_url("resource_metadata", url);
                VecDeque::from([url.map_err(|error| no_metadata(error.to_string()))?])
            }
            None => {
                let at_path = server.metadata_url();
                let mut at_root = at_path.clone();
                at_root.set_path("/.well-known/oauth-protected-resource");
                at_root.set_query(None);
                if at_path == at_root { [at_path].into() } else { [at_path, at_root].into() }
            }
        };
        let (resource, issuers, scopes) = (None, Vec::new(), Scopes::default());
        Self {
            urls,
            resource,
            issuers,
            scopes,
            failure: None,
            is_missing: true,
            without_pkce: None,
        }
        .fetch_first()
    }

    /// Starts with the metadata of an authorization server.
    pub(in crate::client) fn of_issuer(
        resource: String,
        issuer: Issuer,
        scopes: Scopes,
    ) -> Result<Found, LoginError> {
        let urls = issuer.metadata_urls().into();
        let (resource, issuers) = (Some(resource), vec![issuer]);
        Self {
            urls,
            resource,
            issuers,
            scopes,
            failure: None,
            is_missing: true,
            without_pkce: None,
        }
        .fetch_first()
    }

    fn fetch_first(self) -> Result<Found, LoginError> {
        match self.urls.front().cloned() {
            Some(url) => Ok(Found::Fetch(self, url)),
            None => Err(self.failure.unwrap_or(LoginError::Expired)),
        }
    }

    /// Reads the document at the first place.
    pub(in crate::client) fn response(
        mut self,
        response: Option<&HttpResponse>,
        no_response: &str,
        server: &ResourceId,
        options: &Options,
    ) -> Result<Found, LoginError> {
        let Some(url) = self.urls.pop_front() else { return self.fetch_first() };
        let document = match response {
            Some(response) if response.status().is_success() => Ok(response.body()),
            Some(response) => Err(format!("{url} answered {}", response.status())),
            None => Err(format!("{url}: {no_response}")),
        };
        match self.resource {
            None => self.resource_document(&url, document, server, options),
            Some(_) => self.server_document(document, options),
        }
    }

    fn resource_document(
        mut self,
        url: &Url,
        document: Result<&[u8], String>,
        server: &ResourceId,
        options: &Options,
    ) -> Result<Found, LoginError> {
        let parsed = document.and_then(|document| {
            ResourceMetadata::parse(document).map_err(|error| format!("{url}: {error}"))
        });
        let metadata = match parsed {
            Ok(metadata) => metadata,
            Err(reason) => {
                if self.urls.is_empty() && options.origin_as_issuer {
                    return self.origin_as_issuer(server, options);
                }
                let server = shown(server.as_str());
                self.failure = Some(LoginError::NoResourceMetadata { server, reason });
                return self.fetch_first();
            }
        };
        if !is_resource_of(&metadata.resource, server, url) {
            let (server, resource) = (shown(server.as_str()), shown(&metadata.resource));
            return Err(LoginError::OtherResource { server, resource });
        }
        self.issuers = metadata.issuers()?;
        (self.resource, self.failure) = (Some(metadata.resource.clone()), None);
        Ok(Found::Resource(self, Box::new(metadata)))
    }

    /// Takes the origin of the server as its authorization server (revision 2025-03-26).
    fn origin_as_issuer(
        mut self,
        server: &ResourceId,
        options: &Options,
    ) -> Result<Found, LoginError> {
        let origin = secure_url("server URL", server.as_str())
            .map_err(MetadataError::from)?
            .origin()
            .ascii_serialization();
        (self.resource, self.failure) = (Some(server.to_string()), None);
        self.issuers = vec![Issuer::new(origin).map_err(MetadataError::from)?];
        self.scopes = options.scopes.clone();
        self.next_server(options)
    }

    /// Starts the search for the first of the authorization servers.
    pub(super) fn next_server(mut self, options: &Options) -> Result<Found, LoginError> {
        self.issuers.truncate(MAX_ISSUERS);
        let urls = self.issuers.first().map(Issuer::metadata_urls);
        self.urls = urls.unwrap_or_default().into();
        if self.issuers.is_empty()
            && self.is_missing
            && let Some(LoginError::NoServerMetadata { issuer, .. }) = &self.failure
            && options.origin_as_issuer
        {
            let issuer = issuer.clone();
            return Ok(self.default_endpoints(issuer));
        }
        self.fetch_first()
    }

    fn server_document(
        mut self,
        document: Result<&[u8], String>,
        options: &Options,
    ) -> Result<Found, LoginError> {
        let (Some(issuer), Some(resource)) = (self.issuers.first().cloned(), self.resource.clone())
        else {
            return self.fetch_first();
        };
        let no_metadata = |reason| LoginError::NoServerMetadata { issuer: issuer.clone(), reason };
        // A document that is missing says less than one that is not usable.
        match document.map(|document| ServerMetadata::parse(document, &issuer)) {
            Err(reason) => _ = self.failure.get_or_insert_with(|| no_metadata(reason)),
            Ok(Err(error)) => {
                self.is_missing = false;
                self.failure = Some(no_metadata(error.to_string()));
            }
            Ok(Ok(metadata)) if !metadata.supports_pkce() => {
                self.without_pkce.get_or_insert(metadata);
            }
            Ok(Ok(metadata)) => {
                let scopes = self.scopes;
                return Ok(Found::Server { resource, issuer, metadata, scopes });
            }
        }
        if !self.urls.is_empty() {
            return self.fetch_first();
        }
        if let Some(metadata) = self.without_pkce {
            return Ok(Found::Server { resource, issuer, metadata, scopes: self.scopes });
        }
        self.issuers.remove(0);
        self.next_server(options)
    }

    /// Assumes the endpoints of an authorization server without metadata (revision 2025-03-26).
    fn default_endpoints(self, issuer: Issuer) -> Found {
        let endpoint = |path| Some(format!("{issuer}/{path}"));
        let mut metadata = ServerMetadata::without_document(&issuer);
        // That revision requires PKCE.
        metadata.code_challenge_methods_supported = Some(vec!["S256".to_owned()]);
        metadata.authorization_endpoint = endpoint("authorize");
        metadata.token_endpoint = endpoint("token");
        metadata.registration_endpoint = endpoint("register");
        let resource = self.resource.unwrap_or_default();
        Found::Server { resource, issuer, metadata, scopes: self.scopes }
    }
}

/// Returns true if metadata from `url` that names `resource` is that of `server`: it names the
/// server, or a parent of it whose own metadata is at `url`. Otherwise, one tenant of a host could
/// obtain tokens for the others.
fn is_resource_of(resource: &str, server: &ResourceId, url: &Url) -> bool {
    let (Ok(resource_url), Ok(server_url)) =
        (secure_url("resource", resource), Url::parse(server.as_str()))
    else {
        return false;
    };
    let path = |url: &Url| url.path().trim_end_matches('/').to_owned();
    if resource_url.origin() != server_url.origin() {
        return false;
    }
    let (of_resource, of_server) = (path(&resource_url), path(&server_url));
    if of_resource == of_server && resource_url.query() == server_url.query() {
        return true;
    }
    let is_parent = resource_url.query().is_none()
        && of_server.strip_prefix(&of_resource).is_some_and(|rest| rest.starts_with('/'));
    is_parent && ResourceId::new(resource).is_ok_and(|resource| resource.metadata_url() == *url)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parent_resource_needs_its_own_document() {
        let server = ResourceId::new("https://a.example/x/mcp").unwrap();
        let well_known = "https://a.example/.well-known/oauth-protected-resource";
        for (resource, url, accepted) in [
            ("https://a.example/x/mcp", "/x/mcp", true),
            ("https://A.example:443/x/mcp/", "/x/mcp", true),
            ("https://a.example", "", true),
            ("https://a.example/", "", true),
            ("https://a.example/x", "/x", true),
            // The document of a tenant claims the whole host.
            ("https://a.example", "/x/mcp", false),
            ("https://a.example/x", "/x/mcp", false),
            ("https://a.example/y/mcp", "/y/mcp", false),
            ("https://a.example/x/m", "/x/m", false),
            ("https://b.example/x/mcp", "/x/mcp", false),
            ("http://a.example/x/mcp", "/x/mcp", false),
            ("x", "", false),
        ] {
            let url = Url::parse(&format!("{well_known}{url}")).unwrap();
            assert_eq!(is_resource_of(resource, &server, &url), accepted, "{resource} at {url}");
        }
    }
}
