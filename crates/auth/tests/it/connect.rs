//! Accounts at third parties that are connected in the middle of a call.

mod world;

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use base64::Engine as _;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use http::{Method, header};
use mrtr_auth::client::DriverFuture;
use mrtr_auth::connect::{AccountConnector, AccountStore, MemoryAccounts, StoredAccount};
use mrtr_codec::Principal;
use serde_json::json;
use url::Url;

use crate::logs::Logs;
use world::{Browser, ISSUER, ThirdParty, World, alice, answer, link};

#[tokio::test]
async fn account_is_connected_on_any_replica_and_its_tokens_stay_on_the_server() {
    let logs = Logs::default();
    let subscriber = tracing_subscriber::fmt()
        .with_max_level(tracing::Level::TRACE)
        .with_writer(logs.clone())
        .finish();
    let _second = tracing::Dispatch::new(tracing_subscriber::registry());
    let _guard = tracing::subscriber::set_default(subscriber);

    let world = World::start().await;
    let [(one, _), (two, _)] = &world.replicas[..] else { panic!() };
    let (asked, link) = world.ask(&alice()).await;
    assert!(!link.contains("alice") && !link.contains("desk"));
    let mut browser = Browser::of("alice");
    let page = browser.get(one, &link).await;
    assert!(page.text.contains("Connect Third &lt;Inc&gt;"), "{}", page.text);
    assert!(page.text.contains("<b>desk &lt;app&gt;</b>"), "{}", page.text);
    assert_eq!(page.headers["x-frame-options"], "DENY");
    assert_eq!(page.headers["referrer-policy"], "no-referrer");

    let sent = browser.send(two, Method::POST, &link).await;
    let url = Url::parse(sent.location()).unwrap();
    let query: Vec<_> = url.query_pairs().into_owned().collect();
    let of = |name: &str| query.iter().find(|(key, _)| key == name).unwrap().1.clone();
    assert!(sent.location().starts_with("https://third.example/authorize?tenant=1&"));
    assert_eq!(of("redirect_uri"), "https://booking.example/connect/third/callback");
    assert_eq!((of("client_id"), of("scope")), ("booking".to_owned(), "repo user".to_owned()));
    let callback = world.third.consent(sent.location());
    let done = browser.callback(one, &callback).await;
    assert_eq!((done.status, &browser.cookie), (200, &None), "{done:?}");
    assert!(done.text.contains("Third &lt;Inc&gt; is connected"));

    let result = world.call(1, &alice(), &answer(&asked, "accept")).await;
    assert_eq!(result["content"][0]["text"], "a token of 14 bytes", "{result}");
    // The next call asks for nothing, unless it is by another application or another user.
    let again = world.call(0, &alice(), &json!({})).await;
    assert_eq!(again["content"][0]["text"], "a token of 14 bytes");
    for other in [
        Principal::new("https://login.example", "alice").with_client("other"),
        Principal::new("https://login.example", "bob").with_client("desk <app>"),
        Principal::new("https://other.example", "alice").with_client("desk <app>"),
    ] {
        assert_eq!(world.call(0, &other, &json!({})).await["resultType"], "input_required");
    }
    let logs = logs.text();
    let account = world.accounts.load(&alice(), "third").await.unwrap();
    let all = format!("{logs} {asked} {result} {again} {account:?} {one:?} {}", done.text);
    let state = of("state");
    for secret in ["access-token-", "refresh-token-", "secret-of-the", "code-0", state.as_str()] {
        assert!(!all.contains(secret), "{secret} is shown");
    }
    assert!(!logs.contains(&link));
}

