//! Tokens that are bound to a key. Each rule of RFC 9449, section 4.3 is broken once.

use std::sync::atomic::{AtomicU64, Ordering};

use aws_lc_rs::digest::{SHA256, digest};
use http::Request;
use mrtr_auth::resource::{Algorithm, Dpop};
use mrtr_transport::ProofKey;
use serde_json::{Value, json};

use super::keys::{Key, base64};
use super::{Answer, Fixture, ISSUER, RESOURCE, START, fixed, token};

/// An issuer, a client with its key, and a resource.
struct Setup {
    issuer: Key,
    client: Key,
    fixture: Fixture,
    token: String,
}

fn thumbprint(key: &Key) -> String {
    let jwk = key.jwk();
    let canonical = format!(r#"{{"crv":"P-256","kty":"EC","x":{},"y":{}}}"#, jwk["x"], jwk["y"]);
    base64(digest(&SHA256, canonical.as_bytes()))
}

fn setup(dpop: Dpop) -> Setup {
    let [issuer, client] = ["k1", "client"].map(|kid| Key::generate("ES256", kid));
    let fixture = Fixture::with(fixed(&[&issuer]), |b| b.scopes(["booking:read"]).dpop(dpop));
    let token = token(&issuer, ISSUER, json!({ "cnf": { "jkt": thumbprint(&client) } }));
    Setup { issuer, client, fixture, token }
}

/// Applies changes, where `null` removes a member.
fn changed(mut value: Value, changes: Value) -> Value {
    let map = value.as_object_mut().unwrap();
    map.extend(changes.as_object().unwrap().clone());
    map.retain(|_, value| !value.is_null());
    value
}

impl Setup {
    /// Creates a proof with another `jti` each time.
    fn proof(&self, header: Value, claims: Value) -> String {
        static NUMBER: AtomicU64 = AtomicU64::new(0);
        let mut jwk = self.client.jwk();
        jwk.as_object_mut().unwrap().remove("kid");
        let good_header = json!({ "typ": "dpop+jwt", "alg": "ES256", "jwk": jwk });
        let good_claims = json!({
            "jti": NUMBER.fetch_add(1, Ordering::Relaxed).to_string(),
            "htm": "POST",
            "htu": RESOURCE,
            "iat": self.fixture.time.load(Ordering::Relaxed),
            "ath": base64(digest(&SHA256, self.token.as_bytes())),
        });
        self.client.sign(&changed(good_header, header), &changed(good_claims, claims))
    }

    async fn call(&self, proofs: &[&str]) -> Answer {
        let mut request =
            Request::post("/mcp?x=1").header("authorization", format!("DPoP {}", self.token));
        for proof in proofs {
            request = request.header("dpop", *proof);
        }
        self.fixture.call(request).await
    }

    #[track_caller]
    fn assert_refused(&self, answer: &Answer, error: &str) {
        assert_eq!(answer.status, 401, "{answer:?}");
        let expected = format!(r#"DPoP algs="ES256 ES384 EdDSA RS256 PS256", error="{error}""#);
        assert!(answer.challenges[0].starts_with(&expected), "{answer:?}");
        assert_eq!(self.fixture.passed(), 0);
    }
}

#[tokio::test]
async fn bound_token_passes_with_a_proof() {
    let setup = setup(Dpop::offered());
    for changes in [
        json!({}),
        json!({ "iat": START - 300 }),
        json!({ "iat": START + 300 }),
        json!({ "htu": "HTTPS://BOOKING.example:443/mcp?x=1#y" }),
        json!({ "nonce": "ignored" }),
    ] {
        let answer = setup.call(&[&setup.proof(json!({}), changes.clone())]).await;
        assert_eq!((answer.status, answer.challenges.len()), (200, 0), "{changes}");
    }
    let head = setup.fixture.inner.requests.lock().unwrap().pop().unwrap();
    assert_eq!(head.extensions.get(), Some(&ProofKey::new(thumbprint(&setup.client))));
    assert!(!head.headers.contains_key("dpop") && !head.headers.contains_key("authorization"));
}

#[tokio::test]
async fn each_broken_rule_is_refused() {
    let setup = setup(Dpop::offered());
    let other = Key::generate("ES256", "other");
    let public = setup.client.jwk();
    let private = changed(public.clone(), json!({ "d": public["x"] }));
    let symmetric = json!({ "kty": "oct", "k": "c2VjcmV0" });
    for (header, claims) in [
        (json!({ "typ": null }), json!({})),
        (json!({ "typ": "JWT" }), json!({})),
        (json!({ "typ": "at+jwt" }), json!({})),
        (json!({ "alg": "none" }), json!({})),
        (json!({ "alg": "HS256", "jwk": symmetric }), json!({})),
        (json!({ "alg": "ES384" }), json!({})),
        (json!({ "jwk": null }), json!({})),
        (json!({ "jwk": "x" }), json!({})),
        (json!({ "jwk": private }), json!({})),
        (json!({ "jwk": other.jwk() }), json!({})),
        (json!({ "jwk": changed(public, json!({ "alg": "ES384" })) }), json!({})),
        (json!({ "crit": ["x"] }), json!({})),
        (json!({}), json!({ "jti": null })),
        (json!({}), json!({ "jti": "" })),
        (json!({}), json!({ "jti": 1 })),
        (json!({}), json!({ "htm": null })),
        (json!({}), json!({ "htm": "GET" })),
        (json!({}), json!({ "htm": "post" })),
        (json!({}), json!({ "htu": null })),
        (json!({}), json!({ "htu": "https://booking.example/other" })),
        (json!({}), json!({ "htu": "https://other.example/mcp" })),
        (json!({}), json!({ "htu": "http://booking.example/mcp" })),
        (json!({}), json!({ "iat": null })),
        (json!({}), json!({ "iat": "now" })),
        (json!({}), json!({ "iat": START - 301 })),
        (json!({}), json!({ "iat": START + 301 })),
        (json!({}), json!({ "ath": null })),
        (json!({}), json!({ "ath": base64(digest(&SHA256, b"other")) })),
        (json!({}), json!({ "nonce": 1 })),
    ] {
        let answer = setup.call(&[&setup.proof(header, claims)]).await;
        setup.assert_refused(&answer, "invalid_dpop_proof");
    }
}

#[tokio::test]
async fn there_is_exactly_one_well_formed_proof() {
    let setup = setup(Dpop::offered());
    let [a, b] = [(), ()].map(|()| setup.proof(json!({}), json!({})));
    let unsigned = format!("{}.", a.rsplit_once('.').unwrap().0);
    let long = "a".repeat(20_000);
    for proofs in [
        [].as_slice() as &[&str],
        &[&a, &b],
        &[&a, &a],
        &[&format!("{a}, {b}")],
        &["not a JWT"],
        &[""],
        &[&unsigned],
        &[&format!("{a}=")],
        &[&long],
    ] {
        setup.assert_refused(&setup.call(proofs).await, "invalid_dpop_proof");
    }
    // None of them used a proof up.
    assert_eq!(setup.call(&[&a]).await.status, 200);
}

#[tokio::test]
async fn proof_is_accepted_once() {
    let setup = setup(Dpop::offered());
    let proof = setup.proof(json!({}), json!({ "iat": START + 300 }));
    assert_eq!(setup.call(&[&proof]).await.status, 200);
    for seconds in [0, 299, 300] {
        setup.fixture.advance(seconds);
        let answer = setup.call(&[&proof]).await;
        assert_eq!(answer.status, 401);
        assert!(answer.challenges[0].contains("invalid_dpop_proof"), "{answer:?}");
    }
    // Another client may use the same ID.
    assert_eq!(setup.fixture.passed(), 1);
}

#[tokio::test]
async fn binding_and_scheme_fit_together() {
    let mut setup = setup(Dpop::offered());
    // A bound token without proof.
    let answer = setup.fixture.bearer(&setup.token).await;
    assert_eq!(answer.status, 401);
    assert!(answer.challenges[0].starts_with(r#"Bearer error="invalid_token""#), "{answer:?}");
    // The same, with a proof that has no effect.
    let proof = setup.proof(json!({}), json!({}));
    let request = Request::post("/mcp").header("authorization", format!("Bearer {}", setup.token));
    assert_eq!(setup.fixture.call(request.header("dpop", &proof)).await.status, 401);
    // A token that is bound to another key, or to none, or in another way, or for another resource.
    let ours = json!({ "jkt": thumbprint(&setup.client) });
    for changes in [
        json!({ "cnf": { "jkt": thumbprint(&setup.issuer) } }),
        json!({ "cnf": null }),
        json!({ "cnf": { "x5t#S256": "x" } }),
        json!({ "cnf": ours, "aud": "https://other.example/mcp" }),
    ] {
        setup.token = token(&setup.issuer, ISSUER, changes);
        let answer = setup.call(&[&setup.proof(json!({}), json!({}))]).await;
        setup.assert_refused(&answer, "invalid_token");
    }
    // An unbound token as a bearer token passes.
    let unbound = token(&setup.issuer, ISSUER, json!({}));
    assert_eq!(setup.fixture.status(&unbound).await, 200);
}

#[tokio::test]
async fn challenges_name_the_schemes_that_are_accepted() {
    let schemes = async |fixture: &Fixture, request| {
        let challenges = fixture.call(request).await.challenges;
        let scheme = |challenge: &String| challenge.split(' ').next().unwrap().to_owned();
        challenges.iter().map(scheme).collect::<Vec<_>>()
    };
    let offered = setup(Dpop::offered());
    assert_eq!(schemes(&offered.fixture, Request::post("/mcp")).await, ["Bearer", "DPoP"]);
    let required = setup(Dpop::required());
    assert_eq!(schemes(&required.fixture, Request::post("/mcp")).await, ["DPoP"]);
    let unbound = token(&required.issuer, ISSUER, json!({}));
    let answer = required.fixture.bearer(&unbound).await;
    required.assert_refused(&answer, "invalid_token");
    assert_eq!(required.call(&[&required.proof(json!({}), json!({}))]).await.status, 200);
    // Without DPoP, the scheme is unknown.
    let plain = Fixture::new(fixed(&[&required.issuer]));
    let request = Request::post("/mcp").header("authorization", format!("DPoP {unbound}"));
    assert_eq!(schemes(&plain, request).await, ["Bearer"]);

    let document = "/.well-known/oauth-protected-resource/mcp";
    for (fixture, bound) in [(&offered.fixture, false), (&required.fixture, true)] {
        let body = fixture.call(Request::get(document)).await.body;
        let metadata: Value = serde_json::from_str(&body).unwrap();
        assert_eq!(metadata["dpop_bound_access_tokens_required"], bound);
        let algorithms = json!(["ES256", "ES384", "EdDSA", "RS256", "PS256"]);
        assert_eq!(metadata["dpop_signing_alg_values_supported"], algorithms);
    }
}

#[tokio::test]
async fn scope_challenges_have_the_scheme_of_the_request() {
    let mut setup = setup(Dpop::offered());
    let changes = json!({ "scope": "other", "cnf": { "jkt": thumbprint(&setup.client) } });
    setup.token = token(&setup.issuer, ISSUER, changes);
    let answer = setup.call(&[&setup.proof(json!({}), json!({}))]).await;
    assert_eq!(answer.status, 403);
    assert!(answer.challenges[0].starts_with("DPoP algs="), "{answer:?}");
    assert!(answer.challenges[0].contains(r#"error="insufficient_scope""#));
}

#[tokio::test]
async fn only_listed_algorithms_sign_proofs() {
    let setup = setup(Dpop::offered().with_algorithms([Algorithm::EdDsa]));
    let answer = setup.call(&[&setup.proof(json!({}), json!({}))]).await;
    assert_eq!(answer.status, 401);
    assert!(answer.challenges[0].starts_with(r#"DPoP algs="EdDSA", error="invalid_dpop_proof""#));
}

#[tokio::test]
async fn nonces_are_required_and_renewed() {
    let setup = setup(Dpop::offered().with_nonces([7; 32]));
    let nonce = |answer: &Answer| answer.headers["dpop-nonce"].to_str().unwrap().to_owned();
    let with = |nonce: &str| setup.proof(json!({}), json!({ "nonce": nonce }));
    let answer = setup.call(&[&setup.proof(json!({}), json!({}))]).await;
    setup.assert_refused(&answer, "use_dpop_nonce");
    let first = nonce(&answer);
    for bad in ["x", &first[1..], &format!("{first}A")] {
        let answer = setup.call(&[&with(bad)]).await;
        setup.assert_refused(&answer, "use_dpop_nonce");
    }
    let answer = setup.call(&[&with(&first)]).await;
    assert_eq!((answer.status, answer.headers.contains_key("dpop-nonce")), (200, false));
    setup.fixture.advance(60);
    let answer = setup.call(&[&with(&first)]).await;
    let second = nonce(&answer);
    assert_eq!(answer.status, 200);
    setup.fixture.advance(60);
    assert_eq!(setup.call(&[&with(&first)]).await.status, 401);
    assert_eq!(setup.call(&[&with(&second)]).await.status, 200);
    // A replica with the same key accepts it, and one with another key does not.
    for (key, status) in [([7; 32], 200), ([8; 32], 401)] {
        let fixture = Fixture::with(fixed(&[&setup.issuer]), |builder| {
            builder.dpop(Dpop::offered().with_nonces(key))
        });
        fixture.advance(120);
        let request = Request::post("/mcp")
            .header("authorization", format!("DPoP {}", setup.token))
            .header("dpop", with(&second));
        assert_eq!(fixture.call(request).await.status, status);
    }
}

#[tokio::test]
async fn keys_are_not_printed() {
    let dpop = Dpop::offered().with_nonces([7; 32]);
    assert!(!format!("{dpop:?}").contains("7, 7"), "{dpop:?}");
}
