//! Clients, and how they become known to an authorization server (specification: client
//! registration; RFC 7591).

use serde::{Deserialize, Serialize};
use url::Url;

use super::lenient;
use super::secret::Secret;
use super::signing_key::SigningKey;
use crate::identifier::is_loopback;
use crate::metadata::ServerMetadata;

/// A client that is known to an authorization server, and its credentials.
#[derive(Debug, Clone)]
pub struct ClientRegistration {
    pub(crate) id: String,
    pub(crate) credential: ClientCredential,
    /// The method that was agreed on at the registration.
    method: Option<AuthMethod>,
}

#[derive(Debug, Clone)]
pub(crate) enum ClientCredential {
    /// A public client.
    None,
    Secret(Secret),
    Key(SigningKey),
}

impl ClientRegistration {
    /// Creates a public client, which has no credentials.
    pub fn public(id: impl Into<String>) -> Self {
        Self { id: id.into(), credential: ClientCredential::None, method: None }
    }

    /// Creates a client with a secret. It is sent as the authorization server wants it: by HTTP
    /// Basic authentication, or in the form.
    pub fn with_secret(id: impl Into<String>, secret: impl Into<Secret>) -> Self {
        Self { id: id.into(), credential: ClientCredential::Secret(secret.into()), method: None }
    }

    /// Creates a client that signs assertions (`private_key_jwt`; RFC 7523, section 2.2).
    pub fn with_key(id: impl Into<String>, key: SigningKey) -> Self {
        Self { id: id.into(), credential: ClientCredential::Key(key), method: None }
    }

    /// Returns the ID.
    pub fn id(&self) -> &str {
        &self.id
    }
}

/// How a client authenticates at the token endpoint.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum AuthMethod {
    None,
    Basic,
    Post,
    PrivateKeyJwt,
}

impl AuthMethod {
    const ALL: [(Self, &'static str); 4] = [
        (Self::Basic, "client_secret_basic"),
        (Self::Post, "client_secret_post"),
        (Self::None, "none"),
        (Self::PrivateKeyJwt, "private_key_jwt"),
    ];

    fn name(self) -> &'static str {
        Self::ALL.iter().find(|(method, _)| *method == self).map_or("none", |(_, name)| name)
    }

    fn parse(name: &str) -> Option<Self> {
        Self::ALL.iter().find(|(_, known)| *known == name).map(|(method, _)| *method)
    }

    /// Chooses the method for a client; `None` if the server supports none that the client has. A
    /// secret is not sent to a server that does not ask for it.
    pub(crate) fn choose(metadata: &ServerMetadata, client: &ClientRegistration) -> Option<Self> {
        let credential = &client.credential;
        match (client.method, credential) {
            (Some(method @ Self::None), _)
            | (Some(method @ (Self::Basic | Self::Post)), ClientCredential::Secret(_)) => {
                return Some(method);
            }
            _ => {}
        }
        match credential {
            // Public clients exist wherever codes are protected by PKCE, and keys are agreed on
            // beforehand. Not all metadata says so.
            ClientCredential::None => Some(Self::None),
            ClientCredential::Key(_) => Some(Self::PrivateKeyJwt),
            ClientCredential::Secret(_) => {
                let supported = supported(metadata);
                let candidates = [Self::Basic, Self::Post, Self::None];
                candidates.into_iter().find(|method| supported.contains(method))
            }
        }
    }
}

/// Returns the methods that the server supports. The default is that of RFC 8414, section 2.
fn supported(metadata: &ServerMetadata) -> Vec<AuthMethod> {
    match &metadata.token_endpoint_auth_methods_supported {
        None => vec![AuthMethod::Basic],
        Some(names) => names.iter().filter_map(|name| AuthMethod::parse(name)).collect(),
    }
}

