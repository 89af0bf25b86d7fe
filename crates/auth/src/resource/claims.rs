//! The claims of an access token: pure checks (RFC 7519, section 4.1; RFC 9068, section 4).

use super::algorithm::Algorithm;
use super::jwk::KeySet;
use super::jws::{MalformedToken, UnverifiedToken};
use super::strict_json::{Json, Object};
use crate::Scopes;

/// The tolerance for the times in tokens, in seconds.
pub(super) const LEEWAY: u64 = 30;

/// The reason for which a token is not accepted. It is logged, and not sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(super) enum InvalidToken {
    #[error("malformed token: {0}")]
    Malformed(#[from] MalformedToken),
    #[error("the issuer is not trusted")]
    Issuer,
    #[error("the token is opaque, and no issuer supports introspection")]
    Opaque,
    #[error("the type (typ) is not that of an access token")]
    Type,
    #[error("the algorithm (alg) is not accepted")]
    Algorithm,
    #[error("the issuer has no such key")]
    UnknownKey,
    #[error("the signature is wrong")]
    Signature,
    #[error("the claim {0} is missing")]
    Missing(&'static str),
    #[error("the claim {0} has the wrong type or a malformed value")]
    Claim(&'static str),
    #[error("the token is a refresh token, not an access token ({0})")]
    RefreshToken(&'static str),
    #[error("the token is for another audience")]
    Audience,
    #[error("the token has expired")]
    Expired,
    #[error("the token is not valid yet")]
    NotYetValid,
    #[error("the authorization server calls the token inactive")]
    Inactive,
    #[error("the token is bound to a key, and was sent without proof")]
    Bound,
    #[error("the token is not bound to a key")]
    Unbound,
    #[error("the token is bound to another key")]
    OtherKey,
    #[error("the token is bound to a key in an unsupported way")]
    Confirmation,
}

/// The conditions for the tokens of one issuer.
pub(super) struct Policy<'a> {
    pub(super) issuer: &'a str,
    pub(super) audience: &'a str,
    /// The audiences that are accepted instead of `audience`, if there are any.
    pub(super) audiences: &'a [String],
    /// The accepted algorithms.
    pub(super) algorithms: &'a [Algorithm],
    /// Accepts tokens of any type.
    pub(super) any_typ: bool,
    /// Takes `client_id` for the subject of a token that has none.
    pub(super) client_as_subject: bool,
}

impl Policy<'_> {
    fn accepts_audience(&self, audience: &str) -> bool {
        if self.audiences.is_empty() {
            return audience == self.audience;
        }
        self.audiences.iter().any(|accepted| accepted == audience)
    }
}

/// The key that a token is bound to (RFC 7800).
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Confirmation {
    /// The thumbprint of a `DPoP` key (RFC 9449, section 6.1).
    Thumbprint(String),
    /// Another method, such as a client certificate.
    Unsupported,
}

/// The claims of a verified token.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Claims {
    pub(super) subject: String,
    pub(super) client: Option<String>,
    pub(super) scopes: Scopes,
    /// The time from which the token is not valid, without leeway. Only introspected tokens may
    /// have none.
    pub(super) expires: Option<u64>,
    pub(super) confirmation: Option<Confirmation>,
}

/// Returns the algorithm of a token, if the policy accepts it.
///
/// # Errors
///
/// If the type or the algorithm is not accepted.
pub(super) fn check_header(
    token: &UnverifiedToken<'_>,
    policy: &Policy<'_>,
) -> Result<Algorithm, InvalidToken> {
    // The media type may be abbreviated, and case does not matter (RFC 7515, section 4.1.9).
    let is_access_token = token.header.typ.as_deref().is_some_and(|typ| {
        ["at+jwt", "application/at+jwt"].iter().any(|known| typ.eq_ignore_ascii_case(known))
    });
    if !policy.any_typ && !is_access_token {
        return Err(InvalidToken::Type);
    }
    Algorithm::parse(&token.header.alg)
        .filter(|algorithm| policy.algorithms.contains(algorithm))
        .ok_or(InvalidToken::Algorithm)
}

