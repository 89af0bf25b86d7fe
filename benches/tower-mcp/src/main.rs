//! `tower-mcp-peer URL`: the proxy of tower-mcp in front of another server. Names stay as they are.

use tower_mcp::HttpTransport;
use tower_mcp::client::HttpClientTransport;
use tower_mcp::proxy::McpProxy;

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
    let url = std::env::args().nth(1).ok_or("usage: tower-mcp-peer URL")?;
    let builder = McpProxy::builder("proxy", "1.0.0").separator("");
    let builder = builder.backend_try("", HttpClientTransport::new(url)).await?;
    let app = HttpTransport::from_service(builder.build_strict().await?).into_router_at("/mcp");
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await?;
    println!("listening {}", listener.local_addr()?.port());
    axum::serve(listener, app).await?;
    Ok(())
}
