//! Enterprise-managed authorization: a login at an identity provider is exchanged for tokens of MCP
//! servers.

use std::sync::{Arc, Mutex};

use axum::Router;
use axum::response::{IntoResponse as _, Response};
use base64::Engine as _;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use http::StatusCode;
use mrtr_auth::client::{ClientRegistration, LoginError, OAuthClient, Secret};
use mrtr_transport::BoxError;
use serde_json::{Value, json};
use tokio::net::TcpListener;

use super::world::{Pairs, World, login_error};

const ID_TOKEN: &str = "urn:ietf:params:oauth:token-type:id_token";
const REFRESH_TOKEN: &str = "urn:ietf:params:oauth:token-type:refresh_token";
const ID_JAG: &str = "urn:ietf:params:oauth:token-type:id-jag";
/// The time of the client.
const NOW: u64 = 1_800_000_000;

/// An identity provider, which refuses subject tokens of some types.
struct IdentityProvider {
    url: String,
    forms: Arc<Mutex<Vec<Pairs>>>,
}

impl IdentityProvider {
    async fn start(issuer: String, refused: &'static [(&'static str, &'static str)]) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}/token", listener.local_addr().unwrap());
        let forms: Arc<Mutex<Vec<Pairs>>> = Arc::default();
        let received = Arc::clone(&forms);
        let app = Router::new().fallback(move |body: String| {
            let form: Pairs = url::form_urlencoded::parse(body.as_bytes()).into_owned().collect();
            let error = refused.iter().find(|(subject, _)| form["subject_token_type"] == *subject);
            received.lock().unwrap().push(form);
            let response: Response = match error {
                Some((_, code)) => {
                    (StatusCode::BAD_REQUEST, axum::Json(json!({ "error": code }))).into_response()
                }
                None => axum::Json(json!({
                    "access_token": jwt(&json!({ "aud": issuer })),
                    "issued_token_type": ID_JAG,
                    "token_type": "N_A",
                }))
                .into_response(),
            };
            async { response }
        });
        tokio::spawn(async move { axum::serve(listener, app).await });
        Self { url, forms }
    }

    /// Returns the types of the subject tokens that were sent.
    fn subjects(&self) -> Vec<String> {
        let forms = self.forms.lock().unwrap();
        forms.iter().map(|form| form["subject_token_type"].clone()).collect()
    }
}

pub(super) fn jwt(claims: &Value) -> String {
    let [header, claims] = [&json!({ "alg": "ES256" }), claims]
        .map(|part| BASE64_URL_SAFE_NO_PAD.encode(part.to_string()));
    format!("{header}.{claims}.AA")
}

/// Calls the MCP server with an ID token that expires at a time, and a refresh token if there is
/// one.
async fn call(
    world: &World,
    provider: &IdentityProvider,
    expires: Option<u64>,
    refresh_token: Option<&'static str>,
) -> Result<(), String> {
    let id_token = move |_, _| async move {
        let expires = expires.ok_or("the user is not logged in")?;
        Ok::<_, BoxError>(Secret::from(jwt(&json!({ "exp": expires })).as_str()))
    };
    let at_provider = ClientRegistration::public("at-provider");
    let client = OAuthClient::enterprise_managed(&provider.url, at_provider, id_token)
        .registered(world.issuer(), ClientRegistration::public("at-server"))
        .clock(|| NOW);
    let client = match refresh_token {
        None => client,
        Some(token) => {
            client.identity_refresh_token(move |_, _| async move { Ok(Secret::from(token)) })
        }
    };
    let outcome = world.call(&world.http(client.build().unwrap())).await;
    match outcome {
        Ok(status) => {
            assert_eq!(status, StatusCode::OK);
            Ok(())
        }
        Err(error) => match login_error(&error) {
            LoginError::TokenFailed { reason, .. } | LoginError::Driver { reason, .. } => {
                Err(reason.clone())
            }
            other => panic!("{other}"),
        },
    }
}

#[tokio::test]
async fn id_token_is_exchanged() {
    let world = World::start().await;
    let provider = IdentityProvider::start(world.issuer(), &[]).await;
    call(&world, &provider, Some(NOW + 1), Some("refresh")).await.unwrap();
    assert_eq!(provider.subjects(), [ID_TOKEN]);
    let form = &provider.forms.lock().unwrap()[0];
    assert_eq!(form["audience"], world.issuer());
    assert_eq!(form["resource"], world.mcp_url());
    assert_eq!(form["requested_token_type"], ID_JAG);
    let form = &world.forms("/token")[0];
    assert_eq!(form["grant_type"], "urn:ietf:params:oauth:grant-type:jwt-bearer");
    assert_eq!(form["assertion"], jwt(&json!({ "aud": world.issuer() })));
}

#[tokio::test]
async fn refresh_token_stands_in_for_an_id_token_that_expired_or_is_missing() {
    let world = World::start().await;
    for expires in [Some(NOW), Some(0), None] {
        let provider = IdentityProvider::start(world.issuer(), &[]).await;
        call(&world, &provider, expires, Some("refresh")).await.unwrap();
        assert_eq!(provider.subjects(), [REFRESH_TOKEN], "{expires:?}");
        let form = &provider.forms.lock().unwrap()[0];
        assert_eq!(form["subject_token"], "refresh");
        assert_eq!((&form["audience"], &form["resource"]), (&world.issuer(), &world.mcp_url()));
        assert_eq!((&*form["requested_token_type"], &*form["client_id"]), (ID_JAG, "at-provider"));
        assert_eq!(form["scope"], "booking:read");
    }
}

#[tokio::test]
async fn refresh_token_stands_in_for_an_id_token_that_is_refused() {
    let world = World::start().await;
    for refused in [&[(ID_TOKEN, "invalid_grant")], &[(ID_TOKEN, "invalid_request")]] {
        let provider = IdentityProvider::start(world.issuer(), refused).await;
        call(&world, &provider, Some(NOW + 1), Some("refresh")).await.unwrap();
        assert_eq!(provider.subjects(), [ID_TOKEN, REFRESH_TOKEN]);
    }
    // A refused policy stays refused.
    let provider = IdentityProvider::start(world.issuer(), &[(ID_TOKEN, "access_denied")]).await;
    let error = call(&world, &provider, Some(NOW + 1), Some("refresh")).await.unwrap_err();
    assert!(error.contains("access_denied"), "{error}");
    assert_eq!(provider.subjects(), [ID_TOKEN]);
}

#[tokio::test]
async fn exchange_fails_without_a_usable_subject() {
    let world = World::start().await;
    // The expired ID token is sent if there is nothing else: the identity provider decides.
    let refused = &[(ID_TOKEN, "invalid_grant"), (REFRESH_TOKEN, "invalid_grant")];
    let provider = IdentityProvider::start(world.issuer(), refused).await;
    let error = call(&world, &provider, Some(0), None).await.unwrap_err();
    assert!(error.contains("invalid_grant"), "{error}");
    let error = call(&world, &provider, Some(0), Some("refresh")).await.unwrap_err();
    assert!(error.contains("invalid_grant"), "{error}");
    assert_eq!(provider.subjects(), [ID_TOKEN, REFRESH_TOKEN]);
    let error = call(&world, &provider, None, None).await.unwrap_err();
    assert_eq!(error, "the user is not logged in");
    assert!(world.forms("/token").is_empty());
}
