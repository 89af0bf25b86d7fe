//! A server behind OAuth 2.1: callers need an access token of an authorization server, and further
//! scopes for some tools.
//!
//! It needs an authorization server that issues JWTs (RFC 9068) with `aud` = `RESOURCE`.
//! `ISSUER=https://login.example RESOURCE=http://127.0.0.1:3000/mcp cargo run --example authentication`

use std::env;
use std::error::Error;

use mrtr::auth::GrantedScopes;
use mrtr::auth::resource::{JwtIssuer, ProtectedResource};
use mrtr::http::{HostPolicy, ServeOptions};
use mrtr::{Context, Extension, Principal, Result, Server, Tool};
use tokio::net::TcpListener;

async fn whoami(caller: Principal, Extension(scopes): Extension<GrantedScopes>) -> String {
    format!("{} may {scopes}", caller.subject())
}

#[derive(serde::Deserialize, schemars::JsonSchema)]
struct Seat {
    deposit: bool,
}

async fn book(cx: Context) -> Result<String> {
    let Seat { deposit } = cx.elicit("seat", "Pay a deposit, and get the window seat?").await?;
    if deposit {
        // The client logs in for it if its token is not enough. Then the call continues here.
        cx.require_scope("booking:pay").await?;
    }
    Ok(if deposit { "By the window." } else { "By the door." }.to_owned())
}

/// `url` is what clients connect to, and what their tokens must name as audience.
pub async fn serve(on: TcpListener, url: &str, issuer: JwtIssuer) -> Result<(), Box<dyn Error>> {
    let resource = ProtectedResource::builder(url)
        .issuer(issuer)
        .scopes(["booking:read"]) // for any request
        .scopes_supported(["booking:write", "booking:pay"]) // for some
        .implies("booking:write", "booking:read")
        .build()?;
    let server = Server::builder("booking", "1.0.0").require_principal().ephemeral_key();
    let server = server
        .tool(Tool::new("whoami", "Names the caller", whoami))
        .tool(Tool::new("book", "Books a seat", book).requires_scope("booking:write"))
        .build()?;
    // The public name of the server. Requests for other hosts are rejected.
    let hosts = HostPolicy::loopback().allow_host(resource.id().host());
    let service = resource.protect(mrtr::endpoint(server.clone())?.host_policy(hosts));
    // Clients without a token read the metadata, which names the authorization server.
    let options = ServeOptions::default().with_metadata_path(resource.metadata_path());
    let end = mrtr::shutdown(server, options.readiness().clone());
    Ok(mrtr::http::serve(on, service, options, end).await?)
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    tracing_subscriber::fmt().init();
    let listener = TcpListener::bind("127.0.0.1:3000").await?;
    serve(listener, &env::var("RESOURCE")?, JwtIssuer::new(env::var("ISSUER")?)).await
}
