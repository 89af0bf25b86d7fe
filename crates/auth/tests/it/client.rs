//! The client, against an authorization server and an MCP server that follow a script.

mod enterprise;
mod hostile;
mod loopback;
#[cfg(feature = "tls")]
mod network;
mod refresh;
mod secrets;
mod sessions;
mod world;

use std::io::Write as _;
use std::sync::atomic::Ordering;

use axum::response::IntoResponse as _;
use http::StatusCode;
use mrtr_auth::client::{
    BuildError, ClientRegistration, DpopMode, LoginError, Logout, OAuthClient,
};
use serde_json::json;
use world::{World, login_error};

use crate::logs::Logs;

#[tokio::test]
async fn user_logs_in_once_and_the_token_is_used() {
    let world = World::start().await;
    let http = world.http(world.client());
    for _ in 0..3 {
        assert_eq!(world.call(&http).await.unwrap(), StatusCode::OK);
    }
    let paths = world.paths();
    let expected = [
        "MCP POST /mcp",
        "MCP GET /.well-known/oauth-protected-resource/mcp",
        "AS GET /.well-known/oauth-authorization-server",
        "AS POST /register",
        "AS POST /token",
        "MCP POST /mcp",
        "MCP POST /mcp",
        "MCP POST /mcp",
    ];
    assert_eq!(paths, expected);
    let registration: serde_json::Value =
        serde_json::from_slice(&world.bodies("/register")[0]).unwrap();
    assert_eq!(registration["application_type"], "native");
    assert_eq!(registration["grant_types"], json!(["authorization_code", "refresh_token"]));
    assert_eq!(registration["redirect_uris"], json!([world.pages()[0]["redirect_uri"]]));
    let token = world.forms("/token").remove(0);
    assert_eq!(token["grant_type"], "authorization_code");
    assert_eq!(token["resource"], world.mcp_url());
    assert_eq!(token["client_id"], "dynamic");
}

#[tokio::test]
async fn requests_share_one_login() {
    let world = World::start().await;
    let http = world.http(world.client());
    let calls = (0..50).map(|_| world.call(&http));
    for status in futures_util::future::join_all(calls).await {
        assert_eq!(status.unwrap(), StatusCode::OK);
    }
    assert_eq!(world.forms("/token").len(), 1);
    assert_eq!(world.pages().len(), 1);
}

#[tokio::test]
async fn login_continues_without_the_request_that_began_it() {
    let world = World::start().await;
    world.script(|script| script.holds_pages = true);
    let http = world.http(world.client());
    let mut first = Box::pin(world.call(&http));
    let mut second = Box::pin(world.call(&http));
    tokio::select! {
        biased;
        _ = &mut first => panic!("the page is held"),
        _ = &mut second => panic!("the page is held"),
        () = world.held() => {}
    }
    drop(first);
    world.release();
    assert_eq!(second.await.unwrap(), StatusCode::OK);
    assert_eq!(world.pages().len(), 1);
}

#[tokio::test]
async fn further_scopes_are_added_to_those_before() {
    let world = World::start().await;
    let http = world.http(world.client());
    world.call(&http).await.unwrap();
    world.script(|script| script.needs = "booking:pay".to_owned());
    assert_eq!(world.call(&http).await.unwrap(), StatusCode::OK);
    let scopes: Vec<_> = world.pages().iter().map(|page| page["scope"].clone()).collect();
    assert_eq!(scopes, ["booking:read", "booking:read booking:pay"]);
    // A token for further scopes is not a refreshed one.
    let grants: Vec<_> =
        world.forms("/token").iter().map(|form| form["grant_type"].clone()).collect();
    assert_eq!(grants, ["authorization_code", "authorization_code"]);
}

#[tokio::test]
async fn user_is_not_asked_again_for_scopes_that_were_granted() {
    let world = World::start().await;
    let http = world.http(world.client());
    world.call(&http).await.unwrap();
    world.script(|script| {
        script.needs = "booking:pay".to_owned();
        script.refuses_always = true;
    });
    let error = world.call(&http).await.unwrap_err();
    assert!(
        matches!(login_error(&error), LoginError::StillRefused(scopes)
        if scopes.to_string() == "booking:pay"),
        "{error}"
    );
    assert_eq!(world.pages().len(), 2);
}

#[tokio::test]
async fn user_who_grants_less_is_asked_three_times() {
    let world = World::start().await;
    let http = world.http(world.client());
    world.call(&http).await.unwrap();
    world.script(|script| {
        script.needs = "booking:pay".to_owned();
        script.grants_only = Some("booking:read".to_owned());
    });
    let error = world.call(&http).await.unwrap_err();
    assert!(matches!(login_error(&error), LoginError::TooManyUpgrades(3)), "{error}");
    assert_eq!(world.pages().len(), 4);
}

