//! The metadata of protected resources (RFC 9728) and of authorization servers (RFC 8414, OpenID
//! Connect Discovery 1.0).

use serde::{Deserialize, Deserializer, Serialize};

use crate::identifier::{InvalidUrl, Issuer, ResourceId, secure_url};
use crate::quote::quote;

/// The longest document that is parsed, in bytes.
pub const MAX_DOCUMENT: usize = 256 << 10;

/// A metadata document that cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum MetadataError {
    /// The document is longer than [`MAX_DOCUMENT`].
    #[error("the metadata is longer than {MAX_DOCUMENT} bytes")]
    TooLong,
    /// The document is not JSON, or a member has the wrong type.
    #[error("malformed metadata: {0}")]
    Malformed(#[from] serde_json::Error),
    /// A URL is not `https`, or not a URL.
    #[error("invalid metadata: {0}")]
    Url(#[from] InvalidUrl),
    /// The metadata names another issuer than the one that it was fetched for
    /// (RFC 8414, section 3.3).
    #[error("the metadata of {expected} names the issuer {}", quote(found))]
    OtherIssuer {
        /// The issuer that the metadata was fetched for.
        expected: Issuer,
        /// The issuer in the metadata.
        found: String,
    },
    /// The metadata names no authorization server.
    #[error("the metadata of the resource names no authorization server")]
    NoAuthorizationServer,
}

/// The metadata of a protected resource (RFC 9728, section 2).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct ResourceMetadata {
    /// The identifier of the resource.
    pub resource: String,
    /// The issuers of its tokens.
    #[serde(default, deserialize_with = "null_as_default")]
    pub authorization_servers: Vec<String>,
    /// The scopes that its operations need.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scopes_supported: Option<Vec<String>>,
    /// How tokens are sent: `header` for MCP.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bearer_methods_supported: Option<Vec<String>>,
    /// A name for users.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resource_name: Option<String>,
    /// The signature algorithms of `DPoP` proofs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dpop_signing_alg_values_supported: Option<Vec<String>>,
    /// True if tokens must be bound to a key.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dpop_bound_access_tokens_required: Option<bool>,
}

impl ResourceMetadata {
    /// Creates metadata of a resource and the issuers of its tokens.
    pub fn new(resource: &ResourceId, issuers: impl IntoIterator<Item = Issuer>) -> Self {
        Self {
            resource: resource.as_str().to_owned(),
            authorization_servers: issuers.into_iter().map(|issuer| issuer.to_string()).collect(),
            scopes_supported: None,
            bearer_methods_supported: Some(vec!["header".to_owned()]),
            resource_name: None,
            dpop_signing_alg_values_supported: None,
            dpop_bound_access_tokens_required: None,
        }
    }

    /// Parses a document. Whether `resource` is the expected one is for the caller to check.
    ///
    /// # Errors
    ///
    /// If the document is too long or malformed.
    pub fn parse(document: &[u8]) -> Result<Self, MetadataError> {
        parse(document)
    }

    /// Returns the issuers of the tokens, in the order of the document. Which of them to use is for
    /// the client to decide, so those that are not valid are left out.
    ///
    /// # Errors
    ///
    /// If there are none, or none is a valid issuer.
    pub fn issuers(&self) -> Result<Vec<Issuer>, MetadataError> {
        let (mut issuers, mut first_error) = (Vec::new(), None);
        for issuer in self.authorization_servers.iter().map(Issuer::new) {
            match issuer {
                Ok(issuer) => issuers.push(issuer),
                Err(error) => first_error = first_error.or(Some(error)),
            }
        }
        match first_error {
            _ if !issuers.is_empty() => Ok(issuers),
            Some(error) => Err(error.into()),
            None => Err(MetadataError::NoAuthorizationServer),
        }
    }
}

