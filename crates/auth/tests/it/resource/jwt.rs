//! JWTs that must not pass, and those that must.

use mrtr_auth::resource::{Algorithm, JwtIssuer};
use serde_json::{Value, json};

use super::keys::{Key, base64};
use super::{Fixture, ISSUER, RESOURCE, START, claims, fixed, token};

#[tokio::test]
async fn each_algorithm_verifies() {
    let keys = ["ES256", "ES384", "EdDSA", "RS256", "PS256"].map(|alg| Key::generate(alg, alg));
    let fixture = Fixture::new(fixed(&keys.each_ref()));
    for key in &keys {
        let good = token(key, ISSUER, json!({}));
        assert_eq!(fixture.status(&good).await, 200, "{}", key.alg);
        // One bit of the signature is flipped.
        let (signed, signature) = good.rsplit_once('.').unwrap();
        let flipped = if signature.starts_with('A') { "B" } else { "A" };
        let forged = format!("{signed}.{flipped}{}", &signature[1..]);
        assert_eq!(fixture.status(&forged).await, 401, "{}", key.alg);
        // One claim is changed under the same signature.
        let changed = base64(claims(ISSUER, json!({ "sub": "mallory" })).to_string());
        let header = signed.split('.').next().unwrap();
        assert_eq!(fixture.status(&format!("{header}.{changed}.{signature}")).await, 401);
        assert_eq!(fixture.status(&format!("{signed}.")).await, 401);
    }
}

/// A token in the cache is accepted without a check of its signature, so no other one may be taken
/// for it.
#[tokio::test]
async fn tokens_that_resemble_a_cached_one_are_rejected() {
    let key = Key::generate("ES256", "k1");
    let fixture = Fixture::new(fixed(&[&key]));
    let good = token(&key, ISSUER, json!({}));
    assert_eq!(fixture.status(&good).await, 200);
    for i in 0..good.len() {
        let mut other = good.clone().into_bytes();
        other[i] = if other[i] == b'A' { b'B' } else { b'A' };
        let other = String::from_utf8(other).unwrap();
        assert_eq!(fixture.status(&other).await, 401, "byte {i} differs");
    }
    for other in [format!("{good}A"), good[..good.len() - 1].to_owned()] {
        assert_eq!(fixture.status(&other).await, 401);
    }
    assert_eq!(fixture.status(&good).await, 200);
}

#[tokio::test]
async fn claims_that_do_not_fit_are_rejected() {
    let key = Key::generate("ES256", "k1");
    let fixture = Fixture::new(fixed(&[&key]));
    for changes in [
        json!({ "aud": null }),
        json!({ "aud": "https://other.example/mcp" }),
        json!({ "aud": "https://booking.example/mcp/" }),
        json!({ "aud": [] }),
        json!({ "iss": null }),
        json!({ "iss": "https://login.example/" }),
        json!({ "exp": null }),
        json!({ "exp": START - 30 }),
        json!({ "nbf": START + 31 }),
        json!({ "sub": null }),
        json!({ "sub": "" }),
        json!({ "scope": ["booking:read pay"] }),
        json!({ "cnf": { "jkt": "x" } }),
        json!({ "cnf": { "x5t#S256": "x" } }),
    ] {
        assert_eq!(fixture.status(&token(&key, ISSUER, changes.clone())).await, 401, "{changes}");
    }
    for changes in [
        json!({}),
        json!({ "aud": ["https://other.example", RESOURCE] }),
        json!({ "exp": START - 29 }),
        json!({ "client_id": null }),
        json!({ "scope": null, "scp": ["a"] }),
        json!({ "scope": ["booking:read"] }),
        json!({ "iat": START + 3600 }),
    ] {
        assert_eq!(fixture.status(&token(&key, ISSUER, changes.clone())).await, 200, "{changes}");
    }
}

#[tokio::test]
async fn headers_that_do_not_fit_are_rejected() {
    let key = Key::generate("ES256", "k1");
    let fixture = Fixture::new(fixed(&[&key]));
    let status =
        async |header: Value| fixture.status(&key.sign(&header, &claims(ISSUER, json!({})))).await;
    for (header, expected) in [
        (json!({ "alg": "ES256", "kid": "k1", "typ": "at+jwt" }), 200),
        (json!({ "alg": "ES256", "kid": "k1", "typ": "application/AT+JWT" }), 200),
        (json!({ "alg": "ES256", "typ": "at+jwt" }), 200),
        (json!({ "alg": "ES256", "kid": "k2", "typ": "at+jwt" }), 401),
        (json!({ "alg": "ES256", "kid": "k1" }), 401),
        (json!({ "alg": "ES256", "kid": "k1", "typ": "JWT" }), 401),
        (json!({ "alg": "ES256", "kid": "k1", "typ": "dpop+jwt" }), 401),
        (json!({ "alg": "ES256", "typ": "at+jwt", "crit": ["exp"] }), 401),
        (json!({ "alg": "ES256", "typ": "at+jwt", "b64": false }), 401),
        (json!({ "alg": "ES256", "typ": "at+jwt", "jwk": key.jwk() }), 401),
        (json!({ "alg": "ES256", "typ": "at+jwt", "jku": "https://evil.example" }), 401),
        (json!({ "alg": "none", "typ": "at+jwt" }), 401),
        (json!({ "alg": "ES384", "typ": "at+jwt" }), 401),
        (json!({ "alg": "RS256", "typ": "at+jwt" }), 401),
        (json!({ "alg": "es256", "typ": "at+jwt" }), 401),
        (json!({ "alg": "", "typ": "at+jwt" }), 401),
    ] {
        assert_eq!(status(header.clone()).await, expected, "{header}");
    }
}