/// Verifies a token at `now`, in seconds since 1970.
///
/// # Errors
///
/// If the header, the signature or a claim is not accepted.
pub(super) fn verify(
    token: &UnverifiedToken<'_>,
    keys: &KeySet,
    policy: &Policy<'_>,
    now: u64,
) -> Result<Claims, InvalidToken> {
    let algorithm = check_header(token, policy)?;
    let mut keys = keys.candidates(token.header.kid.as_deref(), algorithm).peekable();
    if keys.peek().is_none() {
        return Err(InvalidToken::UnknownKey);
    }
    if !keys.any(|key| token.is_signed_by(key, algorithm)) {
        return Err(InvalidToken::Signature);
    }
    if text(&token.payload, "iss")?.ok_or(InvalidToken::Missing("iss"))? != policy.issuer {
        return Err(InvalidToken::Issuer);
    }
    let claims = check(&token.payload, policy, now)?;
    if claims.expires.is_none() {
        return Err(InvalidToken::Missing("exp"));
    }
    Ok(claims)
}

/// Checks the response of an introspection endpoint at `now` (RFC 7662, section 2.2).
///
/// # Errors
///
/// If the token is not active, or a claim is not accepted.
pub(super) fn check_introspection(
    response: &Object<'_>,
    policy: &Policy<'_>,
    now: u64,
) -> Result<Claims, InvalidToken> {
    match response.get("active") {
        Some(Json::Bool(true)) => {}
        Some(Json::Bool(false)) => return Err(InvalidToken::Inactive),
        _ => return Err(InvalidToken::Claim("active")),
    }
    if text(response, "iss")?.is_some_and(|issuer| issuer != policy.issuer) {
        return Err(InvalidToken::Issuer);
    }
    // Some issuers also report refresh tokens as active, and mark them in one of these members.
    for kind in ["token_type", "token_use", "typ"] {
        if text(response, kind)?.is_some_and(|kind| kind.to_ascii_lowercase().contains("refresh")) {
            return Err(InvalidToken::RefreshToken(kind));
        }
    }
    check(response, policy, now)
}

/// Checks the claims that both kinds of tokens have.
fn check(claims: &Object<'_>, policy: &Policy<'_>, now: u64) -> Result<Claims, InvalidToken> {
    let is_for_us = match claims.get("aud") {
        None => return Err(InvalidToken::Missing("aud")),
        Some(Json::String(audience)) => policy.accepts_audience(audience),
        Some(Json::Array(audiences)) => {
            if !audiences.iter().all(|one| one.as_str().is_some()) {
                return Err(InvalidToken::Claim("aud"));
            }
            audiences.iter().filter_map(Json::as_str).any(|one| policy.accepts_audience(one))
        }
        Some(_) => return Err(InvalidToken::Claim("aud")),
    };
    if !is_for_us {
        return Err(InvalidToken::Audience);
    }
    let expires = time(claims, "exp")?;
    if expires.is_some_and(|expires| now >= expires.saturating_add(LEEWAY)) {
        return Err(InvalidToken::Expired);
    }
    if time(claims, "nbf")?.is_some_and(|time| time > now.saturating_add(LEEWAY)) {
        return Err(InvalidToken::NotYetValid);
    }
    // It tells the age of a token, and does not limit its use (RFC 7519, section 4.1.6).
    time(claims, "iat")?;
    let client = match text(claims, "client_id")? {
        Some(client) => Some(client),
        None => text(claims, "azp")?,
    };
    // As Okta and version 1.0 of Entra ID name it. Elsewhere, they may be something else.
    let others = ["cid", "appid"].into_iter();
    let client =
        client.or_else(|| others.filter_map(|name| text(claims, name).ok()).flatten().next());
    let subject = text(claims, "sub")?.or(client.filter(|_| policy.client_as_subject));
    Ok(Claims {
        subject: subject.ok_or(InvalidToken::Missing("sub"))?.to_owned(),
        client: client.map(str::to_owned),
        scopes: scopes(claims)?,
        expires,
        confirmation: confirmation(claims)?,
    })
}

/// Returns a claim that is a text, which must not be empty.
fn text<'a>(claims: &'a Object<'_>, name: &'static str) -> Result<Option<&'a str>, InvalidToken> {
    match claims.get(name) {
        None => Ok(None),
        Some(Json::String(text)) if !text.is_empty() => Ok(Some(text)),
        Some(_) => Err(InvalidToken::Claim(name)),
    }
}