/// The metadata of an authorization server (RFC 8414, section 2).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct ServerMetadata {
    /// The identifier of the authorization server.
    pub issuer: String,
    /// The page at which the user logs in and consents.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub authorization_endpoint: Option<String>,
    /// The endpoint that issues tokens.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub token_endpoint: Option<String>,
    /// The endpoint of dynamic client registration (RFC 7591).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub registration_endpoint: Option<String>,
    /// The endpoint that revokes tokens (RFC 7009).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub revocation_endpoint: Option<String>,
    /// The endpoint that tells about opaque tokens (RFC 7662).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub introspection_endpoint: Option<String>,
    /// The keys that sign tokens.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub jwks_uri: Option<String>,
    /// The scopes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scopes_supported: Option<Vec<String>>,
    /// The grants. Absent: `authorization_code` and `implicit`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub grant_types_supported: Option<Vec<String>>,
    /// The challenge methods of PKCE (RFC 7636). Absent: PKCE is not supported.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub code_challenge_methods_supported: Option<Vec<String>>,
    /// How clients authenticate at the token endpoint. Absent: `client_secret_basic`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub token_endpoint_auth_methods_supported: Option<Vec<String>>,
    /// True if responses of the authorization endpoint name the issuer (RFC 9207).
    #[serde(default, deserialize_with = "null_as_default")]
    pub authorization_response_iss_parameter_supported: bool,
    /// True if the URL of a client's metadata is accepted as its ID.
    #[serde(default, deserialize_with = "null_as_default")]
    pub client_id_metadata_document_supported: bool,
    /// The signature algorithms of `DPoP` proofs (RFC 9449, section 5.1).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dpop_signing_alg_values_supported: Option<Vec<String>>,
}

impl ServerMetadata {
    /// Parses a document that was fetched for `issuer`. Endpoints that are present are `https`
    /// URLs, or `http` on the loopback interface. An endpoint for registration, revocation or
    /// introspection with another URL is left out.
    ///
    /// # Errors
    ///
    /// If the document is too long or malformed, it names another issuer, or the URL of the
    /// authorization endpoint, the token endpoint or the keys is not acceptable.
    pub fn parse(document: &[u8], issuer: &Issuer) -> Result<Self, MetadataError> {
        let mut metadata: Self = parse(document)?;
        if metadata.issuer != issuer.as_str() {
            let (expected, found) = (issuer.clone(), metadata.issuer);
            return Err(MetadataError::OtherIssuer { expected, found });
        }
        for (what, url) in [
            ("authorization_endpoint", &metadata.authorization_endpoint),
            ("token_endpoint", &metadata.token_endpoint),
            ("jwks_uri", &metadata.jwks_uri),
        ] {
            if let Some(url) = url {
                secure_url(what, url)?;
            }
        }
        for (what, endpoint) in [
            ("registration_endpoint", &mut metadata.registration_endpoint),
            ("revocation_endpoint", &mut metadata.revocation_endpoint),
            ("introspection_endpoint", &mut metadata.introspection_endpoint),
        ] {
            if let Some(Err(error)) = endpoint.as_ref().map(|url| secure_url(what, url)) {
                tracing::debug!(target: "mrtr::auth", %issuer, %error, "endpoint left out");
                *endpoint = None;
            }
        }
        Ok(metadata)
    }

    /// Creates the metadata of a server that has none.
    #[cfg(feature = "client")]
    pub(crate) fn without_document(issuer: &Issuer) -> Self {
        Self {
            issuer: issuer.to_string(),
            authorization_endpoint: None,
            token_endpoint: None,
            registration_endpoint: None,
            revocation_endpoint: None,
            introspection_endpoint: None,
            jwks_uri: None,
            scopes_supported: None,
            grant_types_supported: None,
            code_challenge_methods_supported: None,
            token_endpoint_auth_methods_supported: None,
            authorization_response_iss_parameter_supported: false,
            client_id_metadata_document_supported: false,
            dpop_signing_alg_values_supported: None,
        }
    }

    /// Returns true if PKCE with the method `S256` is supported.
    pub fn supports_pkce(&self) -> bool {
        contains(self.code_challenge_methods_supported.as_ref(), "S256")
    }

    /// Returns true if the scope can be asked for, as far as the metadata tells.
    pub fn supports_scope(&self, scope: &str) -> bool {
        contains(self.scopes_supported.as_ref(), scope)
    }
}

fn contains(list: Option<&Vec<String>>, value: &str) -> bool {
    list.is_some_and(|list| list.iter().any(|known| known == value))
}

/// Reads `null` as an absent member, as some servers write it.
fn null_as_default<'de, D: Deserializer<'de>, T: Deserialize<'de> + Default>(
    deserializer: D,
) -> Result<T, D::Error> {
    Ok(Option::deserialize(deserializer)?.unwrap_or_default())
}

