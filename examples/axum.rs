//! A server inside an axum application, whose callers have API keys.
//!
//! `TOKEN=key-of-alice cargo run --example client -- http://127.0.0.1:3000/mcp whoami` calls it. For
//! OAuth, see the example `authentication`.

use axum::extract::Request;
use axum::http::{StatusCode, header};
use axum::middleware::{Next, from_fn};
use axum::response::{IntoResponse as _, Response};
use axum::routing::get;
use mrtr::{Principal, Server, Tool};

/// Stands for a table of the application.
fn owner_of(key: &str) -> Option<&'static str> {
    match key {
        "key-of-alice" => Some("alice"),
        "key-of-bob" => Some("bob"),
        _ => None,
    }
}

/// Inserts the principal, which a request state is bound to.
async fn authenticate(mut request: Request, next: Next) -> Response {
    let header = request.headers().get(header::AUTHORIZATION).and_then(|value| value.to_str().ok());
    let Some(owner) = header.and_then(|value| value.strip_prefix("Bearer ")).and_then(owner_of)
    else {
        return StatusCode::UNAUTHORIZED.into_response();
    };
    request.extensions_mut().insert(Principal::new("booking", owner));
    next.run(request).await
}

async fn whoami(caller: Principal) -> String {
    caller.subject().to_owned()
}

pub fn app() -> Result<axum::Router, Box<dyn std::error::Error>> {
    let tool = Tool::new("whoami", "Names the caller", whoami);
    let server = Server::builder("booking", "1.0.0").tool(tool).require_principal().ephemeral_key();
    let mcp = axum::Router::new()
        .route_service("/mcp", mrtr::endpoint(server.build()?)?)
        .layer(from_fn(authenticate));
    // The other pages of the application have no part in it.
    Ok(mcp.route("/", get(async || "Booking")))
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    tracing_subscriber::fmt().init();
    let listener = tokio::net::TcpListener::bind("127.0.0.1:3000").await?;
    Ok(axum::serve(listener, app()?).await?)
}
