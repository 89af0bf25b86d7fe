//! `gateway-peer URL…`: a gateway in front of these servers. Names of the first stay as they are.

use std::error::Error;

use mrtr::Server;
use mrtr::gateway::Gateway;
use mrtr::http::{Endpoint, ServeOptions, serve};

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let mut gateway = Gateway::builder();
    for (n, url) in std::env::args().skip(1).enumerate() {
        let prefix = if n == 0 { String::new() } else { format!("u{n}") };
        gateway = gateway.upstream(prefix, mrtr::connect(&url)?.build());
    }
    let server = Server::builder("gateway", "1.0.0").allow_anonymous().ephemeral_key();
    let gateway = gateway.build(server)?;
    gateway.refresh().await;
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await?;
    println!("listening {}", listener.local_addr()?.port());
    let endpoint = Endpoint::new(gateway.server().clone());
    let serving = serve(listener, endpoint, ServeOptions::default(), std::future::pending());
    tokio::select! {
        ended = serving => ended?,
        () = gateway.run() => {}
    }
    Ok(())
}
