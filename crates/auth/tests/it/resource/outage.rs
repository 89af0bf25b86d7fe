//! Keys that are fetched: rotation, outages, and hostile documents.

use std::env;
use std::io;
use std::process::Command;
use std::sync::{Arc, Mutex};

use http::Request;
use http_body_util::Full;
use mrtr_auth::resource::JwtIssuer;
use serde_json::json;
use tower_service::Service as _;

use super::issuer::{INTROSPECTION, KEYS, METADATA, TestIssuer};
use super::keys::Key;
use super::{Fixture, START, token};

async fn fixture() -> (Key, TestIssuer, Fixture) {
    let key = Key::generate("ES256", "k1");
    let issuer = TestIssuer::start(&[&key]).await;
    let fixture = Fixture::new(JwtIssuer::new(&issuer.url));
    (key, issuer, fixture)
}

#[tokio::test]
async fn keys_are_fetched_once() {
    let (key, issuer, fixture) = fixture().await;
    assert_eq!(issuer.count(METADATA), 0, "nothing is fetched before the first token");
    issuer.close_gate();
    let requests = (0..20).map(|i| {
        let (fixture, url) = (fixture.clone(), issuer.url.clone());
        let token = token(&key, &url, json!({ "jti": i }));
        tokio::spawn(async move { fixture.status(&token).await })
    });
    let requests: Vec<_> = requests.collect();
    tokio::task::yield_now().await;
    issuer.open_gate();
    for request in requests {
        assert_eq!(request.await.unwrap(), 200);
    }
    assert_eq!((issuer.count(METADATA), issuer.count(KEYS)), (1, 1));
}

/// Runs another test in a process whose proxy refuses connections.
#[test]
fn proxy_of_the_system_is_not_used_for_the_loopback_interface() {
    let mut command = Command::new(env::current_exe().unwrap());
    command.args(["--exact", "resource::outage::keys_are_fetched_once"]);
    for name in ["HTTP_PROXY", "http_proxy", "ALL_PROXY"] {
        command.env(name, "http://127.0.0.1:9");
    }
    for name in ["NO_PROXY", "no_proxy", "REQUEST_METHOD"] {
        command.env_remove(name);
    }
    let output = command.output().unwrap();
    let report = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success() && report.contains("1 passed"), "{report}");
}

#[tokio::test]
async fn new_key_is_found_by_one_fetch() {
    let (_, issuer, fixture) = fixture().await;
    let old = Key::generate("ES256", "old");
    let new = Key::generate("ES256", "new");
    issuer.publish(&[&old]);
    assert_eq!(fixture.status(&token(&old, &issuer.url, json!({}))).await, 200);
    // Right after another fetch, too.
    issuer.publish(&[&old, &new]);
    assert_eq!(fixture.status(&token(&new, &issuer.url, json!({}))).await, 200);
    assert_eq!(issuer.count(KEYS), 2);
    // Unknown IDs lead to one fetch every 30 seconds. Until then, the key may be a new one.
    let stranger = Key::generate("ES256", "stranger");
    let forged = |id| token(&stranger, &issuer.url, json!({ "jti": id }));
    for i in 0..20 {
        assert_eq!(fixture.status(&forged(i)).await, 503);
    }
    assert_eq!(issuer.count(KEYS), 2);
    fixture.advance(30);
    assert_eq!(fixture.status(&forged(0)).await, 401);
    for i in 0..20 {
        assert_eq!(fixture.status(&forged(i)).await, 503);
    }
    assert_eq!(issuer.count(KEYS), 3);
}

#[tokio::test]
async fn new_key_without_id_is_found_by_one_fetch() {
    let (_, issuer, fixture) = fixture().await;
    let [old, new, stranger] = [(); 3].map(|()| Key::generate("ES256", "k"));
    let publish = |key: &Key| {
        let mut jwk = key.jwk();
        jwk.as_object_mut().unwrap().remove("kid");
        issuer.page(KEYS, 200, json!({ "keys": [jwk] }));
    };
    let without_id = |key: &Key, id| {
        let header = json!({ "alg": "ES256", "typ": "at+jwt" });
        key.sign(&header, &super::claims(&issuer.url, json!({ "jti": id })))
    };
    publish(&old);
    assert_eq!(fixture.status(&without_id(&old, 0)).await, 200);
    assert_eq!(issuer.count(KEYS), 1);
    publish(&new);
    assert_eq!(fixture.status(&without_id(&new, 1)).await, 200);
    assert_eq!(issuer.count(KEYS), 2);
    // Until the next search, the key may be a new one.
    for id in 0..20 {
        assert_eq!(fixture.status(&without_id(&stranger, id)).await, 503);
    }
    assert_eq!(fixture.status(&without_id(&new, 2)).await, 200);
    assert_eq!(issuer.count(KEYS), 2);
    fixture.advance(30);
    // The ID of the token, which no key has, makes no difference.
    assert_eq!(fixture.status(&token(&stranger, &issuer.url, json!({}))).await, 401);
    assert_eq!(issuer.count(KEYS), 3);
}

