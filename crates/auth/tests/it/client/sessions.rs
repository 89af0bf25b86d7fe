//! Sessions over logins, refreshes and logouts of several requests and processes.

use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use axum::response::IntoResponse as _;
use http::StatusCode;
use mrtr_auth::client::{DriverFuture, FileStore, Logout, StoredSession, TokenStore};
use serde_json::json;
use tokio::sync::{Notify, Semaphore};
use tokio::time::timeout;

use super::world::{Directory, World};

#[tokio::test]
async fn login_ends_with_its_client_and_frees_the_lock() {
    let world = World::start().await;
    world.script(|script| script.holds_pages = true);
    let directory = Directory::new("lone");
    let build = || world.builder().store(FileStore::new(&directory.0)).build().unwrap();
    {
        let http = world.http(build());
        let mut first = Box::pin(world.call(&http));
        world.send_until_held(&mut first).await;
    }
    world.script(|script| script.holds_pages = false);
    assert_eq!(world.call(&world.http(build())).await.unwrap(), StatusCode::OK);
}

/// The refresh token is used up when it has been sent: without the next one, the user would have to
/// log in again.
#[tokio::test]
async fn refreshed_token_is_stored_also_if_the_client_is_dropped_meanwhile() {
    let world = World::start().await;
    let directory = Directory::new("dropped");
    let build = || world.builder().store(FileStore::new(&directory.0)).build().unwrap();
    {
        let http = world.http(build());
        world.call(&http).await.unwrap();
        world.script(|script| {
            script.valid_tokens.clear();
            script.holds_tokens = true;
        });
        let mut refresh = Box::pin(world.call(&http));
        world.send_until_held(&mut refresh).await;
    }
    world.script(|script| script.holds_tokens = false);
    world.release();
    // It waits for the lock of the former client.
    assert_eq!(world.call(&world.http(build())).await.unwrap(), StatusCode::OK);
    assert_eq!(world.grants(), ["authorization_code", "refresh_token"]);
}

/// Otherwise a new refresh token would stay valid after the logout.
#[tokio::test]
async fn logout_during_a_refresh_revokes_the_new_token() {
    let world = World::start().await;
    let client = world.client();
    let http = world.http(client.clone());
    world.call(&http).await.unwrap();
    world.script(|script| {
        script.valid_tokens.clear();
        script.holds_tokens = true;
    });
    let mut refresh = Box::pin(world.call(&http));
    world.send_until_held(&mut refresh).await;
    let url = world.mcp_url();
    let mut logout = pin!(client.log_out(&url));
    assert!(futures_util::poll!(&mut logout).is_pending());
    world.script(|script| script.holds_tokens = false);
    world.release();
    assert_eq!(logout.await.unwrap(), Logout::Revoked);
    assert_eq!(world.forms("/revoke")[0]["token"], "refresh-2");
}

#[tokio::test]
async fn parallel_requests_share_one_upgrade() {
    let world = World::start().await;
    let http = world.http(world.client());
    world.call(&http).await.unwrap();
    world.script(|s| s.needs = "booking:pay".to_owned());
    let calls = (0..10).map(|_| world.call(&http));
    let results = futures_util::future::join_all(calls).await;
    let failed: Vec<_> = results.iter().filter_map(|r| r.as_ref().err()).collect();
    assert!(failed.is_empty(), "{} of 10 failed: {:?}", failed.len(), failed.first());
}