/// The journal holds no tokens either: it is opened here.
#[tokio::test]
async fn tokens_are_not_in_the_journal() {
    use mrtr_codec::{OpenError, Seal, SealError};
    /// A sealer that does not encrypt.
    #[derive(Clone, Default)]
    struct Plain;
    impl Seal for Plain {
        fn seal(&self, plaintext: Vec<u8>) -> Result<String, SealError> {
            Ok(BASE64_URL_SAFE_NO_PAD.encode(plaintext))
        }
        fn open(&self, token: &str) -> Result<Vec<u8>, OpenError> {
            Ok(BASE64_URL_SAFE_NO_PAD.decode(token).unwrap())
        }
    }
    let world = World::start().await;
    let connector = world.replicas[0].0.clone();
    let (_, link) = world.ask(&alice()).await;
    let mut browser = Browser::of("alice");
    let page = browser.agree(&connector, &link).await;
    assert_eq!(browser.callback(&connector, &world.third.consent(&page)).await.status, 200);
    let tool = mrtr_server::Tool::new("t", "", move |cx: mrtr_server::Context| {
        let connector = connector.clone();
        async move {
            let account = connector.connect(&cx).await?;
            assert_eq!(account.access_token(), "access-token-1");
            cx.elicit_url("more", "?", "https://booking.example/").await?;
            Ok::<_, mrtr_server::Error>("")
        }
    });
    let server = mrtr_server::Server::builder("b", "1").sealer(Plain).require_principal();
    let mut world = world;
    world.replicas[0].1 = server.tool(tool).build().unwrap();
    let asked = world.call(0, &alice(), &json!({})).await;
    let state = BASE64_URL_SAFE_NO_PAD.decode(asked["requestState"].as_str().unwrap()).unwrap();
    let journal = String::from_utf8_lossy(&state);
    assert!(journal.contains("connect-third-0"), "the journal was read");
    assert!(!journal.contains("token-1"), "{journal}");
}

#[tokio::test]
async fn another_user_who_opens_the_link_connects_nothing() {
    let world = World::start().await;
    let connector = &world.replicas[0].0;
    let (_, link) = world.ask(&alice()).await;
    let mut bob = Browser::of("bob");
    for method in [Method::GET, Method::POST] {
        let refused = bob.send(connector, method, &link).await;
        assert_eq!((refused.status, &bob.cookie), (403, &None));
        let unknown = Browser::default().get(connector, &link).await;
        assert_eq!(unknown.status, 401);
    }
    // Alice goes as far as she can, and then leads Bob's browser to the callback.
    let mut alices = Browser::of("alice");
    let page = alices.agree(connector, &link).await;
    let callback = world.third.consent(&page);
    for user in [Some("bob"), None] {
        let mut victim = Browser { user, cookie: alices.cookie.clone() };
        assert_eq!(
            victim.send(connector, Method::POST, &link).await.status,
            user.map_or(401, |_| 403)
        );
        assert!(victim.callback(connector, &callback).await.status >= 401);
    }
    // A changed link belongs to nobody.
    let changed = link.replace("ticket=mrtr1.", "ticket=mrtr1.A");
    assert_eq!(alices.get(connector, &changed).await.status, 403);
    assert_eq!(alices.get(connector, &format!("{link}&ticket=x")).await.status, 403);
    assert_eq!(alices.get(connector, "/connect/third").await.status, 403);
    assert_eq!(world.third.requests(), 0);
    assert_eq!(world.accounts.load(&alice(), "third").await.unwrap(), None);
}

/// The last code is not one of OAuth: it may come from a gateway.
#[tokio::test]
async fn account_is_kept_if_a_refusal_is_not_about_it() {
    let world = World::start().await;
    world.third.issue_for(3600);
    world.connect().await;
    world.advance(3600);
    for (error, asks) in [("incorrect_client_credentials", false), ("Forbidden", true)] {
        world.third.refuse_with(Some(error));
        let result = world.call(0, &alice(), &json!({})).await;
        assert_eq!(result["resultType"] == "input_required", asks, "{error}: {result}");
    }
    world.third.refuse_with(None);
    let result = world.call(0, &alice(), &json!({})).await;
    assert_eq!(result["resultType"], "complete", "{result}");
    assert_eq!(world.third.granted(), 2);
}