#[tokio::test]
async fn wrong_signature_under_a_known_id_leads_to_no_fetch() {
    let (_, issuer, fixture) = fixture().await;
    let stranger = Key::generate("ES256", "k1");
    for id in 0..3 {
        let forged = token(&stranger, &issuer.url, json!({ "jti": id }));
        assert_eq!(fixture.status(&forged).await, 401);
    }
    assert_eq!(issuer.count(KEYS), 1);
}

#[tokio::test]
async fn removed_key_is_not_accepted_any_more() {
    let (key, issuer, fixture) = fixture().await;
    let next = Key::generate("ES256", "k2");
    let good = token(&key, &issuer.url, json!({ "exp": START + 10_000 }));
    assert_eq!(fixture.status(&good).await, 200);
    issuer.publish(&[&next]);
    fixture.advance(3599);
    assert_eq!(fixture.status(&good).await, 200, "keys are kept for an hour");
    fixture.advance(1);
    assert_eq!(
        fixture.status(&token(&next, &issuer.url, json!({ "exp": START + 10_000 }))).await,
        200
    );
    fixture.advance(58);
    assert_eq!(fixture.status(&good).await, 200, "a verified token is kept for a minute");
    fixture.advance(1);
    assert_eq!(fixture.status(&good).await, 401);
}

#[tokio::test]
async fn unreachable_issuer_is_503() {
    let (key, issuer, fixture) = fixture().await;
    issuer.fail();
    let good = token(&key, &issuer.url, json!({}));
    for _ in 0..3 {
        let answer = fixture.bearer(&good).await;
        assert_eq!((answer.status, answer.challenges.len()), (503, 0));
        assert_eq!(answer.headers["retry-after"], "5");
    }
    assert_eq!(issuer.count(METADATA), 1);
    assert_eq!(fixture.passed(), 0);
    // A token that no key makes valid is not worth a fetch.
    let untyped = key.sign(&json!({ "alg": "ES256" }), &super::claims(&issuer.url, json!({})));
    assert_eq!(fixture.status(&untyped).await, 401);
    issuer.recover();
    assert_eq!(fixture.status(&good).await, 503);
    fixture.advance(5);
    assert_eq!(fixture.status(&good).await, 200);
}

#[tokio::test]
async fn requests_during_a_fetch_that_fails_share_its_outcome() {
    let (key, issuer, fixture) = fixture().await;
    issuer.fail();
    issuer.close_gate();
    let requests = (0..50).map(|i| {
        let (fixture, token) = (fixture.clone(), token(&key, &issuer.url, json!({ "jti": i })));
        tokio::spawn(async move { fixture.status(&token).await })
    });
    let requests: Vec<_> = requests.collect();
    while issuer.count(METADATA) == 0 {
        tokio::task::yield_now().await;
    }
    fixture.advance(10);
    issuer.open_gate();
    for request in requests {
        assert_eq!(request.await.unwrap(), 503);
    }
    let good = token(&key, &issuer.url, json!({}));
    assert_eq!(fixture.status(&good).await, 503);
    fixture.advance(4);
    assert_eq!(fixture.status(&good).await, 503);
    assert_eq!(issuer.count(METADATA), 1);
    issuer.recover();
    fixture.advance(1);
    assert_eq!(fixture.status(&good).await, 200);
}

#[tokio::test]
async fn old_keys_are_used_for_a_day_of_outage() {
    let (key, issuer, fixture) = fixture().await;
    let next = Key::generate("ES256", "k2");
    let token =
        |key: &Key, id| token(key, &issuer.url, json!({ "jti": id, "exp": START + 200_000 }));
    assert_eq!(fixture.status(&token(&key, 0)).await, 200);
    issuer.fail();
    fixture.advance(3600);
    assert_eq!(fixture.status(&token(&key, 1)).await, 200);
    assert_eq!(issuer.count(METADATA), 2);
    assert_eq!(fixture.status(&token(&key, 2)).await, 200);
    // The key of this one may be new.
    assert_eq!(fixture.status(&token(&next, 3)).await, 503);
    assert_eq!(issuer.count(METADATA), 3);
    assert_eq!(fixture.status(&token(&next, 4)).await, 503);
    assert_eq!(issuer.count(METADATA), 3);
    fixture.advance(24 * 3600 - 1);
    assert_eq!(fixture.status(&token(&key, 4)).await, 200);
    fixture.advance(61);
    assert_eq!(fixture.status(&token(&key, 5)).await, 503);
}

