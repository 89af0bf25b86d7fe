//! A gateway in front of the servers of a configuration file.

use std::io::IsTerminal as _;
use std::net::SocketAddr;
use std::process::ExitCode;

use mrtr::gateway::Gateway;
use mrtr::schema::capabilities::Implementation;
use mrtr::{ClientSet, KeyRing, Server, ServerBuilder};
use tracing_subscriber::filter::LevelFilter;

use crate::failure::{Failure, Result};
use crate::options;
use crate::output;

/// The environment variable with the key ring of a gateway that listens.
const KEYS: &str = "MRTR_KEYS";

pub(crate) async fn run(options: &options::Gateway) -> Result<ExitCode> {
    tracing_subscriber::fmt()
        .with_writer(std::io::stderr)
        .with_max_level(LevelFilter::WARN)
        .with_target(false)
        .with_ansi(std::io::stderr().is_terminal())
        .init();
    let file = options.file.display();
    let of_file = |error: &dyn std::fmt::Display| Failure::usage(format!("{file}: {error}"));
    let config = std::fs::read_to_string(&options.file).map_err(|error| of_file(&error))?;
    let info = || Implementation::new("mrtr-gateway", env!("CARGO_PKG_VERSION"));
    let set = ClientSet::from_json(&config, |_, client| client.info(info()));
    let set = set.map_err(|error| of_file(&error))?;
    let mut gateway = Gateway::builder();
    for (prefix, client) in set.iter() {
        gateway = gateway.upstream(prefix, client.clone());
    }
    let server = Server::builder("mrtr-gateway", env!("CARGO_PKG_VERSION")).allow_anonymous();
    let server = with_keys(server, options.listen)?;
    let gateway = gateway.build(server).map_err(Failure::usage)?;
    // Many clients list tools once, at the start.
    gateway.refresh().await;
    let server = gateway.server().clone();
    let serving = async {
        match options.listen {
            Some(address) => {
                let servers = set.iter().count();
                output::note(&format!("serving {servers} servers at http://{address}/mcp"));
                mrtr::serve(server, address).await
            }
            None => mrtr::serve_stdio(server).await,
        }
    };
    let served = tokio::select! {
        served = serving => served,
        () = gateway.run() => Ok(()),
    };
    served.map_err(|error| Failure { code: 4, message: error.to_string() })?;
    Ok(ExitCode::SUCCESS)
}

/// Adds the keys that seal paused calls. Without a ring in the environment they end with this
/// process, as do those of a process that serves its parent.
fn with_keys(server: ServerBuilder, listen: Option<SocketAddr>) -> Result<ServerBuilder> {
    let Some(address) = listen else { return Ok(server.ephemeral_key()) };
    if !address.ip().is_loopback() {
        return Err(Failure::usage(format!(
            "{address} is not a loopback address: anyone who can reach it could use the credentials \
             of this gateway. To authenticate callers, write a server with the library mrtr-gateway"
        )));
    }
    if std::env::var_os(KEYS).is_none() {
        return Ok(server.ephemeral_key());
    }
    let ring = KeyRing::from_env(format!("http://{address}/mcp"), KEYS).map_err(Failure::usage)?;
    Ok(server.key_ring(ring))
}
