//! A hostile authorization server, and a hostile MCP server: each attack ends in its own error, and
//! no secret is sent to where it does not belong.

use axum::body::Body;
use axum::response::{IntoResponse as _, Response};
use http::StatusCode;
use mrtr_auth::client::{CallbackError, LoginError};
use serde_json::{Value, json};

use super::world::{Script, World, login_error};

/// Runs a login against a script, and returns its error.
async fn attack(change: impl FnOnce(&mut Script)) -> (World, String, LoginErrorKind) {
    let world = World::start().await;
    world.script(change);
    let http = world.http(world.client());
    let error = world.call(&http).await.unwrap_err();
    let error = login_error(&error);
    let (text, kind) = (error.to_string(), LoginErrorKind::of(error));
    (world, text, kind)
}

#[derive(Debug, PartialEq)]
enum LoginErrorKind {
    NoResourceMetadata,
    OtherResource,
    Metadata,
    NoServerMetadata,
    NoPkce,
    Unsupported,
    Registration,
    OtherIssuer,
    OtherState,
    Malformed,
    TokenRefused,
    TokenFailed,
    NotBound,
    Scope,
    Other,
}

impl LoginErrorKind {
    fn of(error: &LoginError) -> Self {
        match error {
            LoginError::NoResourceMetadata { .. } => Self::NoResourceMetadata,
            LoginError::OtherResource { .. } => Self::OtherResource,
            LoginError::Metadata(_) => Self::Metadata,
            LoginError::NoServerMetadata { .. } => Self::NoServerMetadata,
            LoginError::NoPkce(_) => Self::NoPkce,
            LoginError::Unsupported { .. } => Self::Unsupported,
            LoginError::RegistrationRefused { .. } => Self::Registration,
            LoginError::Callback(CallbackError::OtherIssuer(_)) => Self::OtherIssuer,
            LoginError::Callback(CallbackError::OtherState) => Self::OtherState,
            LoginError::Callback(CallbackError::Malformed(_)) => Self::Malformed,
            LoginError::TokenRefused { .. } => Self::TokenRefused,
            LoginError::TokenFailed { .. } => Self::TokenFailed,
            LoginError::NotBound(_) => Self::NotBound,
            LoginError::Scope(_) => Self::Scope,
            _ => Self::Other,
        }
    }
}

use LoginErrorKind as Kind;

/// Returns true if a page was shown to the user, or anything secret was sent.
fn has_begun(world: &World) -> bool {
    !world.pages().is_empty() || !world.forms("/token").is_empty()
}

#[tokio::test]
async fn metadata_of_the_resource() {
    let metadata =
        |change: fn(&mut Value)| move |script: &mut Script| change(&mut script.resource_metadata);
    let (world, error, kind) =
        attack(metadata(|metadata| metadata["resource"] = json!("https://bank.example/mcp"))).await;
    assert_eq!(kind, Kind::OtherResource, "{error}");
    assert!(!has_begun(&world));
    for (issuer, expected) in [
        ("http://login.example", Kind::Metadata),
        ("https://login.example?a", Kind::Metadata),
        ("javascript:alert(1)", Kind::Metadata),
        ("https://user:password@login.example", Kind::Metadata),
        ("https://169.254.169.254", Kind::NoServerMetadata),
        ("https://10.0.0.1", Kind::NoServerMetadata),
        ("https://[::ffff:169.254.169.254]", Kind::NoServerMetadata),
    ] {
        let (world, error, kind) = attack(|script| script.issuer = issuer.to_owned()).await;
        assert_eq!(kind, expected, "{issuer}: {error}");
        // No connection was tried.
        let is_private = expected == Kind::NoServerMetadata;
        assert_eq!(error.contains("is not a public address"), is_private, "{error}");
        assert!(!has_begun(&world));
    }
}

