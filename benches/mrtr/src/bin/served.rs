//! The tools, served by our own `serve`.

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
    // Enough for the benchmark's listeners, and for the callers beside them.
    let limits = RequestLimits::default().with_max_in_flight(20_000);
    let options = ServeOptions::default().with_max_connections(20_000);
    serve(listener, Endpoint::new(server).limits(limits), options, std::future::pending()).await?;
    Ok(())
}
