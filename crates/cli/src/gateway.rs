//! A gateway in front of the servers of a configuration file.

use std::net::SocketAddr;
use std::process::ExitCode;
use std::time::Duration;

use futures_util::future::join_all;
use mrtr::gateway::Gateway;
use mrtr::http::ServeOptions;
use mrtr::schema::capabilities::Implementation;
use mrtr::{ClientSet, Connection, KeyRing, Server, ServerBuilder};
use tokio::net::TcpListener;
use tracing_subscriber::filter::LevelFilter;

use crate::failure::{Failure, Result};
use crate::options;
use crate::output;

/// How long a server that runs as a child process may take to exit, and again after `SIGTERM`.
const CHILD_TIMEOUT: Duration = Duration::from_secs(3);

/// The environment variable with the key ring of a gateway that listens.
const KEYS: &str = "MRTR_KEYS";

pub(crate) async fn run(options: &options::Gateway) -> Result<ExitCode> {
    tracing_subscriber::fmt()
        .with_writer(|| output::Log)
        .with_max_level(LevelFilter::WARN)
        .with_target(false)
        .with_ansi(false)
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
    let listener = match options.listen {
        Some(address) => Some(listen(address).await?),
        None => None,
    };
    let address = listener.as_ref().and_then(|listener| listener.local_addr().ok());
    let server = with_keys(server, address)?;
    let gateway = gateway.build(server).map_err(Failure::usage)?;
    let server = gateway.server().clone();
    let options = ServeOptions::default();
    let mut signal = Box::pin(mrtr::shutdown(server.clone(), options.readiness().clone()));
    let running = async {
        // Many clients list tools once, at the start.
        tokio::select! {
            biased;
            () = signal.as_mut() => return Ok(()),
            _ = gateway.refresh() => {}
        }
        let serving = async {
            let (Some(listener), Some(address)) = (listener, address) else {
                return mrtr::serve_stdio(server).await;
            };
            let count = set.iter().count();
            output::note(&format!("serving {count} servers at http://{address}/mcp"));
            mrtr::http::serve(listener, mrtr::endpoint(server)?, options, signal).await
        };
        tokio::select! {
            outcome = serving => outcome,
            () = gateway.run() => Ok(()),
        }
    };
    let outcome = running.await;
    // Dropped, they would be killed when this process exits.
    let children = set.iter().filter_map(|(_, client)| match client.transport() {
        Connection::Child(child) => Some(child.shutdown(CHILD_TIMEOUT)),
        _ => None,
    });
    join_all(children).await;
    outcome.map_err(|error| unavailable(&error))?;
    Ok(ExitCode::SUCCESS)
}

/// Listens on a loopback address.
async fn listen(address: SocketAddr) -> Result<TcpListener> {
    if !address.ip().is_loopback() {
        return Err(Failure::usage(format!(
            "{address} is not a loopback address: anyone who can reach it could use the credentials \
             of this gateway. To authenticate callers, write a server with the library mrtr-gateway"
        )));
    }
    let listener = TcpListener::bind(address).await;
    listener.map_err(|error| unavailable(&format_args!("cannot listen on {address}: {error}")))
}

fn unavailable(why: &dyn std::fmt::Display) -> Failure {
    Failure { code: 4, message: why.to_string() }
}

/// Adds the keys that seal paused calls: over HTTP the ring in [`KEYS`], if that is set; otherwise
/// a key that lasts as long as this process.
fn with_keys(server: ServerBuilder, address: Option<SocketAddr>) -> Result<ServerBuilder> {
    let Some(address) = address.filter(|_| std::env::var_os(KEYS).is_some()) else {
        return Ok(server.ephemeral_key());
    };
    let ring = KeyRing::from_env(format!("http://{address}/mcp"), KEYS).map_err(Failure::usage)?;
    Ok(server.key_ring(ring))
}
