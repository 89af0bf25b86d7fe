//! The responses: challenges, metadata, and what reaches the inner service.

use std::convert::Infallible;
use std::future::{Ready, ready};
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http::{Method, Request, Response};
use http_body_util::{BodyExt as _, Full};
use mrtr_auth::resource::{
    IntrospectionIssuer, JwtIssuer, ProtectedResource, ProtectedResourceBuilder, TokenIssuer,
};
use mrtr_codec::Principal;
use mrtr_transport::GrantedScopes;
use serde_json::{Value, json};
use tower_service::Service;

use super::keys::Key;
use super::{Answer, Fixture, ISSUER, Inner, RESOURCE, START, fixed, token};

const METADATA: &str = "https://booking.example/.well-known/oauth-protected-resource/mcp";
const METADATA_PATH: &str = "/.well-known/oauth-protected-resource/mcp";

fn scoped(builder: ProtectedResourceBuilder) -> ProtectedResourceBuilder {
    builder
        .scopes(["booking:read", "booking:list"])
        .scopes_supported(["booking:write", "booking:read"])
        .implies("booking:admin", "booking:write")
        .implies("booking:write", "booking:read")
        .implies("booking:write", "booking:list")
        .name("Bookings")
}

fn fixture() -> (Key, Fixture) {
    let key = Key::generate("ES256", "k1");
    let fixture = Fixture::with(fixed(&[&key]), scoped);
    (key, fixture)
}