/// Returns a claim that is a time, in whole seconds since 1970 (RFC 7519, section 2: fractions are
/// allowed).
pub(super) fn time(claims: &Object<'_>, name: &'static str) -> Result<Option<u64>, InvalidToken> {
    // Whole numbers up to here are exact as floating point.
    const MAX: f64 = 9_007_199_254_740_992.0;
    match claims.get(name) {
        None => Ok(None),
        Some(Json::Unsigned(time)) => Ok(Some(*time)),
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "in range")]
        Some(Json::Float(time)) if (0.0..MAX).contains(time) => Ok(Some(*time as u64)),
        Some(_) => Err(InvalidToken::Claim(name)),
    }
}

/// Returns the scopes: `scope` (RFC 9068, section 2.2.3), or `scp`, as Entra ID and Okta name it.
/// Some authorization servers write an array of scopes instead of a text.
fn scopes(claims: &Object<'_>) -> Result<Scopes, InvalidToken> {
    let (name, value) = match (claims.get("scope"), claims.get("scp")) {
        (Some(scope), _) => ("scope", scope),
        (None, Some(scp)) => ("scp", scp),
        (None, None) => return Ok(Scopes::default()),
    };
    let scopes = match value {
        Json::String(scopes) => Scopes::parse(scopes),
        Json::Array(scopes) if scopes.iter().all(|one| one.as_str().is_some()) => {
            Scopes::new(scopes.iter().filter_map(Json::as_str))
        }
        _ => return Err(InvalidToken::Claim(name)),
    };
    scopes.map_err(|_| InvalidToken::Claim(name))
}

fn confirmation(claims: &Object<'_>) -> Result<Option<Confirmation>, InvalidToken> {
    let Some(confirmation) = claims.get("cnf") else { return Ok(None) };
    let methods = confirmation.as_object().ok_or(InvalidToken::Claim("cnf"))?;
    // With a second method, both would have to be checked.
    match (methods.len(), methods.get("jkt")) {
        (1, Some(Json::String(thumbprint))) => {
            Ok(Some(Confirmation::Thumbprint(thumbprint.as_ref().to_owned())))
        }
        (_, Some(Json::String(_)) | None) => Ok(Some(Confirmation::Unsupported)),
        (_, Some(_)) => Err(InvalidToken::Claim("cnf")),
    }
}

#[cfg(test)]
mod tests {
    use super::super::jws::{DecodedToken, Kind};
    use super::super::strict_json;
    use super::*;
    use serde_json::{Value, json};

    const NOW: u64 = 1_800_000_000;