/// The metadata of a client: the body of a registration request, and the members of a client ID
/// metadata document (RFC 7591, section 2).
#[derive(Debug, Clone, Serialize)]
pub struct ClientMetadata {
    #[serde(skip_serializing_if = "Option::is_none")]
    client_id: Option<String>,
    client_name: String,
    redirect_uris: Vec<String>,
    grant_types: [&'static str; 2],
    response_types: [&'static str; 1],
    token_endpoint_auth_method: &'static str,
    application_type: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    dpop_bound_access_tokens: Option<bool>,
}

impl ClientMetadata {
    /// Creates the document to be published at `url`, which is then the ID of the client
    /// (specification: client ID metadata documents). Serialize it as JSON.
    ///
    /// `redirect_uris` must contain the redirect URI of the client's user agent. For
    /// [`Loopback`](super::Loopback), that is `http://127.0.0.1/callback`.
    pub fn document(
        url: impl Into<String>,
        client_name: impl Into<String>,
        redirect_uris: impl IntoIterator<Item = String>,
    ) -> Self {
        let redirect_uris: Vec<_> = redirect_uris.into_iter().collect();
        Self {
            client_id: Some(url.into()),
            ..Self::new(client_name.into(), redirect_uris, AuthMethod::None, false)
        }
    }

    fn new(
        client_name: String,
        redirect_uris: Vec<String>,
        method: AuthMethod,
        uses_dpop: bool,
    ) -> Self {
        let is_native = redirect_uris.iter().all(|uri| is_native(uri));
        Self {
            client_id: None,
            client_name,
            redirect_uris,
            grant_types: ["authorization_code", "refresh_token"],
            response_types: ["code"],
            token_endpoint_auth_method: method.name(),
            application_type: if is_native { "native" } else { "web" },
            dpop_bound_access_tokens: uses_dpop.then_some(true),
        }
    }

    /// Creates the body of a registration request. `None` if the server supports no method of
    /// authentication that a registered client could have.
    pub(crate) fn for_registration(
        client_name: &str,
        redirect_uri: &str,
        metadata: &ServerMetadata,
        uses_dpop: bool,
    ) -> Option<Self> {
        let supported = supported(metadata);
        let methods = [AuthMethod::None, AuthMethod::Basic, AuthMethod::Post];
        let method = methods.into_iter().find(|method| supported.contains(method))?;
        Some(Self::new(client_name.to_owned(), vec![redirect_uri.to_owned()], method, uses_dpop))
    }
}

/// Returns true if a redirect URI belongs to a program on the user's device: it is a loopback URL,
/// or has a scheme of its own (RFC 8252, section 7).
fn is_native(redirect_uri: &str) -> bool {
    Url::parse(redirect_uri).is_ok_and(|url| url.scheme() != "https" || is_loopback(&url))
}

/// A client that was registered dynamically, as it is stored.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct DynamicClient {
    client_id: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    client_secret: Option<Secret>,
    /// The time in seconds since 1970 at which the secret expires; 0 if it does not.
    #[serde(default, deserialize_with = "lenient::number")]
    client_secret_expires_at: Option<u64>,
    /// How the client authenticates. Absent: as the metadata of the authorization server says.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    token_endpoint_auth_method: Option<String>,
    /// The redirect URI that was registered.
    #[serde(default)]
    pub(crate) redirect_uri: String,
    /// True if the authorization server seems not to know the client any more. It is kept for the
    /// refresh token, and replaced by the next login.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(crate) is_lost: bool,
}

impl DynamicClient {
    /// Reads the response to a registration.
    pub(crate) fn parse(document: &[u8], redirect_uri: &str) -> Result<Self, serde_json::Error> {
        let client: Self = serde_json::from_slice(document)?;
        Ok(Self { redirect_uri: redirect_uri.to_owned(), is_lost: false, ..client })
    }

    /// Returns true if the client can be used for a login with `redirect_uri`.
    pub(crate) fn is_usable(&self, redirect_uri: &str, now: u64) -> bool {
        let expires_at = self.client_secret_expires_at.filter(|at| *at > 0);
        let is_current = !self.is_lost && self.redirect_uri == redirect_uri;
        is_current && expires_at.is_none_or(|at| now < at)
    }

    pub(crate) fn registration(&self) -> ClientRegistration {
        let method = self.token_endpoint_auth_method.as_deref().and_then(AuthMethod::parse);
        let client = match &self.client_secret {
            Some(secret) => ClientRegistration::with_secret(&self.client_id, secret.clone()),
            None => ClientRegistration::public(&self.client_id),
        };
        ClientRegistration { method, ..client }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Issuer;

    fn metadata(methods: Option<&[&str]>) -> ServerMetadata {
        let issuer = Issuer::new("https://a.example").unwrap();
        let mut metadata =
            ServerMetadata::parse(br#"{"issuer":"https://a.example"}"#, &issuer).unwrap();
        metadata.token_endpoint_auth_methods_supported =
            methods.map(|methods| methods.iter().map(|&name| name.to_owned()).collect());
        metadata
    }

    #[test]
    fn method_follows_the_server() {
        let secret = ClientRegistration::with_secret("app", "s");
        for (methods, expected) in [
            (None, Some(AuthMethod::Basic)),
            (Some(&["client_secret_post", "client_secret_basic"][..]), Some(AuthMethod::Basic)),
            (Some(&["client_secret_post"]), Some(AuthMethod::Post)),
            (Some(&["none"]), Some(AuthMethod::None)),
            (Some(&["private_key_jwt", "tls_client_auth"]), None),
        ] {
            let chosen = AuthMethod::choose(&metadata(methods), &secret);
            assert_eq!(chosen, expected, "{methods:?}");
        }
    }

    #[test]
    fn application_type_follows_the_redirect_uri() {
        for (uri, expected) in [
            ("http://127.0.0.1:1/callback", "native"),
            ("http://localhost/callback", "native"),
            ("com.example.app:/callback", "native"),
            ("https://app.example/callback", "web"),
        ] {
            let body =
                ClientMetadata::for_registration("app", uri, &metadata(Some(&["none"])), false);
            assert_eq!(body.unwrap().application_type, expected, "{uri}");
        }
    }

    #[test]
    fn document_has_the_required_members() {
        let redirect = ["http://127.0.0.1/callback".to_owned()];
        let document = ClientMetadata::document("https://app.example/client.json", "app", redirect);
        let json = serde_json::to_value(document).unwrap();
        assert_eq!(json["client_id"], "https://app.example/client.json");
        assert_eq!(json["client_name"], "app");
        assert_eq!(json["redirect_uris"], serde_json::json!(["http://127.0.0.1/callback"]));
        assert_eq!(json["grant_types"][1], "refresh_token");
        assert_eq!(json["token_endpoint_auth_method"], "none");
    }

    #[test]
    fn registration_is_used_with_its_redirect_uri_until_it_expires() {
        let document = br#"{"client_id":"a","client_secret":"s","client_secret_expires_at":10}"#;
        let client = DynamicClient::parse(document, "http://127.0.0.1:1/").unwrap();
        assert!(client.is_usable("http://127.0.0.1:1/", 9));
        assert!(!client.is_usable("http://127.0.0.1:1/", 10));
        assert!(!client.is_usable("http://127.0.0.1:2/", 9));
    }
}
