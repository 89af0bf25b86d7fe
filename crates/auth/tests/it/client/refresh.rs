//! Tokens that expire.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use http::StatusCode;
use mrtr_auth::client::FileStore;
use serde_json::json;

use super::world::World;

fn grants(world: &World) -> Vec<String> {
    world.forms("/token").iter().map(|form| form["grant_type"].clone()).collect()
}

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
    assert_eq!(grants(&world), ["authorization_code", "refresh_token"]);
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
    assert_eq!(grants(&world), ["authorization_code"]);
    NOW.fetch_add(1, Ordering::Relaxed);
    world.call(&http).await.unwrap();
    assert_eq!(grants(&world), ["authorization_code", "refresh_token"]);
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
        assert_eq!(grants(&world).last().unwrap(), "refresh_token");
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
    assert_eq!(grants(&world), ["authorization_code", "refresh_token", "authorization_code"]);
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
    let name = format!("mrtr-auth-shared-{}", std::process::id());
    let directory = std::env::temp_dir().join(name);
    let https: Vec<_> = (0..8)
        .map(|_| {
            let client = world.builder().store(FileStore::new(&directory)).build().unwrap();
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
    std::fs::remove_dir_all(&directory).unwrap();
    assert_eq!(grants(&world), ["authorization_code", "refresh_token", "refresh_token"]);
    assert_eq!(world.pages().len(), 1);
}
