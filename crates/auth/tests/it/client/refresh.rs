//! Tokens that expire.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use axum::response::IntoResponse as _;
use http::StatusCode;
use mrtr_auth::client::{ClientRegistration, FileStore, LoginError, OAuthClient};
use serde_json::json;

use super::world::{Directory, World, login_error};

/// A clock of one test.
macro_rules! clock {
    ($name:ident) => {
        static $name: AtomicU64 = AtomicU64::new(1_000_000);
    };
}

#[tokio::test]
async fn refused_token_is_refreshed_once_for_all_requests() {
    let world = World::start().await;
    let http = world.http(world.client());
    world.call(&http).await.unwrap();
    world.script(|script| script.valid_tokens.clear());
    let calls = (0..50).map(|_| world.call(&http));
    for status in futures_util::future::join_all(calls).await {
        assert_eq!(status.unwrap(), StatusCode::OK);
    }
    assert_eq!(world.grants(), ["authorization_code", "refresh_token"]);
    assert_eq!(world.forms("/token")[1]["resource"], world.mcp_url());
}

#[tokio::test]
async fn token_is_refreshed_before_it_expires() {
    clock!(NOW);
    let world = World::start().await;
    let client = world.builder().clock(|| NOW.load(Ordering::Relaxed)).build().unwrap();
    let http = world.http(client);
    world.call(&http).await.unwrap();
    NOW.fetch_add(3600 * 4 / 5 - 1, Ordering::Relaxed);
    world.call(&http).await.unwrap();
    assert_eq!(world.grants(), ["authorization_code"]);
    NOW.fetch_add(1, Ordering::Relaxed);
    world.call(&http).await.unwrap();
    assert_eq!(world.grants(), ["authorization_code", "refresh_token"]);
}

#[tokio::test]
async fn token_that_is_still_valid_is_used_if_the_refresh_fails() {
    clock!(NOW);
    let world = World::start().await;
    let client = world.builder().clock(|| NOW.load(Ordering::Relaxed)).build().unwrap();
    let http = world.http(client);
    world.call(&http).await.unwrap();
    for error in ["temporarily_unavailable", "invalid_client", "invalid_dpop_proof"] {
        world.script(|script| script.token_error = Some(error));
        NOW.fetch_add(3000, Ordering::Relaxed);
        assert_eq!(world.call(&http).await.unwrap(), StatusCode::OK, "{error}");
        // None of these is about the refresh token, which is used later.
        world.script(|script| script.token_error = None);
        NOW.fetch_add(100, Ordering::Relaxed);
        assert_eq!(world.call(&http).await.unwrap(), StatusCode::OK, "{error}");
        assert_eq!(world.grants().last().unwrap(), "refresh_token");
    }
    assert_eq!(world.pages().len(), 1);
    // An invalid grant is: the user has to log in when the token has expired.
    world.script(|script| script.token_error = Some("invalid_grant"));
    NOW.fetch_add(3000, Ordering::Relaxed);
    assert_eq!(world.call(&http).await.unwrap(), StatusCode::OK);
    NOW.fetch_add(3000, Ordering::Relaxed);
    world.script(|script| {
        script.token_error = None;
        script.valid_tokens.clear();
    });
    assert_eq!(world.call(&http).await.unwrap(), StatusCode::OK);
    assert_eq!(world.pages().len(), 2);
}

#[tokio::test]
async fn user_logs_in_again_if_the_refresh_token_is_refused() {
    let world = World::start().await;
    let http = world.http(world.client());
    world.call(&http).await.unwrap();
    world.script(|script| {
        script.valid_tokens.clear();
        script.valid_refresh_tokens.clear();
    });
    assert_eq!(world.call(&http).await.unwrap(), StatusCode::OK);
    assert_eq!(world.grants(), ["authorization_code", "refresh_token", "authorization_code"]);
    assert_eq!(world.pages().len(), 2);
}