#[tokio::test]
async fn documents_of_another_issuer_are_not_used() {
    let (key, issuer, fixture) = fixture().await;
    let keys = format!("{}{KEYS}", issuer.url);
    let good = token(&key, &issuer.url, json!({}));
    for metadata in [
        json!({ "issuer": format!("{}/", issuer.url), "jwks_uri": keys }),
        json!({ "issuer": "https://other.example", "jwks_uri": keys }),
        json!({ "jwks_uri": keys }),
        json!({ "issuer": issuer.url }),
        json!({ "issuer": issuer.url, "jwks_uri": "http://169.254.169.254/" }),
    ] {
        issuer.page(METADATA, 200, metadata.clone());
        assert_eq!(fixture.status(&good).await, 503, "{metadata}");
        fixture.advance(5);
    }
    assert_eq!(issuer.count(KEYS), 0);
    // The document of OpenID Connect is the second choice.
    issuer.page(METADATA, 404, json!({}));
    let metadata = json!({ "issuer": issuer.url, "jwks_uri": keys });
    issuer.page("/.well-known/openid-configuration", 200, metadata);
    assert_eq!(fixture.status(&good).await, 200);
}

#[tokio::test]
async fn hostile_documents_are_not_used() {
    let (key, issuer, fixture) = fixture().await;
    let good = token(&key, &issuer.url, json!({}));
    let set = json!({ "keys": [key.jwk()] }).to_string();
    let elsewhere = format!("{}/elsewhere", issuer.url);
    issuer.text("/elsewhere", 200, None, set.clone());
    for (status, header, body) in [
        (302, Some(("location", elsewhere.clone())), String::new()),
        (307, Some(("location", elsewhere)), set.clone()),
        (200, None, format!("{set}{}", " ".repeat(257 << 10))),
        (200, None, json!({ "keys": vec![key.jwk(); 65] }).to_string()),
        (200, None, json!({ "keys": [] }).to_string()),
        (200, None, "[".repeat(100_000)),
        (200, None, "not JSON".to_owned()),
        (404, None, set.clone()),
    ] {
        issuer.text(KEYS, status, header, body);
        assert_eq!(fixture.status(&good).await, 503, "{status}");
        fixture.advance(5);
    }
    assert_eq!(issuer.count("/elsewhere"), 0);
    issuer.text(KEYS, 200, Some(("cache-control", "max-age=600".to_owned())), set);
    assert_eq!(fixture.status(&good).await, 200);
    let fetched = issuer.count(KEYS);
    fixture.advance(599);
    assert_eq!(fixture.status(&good).await, 200);
    assert_eq!(issuer.count(KEYS), fetched);
    fixture.advance(61);
    assert_eq!(fixture.status(&good).await, 200);
    assert_eq!(issuer.count(KEYS), fetched + 1);
}

#[tokio::test]
async fn client_that_disconnects_does_not_cancel_the_fetch() {
    let (key, issuer, fixture) = fixture().await;
    let good = token(&key, &issuer.url, json!({}));
    issuer.close_gate();
    let request = Request::post("/mcp").header("authorization", format!("Bearer {good}"));
    let mut service = fixture.service.clone();
    let request = tokio::spawn(service.call(request.body(Full::default()).unwrap()));
    while issuer.count(METADATA) == 0 {
        tokio::task::yield_now().await;
    }
    request.abort();
    assert!(request.await.unwrap_err().is_cancelled());
    issuer.open_gate();
    assert_eq!(fixture.status(&good).await, 200);
    assert_eq!((issuer.count(METADATA), issuer.count(KEYS)), (1, 1));
}

#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<u8>>>);

impl io::Write for Log {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[tokio::test]
async fn reasons_are_logged_without_secrets() {
    let log = Log::default();
    let writer = log.clone();
    let subscriber = tracing_subscriber::fmt()
        .with_max_level(tracing::Level::TRACE)
        .with_writer(move || writer.clone())
        .finish();
    // Global, since a subscriber of one thread misses events that other threads met first. Other
    // tests write to the log, too.
    tracing::subscriber::set_global_default(subscriber).unwrap();
    let key = Key::generate("ES256", "k1");
    let issuer = TestIssuer::start(&[&key]).await;
    let opaque = mrtr_auth::resource::IntrospectionIssuer::new(&issuer.url, "rs", "hunter2");
    let fixture = Fixture::new(opaque);
    issuer.page(INTROSPECTION, 500, json!({}));
    let secret = json!({ "sub": "subject-of-alice", "exp": 1 });
    let expired = token(&key, &issuer.url, secret.clone());
    assert_eq!(fixture.status(&expired).await, 503);
    assert_eq!(fixture.status("opaque-secret").await, 503);
    let jwt = Fixture::new(JwtIssuer::new(&issuer.url));
    assert_eq!(jwt.status(&expired).await, 401);
    assert_eq!(jwt.status("opaque-secret").await, 401);
    let debug = format!("{:?} {:?}", fixture.resource, fixture.service);
    let log = String::from_utf8(log.0.lock().unwrap().clone()).unwrap() + &debug;
    assert!(log.contains("the token has expired") && log.contains("status 500"), "{log}");
    for secret in ["hunter2", "opaque-secret", "subject-of-alice", &expired[20..60]] {
        assert!(!log.contains(secret), "{secret} in {log}");
    }
}