/// The client chooses among the authorization servers.
#[tokio::test]
async fn invalid_authorization_servers_are_skipped() {
    let world = World::start().await;
    world.script(|script| {
        script.more_issuers = vec!["http://legacy.internal", "https://login.example?a"];
    });
    assert_eq!(world.call(&world.http(world.client())).await.unwrap(), StatusCode::OK);
}

#[tokio::test]
async fn metadata_of_the_authorization_server() {
    for (name, value, expected) in [
        ("issuer", json!("https://login.example"), Kind::NoServerMetadata),
        ("code_challenge_methods_supported", json!(null), Kind::NoPkce),
        ("code_challenge_methods_supported", json!(["plain"]), Kind::NoPkce),
        ("authorization_endpoint", json!("javascript:alert(1)"), Kind::NoServerMetadata),
        ("authorization_endpoint", json!("file:///etc/passwd"), Kind::NoServerMetadata),
        ("authorization_endpoint", json!("http://login.example/"), Kind::NoServerMetadata),
        ("authorization_endpoint", json!(null), Kind::Unsupported),
        ("token_endpoint", json!("http://login.example/token"), Kind::NoServerMetadata),
        ("registration_endpoint", json!(7), Kind::NoServerMetadata),
        ("token_endpoint_auth_methods_supported", json!(["tls_client_auth"]), Kind::Unsupported),
    ] {
        let (world, error, kind) =
            attack(|script| script.server_metadata[name] = value.clone()).await;
        assert_eq!(kind, expected, "{name}: {value}: {error}");
        assert!(!has_begun(&world), "{name}: {value}");
    }
}

#[tokio::test]
async fn openid_provider_without_pkce() {
    let (world, error, kind) = attack(|script| {
        script.is_openid = true;
        script.server_metadata["code_challenge_methods_supported"] = json!(null);
    })
    .await;
    assert_eq!(kind, Kind::NoPkce, "{error}");
    assert!(!has_begun(&world));
    // With PKCE, the same document is used.
    world.script(|script| {
        script.server_metadata["code_challenge_methods_supported"] = json!(["S256"]);
    });
    assert_eq!(world.call(&world.http(world.client())).await.unwrap(), StatusCode::OK);
}

#[tokio::test]
async fn issuer_that_is_equal_only_after_normalization_is_another() {
    let world = World::start().await;
    world.script(|script| script.server_metadata["issuer"] = json!(format!("{}/", script.issuer)));
    let http = world.http(world.client());
    let error = world.call(&http).await.unwrap_err();
    assert_eq!(Kind::of(login_error(&error)), Kind::NoServerMetadata);
    assert!(!has_begun(&world));
}

#[tokio::test]
async fn callbacks_of_others() {
    for (change, expected) in [
        (
            (|callback| _ = callback.insert("iss".to_owned(), "https://evil.example".to_owned()))
                as fn(&mut super::world::Pairs),
            Kind::OtherIssuer,
        ),
        (|callback| _ = callback.remove("iss"), Kind::OtherIssuer),
        (|callback| _ = callback.insert("state".to_owned(), "other".to_owned()), Kind::OtherState),
        (|callback| _ = callback.remove("state"), Kind::OtherState),
        (|callback| _ = callback.remove("code"), Kind::Malformed),
    ] {
        let (world, error, kind) = attack(|script| script.callback = change).await;
        assert_eq!(kind, expected, "{error}");
        assert!(world.forms("/token").is_empty(), "the code is not sent: {error}");
        assert!(!error.contains("evil"), "{error}");
    }
}

fn redirect() -> Response {
    // The target would record the request.
    (StatusCode::TEMPORARY_REDIRECT, [("location", "/stolen")]).into_response()
}

fn endless() -> Response {
    let chunks =
        futures_util::stream::repeat_with(|| Ok::<_, std::io::Error>(vec![b' '; 64 << 10]));
    Body::from_stream(chunks).into_response()
}

fn deep() -> Response {
    "[".repeat(200_000).into_response()
}

