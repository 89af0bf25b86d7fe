//! The OAuth client of the scenarios `auth/*`: what the suite hands over, given to `mrtr-auth`.

use std::error::Error;

use mrtr::auth::client::{
    AuthorizationPage, CallbackReceiver, ClientRegistration, DriverFuture, OAuthClient, Secret,
    SigningKey, UserAgent,
};
use serde_json::Value;

const CLIENT_METADATA_URL: &str = "https://conformance-test.local/client-metadata.json";

/// Creates the client for a scenario.
pub(crate) fn client(scenario: &str) -> Result<OAuthClient, Box<dyn Error>> {
    let context = std::env::var("MCP_CONFORMANCE_CONTEXT").unwrap_or_default();
    let context: Value = serde_json::from_str(&context).unwrap_or_default();
    let text =
        |name: &str| context.get(name).and_then(Value::as_str).unwrap_or_default().to_owned();
    let with_secret = || ClientRegistration::with_secret(text("client_id"), text("client_secret"));
    let constant = |token: String| {
        move |_, _| {
            let token = Secret::from(token.as_str());
            async move { Ok(token) }
        }
    };
    let builder = match scenario {
        "auth/client-credentials-basic" => OAuthClient::client_credentials(with_secret()),
        "auth/client-credentials-jwt" => {
            let key =
                SigningKey::from_pkcs8_pem(&text("private_key_pem"), &text("signing_algorithm"))?;
            OAuthClient::client_credentials(ClientRegistration::with_key(text("client_id"), key))
        }
        "auth/wif-jwt-bearer" => OAuthClient::workload_identity(constant(text("valid_jwt"))),
        "auth/enterprise-managed-authorization" => OAuthClient::enterprise_managed(
            text("idp_token_endpoint"),
            ClientRegistration::public(text("idp_client_id")),
            constant(text("idp_id_token")),
        )
        .registered_anywhere(with_secret()),
        _ => OAuthClient::builder("conformance").client_metadata_url(CLIENT_METADATA_URL),
    };
    let builder = match scenario {
        "auth/pre-registration" => builder.registered(text("issuer"), with_secret()),
        _ => builder,
    };
    let revision = std::env::var("MCP_CONFORMANCE_PROTOCOL_VERSION").unwrap_or_default();
    let builder = builder.allow_origin_as_issuer(revision == "2025-03-26");
    Ok(builder.user_agent(AutomaticUser).build()?)
}

/// A user who consents at once: the authorization server of the suite has no pages, but redirects.
struct AutomaticUser;

impl UserAgent for AutomaticUser {
    fn prepare<'a>(&'a self, _: Option<&'a str>) -> DriverFuture<'a, Box<dyn CallbackReceiver>> {
        Box::pin(async { Ok(Box::new(Self) as Box<dyn CallbackReceiver>) })
    }
}

impl CallbackReceiver for AutomaticUser {
    fn redirect_uri(&self) -> &'static str {
        "http://127.0.0.1:3000/callback"
    }

    fn authorize(self: Box<Self>, page: AuthorizationPage) -> DriverFuture<'static, String> {
        Box::pin(async move {
            let browser = reqwest::Client::builder().redirect(reqwest::redirect::Policy::none());
            let response = browser.build()?.get(page.url().clone()).send().await?;
            let location = response.headers().get("location").ok_or("no redirect")?;
            Ok(location.to_str()?.to_owned())
        })
    }
}
