//! Input of authorization: challenges, metadata, access tokens and proofs.

#![expect(clippy::expect_used, reason = "a fuzz target reports a finding with a panic")]

use std::convert::Infallible;
use std::future::{Ready, ready};
use std::task::{Context, Poll};

use http::{HeaderValue, Request, Response, StatusCode, header};
use http_body_util::Full;
use mrtr_auth::metadata::{ResourceMetadata, ServerMetadata};
use mrtr_auth::resource::{Dpop, JwtIssuer, ProtectedResource};
use mrtr_auth::www_authenticate::Challenge;
use mrtr_auth::{Issuer, ResourceId, Scopes};
use tower_service::Service;

const ISSUER: &str = "https://login.example";

/// Parses challenges. What was parsed is written and parsed again.
///
/// # Panics
///
/// If the written challenges are not those that were parsed, or cannot be a header.
pub fn challenge(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    let Ok(challenges) = Challenge::parse(text) else { return };
    for challenge in &challenges {
        let written = challenge.to_string();
        HeaderValue::try_from(&written).expect("a header");
        // A parameter may be longer in quotation marks.
        let Ok(again) = Challenge::parse(&written) else {
            assert!(written.len() > 8 << 10, "not parsed: {written}");
            continue;
        };
        let again = again.first().expect("one challenge");
        assert_eq!(again.to_string(), written);
        for name in ["scope", "error", "resource_metadata"] {
            let (before, after) = (challenge.param(name), again.param(name));
            assert_eq!(before.is_some(), after.is_some(), "{written}");
        }
        let scopes = challenge.param("scope").and_then(|scopes| Scopes::parse(scopes).ok());
        if let Some(scopes) = scopes {
            assert_eq!(Scopes::parse(&scopes.to_string()), Ok(scopes));
        }
    }
}

/// Parses metadata of a resource and of an authorization server.
///
/// # Panics
///
/// If metadata is accepted that belongs to another issuer or has an endpoint without TLS.
pub fn metadata(data: &[u8]) {
    if let Ok(metadata) = ResourceMetadata::parse(data) {
        for issuer in metadata.issuers().unwrap_or_default() {
            let urls = issuer.metadata_urls();
            assert!(urls.len() >= 2 && urls.iter().all(is_secure), "{issuer}");
        }
        if let Ok(resource) = ResourceId::new(&metadata.resource) {
            assert!(is_secure(&resource.metadata_url()), "{resource}");
        }
    }
    let issuer = Issuer::new(ISSUER).expect("an issuer");
    if let Ok(metadata) = ServerMetadata::parse(data, &issuer) {
        assert_eq!(metadata.issuer, ISSUER);
        let endpoints = [metadata.authorization_endpoint, metadata.token_endpoint];
        for endpoint in endpoints.into_iter().flatten() {
            let url = url::Url::parse(&endpoint).expect("a URL");
            assert!(is_secure(&url), "{endpoint}");
        }
    }
}

fn is_secure(url: &url::Url) -> bool {
    let is_local = url
        .host_str()
        .is_some_and(|host| host == "localhost" || host.starts_with("127.") || host == "[::1]");
    url.scheme() == "https" || url.scheme() == "http" && is_local
}

/// The public key of a test. Its private key was never kept, so no token is valid.
const KEYS: &str = r#"{"keys":[{"kty":"EC","crv":"P-256","kid":"test","x":"L20ZBAzRz0G0HhvqnzF59imEDd3HC94XgXsGRi1VQXc","y":"8lLWidKTet511y6WsdtXQHatsXqcO3Dn30qYwOf44dw"}]}"#;

/// Sends an access token, and a proof after a line break, to a protected resource.
///
/// # Panics
///
/// If a token passes, or the response is not one that the specification names.
pub fn access_token(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    let (token, proof) = text.split_once('\n').unwrap_or((text, ""));
    let issuer = JwtIssuer::new(ISSUER).with_jwks(KEYS);
    let resource = ProtectedResource::builder("https://booking.example/mcp").issuer(issuer);
    let resource = resource.dpop(Dpop::offered()).build().expect("a resource");
    let mut service = resource.protect(Unreachable);
    let scheme = if proof.is_empty() { "Bearer" } else { "DPoP" };
    let mut request = Request::post("https://booking.example/mcp");
    let Ok(credentials) = HeaderValue::try_from(format!("{scheme} {token}")) else { return };
    request = request.header(header::AUTHORIZATION, credentials);
    if let Ok(proof) = HeaderValue::try_from(proof)
        && !proof.is_empty()
    {
        request = request.header("dpop", proof);
    }
    let request = request.body(Full::<bytes::Bytes>::default()).expect("a request");
    let mut runtime = tokio::runtime::Builder::new_current_thread();
    let runtime = runtime.enable_time().start_paused(true).build().expect("a runtime");
    let response = runtime.block_on(service.call(request)).expect("a response");
    let status = response.status();
    assert!(matches!(status, StatusCode::UNAUTHORIZED | StatusCode::BAD_REQUEST), "{status}");
    assert!(response.headers().contains_key(header::WWW_AUTHENTICATE));
}

#[derive(Clone)]
struct Unreachable;

impl<B> Service<Request<B>> for Unreachable {
    type Response = Response<Full<bytes::Bytes>>;
    type Error = Infallible;
    type Future = Ready<Result<Self::Response, Infallible>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, _: Request<B>) -> Self::Future {
        ready(Ok(Response::default()))
    }
}
