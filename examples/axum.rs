//! An axum server behind OAuth: bearer tokens, and metadata that names the authorization server.
//!
//! `TOKEN=token-of-alice cargo run --example client -- http://127.0.0.1:3000/mcp whoami` calls it.

use axum::extract::Request;
use axum::http::{HeaderMap, StatusCode, header};
use axum::middleware::{Next, from_fn};
use axum::response::{IntoResponse as _, Response};
use axum::routing::get;
use mrtr::http::Endpoint;
use mrtr::{BuildError, Extension, Principal, Server, Tool};
use serde_json::json;

const ISSUER: &str = "https://login.example";
const RESOURCE: &str = "http://127.0.0.1:3000/mcp";
const METADATA: &str = "/.well-known/oauth-protected-resource/mcp";
const SCOPE: &str = "booking:write";

/// What the caller may do: the layer inserts it, and handlers extract it.
#[derive(Clone)]
struct Scopes(&'static str);

/// Stands for a JWT library: returns subject, audience and scopes.
fn verify(token: &str) -> Option<(&'static str, &'static str, Scopes)> {
    match token {
        "token-of-alice" => Some(("alice", RESOURCE, Scopes("booking:read booking:write"))),
        "token-of-bob" => Some(("bob", RESOURCE, Scopes("booking:read"))),
        "token-for-another-server" => Some(("alice", "https://other.example/mcp", Scopes(SCOPE))),
        _ => None,
    }
}

fn bearer(headers: &HeaderMap) -> Option<&str> {
    headers.get(header::AUTHORIZATION)?.to_str().ok()?.strip_prefix("Bearer ")
}

async fn authenticate(mut request: Request, next: Next) -> Response {
    let Some(token) = bearer(request.headers()) else {
        return challenge(StatusCode::UNAUTHORIZED, "");
    };
    // With a token for another server, its operator could call in the caller's name.
    let Some((subject, RESOURCE, scopes)) = verify(token) else {
        return challenge(StatusCode::UNAUTHORIZED, r#"error="invalid_token", "#);
    };
    if !scopes.0.split(' ').any(|scope| scope == SCOPE) {
        return challenge(StatusCode::FORBIDDEN, r#"error="insufficient_scope", "#);
    }
    request.extensions_mut().insert(Principal::new(ISSUER, subject));
    request.extensions_mut().insert(scopes);
    next.run(request).await
}

/// Tells the client which scope it needs, and where the metadata is.
fn challenge(status: StatusCode, error: &str) -> Response {
    let place = RESOURCE.replace("/mcp", METADATA);
    let value = format!(r#"Bearer {error}scope="{SCOPE}", resource_metadata="{place}""#);
    (status, [(header::WWW_AUTHENTICATE, value)]).into_response()
}

async fn whoami(caller: Principal, Extension(scopes): Extension<Scopes>) -> String {
    format!("{} may {}", caller.subject(), scopes.0)
}

pub fn app() -> Result<axum::Router, BuildError> {
    let tool = Tool::new("whoami", "Names the caller", whoami);
    let server = Server::builder("booking", "1.0.0").tool(tool).require_principal().ephemeral_key();
    let endpoint = Endpoint::new(server.build()?);
    let metadata = json!({ "resource": RESOURCE, "authorization_servers": [ISSUER] });
    let metadata = ([(header::CONTENT_TYPE, "application/json")], metadata.to_string());
    // Not around the metadata: that is for clients without a token.
    let mcp = axum::Router::new().route_service("/mcp", endpoint).layer(from_fn(authenticate));
    Ok(mcp.route(METADATA, get(async || metadata)))
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    tracing_subscriber::fmt().init();
    let listener = tokio::net::TcpListener::bind("127.0.0.1:3000").await?;
    Ok(axum::serve(listener, app()?).await?)
}
