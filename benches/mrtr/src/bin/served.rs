//! Served by our own `serve`.

use std::error::Error;

use mrtr::http::{Endpoint, RequestLimits, ServeOptions, serve};

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let server = mrtr_peer::server()?;
    if std::env::args().any(|arg| arg == "--stdio") {
        return Ok(mrtr::serve_stdio(server).await?);
    }
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await?;
    println!("listening {}", listener.local_addr()?.port());
    // As many as listen in the benchmark, and those that call beside them.
    let limits = RequestLimits { in_flight: 20_000, ..RequestLimits::default() };
    let options = ServeOptions { connections: 20_000, ..ServeOptions::default() };
    serve(listener, Endpoint::new(server).limits(limits), options, std::future::pending()).await?;
    Ok(())
}