/// It has lost its registrations, or they expire.
#[tokio::test]
async fn client_that_its_server_does_not_know_any_more_is_registered_again() {
    let world = World::start().await;
    let http = world.http(world.client());
    world.call(&http).await.unwrap();
    let registered = || world.bodies("/register").len();
    assert_eq!(registered(), 1);
    world.script(|script| {
        script.valid_tokens.clear();
        script.token_error = Some("invalid_client");
    });
    world.call(&http).await.unwrap_err();
    assert_eq!(registered(), 2);
    world.script(|script| script.token_error = None);
    assert_eq!(world.call(&http).await.unwrap(), StatusCode::OK);
}

#[tokio::test]
async fn token_that_expires_soon_is_used_while_the_user_logs_in_for_more_scopes() {
    clock!(NOW);
    let world = World::start().await;
    let client = world.builder().clock(|| NOW.load(Ordering::Relaxed)).build().unwrap();
    let http = world.http(client);
    world.call(&http).await.unwrap();
    world.script(|script| {
        script.needs = "booking:pay".to_owned();
        script.holds_pages = true;
    });
    let mut paying = Box::pin(world.call(&http));
    world.send_until_held(&mut paying).await;
    world.script(|script| script.needs.clear());
    NOW.fetch_add(3000, Ordering::Relaxed);
    assert_eq!(world.call(&http).await.unwrap(), StatusCode::OK);
    world.release();
    assert_eq!(paying.await.unwrap(), StatusCode::OK);
}

/// Perhaps the page said that the client is unknown.
#[tokio::test]
async fn client_is_registered_again_after_a_page_without_a_callback() {
    let world = World::start().await;
    world.script(|script| script.has_refresh_tokens = false);
    let http = world.http(world.client());
    world.call(&http).await.unwrap();
    let registered = || world.bodies("/register").len();
    for (abandons_pages, expected) in [(true, 1), (true, 2), (true, 2), (false, 3)] {
        world.script(|script| {
            script.valid_tokens.clear();
            script.abandons_pages = abandons_pages;
        });
        assert_eq!(world.call(&http).await.is_err(), abandons_pages);
        assert_eq!(registered(), expected);
    }
}

/// The registrations of the server are closed, or too many.
#[tokio::test]
async fn client_is_used_again_if_no_other_can_be_registered() {
    let world = World::start().await;
    world.script(|script| script.has_refresh_tokens = false);
    let http = world.http(world.client());
    world.call(&http).await.unwrap();
    world.script(|script| {
        script.overrides.insert("/register", || StatusCode::TOO_MANY_REQUESTS.into_response());
    });
    for (abandons_pages, is_ok) in [(true, false), (false, false), (false, true)] {
        world.script(|script| {
            script.valid_tokens.clear();
            script.abandons_pages = abandons_pages;
        });
        assert_eq!(world.call(&http).await.is_ok(), is_ok);
    }
    assert_eq!(world.bodies("/register").len(), 2);
}

/// Whether it can log in does not matter as long as there is a refresh token.
#[tokio::test]
async fn client_without_a_user_agent_refreshes_its_token() {
    let world = World::start().await;
    let directory = Directory::new("service");
    let client = world.builder().store(FileStore::new(&directory.0)).build().unwrap();
    world.call(&world.http(client)).await.unwrap();
    let client = OAuthClient::builder("Service").store(FileStore::new(&directory.0));
    let http = world.http(client.build().unwrap());
    world.script(|script| script.valid_tokens.clear());
    assert_eq!(world.call(&http).await.unwrap(), StatusCode::OK);
    world.script(|script| {
        script.valid_tokens.clear();
        script.token_error = Some("temporarily_unavailable");
    });
    let error = world.call(&http).await.unwrap_err();
    assert!(matches!(login_error(&error), LoginError::TokenFailed { .. }), "{error}");
    world.script(|script| script.token_error = Some("invalid_grant"));
    let error = world.call(&http).await.unwrap_err();
    assert!(matches!(login_error(&error), LoginError::NoUserAgent), "{error}");
}

/// The secret of the former client is needed for the refresh token, which may be good yet.
#[tokio::test]
async fn refresh_token_of_a_client_that_seemed_lost_is_used_later() {
    let world = World::start().await;
    let http = world.http(world.client());
    world.call(&http).await.unwrap();
    world.script(|script| {
        script.valid_tokens.clear();
        script.token_error = Some("invalid_client");
        script.abandons_pages = true;
    });
    world.call(&http).await.unwrap_err();
    world.script(|script| script.token_error = None);
    assert_eq!(world.call(&http).await.unwrap(), StatusCode::OK);
    assert_eq!(world.grants().last().unwrap(), "refresh_token");
    let clients: Vec<_> =
        world.forms("/token").iter().map(|form| form["client_id"].clone()).collect();
    assert_eq!(clients.first(), clients.last());
}

