//! Callbacks on the loopback interface.

use std::sync::Mutex;

use http::StatusCode;
use mrtr_auth::client::{CallbackError, LoginError, Loopback, OAuthClient};

use super::world::{World, login_error};

/// A client whose pages are passed on.
fn client(open: impl Fn(url::Url) -> std::io::Result<()> + Send + Sync + 'static) -> OAuthClient {
    let user_agent = Loopback::new(move |page| open(page.url().clone()));
    OAuthClient::builder("app").user_agent(user_agent).build().unwrap()
}

fn callback(page: &url::Url, issuer: &str) -> String {
    let value =
        |name: &str| page.query_pairs().find(|(known, _)| known == name).unwrap().1.into_owned();
    format!("{}?code=x&state={}&iss={issuer}", value("redirect_uri"), value("state"))
}

#[tokio::test]
async fn only_the_right_callback_ends_the_login() {
    let world = World::start().await;
    let (send, page) = tokio::sync::oneshot::channel();
    let send = Mutex::new(Some(send));
    let client = client(move |url| {
        send.lock().unwrap().take().unwrap().send(url).unwrap();
        Ok(())
    });
    let http = world.http(client);
    let browser = reqwest::Client::new();
    let browse = async {
        let good = callback(&page.await.unwrap(), &world.issuer());
        let get = |url: String, host: Option<&'static str>| {
            let mut request = browser.get(url);
            if let Some(host) = host {
                request = request.header("host", host);
            }
            async { request.send().await.unwrap().status() }
        };
        let origin = good.split("/callback").next().unwrap().to_owned();
        for (url, host, expected) in [
            (format!("{origin}/"), None, StatusCode::NOT_FOUND),
            (format!("{origin}/callback"), None, StatusCode::BAD_REQUEST),
            (format!("{origin}/callback?code=x&state=other"), None, StatusCode::BAD_REQUEST),
            (good.clone(), Some("evil.example"), StatusCode::BAD_REQUEST),
            (format!("{good}&state=twice"), None, StatusCode::BAD_REQUEST),
        ] {
            assert_eq!(get(url.clone(), host).await, expected, "{url}");
        }
        assert_eq!(browser.post(&good).send().await.unwrap().status(), StatusCode::NOT_FOUND);
        let response = browser.get(&good).send().await.unwrap();
        assert_eq!(response.status(), StatusCode::OK);
        assert_eq!(response.headers()["referrer-policy"], "no-referrer");
        assert_eq!(response.headers()["content-security-policy"], "default-src 'none'");
        // The code is used up, and the port is closed.
        browser.get(&good).send().await.map(|response| response.status())
    };
    let (status, after) = tokio::join!(world.call(&http), browse);
    assert_eq!(status.unwrap(), StatusCode::OK);
    assert!(after.is_err() || after.unwrap() == StatusCode::BAD_REQUEST);
    assert_eq!(world.forms("/token").len(), 1);
}

#[tokio::test]
async fn port_of_the_registration_is_used_again() {
    let world = World::start().await;
    let issuer = world.issuer();
    let client = client(move |url| {
        let callback = callback(&url, &issuer);
        tokio::spawn(async move { reqwest::get(callback).await });
        Ok(())
    });
    client.log_in(&world.mcp_url()).await.unwrap();
    client.log_in(&world.mcp_url()).await.unwrap();
    assert_eq!(world.bodies("/register").len(), 1);
    assert_eq!(world.forms("/token").len(), 2);
}

#[tokio::test]
async fn browser_that_cannot_be_opened_fails_the_login() {
    let world = World::start().await;
    let http = world.http(client(|_| Err(std::io::Error::other("no display"))));
    let error = world.call(&http).await.unwrap_err();
    assert!(login_error(&error).to_string().contains("no display"), "{error}");
}

#[tokio::test]
async fn refusal_of_the_user_is_told() {
    let world = World::start().await;
    world.script(|script| {
        script.callback = |callback| {
            callback.remove("code");
            callback.insert("error".to_owned(), "access_denied".to_owned());
        };
    });
    let http = world.http(world.client());
    let error = world.call(&http).await.unwrap_err();
    assert!(
        matches!(login_error(&error), LoginError::Callback(CallbackError::Refused { error, .. })
            if error == "access_denied"),
        "{error}"
    );
}