#[tokio::test]
async fn the_second_request_with_a_new_nonce_is_repeated() {
    use http::{HeaderMap, Method};
    use mrtr_transport::http::{Attempt, AttemptResponse, Credentials as _};
    let world = World::start().await;
    world.script(|s| {
        s.scheme = "DPoP";
        s.nonces = true;
    });
    let client = world.client();
    world.call(&world.http(client.clone())).await.unwrap();
    let (url, method, none) = (world.mcp_url(), Method::POST, HeaderMap::new());
    let mut sent = Vec::new();
    for _ in 0..2 {
        sent.push(client.headers(Attempt::new(1, &method, &url, &none)).await.unwrap());
    }
    let mut refusal = HeaderMap::new();
    refusal.insert("dpop-nonce", "rs-nonce-2".parse().unwrap());
    refusal.insert("www-authenticate", r#"DPoP error="use_dpop_nonce""#.parse().unwrap());
    for headers in &sent {
        let response = AttemptResponse::new(StatusCode::UNAUTHORIZED, &refusal);
        let attempt = Attempt::new(1, &method, &url, headers);
        assert!(client.should_repeat(attempt, response).await.unwrap());
    }
    let grants = world.grants();
    assert!(!grants.contains(&"refresh_token".to_owned()), "{grants:?}");
}

#[tokio::test]
async fn a_nonce_for_two_requests_costs_no_refresh() {
    let world = World::start().await;
    world.script(|s| {
        s.scheme = "DPoP";
        s.nonces = true;
    });
    let http = world.http(world.client());
    let calls = (0..30).map(|_| world.call(&http));
    for status in futures_util::future::join_all(calls).await {
        assert_eq!(status.unwrap(), StatusCode::OK);
    }
    let grants = world.grants();
    assert!(!grants.contains(&"refresh_token".to_owned()), "{grants:?}");
}

#[tokio::test]
async fn logout_revokes_the_stored_tokens() {
    let world = World::start().await;
    let directory = Directory::new("stale");
    let build = || world.builder().store(FileStore::new(&directory.0)).build().unwrap();
    let (one, other) = (build(), build());
    world.call(&world.http(one.clone())).await.unwrap();
    world.script(|s| s.valid_tokens.clear());
    world.call(&world.http(other)).await.unwrap(); // refreshes: refresh-2
    one.log_out(&world.mcp_url()).await.unwrap();
    assert_eq!(world.forms("/revoke")[0]["token"], "refresh-2");
}

#[tokio::test]
async fn logout_ends_a_login_in_progress() {
    let world = World::start().await;
    world.script(|s| s.holds_pages = true);
    let directory = Directory::new("during");
    let client = world.builder().store(FileStore::new(&directory.0)).build().unwrap();
    let http = world.http(client.clone());
    let mut first = Box::pin(world.call(&http));
    world.send_until_held(&mut first).await;
    client.log_out(&world.mcp_url()).await.unwrap();
    world.release();
    let _ = first.await;
    assert!(!client.session(&world.mcp_url()).await.unwrap().is_logged_in());
}

#[tokio::test]
async fn logout_finds_the_session_of_an_equal_url() {
    let world = World::start().await;
    let client = world.client();
    world.call(&world.http(client.clone())).await.unwrap();
    let url = world.mcp_url().replace("http://", "HTTP://");
    assert_eq!(client.log_out(&url).await.unwrap(), Logout::Revoked);
}

#[tokio::test]
async fn failed_login_keeps_the_refresh_token() {
    let world = World::start().await;
    let client = world.client();
    client.log_in(&world.mcp_url()).await.unwrap();
    world.script(|s| s.token_error = Some("access_denied"));
    client.log_in(&world.mcp_url()).await.unwrap_err();
    assert!(client.session(&world.mcp_url()).await.unwrap().has_refresh_token());
}

#[tokio::test]
async fn token_without_refresh_token_is_used_until_it_expires() {
    static NOW: AtomicU64 = AtomicU64::new(1_000_000);
    let world = World::start().await;
    world.script(|s| {
        s.accepts_any_token = true;
        s.overrides.insert("/token", || {
            axum::Json(json!({"access_token": "a", "token_type": "Bearer", "expires_in": 100}))
                .into_response()
        });
    });
    let client = world.builder().clock(|| NOW.load(Ordering::Relaxed)).build().unwrap();
    let http = world.http(client);
    world.call(&http).await.unwrap();
    NOW.fetch_add(85, Ordering::Relaxed);
    for _ in 0..5 {
        world.call(&http).await.unwrap();
    }
    let fetched = world.paths().iter().filter(|p| p.contains("oauth-authorization-server")).count();
    assert_eq!(fetched, 1, "the metadata is fetched for each request");
}

#[tokio::test]
async fn expires_in_may_be_text() {
    let world = World::start().await;
    world.script(|s| s.expires_in = json!("3600"));
    let http = world.http(world.client());
    assert_eq!(world.call(&http).await.unwrap(), StatusCode::OK);
}

#[tokio::test]
async fn many_scopes_do_not_break_the_session() {
    let world = World::start().await;
    let big = |c: char| (0..30).map(|i| format!("{c}{i:099}")).collect::<Vec<_>>();
    world.script(|s| s.resource_metadata["scopes_supported"] = json!(big('a')));
    let client = world.client();
    let http = world.http(client.clone());
    world.call(&http).await.unwrap();
    world.script(|s| s.resource_metadata["scopes_supported"] = json!(big('b')));
    client.log_in(&world.mcp_url()).await.unwrap();
    world.script(|s| s.valid_tokens.clear());
    assert_eq!(world.call(&http).await.unwrap(), StatusCode::OK);
}

/// A store that cannot be written.
struct Full;
impl TokenStore for Full {
    fn load<'a>(&'a self, _: &'a str) -> DriverFuture<'a, Option<StoredSession>> {
        Box::pin(async { Ok(None) })
    }
    fn save<'a>(&'a self, _: &'a str, _: &'a StoredSession) -> DriverFuture<'a, ()> {
        Box::pin(async { Err("disk full".into()) })
    }
    fn delete<'a>(&'a self, _: &'a str) -> DriverFuture<'a, ()> {
        Box::pin(async { Ok(()) })
    }
}