#[tokio::test]
async fn renewed_token_has_the_scopes_of_the_first() {
    clock!(NOW);
    let world = World::start().await;
    world.script(|script| script.has_refresh_tokens = false);
    let client = ClientRegistration::with_secret("app", "secret-of-app");
    let client = OAuthClient::client_credentials(client).scopes(["booking:list"]);
    let http = world.http(client.clock(|| NOW.load(Ordering::Relaxed)).build().unwrap());
    for _ in 0..3 {
        world.call(&http).await.unwrap();
        NOW.fetch_add(3000, Ordering::Relaxed);
    }
    let scopes: Vec<_> = world.forms("/token").iter().map(|form| form["scope"].clone()).collect();
    assert_eq!(scopes, ["booking:list booking:read"; 3]);
}

/// The refresh fails, so the server's refusal says where tokens come from now.
#[tokio::test]
async fn expired_session_follows_the_server_to_another_authorization_server() {
    clock!(NOW);
    let (former, world) = (World::start().await, World::start().await);
    world.script(|script| {
        script.issuer = former.issuer();
        script.accepts_any_token = true;
    });
    let client = world.builder().clock(|| NOW.load(Ordering::Relaxed)).build().unwrap();
    let http = world.http(client);
    world.call(&http).await.unwrap();
    assert_eq!((former.grants().len(), world.grants().len()), (1, 0));
    former.script(|script| script.server_metadata = json!("gone"));
    world.script(|script| {
        script.issuer = world.issuer();
        script.accepts_any_token = false;
    });
    NOW.fetch_add(3600, Ordering::Relaxed);
    assert_eq!(world.call(&http).await.unwrap(), StatusCode::OK);
    assert_eq!((former.grants().len(), world.grants().len()), (1, 1));
}

#[tokio::test]
async fn server_that_refuses_every_token_ends_the_attempts() {
    let world = World::start().await;
    let http = world.http(world.client());
    world.script(|script| script.refuse_next = usize::MAX);
    assert_eq!(world.call(&http).await.unwrap(), StatusCode::UNAUTHORIZED);
    assert!(world.pages().len() <= 2, "{}", world.pages().len());
}

#[tokio::test]
async fn token_without_refresh_token_and_lifetime_is_used_until_it_is_refused() {
    let world = World::start().await;
    world.script(|script| script.expires_in = json!(null));
    let http = world.http(world.client());
    world.call(&http).await.unwrap();
    world.call(&http).await.unwrap();
    assert_eq!(world.forms("/token").len(), 1);
}

#[tokio::test]
async fn huge_lifetime_does_not_overflow() {
    let world = World::start().await;
    world.script(|script| script.expires_in = json!(u64::MAX));
    let client = world.client();
    let http = world.http(client.clone());
    assert_eq!(world.call(&http).await.unwrap(), StatusCode::OK);
    let session = client.session(&world.mcp_url()).await.unwrap();
    assert!(session.expires_at().unwrap() < u64::MAX / 2);
}

/// Eight clients with one directory, as eight processes have.
#[tokio::test]
async fn processes_that_share_a_store_refresh_once() {
    let world = World::start().await;
    let directory = Directory::new("shared");
    let https: Vec<_> = (0..8)
        .map(|_| {
            let client = world.builder().store(FileStore::new(&directory.0)).build().unwrap();
            Arc::new(world.http(client))
        })
        .collect();
    for _ in 0..3 {
        let calls = https.iter().map(|http| world.call(http));
        for status in futures_util::future::join_all(calls).await {
            assert_eq!(status.unwrap(), StatusCode::OK);
        }
        world.script(|script| script.valid_tokens.clear());
    }
    assert_eq!(world.grants(), ["authorization_code", "refresh_token", "refresh_token"]);
    assert_eq!(world.pages().len(), 1);
}