#[tokio::test]
async fn request_without_token_gets_a_challenge_without_error() {
    let (_, fixture) = fixture();
    let expected =
        format!(r#"Bearer scope="booking:read booking:list", resource_metadata="{METADATA}""#);
    for request in [
        Request::post("/mcp"),
        Request::post("/mcp").header("authorization", "Basic YTpi"),
        Request::get("/other"),
        Request::get("/.well-known/oauth-protected-resource"),
    ] {
        let answer = fixture.call(request).await;
        assert_eq!((answer.status, &answer.challenges), (401, &vec![expected.clone()]));
        assert_eq!(answer.body, "");
    }
    assert_eq!(fixture.passed(), 0);
    // Without scopes, the challenge names none.
    let key = Key::generate("ES256", "k1");
    let answer = Fixture::new(fixed(&[&key])).call(Request::post("/mcp")).await;
    assert_eq!(answer.challenges, [format!(r#"Bearer resource_metadata="{METADATA}""#)]);
}

#[tokio::test]
async fn invalid_tokens_get_one_answer_for_all_reasons() {
    let (key, fixture) = fixture();
    let stranger = Key::generate("ES256", "k1");
    let mut answers = Vec::new();
    for bad in [
        "opaque".to_owned(),
        token(&key, ISSUER, json!({ "exp": 1 })),
        token(&key, ISSUER, json!({ "aud": "https://other.example/mcp" })),
        token(&key, "https://other.example", json!({})),
        token(&stranger, ISSUER, json!({})),
        "a".repeat(20_000),
    ] {
        answers.push(fixture.bearer(&bad).await);
    }
    let Answer { status, challenges, body, .. } = &answers[0];
    assert_eq!(*status, 401);
    let challenge = &challenges[0];
    assert!(challenge.starts_with(r#"Bearer error="invalid_token", error_description="#));
    assert!(challenge.ends_with(&format!(
        r#"scope="booking:read booking:list", resource_metadata="{METADATA}""#
    )));
    assert!(body.contains(r#""error":"invalid_token""#));
    assert!(answers.windows(2).all(|pair| pair[0] == pair[1]), "{answers:?}");
    assert_eq!(fixture.passed(), 0);
}

#[tokio::test]
async fn malformed_requests_get_400() {
    let (key, fixture) = fixture();
    let good = token(&key, ISSUER, json!({ "scope": "booking:write" }));
    let bearer = format!("Bearer {good}");
    for request in [
        Request::post("/mcp").header("authorization", &bearer).header("authorization", &bearer),
        Request::post("/mcp").header("authorization", "Bearer a b"),
        Request::post("/mcp").header("authorization", "Bearer"),
        Request::post(format!("/mcp?access_token={good}")),
        Request::post(format!("/mcp?access_token={good}")).header("authorization", &bearer),
    ] {
        let answer = fixture.call(request).await;
        assert_eq!(answer.status, 400, "{answer:?}");
        assert!(answer.challenges[0].starts_with(r#"Bearer error="invalid_request""#));
        assert!(!format!("{answer:?}").contains(&good));
    }
    assert_eq!(fixture.passed(), 0);
}

#[tokio::test]
async fn missing_scope_is_named_with_all_that_are_needed() {
    let (key, fixture) = fixture();
    for scope in [json!("booking:read"), json!("booking:list other"), json!(""), Value::Null] {
        let answer = fixture.bearer(&token(&key, ISSUER, json!({ "scope": scope }))).await;
        assert_eq!(answer.status, 403);
        let challenge = &answer.challenges[0];
        assert!(challenge.starts_with(r#"Bearer error="insufficient_scope""#), "{challenge}");
        assert!(challenge.ends_with(&format!(
            r#"scope="booking:read booking:list", resource_metadata="{METADATA}""#
        )));
    }
    assert_eq!(fixture.passed(), 0);
    for scope in ["booking:list booking:read", "booking:write", "booking:admin"] {
        let token = token(&key, ISSUER, json!({ "scope": scope }));
        assert_eq!(fixture.status(&token).await, 200, "{scope}");
    }
}

#[tokio::test]
async fn inner_service_learns_the_caller_and_not_the_token() {
    let (key, fixture) = fixture();
    let good = token(&key, ISSUER, json!({ "scope": "booking:write" }));
    for _ in 0..2 {
        let request = Request::post("/mcp")
            .header("authorization", format!("bEARER {good}"))
            .header("dpop", "x")
            .header("x-other", "kept")
            .extension(Principal::new("https://evil.example", "mallory"));
        let answer = fixture.call(request).await;
        assert_eq!((answer.status, answer.body.as_str()), (200, "hello"));
    }
    // The second request is answered from the cache.
    for head in fixture.inner.requests.lock().unwrap().iter() {
        let principal = head.extensions.get::<Principal>().unwrap();
        assert_eq!(*principal, Principal::new(ISSUER, "alice").with_client("desk-app"));
        let scopes = head.extensions.get::<GrantedScopes>().unwrap();
        let expected = ["booking:write", "booking:read", "booking:list"];
        assert_eq!(scopes.iter().collect::<Vec<_>>(), expected);
        assert!(!head.headers.contains_key("authorization") && !head.headers.contains_key("dpop"));
        assert_eq!(head.headers["x-other"], "kept");
    }
}

#[tokio::test]
async fn challenges_of_the_inner_service_are_completed() {
    let (key, mut fixture) = fixture();
    let forbidden = Some(r#"Bearer error="insufficient_scope", scope="booking:pay""#);
    let inner = Inner { forbidden, ..Inner::default() };
    fixture.service = fixture.resource.protect(inner);
    let answer = fixture.bearer(&token(&key, ISSUER, json!({ "scope": "booking:write" }))).await;
    let expected = format!(
        "Bearer error=\"insufficient_scope\", scope=\"booking:read booking:list booking:pay\", \
         resource_metadata=\"{METADATA}\""
    );
    assert_eq!((answer.status, answer.challenges), (403, vec![expected]));
    assert_eq!(answer.body, "hello");
}

#[tokio::test]
async fn metadata_is_served_to_everyone() {
    let (_, fixture) = fixture();
    let answer = fixture.call(Request::get(METADATA_PATH)).await;
    assert_eq!(answer.status, 200);
    assert_eq!(answer.headers["access-control-allow-origin"], "*");
    assert_eq!(answer.headers["cache-control"], "max-age=3600");
    assert_eq!(answer.headers["content-type"], "application/json");
    let expected = json!({
        "resource": RESOURCE,
        "authorization_servers": [ISSUER],
        "scopes_supported": ["booking:read", "booking:list", "booking:write"],
        "bearer_methods_supported": ["header"],
        "resource_name": "Bookings",
    });
    assert_eq!(serde_json::from_str::<Value>(&answer.body).unwrap(), expected);
    let head = fixture.call(Request::head(METADATA_PATH)).await;
    assert_eq!((head.status, head.body.as_str()), (200, ""));
    assert_eq!(head.headers["content-length"], answer.body.len().to_string().as_str());
    let post = fixture.call(Request::post(METADATA_PATH)).await;
    assert_eq!((post.status, post.headers["allow"].as_bytes()), (405, &b"GET, HEAD, OPTIONS"[..]));
    // Browsers ask first, because clients send `MCP-Protocol-Version`.
    let preflight = Request::options(METADATA_PATH)
        .header("origin", "https://app.example")
        .header("access-control-request-method", "GET")
        .header("access-control-request-headers", "mcp-protocol-version");
    let preflight = fixture.call(preflight).await;
    assert_eq!((preflight.status, preflight.body.as_str()), (204, ""));
    for (name, value) in [("origin", "*"), ("methods", "GET"), ("headers", "*")] {
        assert_eq!(preflight.headers[format!("access-control-allow-{name}")], value);
    }
    assert_eq!(fixture.passed(), 0);
    assert_eq!(fixture.resource.metadata_path(), METADATA_PATH);
}

#[test]
fn https_issuer_needs_the_feature_tls_unless_its_keys_are_fixed() {
    let build = |issuer: TokenIssuer| {
        let built = ProtectedResource::builder(RESOURCE).issuer(issuer).build();
        built.map(drop).map_err(|error| error.to_string())
    };
    for issuer in [
        JwtIssuer::new(ISSUER).into(),
        IntrospectionIssuer::new("https://login.example", "id", "secret").into(),
    ] {
        let outcome = build(issuer);
        assert_eq!(outcome.is_ok(), cfg!(feature = "tls"));
        if let Err(error) = outcome {
            assert!(error.contains("feature `tls`"), "{error}");
        }
    }
    build(fixed(&[&Key::generate("ES256", "k1")]).into()).unwrap();
    build(JwtIssuer::new("http://127.0.0.1:1").into()).unwrap();
}

#[test]
fn invalid_settings_are_rejected() {
    let key = Key::generate("ES256", "k1");
    let issuer = || fixed(&[&key]);
    let build = |builder: ProtectedResourceBuilder| builder.build().unwrap_err().to_string();
    let good = || ProtectedResource::builder(RESOURCE).issuer(issuer());
    let audiences =
        |audiences: &[&str]| JwtIssuer::new("https://a").with_audiences(audiences.iter().copied());
    for (error, expected) in [
        (build(ProtectedResource::builder(RESOURCE)), "no issuer"),
        (build(ProtectedResource::builder("http://a.example").issuer(issuer())), "https"),
        (build(ProtectedResource::builder("https://a.example/#x").issuer(issuer())), "fragment"),
        (build(good().issuer(issuer())), "twice"),
        (build(good().issuer(JwtIssuer::new("http://a.example"))), "https"),
        (build(good().issuer(JwtIssuer::new("https://a.example?x"))), "query"),
        (build(good().issuer(JwtIssuer::new("https://a.example").with_jwks("{}"))), "keys"),
        (build(good().issuer(JwtIssuer::new("https://a").with_algorithms([]))), "algorithms"),
        (build(good().issuer(audiences(&[]))), "audiences"),
        (build(good().issuer(audiences(&["a", ""]))), "empty audience"),
        (build(good().scopes(["a b"])), "invalid scope"),
        (build(good().implies("a", "")), "invalid scope"),
        (build(good().scopes(["offline_access"])), "offline_access"),
        (build(good().scopes_supported(["offline_access"])), "offline_access"),
    ] {
        assert!(error.contains(expected), "{error} / {expected}");
    }
}

/// The body of a stream without events.
struct Endless;

impl http_body::Body for Endless {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<http_body::Frame<Bytes>, Infallible>>> {
        Poll::Pending
    }
}

#[derive(Clone)]
struct Streams;

impl Service<Request<Full<Bytes>>> for Streams {
    type Response = Response<Endless>;
    type Error = Infallible;
    type Future = Ready<Result<Self::Response, Infallible>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, _: Request<Full<Bytes>>) -> Self::Future {
        ready(Ok(Response::new(Endless)))
    }
}

/// Its client opens it again, with the token that it has then. A call may last longer.
#[tokio::test(start_paused = true)]
async fn stream_of_changes_ends_with_its_token() {
    let key = Key::generate("ES256", "k1");
    let fixture = Fixture::new(fixed(&[&key]));
    let token = token(&key, ISSUER, json!({ "exp": START + 60 }));
    for (method, mcp_method, is_limited) in [
        (Method::POST, Some("subscriptions/listen"), true),
        (Method::GET, None, true),
        (Method::POST, Some("tools/call"), false),
    ] {
        let mut request = Request::builder().method(method).uri("/mcp");
        request = request.header("authorization", format!("Bearer {token}"));
        if let Some(mcp_method) = mcp_method {
            request = request.header("mcp-method", mcp_method);
        }
        let request = request.body(Full::default()).unwrap();
        let mut service = fixture.resource.protect(Streams);
        let response = service.call(request).await.unwrap();
        let begun = tokio::time::Instant::now();
        let read = tokio::time::timeout(Duration::from_hours(1), response.collect()).await;
        assert_eq!(read.is_ok(), is_limited, "{mcp_method:?}");
        // With the leeway of 30 s.
        assert!(!is_limited || begun.elapsed() == Duration::from_secs(90), "{mcp_method:?}");
    }
}
