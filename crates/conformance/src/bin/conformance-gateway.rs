//! A gateway that the official conformance suite calls: `/mcp` on the loopback port in `PORT`, in
//! front of the server at the URL in `UPSTREAM`. Names stay those of the upstream.

use mrtr::Server;
use mrtr::gateway::Gateway;
use mrtr::http::ServeOptions;
use tokio::net::TcpListener;

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let filter = tracing_subscriber::EnvFilter::from_default_env();
    tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr).init();
    let port: u16 =
        std::env::var("PORT").map_err(|_| "set PORT to the port to listen on")?.parse()?;
    let upstream = std::env::var("UPSTREAM").map_err(|_| "set UPSTREAM to the URL of a server")?;
    let server = Server::builder("gateway", "1.0.0").allow_anonymous().ephemeral_key();
    let client = mrtr::connect(&upstream)?.build();
    let gateway = Gateway::builder().upstream("", client).build(server)?;
    gateway.refresh().await;
    let listener = TcpListener::bind(("127.0.0.1", port)).await?;
    let options = ServeOptions::default();
    let server = gateway.server().clone();
    let end = mrtr::shutdown(server.clone(), options.readiness().clone());
    tokio::select! {
        ended = mrtr::http::serve(listener, mrtr::endpoint(server)?, options, end) => ended?,
        () = gateway.run() => {}
    }
    Ok(())
}