#[tokio::test]
async fn forged_callbacks_connect_nothing() {
    let world = World::start().await;
    let connector = &world.replicas[0].0;
    let (_, link) = world.ask(&alice()).await;
    let mut browser = Browser::of("alice");
    let callback = world.third.consent(&browser.agree(connector, &link).await);
    // Another visit of the same user, in another browser.
    let mut other = Browser::of("alice");
    let others = world.third.consent(&other.agree(connector, &link).await);
    let state = |query: &str| query.split("state=").nth(1).unwrap().to_owned();
    for (what, cookie, query) in [
        ("no cookie", None, callback.clone()),
        ("the cookie of another visit", other.cookie.clone(), callback.clone()),
        ("the state of another visit", browser.cookie.clone(), others.clone()),
        ("no state", browser.cookie.clone(), "code=code-0".to_owned()),
        ("two states", browser.cookie.clone(), format!("{callback}&state=x")),
        ("no code", browser.cookie.clone(), format!("state={}", state(&callback))),
        (
            "a refusal",
            browser.cookie.clone(),
            format!("error=access_denied&state={}", state(&callback)),
        ),
        (
            "another issuer (mix-up)",
            browser.cookie.clone(),
            format!("{callback}&iss=https://evil.example"),
        ),
        (
            "two cookies",
            browser.cookie.as_ref().map(|one| format!("{one}; {one}")),
            callback.clone(),
        ),
        (
            "a link as a cookie",
            Some(format!("__Host-connect-third={}", &link["/connect/third?ticket=".len()..])),
            callback.clone(),
        ),
    ] {
        let refused = Browser { user: Some("alice"), cookie }.callback(connector, &query).await;
        assert_eq!(refused.status, 403, "{what}");
        assert!(!refused.text.contains("denied"), "{what}");
    }
    assert_eq!(world.third.requests(), 0);
    // An attacker's code in the victim's callback: the third party compares the PKCE verifier.
    let injected = format!("{}&state={}", others.split('&').next().unwrap(), state(&callback));
    let refused = browser.clone().callback(connector, &injected).await;
    assert_eq!((refused.status, world.third.requests(), world.third.granted()), (403, 1, 0));
    assert_eq!(world.accounts.load(&alice(), "third").await.unwrap(), None);
    // The right one works once: the browser forgets the cookie, and the third party the code.
    let before = browser.clone();
    let right = format!("{callback}&iss={ISSUER}");
    assert_eq!(browser.callback(connector, &right).await.status, 200);
    let account = world.accounts.load(&alice(), "third").await.unwrap();
    assert_eq!(browser.callback(connector, &right).await.status, 403);
    assert_eq!(before.clone().callback(connector, &right).await.status, 403);
    assert_eq!(world.accounts.load(&alice(), "third").await.unwrap(), account);
}

#[tokio::test]
async fn links_and_cookies_expire_after_ten_minutes() {
    let world = World::start().await;
    let connector = &world.replicas[0].0;
    let (_, link) = world.ask(&alice()).await;
    let mut browser = Browser::of("alice");
    world.advance(599);
    let callback = world.third.consent(&browser.agree(connector, &link).await);
    world.advance(1);
    assert_eq!(Browser::of("alice").get(connector, &link).await.status, 403);
    world.advance(598);
    let late = browser.clone();
    assert_eq!(browser.callback(connector, &callback).await.status, 200);
    world.advance(1);
    assert_eq!(late.clone().callback(connector, &callback).await.status, 403);
    assert_eq!(world.third.requests(), 1);
}

#[tokio::test]
async fn announced_issuer_must_be_in_the_callback() {
    let world = World::start_with(|builder| {
        let issuer = mrtr_auth::Issuer::new(ISSUER).unwrap();
        let document = json!({
            "issuer": ISSUER, "authorization_endpoint": "https://third.example/authorize",
            "token_endpoint": "https://third.example/token",
            "authorization_response_iss_parameter_supported": true,
        });
        let document = document.to_string();
        let metadata = mrtr_auth::metadata::ServerMetadata::parse(document.as_bytes(), &issuer);
        builder.metadata(&metadata.unwrap())
    })
    .await;
    let connector = &world.replicas[0].0;
    let (_, link) = world.ask(&alice()).await;
    let mut browser = Browser::of("alice");
    let callback = world.third.consent(&browser.agree(connector, &link).await);
    assert_eq!(browser.callback(connector, &callback).await.status, 403);
}

