//! One replica: a process that serves the tools, and runs due tasks.

use std::path::PathBuf;
use std::time::Duration;

use mrtr::http::{Endpoint, HostPolicy, Readiness, ServeOptions};
use mrtr::tasks::PostgresTaskStore;
use mrtr::{KeyRing, Server, SharedKeyRing};
use tokio::net::TcpListener;
use tokio_postgres::{Config, NoTls};

use super::link;
use super::record::Recorder;
use super::scenario::LEASE;
use super::workload;
use crate::ledger::Ledger;
use crate::replica::{AUDIENCE, Named, announced, reload_on_hangup};
use crate::{Result, value};

pub(crate) async fn run(mut args: impl Iterator<Item = String>) -> Result {
    let (mut port, mut version) = (0_u16, 1_u32);
    let (mut ring, mut ledger, mut sockets) = (PathBuf::new(), PathBuf::new(), PathBuf::new());
    while let Some(arg) = args.next() {
        match arg.as_str() {
            "--port" => port = value(&arg, &mut args)?,
            "--version" => version = value(&arg, &mut args)?,
            "--ring" => ring = value(&arg, &mut args)?,
            "--ledger" => ledger = value(&arg, &mut args)?,
            "--sockets" => sockets = value(&arg, &mut args)?,
            other => return Err(format!("a replica has no option {other:?}").into()),
        }
    }
    tracing_subscriber::fmt()
        .with_writer(std::io::stderr)
        .with_max_level(tracing_subscriber::filter::LevelFilter::WARN)
        .init();
    let shared = SharedKeyRing::new(KeyRing::from_file(AUDIENCE, &ring)?);
    let recorder = Recorder::new(Ledger::open(&ledger)?, port);
    recorder.watch_stalls()?;
    let config = Config::new()
        .host_path(link::folder(&sockets, port))
        .user("postgres")
        .dbname("postgres")
        .to_owned();
    let mut builder = Server::builder("orders", version.to_string())
        .require_principal()
        .sealer(shared.clone())
        .task_store(connect(config).await)
        .task_lease(LEASE);
    for tool in workload::tools(version, &recorder) {
        builder = builder.tool(tool);
    }
    let server = builder.build()?;
    reload_on_hangup(shared, ring)?;
    let listener = TcpListener::bind(("127.0.0.1", port)).await?;
    let ready = Readiness::default();
    let end = announced(port, mrtr::shutdown(server.clone(), ready.clone()));
    let options = ServeOptions::default().with_readiness(ready);
    let endpoint = Endpoint::new(server.clone()).host_policy(HostPolicy::loopback());
    let running = server.clone();
    tokio::spawn(async move { running.run_tasks().await });
    mrtr::http::serve(listener, Named::new(endpoint), options, end).await?;
    let _ = tokio::time::timeout(Duration::from_secs(10), server.drained()).await;
    Ok(())
}

/// Connects as soon as the store can be reached.
async fn connect(config: Config) -> PostgresTaskStore {
    loop {
        match PostgresTaskStore::connect(config.clone(), NoTls).await {
            Ok(store) => return store,
            Err(error) => eprintln!("no store yet: {error}"),
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}
