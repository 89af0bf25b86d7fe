//! Secrets go only to the authorization server that they are for, and are not printed.

use axum::response::IntoResponse as _;
use mrtr_auth::client::{ClientRegistration, LoginError, OAuthClient, Secret};
use mrtr_transport::http::HttpClient;
use serde_json::json;

use super::enterprise::jwt;
use super::world::{World, login_error};

#[tokio::test]
async fn logout_sends_no_secret_of_another_issuer() {
    let world = World::start().await;
    world.script(|s| {
        s.server_metadata["token_endpoint_auth_methods_supported"] =
            json!(["none", "client_secret_post"]);
    });
    // The authorization server gives the dynamic client the ID of a registered one.
    let honest = ClientRegistration::with_secret("dynamic", "honest-secret");
    let client = world.builder().registered("https://honest.example", honest).build().unwrap();
    world.call(&world.http(client.clone())).await.unwrap();
    client.log_out(&world.mcp_url()).await.unwrap();
    let form = world.forms("/revoke").remove(0);
    assert_eq!(form.get("client_secret"), None, "{form:?}");
}

#[tokio::test]
async fn unbound_client_is_used_at_one_issuer_only() {
    let (honest, evil) = (World::start().await, World::start().await);
    let secret = ClientRegistration::with_secret("app", "secret-of-app");
    let client = OAuthClient::client_credentials(secret).build().unwrap();
    honest.call(&honest.http(client.clone())).await.unwrap();
    let _ = evil.call(&evil.http(client)).await;
    assert!(evil.forms("/token").is_empty(), "{:?}", evil.paths());
}

/// Otherwise one MCP server could deny the client to all others.
#[tokio::test]
async fn client_that_was_sent_nowhere_is_not_bound() {
    let (broken, honest) = (World::start().await, World::start().await);
    broken.script(|script| script.server_metadata["token_endpoint"] = json!(null));
    let secret = ClientRegistration::with_secret("app", "secret-of-app");
    let client = OAuthClient::client_credentials(secret).build().unwrap();
    broken.call(&broken.http(client.clone())).await.unwrap_err();
    honest.call(&honest.http(client)).await.unwrap();
}

#[tokio::test]
async fn password_in_the_url_is_not_printed() {
    let world = World::start().await;
    let url = world.mcp_url().replace("http://", "http://user:hunter2@");
    let http = HttpClient::builder(url).credentials(world.client()).build().unwrap();
    let error = world.call(&http).await.unwrap_err();
    let mut text = format!("{error} {error:?}");
    let mut source = std::error::Error::source(&error);
    while let Some(cause) = source {
        text.push_str(&cause.to_string());
        source = cause.source();
    }
    assert!(!text.contains("hunter2"), "{text}");
}

#[tokio::test]
async fn unknown_token_type_is_refused() {
    let world = World::start().await;
    world.script(|s| {
        s.accepts_any_token = true;
        s.overrides.insert("/token", || {
            axum::Json(json!({"access_token": "a", "token_type": "N_A"})).into_response()
        });
    });
    let http = world.http(world.client());
    assert!(world.call(&http).await.is_err());
}

#[tokio::test]
async fn workload_token_is_not_sent_to_any_issuer() {
    let world = World::start().await;
    let token = |_: String, _: String| async { Ok(Secret::from("kubernetes-token")) };
    let client = OAuthClient::workload_identity(token).build().unwrap();
    let error = world.call(&world.http(client)).await.unwrap_err();
    assert!(matches!(login_error(&error), LoginError::AssertionForOther(_)), "{error}");
    assert!(world.forms("/token").is_empty(), "{:?}", world.forms("/token"));
}

/// Its metadata names the token endpoint of another authorization server.
#[tokio::test]
async fn workload_token_for_another_server_is_not_sent_for_a_hostile_issuer() {
    const HONEST: &str = "https://honest.example/token";
    let world = World::start().await;
    world.script(|script| script.server_metadata["token_endpoint"] = HONEST.into());
    let token = |_: String, _: String| async { Ok(jwt(&json!({ "aud": HONEST })).into()) };
    let client = OAuthClient::workload_identity(token).build().unwrap();
    let error = world.call(&world.http(client)).await.unwrap_err();
    assert!(matches!(login_error(&error), LoginError::AssertionForOther(_)), "{error}");
}