#[tokio::test]
async fn only_the_button_leads_to_the_third_party() {
    let world = World::start().await;
    let connector = &world.replicas[0].0;
    let (_, link) = world.ask(&alice()).await;
    // A page of an attacker posts the form: the browser sends no cookie along.
    let mut browser = Browser::of("alice");
    assert_eq!(browser.send(connector, Method::POST, &link).await.status, 403);
    // The user has agreed to another link.
    let (_, other) = world.ask(&Principal::new("https://login.example", "alice")).await;
    assert_eq!(browser.get(connector, &other).await.status, 200);
    assert_eq!(browser.send(connector, Method::POST, &link).await.status, 403);
    // Nothing in a request decides where the user is sent.
    for more in ["&redirect_uri=https://evil.example", "&return_to=//evil.example", "&state=evil"] {
        let page = browser.agree(connector, &format!("{link}{more}")).await;
        assert!(page.starts_with("https://third.example/authorize?tenant=1&"), "{page}");
        assert!(!page.contains("evil."), "{page}");
        assert!(!page.contains("=evil"), "{page}");
    }
    let put = browser.send(connector, Method::PUT, &link).await;
    let elsewhere = browser.get(connector, "/connect/third/other").await;
    assert_eq!((put.status, elsewhere.status), (405, 404));
    assert_eq!(put.headers[header::ALLOW], "GET, POST");
}

/// Without sockets: the time of the runtime is virtual.
fn offline() -> World {
    World::with_endpoint(ThirdParty::default(), "http://127.0.0.1:9/token", |builder| builder)
}

#[tokio::test(start_paused = true)]
async fn user_who_does_not_connect_is_asked_three_times_and_may_decline() {
    let world = offline();
    let (mut asked, _) = world.ask(&alice()).await;
    for action in ["decline", "cancel"] {
        let result = world.call(1, &alice(), &answer(&asked, action)).await;
        assert_eq!(result["isError"], true, "{result}");
    }
    let mut links = vec![link(&asked)];
    for round in 0..2 {
        asked = world.call(round % 2, &alice(), &answer(&asked, "accept")).await;
        assert!(asked.to_string().contains("is not connected yet"), "{asked}");
        links.push(link(&asked));
    }
    let result = world.call(0, &alice(), &answer(&asked, "accept")).await;
    assert_eq!(result["content"][0]["text"], "The account at Third <Inc> was not connected.");
    links.dedup();
    assert_eq!(links.len(), 3);
}

/// A client repeats its request as soon as the user agrees to visit the page.
#[tokio::test(start_paused = true)]
async fn round_waits_for_the_user_who_has_agreed() {
    let world = offline();
    let (asked, _) = world.ask(&alice()).await;
    let save = async {
        tokio::time::sleep(Duration::from_secs(20)).await;
        let account = json!({ "access_token": "t", "refresh_token": null, "expires_at": null });
        let account = serde_json::from_value(account).unwrap();
        world.accounts.save(&alice(), "third", &account).await.unwrap();
    };
    let (caller, more) = (alice(), answer(&asked, "accept"));
    let (result, ()) = futures_util::future::join(world.call(1, &caller, &more), save).await;
    assert_eq!(result["content"][0]["text"], "a token of 1 bytes", "{result}");
    // An account that is disconnected before the next round is not the one of this call.
    world.accounts.delete(&alice(), "third").await.unwrap();
    assert_eq!(world.call(0, &caller, &json!({})).await["resultType"], "input_required");
}

#[tokio::test]
async fn expired_token_is_refreshed_and_a_refused_refresh_asks_again() {
    let world = World::start().await;
    world.third.issue_for(3600);
    world.connect().await;
    world.advance(3500);
    world.call(0, &alice(), &json!({})).await;
    assert_eq!(world.third.granted(), 1);
    world.advance(40);
    let (caller, nothing) = (alice(), json!({}));
    let call = || world.call(0, &caller, &nothing);
    let (first, second) = futures_util::future::join(call(), call()).await;
    assert_eq!(first["content"], second["content"], "the refresh token is used once");
    assert_eq!((world.third.granted(), world.third.requests()), (2, 2));
    assert_eq!(world.call(1, &alice(), &json!({})).await["content"], first["content"]);
    world.third.revoke_refresh_tokens();
    world.advance(3600);
    let again = world.call(0, &alice(), &json!({})).await;
    assert_eq!(again["resultType"], "input_required", "{again}");
    assert_eq!(world.accounts.load(&alice(), "third").await.unwrap(), None);
}

#[tokio::test]
async fn account_that_is_disconnected_during_a_refresh_stays_disconnected() {
    let world = World::start().await;
    world.third.issue_for(3600);
    world.connect().await;
    world.advance(3600);
    let accounts = world.accounts.clone();
    world.third.before_response(async move { accounts.delete(&alice(), "third").await.unwrap() });
    let result = world.call(0, &alice(), &json!({})).await;
    assert_eq!(world.third.granted(), 2);
    assert_eq!(result["resultType"], "input_required", "{result}");
    assert_eq!(world.accounts.load(&alice(), "third").await.unwrap(), None);
}