#[tokio::test]
async fn clients_of_one_authorization_server_are_not_used_at_another() {
    let world = World::start().await;
    let http = world.http(world.client());
    world.call(&http).await.unwrap();
    let other = World::start().await;
    world.script(|script| {
        script.issuer.clone_from(&other.issuer());
        script.valid_tokens.clear();
        script.accepts_any_token = true;
        script.refuse_next = 1;
    });
    assert_eq!(world.call(&http).await.unwrap(), StatusCode::OK);
    assert_eq!(other.bodies("/register").len(), 1);
    let forms = other.forms("/token");
    assert_eq!(forms.len(), 1);
    assert_eq!(forms[0]["grant_type"], "authorization_code");
    assert_eq!(world.forms("/token").len(), 1, "nothing more is sent to the former server");
}

#[tokio::test]
async fn registered_client_is_not_used_at_another_issuer() {
    let world = World::start().await;
    let secret = ClientRegistration::with_secret("app", "secret-of-app");
    let client = OAuthClient::client_credentials(secret).build().unwrap();
    let http = world.http(client);
    world.call(&http).await.unwrap();
    let other = World::start().await;
    world.script(|script| {
        script.issuer.clone_from(&other.issuer());
        script.refuse_next = 1;
    });
    let error = world.call(&http).await.unwrap_err();
    assert!(matches!(login_error(&error), LoginError::ClientOfOtherIssuer { .. }), "{error}");
    assert!(other.forms("/token").is_empty());
}

#[tokio::test]
async fn tokens_of_one_server_are_not_sent_to_another() {
    let (world, other) = (World::start().await, World::start().await);
    let client = world.client();
    world.call(&world.http(client.clone())).await.unwrap();
    assert_eq!(other.call(&other.http(client)).await.unwrap(), StatusCode::OK);
    assert_eq!(other.credentials(), [None, Some("Bearer access-1".to_owned())]);
}

#[tokio::test]
async fn refused_registration_is_told() {
    let world = World::start().await;
    world.script(|script| {
        script.overrides.insert("/register", || {
            let body = json!({ "error": "invalid_redirect_uri", "error_description": "<b>" });
            (StatusCode::BAD_REQUEST, axum::Json(body)).into_response()
        });
    });
    let error = world.call(&world.http(world.client())).await.unwrap_err();
    assert!(
        matches!(login_error(&error), LoginError::RegistrationRefused { error, .. }
            if error == "invalid_redirect_uri"),
        "{error}"
    );
    assert!(world.pages().is_empty());
}

#[tokio::test]
async fn client_that_cannot_be_registered_is_not_used() {
    let world = World::start().await;
    world.script(|script| script.server_metadata["registration_endpoint"] = json!(null));
    let error = world.call(&world.http(world.client())).await.unwrap_err();
    assert!(matches!(login_error(&error), LoginError::NoClient(_)), "{error}");
    assert!(world.pages().is_empty());
}

#[tokio::test]
async fn ways_to_a_client_id_have_an_order() {
    const DOCUMENT: &str = "https://app.example/client.json";
    for (supported, registered, expected) in
        [(false, false, "dynamic"), (true, false, DOCUMENT), (true, true, "app")]
    {
        let world = World::start().await;
        world.script(|script| {
            script.server_metadata["client_id_metadata_document_supported"] = json!(supported);
        });
        let mut builder = world.builder().client_metadata_url(DOCUMENT);
        if registered {
            builder = builder.registered(world.issuer(), ClientRegistration::public("app"));
        }
        world.call(&world.http(builder.build().unwrap())).await.unwrap();
        assert_eq!(world.forms("/token")[0]["client_id"], expected);
        assert_eq!(world.bodies("/register").len(), usize::from(expected == "dynamic"));
    }
}

#[test]
fn client_metadata_url_is_https_and_has_a_path() {
    let build = |url: &str| OAuthClient::builder("app").client_metadata_url(url).build();
    assert!(build("https://app.example/client.json").is_ok());
    for url in
        ["http://app.example/client.json", "https://app.example", "https://app.example/", "x"]
    {
        assert!(matches!(build(url), Err(BuildError::ClientMetadataUrl(_))), "{url}");
    }
}

