//! A protected resource, with issuers on the loopback interface. Time is a number that the tests
//! set.

#![expect(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::needless_pass_by_value,
    reason = "a test fails by panicking, and passes JSON as it is written"
)]

mod dpop;
mod introspection;
mod issuer;
mod jwt;
mod keys;
mod outage;
mod responses;

use std::convert::Infallible;
use std::future::{Ready, ready};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};
use std::time::{Duration, UNIX_EPOCH};

use bytes::Bytes;
use http::{Request, Response, StatusCode};
use http_body_util::{BodyExt as _, Full};
use mrtr_auth::resource::{
    JwtIssuer, Protected, ProtectedResource, ProtectedResourceBuilder, TokenIssuer,
};
use serde_json::{Value, json};
use tower_service::Service;

use self::keys::Key;

const RESOURCE: &str = "https://booking.example/mcp";
const ISSUER: &str = "https://login.example";
const START: u64 = 1_800_000_000;

/// The inner service: it keeps the requests that reach it, and gives a response that is set.
#[derive(Debug, Clone, Default)]
struct Inner {
    requests: Arc<Mutex<Vec<http::request::Parts>>>,
    forbidden: Option<&'static str>,
}

impl Service<Request<Full<Bytes>>> for Inner {
    type Response = Response<Full<Bytes>>;
    type Error = Infallible;
    type Future = Ready<Result<Self::Response, Infallible>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Full<Bytes>>) -> Self::Future {
        self.requests.lock().unwrap().push(request.into_parts().0);
        let mut response = Response::new(Full::from("hello"));
        if let Some(challenge) = self.forbidden {
            *response.status_mut() = StatusCode::FORBIDDEN;
            response.headers_mut().insert("www-authenticate", challenge.parse().unwrap());
        }
        ready(Ok(response))
    }
}

/// A protected service and its clock.
#[derive(Clone)]
struct Fixture {
    service: Protected<Inner>,
    resource: ProtectedResource,
    inner: Inner,
    time: Arc<AtomicU64>,
}

/// The parts of a response.
#[derive(Debug, PartialEq)]
struct Answer {
    status: u16,
    challenges: Vec<String>,
    headers: http::HeaderMap,
    body: String,
}

impl Fixture {
    fn new(issuer: impl Into<TokenIssuer>) -> Self {
        Self::with(issuer, |builder| builder)
    }

    fn with(
        issuer: impl Into<TokenIssuer>,
        change: impl FnOnce(ProtectedResourceBuilder) -> ProtectedResourceBuilder,
    ) -> Self {
        let time = Arc::new(AtomicU64::new(START));
        let clock = Arc::clone(&time);
        let builder = ProtectedResource::builder(RESOURCE)
            .issuer(issuer)
            .clock(move || UNIX_EPOCH + Duration::from_secs(clock.load(Ordering::Relaxed)));
        let resource = change(builder).build().unwrap();
        let inner = Inner::default();
        Self { service: resource.protect(inner.clone()), resource, inner, time }
    }

    fn advance(&self, seconds: u64) {
        self.time.fetch_add(seconds, Ordering::Relaxed);
    }

    async fn call(&self, request: http::request::Builder) -> Answer {
        let request = request.body(Full::from("body")).unwrap();
        let response = self.service.clone().call(request).await.unwrap();
        let (head, body) = response.into_parts();
        let body = String::from_utf8(body.collect().await.unwrap().to_bytes().to_vec()).unwrap();
        let challenges = head.headers.get_all("www-authenticate").iter();
        let challenges = challenges.map(|value| value.to_str().unwrap().to_owned()).collect();
        Answer { status: head.status.as_u16(), challenges, headers: head.headers, body }
    }

    async fn bearer(&self, token: &str) -> Answer {
        self.call(Request::post("/mcp").header("authorization", format!("Bearer {token}"))).await
    }

    async fn status(&self, token: &str) -> u16 {
        self.bearer(token).await.status
    }

    /// Returns the number of requests that reached the inner service.
    fn passed(&self) -> usize {
        self.inner.requests.lock().unwrap().len()
    }
}

/// An issuer with fixed keys.
fn fixed(keys: &[&Key]) -> JwtIssuer {
    let keys: Vec<_> = keys.iter().map(|key| key.jwk()).collect();
    JwtIssuer::new(ISSUER).with_jwks(json!({ "keys": keys }).to_string())
}

/// The claims of a good token, with changes. A `null` removes a claim.
fn claims(issuer: &str, changes: Value) -> Value {
    let mut claims = json!({
        "iss": issuer,
        "aud": RESOURCE,
        "sub": "alice",
        "client_id": "desk-app",
        "iat": START,
        "exp": START + 3600,
        "scope": "booking:read",
    });
    let (Some(map), Value::Object(changes)) = (claims.as_object_mut(), changes) else { panic!() };
    map.extend(changes);
    map.retain(|_, value| !value.is_null());
    claims
}

/// A token with changed claims.
fn token(key: &Key, issuer: &str, changes: Value) -> String {
    let header = json!({ "alg": key.alg, "kid": key.kid, "typ": "at+jwt" });
    key.sign(&header, &claims(issuer, changes))
}