#[tokio::test]
async fn tokens_that_cannot_be_stored_are_still_used() {
    let world = World::start().await;
    let http = world.http(world.builder().store(Full).build().unwrap());
    let _ = world.call(&http).await;
    let _ = world.call(&http).await;
    assert_eq!(world.pages().len(), 1, "the user logs in for each request");
}

#[tokio::test]
async fn null_members_of_metadata_are_absent() {
    let world = World::start().await;
    world.script(|s| {
        s.server_metadata["client_id_metadata_document_supported"] = json!(null);
    });
    let http = world.http(world.client());
    assert_eq!(world.call(&http).await.unwrap(), StatusCode::OK);
}

/// A store that can be read, and that fails to write on demand.
struct Failing(FileStore, &'static AtomicBool);

impl TokenStore for Failing {
    fn load<'a>(&'a self, key: &'a str) -> DriverFuture<'a, Option<StoredSession>> {
        self.0.load(key)
    }
    fn save<'a>(&'a self, key: &'a str, session: &'a StoredSession) -> DriverFuture<'a, ()> {
        if self.1.load(Ordering::Relaxed) {
            return Box::pin(async { Err("disk full".into()) });
        }
        self.0.save(key, session)
    }
    fn delete<'a>(&'a self, key: &'a str) -> DriverFuture<'a, ()> {
        self.0.delete(key)
    }
}

/// A store whose operations go on when they are dropped, as those of files do, and that waits
/// before it saves.
#[derive(Clone)]
struct Slow {
    store: Arc<FileStore>,
    begun: Arc<Notify>,
    may_save: Arc<Semaphore>,
    saved: Arc<Notify>,
}