#[tokio::test]
async fn tokens_are_bound_to_a_key_if_the_server_asks_for_it() {
    let world = World::start().await;
    world.script(|script| script.scheme = "DPoP");
    let http = world.http(world.client());
    assert_eq!(world.call(&http).await.unwrap(), StatusCode::OK);
    assert_eq!(world.call(&http).await.unwrap(), StatusCode::OK);
    let proofs = world.proofs();
    let at_token = proofs.iter().filter(|(path, _)| path == "/token").count();
    assert_eq!(at_token, 1);
    let mut ids: Vec<_> = proofs.iter().map(|(_, claims)| claims["jti"].to_string()).collect();
    ids.sort();
    ids.dedup();
    assert_eq!(ids.len(), 3, "each request has a proof of its own");
    assert!(world.pages()[0].contains_key("dpop_jkt"));
}

#[tokio::test]
async fn server_nonces_are_sent_back() {
    let world = World::start().await;
    world.script(|script| {
        script.scheme = "DPoP";
        script.nonces = true;
    });
    let http = world.http(world.client());
    assert_eq!(world.call(&http).await.unwrap(), StatusCode::OK);
    assert_eq!(world.call(&http).await.unwrap(), StatusCode::OK);
    let nonces: Vec<_> = world
        .proofs()
        .iter()
        .map(|(path, claims)| format!("{path} {}", claims["nonce"].as_str().unwrap_or("none")))
        .collect();
    let expected =
        ["/token none", "/token as-nonce", "/mcp none", "/mcp rs-nonce", "/mcp rs-nonce"];
    assert_eq!(nonces, expected);
}

#[tokio::test]
async fn unbound_token_is_refused_if_it_must_be_bound() {
    let world = World::start().await;
    let http = world.http(world.builder().dpop(DpopMode::Required).build().unwrap());
    let error = world.call(&http).await.unwrap_err();
    assert!(matches!(login_error(&error), LoginError::NotBound(_)), "{error}");
}

#[tokio::test]
async fn tokens_are_revoked_at_the_end() {
    let world = World::start().await;
    let client = world.client();
    let http = world.http(client.clone());
    assert_eq!(client.log_out(&world.mcp_url()).await.unwrap(), Logout::NotLoggedIn);
    world.call(&http).await.unwrap();
    let session = client.session(&world.mcp_url()).await.unwrap();
    assert_eq!(session.issuer(), Some(&*world.issuer()));
    assert_eq!(session.scopes(), Some("booking:read"));
    assert_eq!(client.log_out(&world.mcp_url()).await.unwrap(), Logout::Revoked);
    assert_eq!(world.forms("/revoke")[0]["token"], "refresh-1");
    assert!(!client.session(&world.mcp_url()).await.unwrap().is_logged_in());
    world.call(&http).await.unwrap();
    assert_eq!(world.pages().len(), 2);
}

#[tokio::test]
async fn explicit_login_replaces_the_tokens() {
    let world = World::start().await;
    let client = world.client();
    client.log_in(&world.mcp_url()).await.unwrap();
    client.log_in(&world.mcp_url()).await.unwrap();
    assert_eq!(world.pages().len(), 2);
    assert_eq!(world.bodies("/register").len(), 1, "the client stays registered");
    let http = world.http(client);
    assert_eq!(world.call(&http).await.unwrap(), StatusCode::OK);
    assert_eq!(world.pages().len(), 2);
    assert_eq!(world.calls.load(Ordering::Relaxed), 1);
}

#[tokio::test]
async fn client_without_user_agent_says_so() {
    let world = World::start().await;
    let http = world.http(OAuthClient::builder("app").build().unwrap());
    let error = world.call(&http).await.unwrap_err();
    assert!(login_error(&error).to_string().contains("no user agent"), "{error}");
}

/// At TRACE level, over a whole login with refresh, step-up, proofs, and failures.
#[test]
fn nothing_secret_is_printed() {
    let mut logs = Logs::default();
    let subscriber = tracing_subscriber::fmt()
        .with_max_level(tracing::Level::TRACE)
        .with_writer(logs.clone())
        .finish();
    // With a single subscriber, the first thread would decide for all threads which events are
    // enabled.
    let _second = tracing::Dispatch::new(tracing_subscriber::registry());
    tracing::subscriber::with_default(subscriber, || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let world = World::start().await;
            let client = world.client();
            let http = world.http(client.clone());
            world.call(&http).await.unwrap();
            world.script(|script| script.needs = "booking:pay".to_owned());
            world.call(&http).await.unwrap();
            world.script(|script| script.token_error = Some("invalid_client"));
            world.script(|script| script.refuse_next = 9);
            let error = world.call(&http).await.unwrap_err();
            write!(logs, "{error} {error:?} {client:?} {http:?}").unwrap();
            write!(logs, "{:?}", client.session(&world.mcp_url()).await.unwrap()).unwrap();
            let text = logs.text();
            assert!(text.contains("obtained an access token"), "{text}");
            for secret in world.secrets() {
                assert!(!text.contains(&secret), "{secret} in {text}");
            }
        });
    });
}
