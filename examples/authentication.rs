//! A server behind OAuth 2.1: callers need an access token of an authorization server.
//!
//! `ISSUER=https://login.example RESOURCE=http://127.0.0.1:3000/mcp cargo run --example authentication`

use std::env;
use std::error::Error;

use mrtr::auth::GrantedScopes;
use mrtr::auth::resource::{JwtIssuer, ProtectedResource};
use mrtr::http::HostPolicy;
use mrtr::{Extension, Principal, Server, Tool};

async fn whoami(caller: Principal, Extension(scopes): Extension<GrantedScopes>) -> String {
    format!("{} may {scopes}", caller.subject())
}

/// `url` is what clients connect to, and what their tokens must name as audience.
pub fn app(
    url: &str,
    issuer: JwtIssuer,
    hosts: HostPolicy,
) -> Result<axum::Router, Box<dyn Error>> {
    let resource = ProtectedResource::builder(url)
        .issuer(issuer)
        .scopes(["booking:read"]) // for any request
        .scopes_supported(["booking:write"]) // for some
        .implies("booking:write", "booking:read")
        .build()?;
    let tool = Tool::new("whoami", "Names the caller", whoami);
    let server = Server::builder("booking", "1.0.0").tool(tool).require_principal().ephemeral_key();
    let endpoint = mrtr::endpoint(server.build()?)?.host_policy(hosts);
    // The metadata is for clients without a token: it names the authorization server.
    Ok(axum::Router::new()
        .route_service(resource.metadata_path(), resource.metadata_service())
        .route_service("/mcp", resource.protect(endpoint)))
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    tracing_subscriber::fmt().init();
    let issuer = JwtIssuer::new(env::var("ISSUER")?);
    let hosts = env::var("HOST").map_or(HostPolicy::loopback(), |host| {
        HostPolicy::loopback().allow_host(host) // behind a reverse proxy: its public name
    });
    let app = app(&env::var("RESOURCE")?, issuer, hosts)?;
    let listener = tokio::net::TcpListener::bind("127.0.0.1:3000").await?;
    Ok(axum::serve(listener, app).await?)
}