#[tokio::test]
async fn responses_of_any_endpoint() {
    let paths = [
        ("/.well-known/oauth-protected-resource/mcp", Kind::NoResourceMetadata),
        ("/.well-known/oauth-authorization-server", Kind::NoServerMetadata),
        ("/register", Kind::Registration),
        ("/token", Kind::TokenFailed),
    ];
    for respond in [redirect, endless, deep] as [fn() -> Response; 3] {
        for (path, expected) in &paths {
            let (world, error, kind) = attack(|script| {
                script.overrides.insert(path, respond);
            })
            .await;
            assert_eq!(kind, *expected, "{path}: {error}");
            assert!(world.bodies("/stolen").is_empty(), "{path}: the redirect was followed");
        }
    }
}

#[tokio::test]
async fn tokens_that_cannot_be_sent() {
    fn respond(body: &Value) -> Response {
        axum::Json(body.clone()).into_response()
    }
    for respond in [
        || respond(&json!({ "access_token": "a\r\nx-evil: 1" })),
        || respond(&json!({ "access_token": "a".repeat(20_000) })),
        || respond(&json!({ "access_token": "" })),
        || respond(&json!({ "access_token": "a", "token_type": "N_A" })),
        || respond(&json!([])),
    ] as [fn() -> Response; 5]
    {
        let (_, error, kind) = attack(|script| {
            script.overrides.insert("/token", respond);
        })
        .await;
        assert_eq!(kind, Kind::TokenFailed, "{error}");
    }
}

#[tokio::test]
async fn challenges_of_a_hostile_server() {
    fn challenge(text: &'static str) -> Response {
        (StatusCode::UNAUTHORIZED, [("www-authenticate", text)]).into_response()
    }
    for (respond, expected, why) in [
        (
            (|| challenge(r#"Bearer scope="a\\b""#)) as fn() -> Response,
            Kind::Scope,
            "invalid scope",
        ),
        (
            || challenge(r#"Bearer resource_metadata="http://169.254.169.254/""#),
            Kind::NoResourceMetadata,
            "must be https",
        ),
        (
            || challenge(r#"Bearer resource_metadata="https://169.254.169.254/""#),
            Kind::NoResourceMetadata,
            "is not a public address",
        ),
        (
            || challenge(r#"Bearer resource_metadata="file:///etc/passwd""#),
            Kind::NoResourceMetadata,
            "must be https",
        ),
    ] {
        let (world, error, kind) = attack(|script| {
            script.overrides.insert("/mcp", respond);
        })
        .await;
        assert_eq!(kind, expected, "{error}");
        assert!(error.contains(why), "{error}");
        assert!(!has_begun(&world), "{error}");
    }
}

/// As if there was none: the metadata is at a well-known address.
#[tokio::test]
async fn malformed_challenges_are_ignored() {
    for challenge in [
        "Bearer realm=My Server",
        r#"Bearer scope="a"#,
        r#"Bearer scope="a", scope="b""#,
        "Bearer error_description=The token expired",
    ] {
        let world = World::start().await;
        world.script(|script| script.challenge = Some(challenge));
        let status = world.call(&world.http(world.client())).await;
        assert_eq!(status.unwrap(), StatusCode::OK, "{challenge}");
    }
}

#[tokio::test]
async fn downgrade_of_bound_tokens() {
    // The server demands DPoP, and the authorization server answers with a bearer token.
    let (_, error, kind) = attack(|script| {
        script.scheme = "DPoP";
        script.overrides.insert("/token", || {
            axum::Json(json!({ "access_token": "a", "token_type": "Bearer" })).into_response()
        });
    })
    .await;
    assert_eq!(kind, Kind::NotBound, "{error}");
}

#[tokio::test]
async fn errors_are_shown_without_text_of_the_server() {
    let (_, error, kind) = attack(|script| script.token_error = Some("a\u{1b}[31m<b>\n")).await;
    assert_eq!(kind, Kind::TokenRefused);
    assert!(error.ends_with("refused to issue a token: a31mb"), "{error}");
}