    const POLICY: Policy<'_> = Policy {
        issuer: "https://login.example",
        audience: "https://a.example/mcp",
        audiences: &[],
        algorithms: &Algorithm::DEFAULT,
        any_typ: false,
        client_as_subject: false,
    };

    fn good() -> Value {
        json!({ "aud": POLICY.audience, "exp": NOW + 60, "sub": "user", "client_id": "app" })
    }

    fn check(claims: &Value, policy: &Policy<'_>) -> Result<Claims, InvalidToken> {
        super::check(&strict_json::object(claims.to_string().as_bytes()).unwrap(), policy, NOW)
    }

    /// Returns the good claims with changes. Members that are null are left out.
    fn changed(changes: Value) -> Value {
        let (Value::Object(mut claims), Value::Object(changes)) = (good(), changes) else {
            unreachable!()
        };
        claims.extend(changes);
        claims.retain(|_, value| !value.is_null());
        Value::Object(claims)
    }

    #[track_caller]
    fn checked(changes: Value) -> Result<Claims, InvalidToken> {
        check(&changed(changes), &POLICY)
    }

    #[test]
    fn audience_is_exactly_the_resource() {
        let us = POLICY.audience;
        for audience in [json!(us), json!([us]), json!(["https://b.example", us])] {
            checked(json!({ "aud": audience })).unwrap();
        }
        for (audience, expected) in [
            (json!("https://a.example/mcp/"), InvalidToken::Audience),
            (json!("https://A.example/mcp"), InvalidToken::Audience),
            (json!("https://a.example"), InvalidToken::Audience),
            (json!(["https://a.example/mcp2"]), InvalidToken::Audience),
            (json!(format!("{us} https://b.example")), InvalidToken::Audience),
            (json!([]), InvalidToken::Audience),
            (json!([us, 1]), InvalidToken::Claim("aud")),
            (json!({ "a": us }), InvalidToken::Claim("aud")),
            (Value::Null, InvalidToken::Missing("aud")),
        ] {
            assert_eq!(checked(json!({ "aud": audience })), Err(expected), "{audience}");
        }
    }

    #[test]
    fn times_have_thirty_seconds_of_leeway() {
        for (claims, expected) in [
            (json!({ "exp": NOW - 29 }), None),
            (json!({ "exp": NOW - 30 }), Some(InvalidToken::Expired)),
            (json!({ "exp": 0 }), Some(InvalidToken::Expired)),
            (json!({ "exp": u64::MAX }), None),
            (json!({ "exp": f64::from(2_000_000_000) + 0.5 }), None),
            (json!({ "exp": -1 }), Some(InvalidToken::Claim("exp"))),
            (json!({ "exp": 1e300 }), Some(InvalidToken::Claim("exp"))),
            (json!({ "exp": "2000000000" }), Some(InvalidToken::Claim("exp"))),
            (json!({ "nbf": NOW + 30 }), None),
            (json!({ "nbf": NOW + 31 }), Some(InvalidToken::NotYetValid)),
            // Only nbf delays a token (RFC 7519, section 4.1.6).
            (json!({ "iat": NOW + 3600 }), None),
            (json!({ "iat": "now" }), Some(InvalidToken::Claim("iat"))),
        ] {
            assert_eq!(checked(claims.clone()).err(), expected, "{claims}");
        }
    }

    #[test]
    fn issuer_is_exactly_that_of_the_policy() {
        use aws_lc_rs::rand::SystemRandom;
        use aws_lc_rs::signature::{ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, KeyPair as _};
        use base64::Engine as _;
        use base64::engine::general_purpose::URL_SAFE_NO_PAD;

        let pair = EcdsaKeyPair::generate(&ECDSA_P256_SHA256_FIXED_SIGNING).unwrap();
        let (x, y) = pair.public_key().as_ref()[1..].split_at(32);
        let [x, y] = [x, y].map(|bytes| URL_SAFE_NO_PAD.encode(bytes));
        let jwk = json!({ "kty": "EC", "crv": "P-256", "x": x, "y": y });
        let keys = KeySet::parse(json!({ "keys": [jwk] }).to_string().as_bytes()).unwrap();
        for (issuer, expected) in [
            (json!("https://login.example"), None),
            (json!("https://login.example/"), Some(InvalidToken::Issuer)),
            (json!("https://LOGIN.example"), Some(InvalidToken::Issuer)),
            (Value::Null, Some(InvalidToken::Claim("iss"))),
        ] {
            let mut claims = good();
            claims["iss"] = issuer;
            let header = json!({ "alg": "ES256", "typ": "at+jwt" });
            let [header, claims] =
                [header, claims].map(|part| URL_SAFE_NO_PAD.encode(part.to_string()));
            let signed = format!("{header}.{claims}");
            let signature = pair.sign(&SystemRandom::new(), signed.as_bytes()).unwrap();
            let token = format!("{signed}.{}", URL_SAFE_NO_PAD.encode(signature));
            let token = DecodedToken::decode(&token).unwrap();
            let token = token.parse(Kind::AccessToken).unwrap();
            assert_eq!(verify(&token, &keys, &POLICY, NOW).err(), expected);
        }
    }

    #[test]
    fn subject_is_required() {
        for (claims, expected) in [
            (json!({ "sub": null }), InvalidToken::Missing("sub")),
            (json!({ "sub": "" }), InvalidToken::Claim("sub")),
            (json!({ "sub": 17 }), InvalidToken::Claim("sub")),
            (json!({ "client_id": 17 }), InvalidToken::Claim("client_id")),
            (json!({ "client_id": null, "azp": [] }), InvalidToken::Claim("azp")),
        ] {
            assert_eq!(checked(claims.clone()), Err(expected), "{claims}");
        }
        let policy = Policy { client_as_subject: true, ..POLICY };
        let checked = |changes| check(&changed(changes), &policy);
        assert_eq!(checked(json!({ "sub": null })).unwrap().subject, "app");
        let neither = json!({ "sub": null, "client_id": null });
        assert_eq!(checked(neither), Err(InvalidToken::Missing("sub")));
        let party = checked(json!({ "sub": null, "client_id": null, "azp": "other" })).unwrap();
        assert_eq!(party.client.as_deref(), Some("other"));
        for (others, expected) in [
            (json!({ "cid": "okta" }), Some("okta")),
            (json!({ "cid": 17, "appid": "entra" }), Some("entra")),
            (json!({ "cid": 17 }), None),
            (json!({ "azp": "standard", "cid": "okta" }), Some("standard")),
        ] {
            let mut claims = changed(json!({ "client_id": null }));
            claims.as_object_mut().unwrap().extend(others.as_object().unwrap().clone());
            assert_eq!(check(&claims, &POLICY).unwrap().client.as_deref(), expected, "{others}");
        }
    }

    #[test]
    fn scopes_are_a_text_or_an_array() {
        let scopes = |claims| checked(claims).map(|claims| claims.scopes.to_string());
        assert_eq!(scopes(json!({})).unwrap(), "");
        assert_eq!(scopes(json!({ "scope": "a b" })).unwrap(), "a b");
        assert_eq!(scopes(json!({ "scp": "a b" })).unwrap(), "a b");
        assert_eq!(scopes(json!({ "scp": ["a", "b"] })).unwrap(), "a b");
        assert_eq!(scopes(json!({ "scope": "a", "scp": ["b"] })).unwrap(), "a");
        assert_eq!(scopes(json!({ "scope": ["a", "b"] })).unwrap(), "a b");
        assert_eq!(scopes(json!({ "scope": [] })).unwrap(), "");
        assert_eq!(scopes(json!({ "scope": ["a b"] })), Err(InvalidToken::Claim("scope")));
        assert_eq!(scopes(json!({ "scope": ["a", 1] })), Err(InvalidToken::Claim("scope")));
        assert_eq!(scopes(json!({ "scope": { "a": 1 } })), Err(InvalidToken::Claim("scope")));
        assert_eq!(scopes(json!({ "scp": ["a b"] })), Err(InvalidToken::Claim("scp")));
        assert_eq!(scopes(json!({ "scp": ["a", 1] })), Err(InvalidToken::Claim("scp")));
        assert_eq!(scopes(json!({ "scope": "a\"" })), Err(InvalidToken::Claim("scope")));
    }

    #[test]
    fn confirmation_has_one_method() {
        let confirmation = |cnf| checked(json!({ "cnf": cnf })).map(|claims| claims.confirmation);
        let thumbprint = Some(Confirmation::Thumbprint("x".to_owned()));
        assert_eq!(confirmation(json!({ "jkt": "x" })), Ok(thumbprint));
        for other in [json!({}), json!({ "x5t#S256": "x" }), json!({ "jkt": "x", "kid": "y" })] {
            assert_eq!(confirmation(other), Ok(Some(Confirmation::Unsupported)));
        }
        for malformed in [json!("x"), json!({ "jkt": 1 })] {
            assert_eq!(confirmation(malformed), Err(InvalidToken::Claim("cnf")));
        }
    }

    #[test]
    fn introspected_tokens_are_active_and_for_this_resource() {
        let response = |changes: Value| {
            let claims = changed(changes).to_string();
            let claims = strict_json::object(claims.as_bytes()).unwrap();
            check_introspection(&claims, &POLICY, NOW).err()
        };
        assert_eq!(response(json!({ "active": true })), None);
        assert_eq!(response(json!({ "active": true, "exp": null })), None);
        assert_eq!(response(json!({ "active": true, "iss": POLICY.issuer })), None);
        for (changes, expected) in [
            (json!({}), InvalidToken::Claim("active")),
            (json!({ "active": "true" }), InvalidToken::Claim("active")),
            (json!({ "active": false }), InvalidToken::Inactive),
            (json!({ "active": true, "aud": null }), InvalidToken::Missing("aud")),
            (json!({ "active": true, "aud": "https://b.example" }), InvalidToken::Audience),
            (json!({ "active": true, "iss": "https://b.example" }), InvalidToken::Issuer),
            (json!({ "active": true, "exp": NOW - 30 }), InvalidToken::Expired),
        ] {
            assert_eq!(response(changes.clone()), Some(expected), "{changes}");
        }
    }
}