fn parse<'a, T: Deserialize<'a>>(document: &'a [u8]) -> Result<T, MetadataError> {
    if document.len() > MAX_DOCUMENT {
        return Err(MetadataError::TooLong);
    }
    Ok(serde_json::from_slice(document)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn metadata_of_another_issuer_is_rejected() {
        let issuer = Issuer::new("https://a.example").unwrap();
        for other in ["https://a.example/", "https://A.example", "https://b.example"] {
            let document = format!(r#"{{"issuer":"{other}"}}"#);
            let error = ServerMetadata::parse(document.as_bytes(), &issuer).unwrap_err();
            assert!(matches!(error, MetadataError::OtherIssuer { .. }), "{error}");
        }
        ServerMetadata::parse(br#"{"issuer":"https://a.example"}"#, &issuer).unwrap();
    }

    #[test]
    fn endpoints_are_https() {
        let issuer = Issuer::new("https://a.example").unwrap();
        for url in ["javascript:alert(1)", "http://a.example/authorize", "data:text/html,x", "/a"] {
            let document =
                format!(r#"{{"issuer":"https://a.example","authorization_endpoint":"{url}"}}"#);
            let error = ServerMetadata::parse(document.as_bytes(), &issuer).unwrap_err();
            assert!(matches!(error, MetadataError::Url(_)), "{error}");
        }
    }

    #[test]
    fn optional_endpoint_that_is_not_https_is_dropped() {
        let issuer = Issuer::new("https://a.example").unwrap();
        let parse = |name: &str, url: &str| {
            let document = format!(r#"{{"issuer":"https://a.example","{name}":"{url}"}}"#);
            ServerMetadata::parse(document.as_bytes(), &issuer)
        };
        for url in ["http://a.example/x", "javascript:alert(1)", "/x", ""] {
            let dropped = parse("registration_endpoint", url).unwrap();
            assert_eq!(dropped.registration_endpoint, None);
            let dropped = parse("revocation_endpoint", url).unwrap();
            assert_eq!(dropped.revocation_endpoint, None);
            let dropped = parse("introspection_endpoint", url).unwrap();
            assert_eq!(dropped.introspection_endpoint, None);
            for name in ["authorization_endpoint", "token_endpoint", "jwks_uri"] {
                assert!(matches!(parse(name, url), Err(MetadataError::Url(_))), "{name}: {url}");
            }
        }
        let kept = parse("revocation_endpoint", "https://a.example/x").unwrap();
        assert_eq!(kept.revocation_endpoint.as_deref(), Some("https://a.example/x"));
    }

    #[test]
    fn null_is_an_absent_member() {
        let issuer = Issuer::new("https://a.example").unwrap();
        let document = serde_json::json!({
            "issuer": issuer.as_str(),
            "authorization_endpoint": null,
            "registration_endpoint": null,
            "jwks_uri": null,
            "scopes_supported": null,
            "code_challenge_methods_supported": null,
            "authorization_response_iss_parameter_supported": null,
            "client_id_metadata_document_supported": null,
        });
        let minimal = ServerMetadata::parse(br#"{"issuer":"https://a.example"}"#, &issuer).unwrap();
        let parsed = ServerMetadata::parse(document.to_string().as_bytes(), &issuer).unwrap();
        assert_eq!(parsed, minimal);
        let document = br#"{"resource":"https://a.example/mcp","authorization_servers":null,
            "scopes_supported":null,"dpop_bound_access_tokens_required":null}"#;
        let parsed = ResourceMetadata::parse(document).unwrap();
        assert!(parsed.authorization_servers.is_empty());
        // A required member is missing then.
        assert!(ServerMetadata::parse(br#"{"issuer":null}"#, &issuer).is_err());
    }

    #[test]
    fn malformed_documents_are_rejected() {
        let issuer = Issuer::new("https://a.example").unwrap();
        for document in [
            "",
            "[]",
            r#"{"issuer":1}"#,
            r#"{"issuer":"https://a.example","issuer":"https://b.example"}"#,
            r#"{"issuer":"https://a.example","scopes_supported":"a"}"#,
            r#"{"issuer":"https://a.example","client_id_metadata_document_supported":"true"}"#,
        ] {
            let error = ServerMetadata::parse(document.as_bytes(), &issuer).unwrap_err();
            assert!(matches!(error, MetadataError::Malformed(_)), "{error}");
        }
        let long = vec![b' '; MAX_DOCUMENT + 1];
        assert!(matches!(ResourceMetadata::parse(&long), Err(MetadataError::TooLong)));
    }

    #[test]
    fn pkce_is_supported_only_if_the_metadata_says_so() {
        let issuer = Issuer::new("https://a.example").unwrap();
        for (methods, supported) in [
            ("", false),
            (r#","code_challenge_methods_supported":["plain"]"#, false),
            (r#","code_challenge_methods_supported":["plain","S256"]"#, true),
        ] {
            let document = format!(r#"{{"issuer":"https://a.example"{methods}}}"#);
            let metadata = ServerMetadata::parse(document.as_bytes(), &issuer).unwrap();
            assert_eq!(metadata.supports_pkce(), supported, "{methods}");
        }
    }
}
