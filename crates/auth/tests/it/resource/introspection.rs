//! Opaque tokens.

use std::pin::pin;

use futures_util::future::join_all;
use futures_util::poll;
use mrtr_auth::resource::{IntrospectionIssuer, JwtIssuer};
use mrtr_codec::Principal;
use serde_json::{Value, json};
use tokio::task::yield_now;

use super::issuer::{INTROSPECTION, METADATA, TestIssuer};
use super::keys::Key;
use super::{Fixture, RESOURCE, START, token};

fn active(changes: Value) -> Value {
    let mut response = json!({ "active": true, "sub": "bob", "aud": RESOURCE });
    response.as_object_mut().unwrap().extend(changes.as_object().unwrap().clone());
    response
}

async fn fixture() -> (TestIssuer, Fixture) {
    let issuer = TestIssuer::start(&[]).await;
    let fixture = Fixture::new(IntrospectionIssuer::new(&issuer.url, "rs:1", "pass wörd"));
    (issuer, fixture)
}

#[tokio::test]
async fn active_token_passes_for_thirty_seconds() {
    let (issuer, fixture) = fixture().await;
    issuer.page(INTROSPECTION, 200, active(json!({ "client_id": "app" })));
    assert_eq!(fixture.status("o+p/a~que==").await, 200);
    assert_eq!(issuer.last_body(), "token=o%2Bp%2Fa%7Eque%3D%3D&token_type_hint=access_token");
    // base64("rs%3A1:pass+w%C3%B6rd")
    assert_eq!(issuer.last_authorization(), "Basic cnMlM0ExOnBhc3MrdyVDMyVCNnJk");
    let expected = Principal::new(&issuer.url, "bob").with_client("app");
    let requests = fixture.inner.requests.lock().unwrap().pop().unwrap();
    assert_eq!(requests.extensions.get::<Principal>(), Some(&expected));
    issuer.page(INTROSPECTION, 200, json!({ "active": false }));
    fixture.advance(29);
    assert_eq!(fixture.status("o+p/a~que==").await, 200);
    fixture.advance(1);
    assert_eq!(fixture.status("o+p/a~que==").await, 401);
    assert_eq!((issuer.count(INTROSPECTION), issuer.count(METADATA)), (2, 1));
}

#[tokio::test]
async fn positive_response_is_not_kept_after_the_end_of_the_token() {
    let (issuer, fixture) = fixture().await;
    issuer.page(INTROSPECTION, 200, active(json!({ "exp": START + 10 })));
    assert_eq!(fixture.status("a").await, 200);
    issuer.page(INTROSPECTION, 200, json!({ "active": false }));
    fixture.advance(9);
    assert_eq!(fixture.status("a").await, 200);
    fixture.advance(1);
    assert_eq!(fixture.status("a").await, 401);
}

#[tokio::test]
async fn inactive_token_is_asked_for_every_five_seconds() {
    let (issuer, fixture) = fixture().await;
    for _ in 0..5 {
        assert_eq!(fixture.status("a").await, 401);
    }
    assert_eq!(issuer.count(INTROSPECTION), 1);
    issuer.page(INTROSPECTION, 200, active(json!({})));
    fixture.advance(4);
    assert_eq!(fixture.status("a").await, 401);
    fixture.advance(1);
    assert_eq!(fixture.status("a").await, 200);
}

#[tokio::test]
async fn responses_that_do_not_fit_are_rejected() {
    let (issuer, fixture) = fixture().await;
    for (i, response) in [
        active(json!({ "aud": "https://other.example/mcp" })),
        active(json!({ "aud": [] })),
        active(json!({ "sub": "" })),
        active(json!({ "iss": "https://other.example" })),
        active(json!({ "exp": START - 30 })),
        active(json!({ "active": "true" })),
        active(json!({ "cnf": { "jkt": "x" } })),
        active(json!({ "token_use": "refresh_token" })),
        active(json!({ "token_type": "refresh_token" })),
        active(json!({ "typ": "Refresh" })),
        json!({ "active": true, "aud": RESOURCE }),
        json!({ "active": true, "sub": "bob" }),
        json!({}),
    ]
    .into_iter()
    .enumerate()
    {
        issuer.page(INTROSPECTION, 200, response.clone());
        assert_eq!(fixture.status(&format!("token{i}")).await, 401, "{response}");
    }
    assert_eq!(fixture.passed(), 0);
}

#[tokio::test]
async fn audiences_of_an_issuer_replace_the_resource() {
    let issuer = TestIssuer::start(&[]).await;
    let opaque = IntrospectionIssuer::new(&issuer.url, "rs", "x").with_audiences(["booking"]);
    let fixture = Fixture::new(opaque);
    for (audience, expected) in [("booking", 200), (RESOURCE, 401)] {
        issuer.page(INTROSPECTION, 200, active(json!({ "aud": audience })));
        assert_eq!(fixture.status(&format!("token-{expected}")).await, expected, "{audience}");
    }
}

