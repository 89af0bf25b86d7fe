//! The tools, mounted in an axum router.

use std::error::Error;

use axum::serve::ListenerExt as _;
use mrtr::http::Endpoint;

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let app = axum::Router::new().route_service("/mcp", Endpoint::new(mrtr_peer::server()?));
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await?;
    println!("listening {}", listener.local_addr()?.port());
    let listener = listener.tap_io(|stream| {
        let _ = stream.set_nodelay(true);
    });
    axum::serve(listener, app).await?;
    Ok(())
}