/// The classic confusion: the public key is the secret of an HMAC.
#[tokio::test]
async fn symmetric_algorithms_are_not_accepted() {
    let key = Key::generate("RS256", "k1");
    let fixture = Fixture::new(fixed(&[&key]));
    let header = json!({ "alg": "HS256", "kid": "k1", "typ": "at+jwt" });
    let signed =
        format!("{}.{}", base64(header.to_string()), base64(claims(ISSUER, json!({})).to_string()));
    for secret in [key.jwk()["n"].as_str().unwrap(), &key.jwk().to_string(), ""] {
        let secret = aws_lc_rs::hmac::Key::new(aws_lc_rs::hmac::HMAC_SHA256, secret.as_bytes());
        let tag = aws_lc_rs::hmac::sign(&secret, signed.as_bytes());
        assert_eq!(fixture.status(&format!("{signed}.{}", base64(tag))).await, 401);
    }
    assert_eq!(fixture.status(&token(&key, ISSUER, json!({}))).await, 200);
}

#[tokio::test]
async fn key_verifies_only_what_it_is_for() {
    let key = Key::generate("RS256", "k1");
    for (changes, expected) in [
        (json!({}), 200),
        (json!({ "alg": "RS256", "use": "sig", "key_ops": ["verify"] }), 200),
        (json!({ "alg": "PS256" }), 401),
        (json!({ "use": "enc" }), 401),
        (json!({ "key_ops": ["encrypt"] }), 401),
    ] {
        let mut jwk = key.jwk();
        jwk.as_object_mut().unwrap().extend(changes.as_object().unwrap().clone());
        let other = Key::generate("ES256", "k1").jwk();
        let keys = json!({ "keys": [other, jwk] }).to_string();
        let fixture = Fixture::new(JwtIssuer::new(ISSUER).with_jwks(keys));
        assert_eq!(fixture.status(&token(&key, ISSUER, json!({}))).await, expected, "{changes}");
    }
}

#[tokio::test]
async fn options_of_an_issuer_are_its_own() {
    let [a, b] = ["a", "b"].map(|kid| Key::generate("ES256", kid));
    let other = "https://other.example";
    let issuer = JwtIssuer::new(other)
        .with_jwks(json!({ "keys": [b.jwk()] }).to_string())
        .with_any_typ()
        .with_client_as_subject();
    let fixture = Fixture::with(fixed(&[&a]), |builder| builder.issuer(issuer));
    let untyped = |key: &Key, issuer, changes| {
        key.sign(&json!({ "alg": "ES256", "typ": "JWT" }), &claims(issuer, changes))
    };
    assert_eq!(fixture.status(&untyped(&b, other, json!({}))).await, 200);
    assert_eq!(fixture.status(&untyped(&a, ISSUER, json!({}))).await, 401);
    assert_eq!(fixture.status(&token(&b, other, json!({ "sub": null }))).await, 200);
    assert_eq!(fixture.status(&token(&a, ISSUER, json!({ "sub": null }))).await, 401);
    // A key signs for its own issuer only.
    assert_eq!(fixture.status(&token(&a, other, json!({}))).await, 401);
    assert_eq!(fixture.status(&token(&b, ISSUER, json!({}))).await, 401);
    // Only the listed algorithms.
    let narrow = fixed(&[&a]).with_algorithms([Algorithm::EdDsa]);
    assert_eq!(Fixture::new(narrow).status(&token(&a, ISSUER, json!({}))).await, 401);
}

#[tokio::test]
async fn audiences_of_an_issuer_replace_the_resource() {
    const CLIENT: &str = "1c0c5a0f-26f6-4d5c-9d5a-5f3a3f0e7a11";
    let [a, b] = ["a", "b"].map(|kid| Key::generate("ES256", kid));
    let other = "https://other.example";
    let issuer = JwtIssuer::new(other)
        .with_jwks(json!({ "keys": [b.jwk()] }).to_string())
        .with_audiences([CLIENT, "api://booking"]);
    let fixture = Fixture::with(fixed(&[&a]), |builder| builder.issuer(issuer));
    for (key, issuer, audience, expected) in [
        (&b, other, json!(CLIENT), 200),
        (&b, other, json!(["x", "api://booking"]), 200),
        (&b, other, json!(RESOURCE), 401),
        (&b, other, json!(CLIENT.to_uppercase()), 401),
        (&a, ISSUER, json!(CLIENT), 401),
        (&a, ISSUER, json!(RESOURCE), 200),
    ] {
        let token = token(key, issuer, json!({ "aud": audience }));
        assert_eq!(fixture.status(&token).await, expected, "{issuer}: {audience}");
    }
}

#[tokio::test]
async fn token_is_not_accepted_after_its_end() {
    let key = Key::generate("ES256", "k1");
    let fixture = Fixture::new(fixed(&[&key]));
    let short = token(&key, ISSUER, json!({ "exp": START + 10 }));
    assert_eq!(fixture.status(&short).await, 200);
    fixture.advance(39);
    assert_eq!(fixture.status(&short).await, 200, "within the leeway");
    fixture.advance(1);
    assert_eq!(fixture.status(&short).await, 401);
}

#[tokio::test]
async fn random_tokens_do_not_panic() {
    let key = Key::generate("ES256", "k1");
    let fixture = Fixture::new(fixed(&[&key]));
    let good = token(&key, ISSUER, json!({}));
    for cut in 0..good.len() {
        let (start, end) = good.split_at(cut);
        for bad in [start.to_owned(), end.to_owned(), format!("{start}.{end}")] {
            let status = if bad == good { 200 } else { 401 };
            let answer = fixture.bearer(&bad).await;
            assert!(answer.status == status || (bad.is_empty() && answer.status == 400), "{bad}");
        }
    }
}