const ALL: usize = usize::MAX;

/// A store with a number of readings that fail.
#[derive(Clone, Default)]
struct Unreadable {
    accounts: MemoryAccounts,
    failures: Arc<AtomicUsize>,
}

impl AccountStore for Unreadable {
    fn load<'a>(
        &'a self,
        owner: &'a Principal,
        provider: &'a str,
    ) -> DriverFuture<'a, Option<StoredAccount>> {
        let failures = self.failures.load(Ordering::Relaxed);
        if failures > 0 {
            self.failures.fetch_sub(1, Ordering::Relaxed);
            if failures == ALL {
                // The pauses between further readings take no time.
                tokio::time::pause();
            }
            return Box::pin(async { Err("unreadable".into()) });
        }
        self.accounts.load(owner, provider)
    }

    fn save<'a>(
        &'a self,
        owner: &'a Principal,
        provider: &'a str,
        account: &'a StoredAccount,
    ) -> DriverFuture<'a, ()> {
        self.accounts.save(owner, provider, account)
    }

    fn delete<'a>(&'a self, owner: &'a Principal, provider: &'a str) -> DriverFuture<'a, ()> {
        self.accounts.delete(owner, provider)
    }
}

/// The old refresh token is used up: without the new one, the user would have to connect again.
#[tokio::test]
async fn refreshed_account_is_saved_when_the_store_can_be_read_again() {
    let store = Unreadable::default();
    let world = World::start_with(|builder| builder.store(store.clone())).await;
    world.third.issue_for(3600);
    world.connect().await;
    for _ in 0..2 {
        world.advance(3600);
        let failures = Arc::clone(&store.failures);
        world.third.before_response(async move { failures.store(1, Ordering::Relaxed) });
        let result = world.call(0, &alice(), &json!({})).await;
        assert_eq!(result["content"][0]["text"], "a token of 14 bytes", "{result}");
    }
    assert_eq!(world.third.granted(), 3);
}

/// The account may have been disconnected in the meantime.
#[tokio::test]
async fn refreshed_account_is_not_saved_unless_the_store_can_be_read() {
    let store = Unreadable::default();
    let world = World::start_with(|builder| builder.store(store.clone())).await;
    world.third.issue_for(3600);
    world.connect().await;
    world.advance(3600);
    let of_event = store.clone();
    world.third.before_response(async move {
        of_event.delete(&alice(), "third").await.unwrap();
        of_event.failures.store(ALL, Ordering::Relaxed);
    });
    let result = world.call(0, &alice(), &json!({})).await;
    assert_eq!(result["isError"], true, "{result}");
    assert_eq!(store.accounts.load(&alice(), "third").await.unwrap(), None);
}

/// The code works only once, and the user has done everything.
#[tokio::test]
async fn account_is_connected_even_if_the_browser_disconnects() {
    let world = World::start().await;
    let connector = &world.replicas[0].0;
    let (_, link) = world.ask(&alice()).await;
    let mut browser = Browser::of("alice");
    let callback = world.third.consent(&browser.agree(connector, &link).await);
    let (requested, is_requested) = tokio::sync::oneshot::channel();
    world.third.before_response(async { requested.send(()).unwrap() });
    tokio::select! {
        biased;
        _ = browser.callback(connector, &callback) => panic!("the response came first"),
        requested = is_requested => requested.unwrap(),
    }
    let stored = async {
        while world.accounts.load(&alice(), "third").await.unwrap().is_none() {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(Duration::from_secs(10), stored).await.unwrap();
}

#[test]
fn invalid_settings_are_named() {
    for (id, base, why) in [
        ("", "https://b.example", "invalid ID"),
        ("Git Hub", "https://b.example", "invalid ID"),
        ("a;b", "https://b.example", "invalid ID"),
        ("a", "http://b.example", "base URL"),
        ("a", "https://b.example", "issuer"),
    ] {
        let error = AccountConnector::builder(id, "A", base).build().unwrap_err().to_string();
        assert!(error.contains(why), "{error}");
    }
    let builder = AccountConnector::builder("a", "A", "https://b.example").issuer(ISSUER);
    assert!(builder.build().unwrap_err().to_string().contains("no authorization endpoint"));
}
