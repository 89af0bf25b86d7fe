//! MCP servers behind `mrtr-auth`, on one port: each has a path of its own, and is a resource of its
//! own.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, SystemTime};

use axum::http::header::WWW_AUTHENTICATE;
use mrtr::auth::GrantedScopes;
use mrtr::auth::client::OAuthClient;
use mrtr::auth::resource::{
    Dpop, IntrospectionIssuer, JwtIssuer, ProtectedResource, ProtectedResourceBuilder,
};
use mrtr::http::{HttpClient, HttpConnection};
use mrtr::{Client, ClientBuilder, Context, Extension, Principal, Server, State, Tool};
use schemars::JsonSchema;
use serde::Deserialize;
use tokio::net::TcpListener;

use crate::Result;
use crate::provider::Provider;

/// The paths whose tokens are JWTs, without further rules.
const PATHS: [&str; 7] =
    ["/mcp", "/other", "/peer", "/refresh", "/revocation", "/rotation", "/step-up"];

pub(crate) struct Servers {
    origin: String,
    /// The seconds by which the clocks of the resources are ahead, by path.
    ahead: Vec<(&'static str, Arc<AtomicU64>)>,
}

impl Servers {
    /// Serves in the background.
    pub(crate) fn start(listener: TcpListener, provider: &Provider) -> Result<Self> {
        let origin = format!("http://{}", listener.local_addr()?);
        let (mut ahead, mut app) = (Vec::new(), axum::Router::new());
        let jwt = || JwtIssuer::new(&*provider.issuer);
        let mut add = |path: &'static str,
                       rules: &dyn Fn(ProtectedResourceBuilder) -> ProtectedResourceBuilder|
         -> Result {
            let seconds = Arc::new(AtomicU64::new(0));
            ahead.push((path, Arc::clone(&seconds)));
            let clock =
                move || SystemTime::now() + Duration::from_secs(seconds.load(Ordering::Relaxed));
            let resource = ProtectedResource::builder(format!("{origin}{path}"))
                .scopes(["booking:read"])
                .scopes_supported(["booking:pay"])
                .clock(clock);
            let resource = rules(resource).build()?;
            let endpoint = mrtr::endpoint(server()?)?;
            app = std::mem::take(&mut app)
                .route_service(resource.metadata_path(), resource.metadata_service())
                .route_service(path, resource.protect(endpoint));
            Ok(())
        };
        for path in PATHS {
            add(path, &|resource| resource.issuer(jwt()))?;
        }
        let dpop = Dpop::required().with_nonces([7; 32]);
        add("/dpop", &|resource| resource.issuer(jwt()).dpop(dpop.clone()))?;
        let (id, secret) = ("booking", "secret of the resource");
        let introspection = IntrospectionIssuer::new(&*provider.issuer, id, secret);
        add("/opaque", &|resource| resource.issuer(introspection.clone()))?;
        tokio::spawn(async move { axum::serve(listener, app).await });
        Ok(Self { origin, ahead })
    }

    pub(crate) fn url(&self, path: &str) -> String {
        format!("{}{path}", self.origin)
    }

    /// Sets the clock of a resource forward.
    pub(crate) fn advance(&self, path: &str, seconds: u64) {
        for (_, ahead) in self.ahead.iter().filter(|(known, _)| *known == path) {
            ahead.fetch_add(seconds, Ordering::Relaxed);
        }
    }

    pub(crate) fn connect(
        &self,
        path: &str,
        client: &OAuthClient,
    ) -> Result<Client<HttpConnection>> {
        self.connect_with(path, client, |builder| builder)
    }

    pub(crate) fn connect_with(
        &self,
        path: &str,
        client: &OAuthClient,
        configure: impl FnOnce(ClientBuilder<HttpConnection>) -> ClientBuilder<HttpConnection>,
    ) -> Result<Client<HttpConnection>> {
        let http = HttpClient::builder(self.url(path)).credentials(client.clone()).build()?;
        Ok(configure(Client::builder(HttpConnection::new(http))).build())
    }

    /// Sends a request with a bearer token, and returns the status of its response and the
    /// challenge. Good tokens get a 4xx other than 401 and 403: the request has no body.
    pub(crate) async fn send(&self, path: &str, token: &str) -> Result<(u16, String)> {
        let request = reqwest::Client::new().post(self.url(path)).bearer_auth(token);
        let response = request.send().await?;
        let challenge = response.headers().get(WWW_AUTHENTICATE);
        let challenge = challenge.and_then(|value| value.to_str().ok()).unwrap_or_default();
        Ok((response.status().as_u16(), challenge.to_owned()))
    }
}

fn server() -> Result<Server> {
    Ok(Server::builder("booking", env!("CARGO_PKG_VERSION"))
        .tool(Tool::new("whoami", "Names the caller and its scopes", whoami))
        .tool(Tool::new("pay", "Needs `booking:pay`, too", whoami).requires_scope("booking:pay"))
        .tool(Tool::new("deposit", "Needs `booking:pay` after a question", deposit))
        .state(Arc::new(Effects::default()))
        .require_principal()
        .ephemeral_key()
        .build()?)
}

/// How often the steps of `deposit` ran.
#[derive(Default)]
struct Effects {
    holds: AtomicUsize,
    charges: AtomicUsize,
}

#[derive(Deserialize, JsonSchema)]
struct Consent {
    yes: bool,
}

async fn deposit(cx: Context, State(effects): State<Arc<Effects>>) -> mrtr::Result<String> {
    let run = |count: &AtomicUsize| count.fetch_add(1, Ordering::Relaxed) + 1;
    let holds = cx.step("hold", async |_| Ok(run(&effects.holds))).await?;
    let Consent { yes } = cx.elicit("deposit", "Pay a deposit of 20 €?").await?;
    if !yes {
        return Ok("not paid".to_owned());
    }
    cx.require_scope("booking:pay").await?;
    let charges = cx.step("charge", async |_| Ok(run(&effects.charges))).await?;
    Ok(format!("{holds} hold, {charges} charge"))
}

async fn whoami(caller: Principal, Extension(scopes): Extension<GrantedScopes>) -> String {
    format!("{} may {scopes}", caller.subject())
}