#[tokio::test]
async fn failure_of_the_endpoint_is_503() {
    let (issuer, fixture) = fixture().await;
    for (status, body) in [(401, "{}"), (500, "{}"), (200, "not JSON"), (200, "[]"), (302, "{}")] {
        issuer.text(INTROSPECTION, status, None, body.to_owned());
        assert_eq!(fixture.status("a").await, 503, "{status}");
    }
    let twice = r#"{"active":false,"active":true,"sub":"bob"}"#;
    issuer.text(INTROSPECTION, 200, None, twice.to_owned());
    assert_eq!(fixture.status("a").await, 503);
}

#[tokio::test]
async fn opaque_tokens_go_to_the_issuers_in_order() {
    let key = Key::generate("ES256", "k1");
    let [first, second, jwt] = [
        TestIssuer::start(&[]).await,
        TestIssuer::start(&[]).await,
        TestIssuer::start(&[&key]).await,
    ];
    let fixture = Fixture::with(IntrospectionIssuer::new(&first.url, "rs", "x"), |builder| {
        builder.issuer(JwtIssuer::new(&jwt.url)).issuer(IntrospectionIssuer::new(
            &second.url,
            "rs",
            "x",
        ))
    });
    second.page(INTROSPECTION, 200, active(json!({})));
    assert_eq!(fixture.status("a").await, 200);
    assert_eq!((first.count(INTROSPECTION), second.count(INTROSPECTION)), (1, 1));
    let head = fixture.inner.requests.lock().unwrap().pop().unwrap();
    assert_eq!(head.extensions.get::<Principal>().unwrap().issuer(), second.url);

    // A JWT goes to the issuer that it names.
    assert_eq!(fixture.status(&token(&key, &jwt.url, json!({}))).await, 200);
    assert_eq!(fixture.status(&token(&key, &second.url, json!({}))).await, 200);
    assert_eq!(fixture.status(&token(&key, "https://other.example", json!({}))).await, 401);
    assert_eq!((first.count(INTROSPECTION), second.count(INTROSPECTION)), (1, 2));

    // The unreachable one may know the token.
    first.fail();
    second.page(INTROSPECTION, 200, json!({ "active": false }));
    assert_eq!(fixture.status("b").await, 503);
    second.page(INTROSPECTION, 200, active(json!({})));
    assert_eq!(fixture.status("c").await, 200);
}

#[tokio::test]
async fn requests_with_the_same_token_share_an_introspection() {
    let (issuer, fixture) = fixture().await;
    issuer.page(INTROSPECTION, 200, active(json!({})));
    let statuses = join_all((0..20).map(|_| fixture.status("a"))).await;
    assert_eq!(statuses, [200; 20]);
    assert_eq!(issuer.count(INTROSPECTION), 1);
    issuer.page(INTROSPECTION, 200, json!({ "active": false }));
    let statuses = join_all((0..20).map(|_| fixture.status("b"))).await;
    assert_eq!(statuses, [401; 20]);
    assert_eq!(issuer.count(INTROSPECTION), 2);
}

#[tokio::test]
async fn cancelled_request_leaves_the_introspection_to_the_others() {
    let (issuer, fixture) = fixture().await;
    issuer.page(INTROSPECTION, 200, active(json!({})));
    let mut cancelled = Box::pin(fixture.status("a"));
    while issuer.count(INTROSPECTION) == 0 {
        assert!(poll!(cancelled.as_mut()).is_pending());
        yield_now().await;
    }
    let mut waiting = pin!(fixture.status("a"));
    for _ in 0..100 {
        assert!(poll!(waiting.as_mut()).is_pending());
        yield_now().await;
    }
    assert_eq!(issuer.count(INTROSPECTION), 1, "it waits for the other one");
    drop(cancelled);
    assert_eq!(waiting.await, 200);
    assert_eq!(issuer.count(INTROSPECTION), 2);
}

#[tokio::test]
async fn refused_token_is_not_introspected_again_for_five_seconds() {
    let (issuer, fixture) = fixture().await;
    issuer.page(INTROSPECTION, 200, active(json!({ "aud": "https://other.example/mcp" })));
    for _ in 0..5 {
        assert_eq!(fixture.status("a").await, 401);
    }
    assert_eq!(issuer.count(INTROSPECTION), 1);
    fixture.advance(5);
    assert_eq!(fixture.status("a").await, 401);
    assert_eq!(issuer.count(INTROSPECTION), 2);
}
