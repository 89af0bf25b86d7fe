//! The token endpoint (RFC 6749, sections 3.2, 5 and 6).

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use http::{HeaderName, header};
use serde::{Deserialize, Serialize};
use url::{Url, form_urlencoded};

use super::dpop::Proof;
use super::lenient;
use super::message::{HttpRequest, HttpResponse};
use super::random::Seed;
use super::registration::{AuthMethod, ClientCredential, ClientRegistration};
use super::secret::Secret;
use super::signing_key::{InvalidKey, SigningKey};
use crate::identifier::Issuer;
use crate::metadata::{MAX_DOCUMENT, ServerMetadata};
use crate::scope::Scopes;

/// The longest token, in bytes.
const MAX_TOKEN: usize = 16 << 10;

/// How long an assertion of a client is valid, in seconds.
const ASSERTION_LIFETIME: u64 = 60;

/// A request to a token endpoint that can be written several times, with different proofs.
#[derive(Clone)]
pub(crate) struct TokenRequest {
    /// The audience of the client's assertion.
    audience: String,
    url: Url,
    method: AuthMethod,
    client: ClientRegistration,
    form: Vec<(&'static str, Secret)>,
    pub(crate) nonce: Option<String>,
}

/// The client and the server of a token request do not fit together.
#[derive(Debug, thiserror::Error)]
pub(crate) enum TokenRequestError {
    #[error("its metadata has no {0}")]
    NoEndpoint(&'static str),
    #[error("it supports no method of client authentication that the client has")]
    NoAuthMethod,
}

impl TokenRequest {
    pub(crate) fn new(
        issuer: &Issuer,
        metadata: &ServerMetadata,
        client: ClientRegistration,
        form: Vec<(&'static str, Secret)>,
    ) -> Result<Self, TokenRequestError> {
        let url = metadata.token_endpoint.as_deref();
        Self::at_endpoint("token_endpoint", url, issuer, metadata, client, form)
    }

    /// Creates a request to revoke a token (RFC 7009, section 2.1).
    pub(crate) fn revocation(
        issuer: &Issuer,
        metadata: &ServerMetadata,
        client: ClientRegistration,
        form: Vec<(&'static str, Secret)>,
    ) -> Result<Self, TokenRequestError> {
        let url = metadata.revocation_endpoint.as_deref();
        Self::at_endpoint("revocation_endpoint", url, issuer, metadata, client, form)
    }

    fn at_endpoint(
        name: &'static str,
        url: Option<&str>,
        issuer: &Issuer,
        metadata: &ServerMetadata,
        client: ClientRegistration,
        form: Vec<(&'static str, Secret)>,
    ) -> Result<Self, TokenRequestError> {
        let url = url.and_then(|url| Url::parse(url).ok());
        let url = url.ok_or(TokenRequestError::NoEndpoint(name))?;
        let method =
            AuthMethod::choose(metadata, &client).ok_or(TokenRequestError::NoAuthMethod)?;
        Ok(Self { audience: issuer.to_string(), url, method, client, form, nonce: None })
    }

    /// Creates a request to an identity provider, whose metadata is not known.
    pub(crate) fn at(
        url: Url,
        client: ClientRegistration,
        form: Vec<(&'static str, Secret)>,
    ) -> Self {
        let method = match client.credential {
            ClientCredential::None => AuthMethod::None,
            ClientCredential::Secret(_) => AuthMethod::Basic,
            ClientCredential::Key(_) => AuthMethod::PrivateKeyJwt,
        };
        Self { audience: url.to_string(), url, method, client, form, nonce: None }
    }

    /// Writes the request. A proof is added if there is a key.
    pub(crate) fn write(
        &self,
        key: Option<&SigningKey>,
        seed: &Seed,
        now: u64,
    ) -> Result<HttpRequest, InvalidKey> {
        let mut form: Vec<(&'static str, String)> =
            self.form.iter().map(|(name, value)| (*name, value.expose().to_owned())).collect();
        let mut basic = None;
        match (self.method, &self.client.credential) {
            (AuthMethod::Basic, ClientCredential::Secret(secret)) => {
                // RFC 6749, section 2.3.1: both parts are encoded as in a form first.
                let encode =
                    |text: &str| form_urlencoded::byte_serialize(text.as_bytes()).collect();
                let (id, secret): (String, String) =
                    (encode(&self.client.id), encode(secret.expose()));
                basic = Some(format!("Basic {}", BASE64_STANDARD.encode(format!("{id}:{secret}"))));
            }
            (AuthMethod::Post, ClientCredential::Secret(secret)) => {
                form.push(("client_id", self.client.id.clone()));
                form.push(("client_secret", secret.expose().to_owned()));
            }
            (AuthMethod::PrivateKeyJwt, ClientCredential::Key(client_key)) => {
                let assertion = ClientAssertion {
                    iss: &self.client.id,
                    sub: &self.client.id,
                    aud: &self.audience,
                    iat: now,
                    exp: now.saturating_add(ASSERTION_LIFETIME),
                    jti: seed.derive("assertion"),
                };
                form.push(("client_assertion_type", CLIENT_ASSERTION_TYPE.to_owned()));
                form.push(("client_assertion", client_key.sign(&assertion)?));
            }
            _ if self.client.id.is_empty() => {}
            _ => form.push(("client_id", self.client.id.clone())),
        }
        let mut request = HttpRequest::post_form(self.url.clone(), &form);
        if let Some(basic) = basic {
            request = request.with_secret_header(header::AUTHORIZATION, &basic);
        }
        if let Some(key) = key {
            let jti = seed.derive("token proof");
            let proof = Proof::new("POST", &self.url, &jti, now).with_nonce(self.nonce.as_deref());
            request =
                request.with_secret_header(HeaderName::from_static("dpop"), &proof.sign(key)?);
        }
        Ok(request)
    }

    /// Returns the ID of the client.
    pub(crate) fn client_id(&self) -> &str {
        self.client.id()
    }

    /// Returns the endpoint.
    pub(crate) fn url(&self) -> &Url {
        &self.url
    }
}

const CLIENT_ASSERTION_TYPE: &str = "urn:ietf:params:oauth:client-assertion-type:jwt-bearer";

/// RFC 7523, section 3.
#[derive(Serialize)]
struct ClientAssertion<'a> {
    iss: &'a str,
    sub: &'a str,
    aud: &'a str,
    iat: u64,
    exp: u64,
    jti: String,
}

/// The error code of a grant, such as a refresh token, that is not valid (any more).
pub(crate) const INVALID_GRANT: &str = "invalid_grant";

/// The error code of a client that is not known, or did not authenticate (RFC 6749, section 5.2).
pub(crate) const INVALID_CLIENT: &str = "invalid_client";

/// Returns true if an error code says that the client is not known, or may not be used any more.
pub(crate) fn is_client_lost(code: &str) -> bool {
    [INVALID_CLIENT, "unauthorized_client"].contains(&code)
}

const TRANSIENT: &str = "the server is overloaded or has failed";

/// A response of a token endpoint.
#[derive(Debug)]
pub(crate) enum TokenResponse {
    Granted(Granted),
    /// The request must be repeated with this nonce (RFC 9449, section 8).
    Nonce(String),
    /// The grant was refused. The code is one of RFC 6749, section 5.2, or of an extension.
    Refused(String),
    /// The server failed, or its response is not one of a token endpoint.
    Failed(&'static str),
}

/// A token that was issued.
#[derive(Debug, Deserialize)]
pub(crate) struct Granted {
    pub(crate) access_token: Secret,
    #[serde(default)]
    token_type: Option<String>,
    /// Unknown if it is not a number.
    #[serde(default, deserialize_with = "lenient::number")]
    pub(crate) expires_in: Option<u64>,
    #[serde(default)]
    pub(crate) refresh_token: Option<Secret>,
    #[serde(default)]
    scope: Option<String>,
    #[serde(default)]
    pub(crate) issued_token_type: Option<String>,
}

impl TokenResponse {
    pub(crate) fn parse(response: &HttpResponse) -> Self {
        let status = response.status();
        if response.body().len() > MAX_DOCUMENT {
            return Self::Failed("the response is too long");
        }
        if status.is_success() {
            return match serde_json::from_slice::<Granted>(response.body()) {
                // Some servers send errors with a success status (2xx).
                Err(_) => match response.error_code() {
                    Some(error) => Self::from_error_code(error),
                    None => Self::Failed("the response is malformed"),
                },
                Ok(granted) if !granted.is_header_value() => {
                    Self::Failed("the token is empty, too long, or has forbidden characters")
                }
                Ok(granted) => Self::Granted(granted),
            };
        }
        match response.error_code() {
            Some(error) if error == "use_dpop_nonce" => match response.header("dpop-nonce") {
                Some(nonce) if nonce.len() <= MAX_TOKEN => Self::Nonce(nonce.to_owned()),
                _ => Self::Failed("the response asks for a nonce, but has none"),
            },
            _ if matches!(status.as_u16(), 408 | 429) || status.is_server_error() => {
                Self::Failed(TRANSIENT)
            }
            Some(error) if status.is_client_error() => Self::from_error_code(error),
            _ => Self::Failed("the response is neither a token nor an OAuth error"),
        }
    }

    fn from_error_code(error: String) -> Self {
        match error.as_str() {
            "temporarily_unavailable" | "server_error" | "slow_down" | "too_many_requests" => {
                Self::Failed(TRANSIENT)
            }
            // GitHub's and Slack's codes for `invalid_grant`.
            "bad_refresh_token" | "invalid_refresh_token" | "bad_verification_code" => {
                Self::Refused(INVALID_GRANT.to_owned())
            }
            // GitHub's code for `invalid_client`.
            "incorrect_client_credentials" => Self::Refused(INVALID_CLIENT.to_owned()),
            _ => Self::Refused(error),
        }
    }
}

impl Granted {
    /// Returns true if the token has this type. The case of types does not matter.
    pub(crate) fn is_of_type(&self, token_type: &str) -> bool {
        self.token_type.as_deref().unwrap_or_default().eq_ignore_ascii_case(token_type)
    }

    /// Returns true if the token can be sent (RFC 6750, section 2.1).
    fn is_header_value(&self) -> bool {
        let token = self.access_token.expose();
        !token.is_empty() && token.len() <= MAX_TOKEN && token.bytes().all(|b| b.is_ascii_graphic())
    }

    /// Returns the scopes, which are those that were asked for if the response names none.
    pub(crate) fn scopes(&self, requested: &Scopes) -> Scopes {
        let named = self.scope.as_deref().and_then(|scopes| Scopes::parse(scopes).ok());
        named.unwrap_or_else(|| requested.clone())
    }
}

#[cfg(test)]
mod tests {
    use http::{HeaderMap, StatusCode};

    use super::*;

    fn request(client: ClientRegistration, methods: &str) -> HttpRequest {
        let issuer = Issuer::new("https://a.example").unwrap();
        let document = format!(
            r#"{{"issuer":"https://a.example","token_endpoint":"https://a.example/token",
            "token_endpoint_auth_methods_supported":[{methods}]}}"#
        );
        let metadata = ServerMetadata::parse(document.as_bytes(), &issuer).unwrap();
        let form = vec![("grant_type", "client_credentials".into())];
        let request = TokenRequest::new(&issuer, &metadata, client, form).unwrap();
        request.write(None, &Seed::new([1; 32]), 100).unwrap()
    }

    fn body(request: &HttpRequest) -> &str {
        std::str::from_utf8(&request.body).unwrap()
    }

    #[test]
    fn client_authenticates_as_the_server_wants() {
        let client = || ClientRegistration::with_secret("a b", "c:d");
        let basic = request(client(), r#""client_secret_basic""#);
        let expected = format!("Basic {}", BASE64_STANDARD.encode("a+b:c%3Ad"));
        assert_eq!(basic.headers[header::AUTHORIZATION], expected);
        assert_eq!(body(&basic), "grant_type=client_credentials");
        let post = request(client(), r#""client_secret_post""#);
        assert!(!post.headers.contains_key(header::AUTHORIZATION));
        assert!(body(&post).ends_with("&client_id=a+b&client_secret=c%3Ad"));
        let none = request(client(), r#""none""#);
        assert_eq!(body(&none), "grant_type=client_credentials&client_id=a+b");
        assert_eq!(format!("{none:?}"), "POST https://a.example/token");
    }

    #[test]
    fn key_signs_an_assertion_for_the_issuer() {
        let key = SigningKey::from_pkcs8(&SigningKey::generate().unwrap(), "ES256").unwrap();
        let request = request(ClientRegistration::with_key("app", key), r#""private_key_jwt""#);
        let form: Vec<_> = form_urlencoded::parse(&request.body).collect();
        assert_eq!(form[1], ("client_assertion_type".into(), CLIENT_ASSERTION_TYPE.into()));
        let claims: serde_json::Value =
            jsonwebtoken::dangerous::insecure_decode_claims(form[2].1.as_bytes()).unwrap();
        assert_eq!(claims["iss"], "app");
        assert_eq!(claims["sub"], "app");
        assert_eq!(claims["aud"], "https://a.example");
        assert_eq!(claims["exp"], 160);
    }

    fn parse(status: u16, body: &str) -> TokenResponse {
        let status = StatusCode::from_u16(status).unwrap();
        TokenResponse::parse(&HttpResponse::new(status, HeaderMap::new(), body.into()))
    }

    #[test]
    fn responses_are_told_apart() {
        let granted = parse(200, r#"{"access_token":"a","expires_in":5,"scope":"x y"}"#);
        let TokenResponse::Granted(granted) = granted else { panic!("{granted:?}") };
        for (text, expected) in [
            ("5", Some(5)),
            ("6e1", Some(60)),
            ("\"60\"", Some(60)),
            ("null", None),
            ("-1", None),
            ("[5]", None),
            // The inner text is not read: it could be nested without bound.
            (r#"{"$serde_json::private::RawValue":"["}"#, None),
        ] {
            let body = format!(r#"{{"access_token":"a","token_type":null,"expires_in":{text}}}"#);
            let TokenResponse::Granted(granted) = parse(200, &body) else { panic!("{body}") };
            assert_eq!(granted.expires_in, expected, "{body}");
        }
        assert_eq!(granted.scopes(&Scopes::default()).to_string(), "x y");
        assert!(!format!("{granted:?}").contains("\"a\""));
        assert!(matches!(parse(400, r#"{"error":"invalid_grant"}"#),
            TokenResponse::Refused(code) if code == "invalid_grant"));
        for (status, body) in [
            (200, r#"{"access_token":""}"#),
            (200, r#"{"access_token":"a b"}"#),
            (200, r#"{"access_token":"a\r\nx"}"#),
            (200, r#"{"access_token":"a","access_token":"b"}"#),
            (200, "<html>"),
            (302, ""),
            (400, "<html>"),
            (400, r#"{"error":"use_dpop_nonce"}"#),
            (500, r#"{"error":"invalid_grant"}"#),
            (503, ""),
        ] {
            let parsed = parse(status, body);
            assert!(matches!(parsed, TokenResponse::Failed(_)), "{status} {body}: {parsed:?}");
        }
    }
}