impl TokenStore for Slow {
    fn load<'a>(&'a self, key: &'a str) -> DriverFuture<'a, Option<StoredSession>> {
        self.store.load(key)
    }
    fn save<'a>(&'a self, key: &'a str, session: &'a StoredSession) -> DriverFuture<'a, ()> {
        let (this, key, session) = (self.clone(), key.to_owned(), session.clone());
        let saving = tokio::spawn(async move {
            this.begun.notify_one();
            this.may_save.acquire().await?.forget();
            this.store.save(&key, &session).await?;
            this.saved.notify_one();
            Ok(())
        });
        Box::pin(async { saving.await? })
    }
    fn delete<'a>(&'a self, key: &'a str) -> DriverFuture<'a, ()> {
        self.store.delete(key)
    }
    fn lock<'a>(&'a self, key: &'a str) -> DriverFuture<'a, Box<dyn Send>> {
        self.store.lock(key)
    }
}

#[tokio::test]
async fn session_that_is_being_stored_does_not_outlive_a_logout() {
    let (world, directory) = (World::start().await, Directory::new("slow"));
    let store = Slow {
        store: Arc::new(FileStore::new(&directory.0)),
        begun: Arc::default(),
        may_save: Arc::new(Semaphore::new(0)),
        saved: Arc::default(),
    };
    let client = world.builder().store(store.clone()).build().unwrap();
    let http = world.http(client.clone());
    let url = world.mcp_url();
    let log_out = async {
        store.begun.notified().await;
        let mut log_out = pin!(client.log_out(&url));
        // Without a lock, it would end now.
        let early = timeout(Duration::from_millis(200), &mut log_out).await;
        store.may_save.add_permits(1);
        store.saved.notified().await;
        match early {
            Ok(outcome) => outcome,
            Err(_) => log_out.await,
        }
    };
    let (outcome, _) = tokio::join!(log_out, world.call(&http));
    assert_eq!(outcome.unwrap(), Logout::Revoked);
    assert_eq!(store.load(&url).await.unwrap(), None);
}

/// The refresh token in the store is used up. That of the session is not.
#[tokio::test]
async fn session_that_was_not_stored_is_not_replaced_by_the_stored_one() {
    static FAILS: AtomicBool = AtomicBool::new(false);
    let world = World::start().await;
    let directory = Directory::new("unsaved");
    let store = Failing(FileStore::new(&directory.0), &FAILS);
    let client = world.builder().store(store).build().unwrap();
    let http = world.http(client.clone());
    world.call(&http).await.unwrap();
    FAILS.store(true, Ordering::Relaxed);
    for _ in 0..2 {
        world.script(|s| s.valid_tokens.clear());
        assert_eq!(world.call(&http).await.unwrap(), StatusCode::OK);
    }
    assert_eq!(world.grants(), ["authorization_code", "refresh_token", "refresh_token"]);
    client.log_out(&world.mcp_url()).await.unwrap();
    assert_eq!(world.forms("/revoke")[0]["token"], "refresh-3");
}

/// The application asks for a login, perhaps of another user: the token of another process will not
/// do.
#[tokio::test]
async fn explicit_login_is_not_replaced_by_a_token_of_another_process() {
    let world = World::start().await;
    let directory = Directory::new("explicit");
    let build = || world.builder().store(FileStore::new(&directory.0)).build().unwrap();
    let (one, other) = (build(), build());
    world.call(&world.http(one.clone())).await.unwrap();
    world.script(|s| s.valid_tokens.clear());
    world.call(&world.http(other)).await.unwrap();
    assert_eq!(world.pages().len(), 1);
    one.log_in(&world.mcp_url()).await.unwrap();
    assert_eq!(world.pages().len(), 2);
}

/// GitHub responds like this.
#[tokio::test]
async fn error_with_status_200_is_an_error() {
    let world = World::start().await;
    let client = world.client();
    let http = world.http(client.clone());
    world.call(&http).await.unwrap();
    world.script(|s| {
        s.valid_tokens.clear();
        s.overrides.insert("/token", || {
            axum::Json(json!({ "error": "bad_refresh_token" })).into_response()
        });
    });
    world.call(&http).await.unwrap_err();
    assert!(!client.session(&world.mcp_url()).await.unwrap().has_refresh_token());
}
