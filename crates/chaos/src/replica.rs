//! One replica: a process that serves the tool, or a gateway to servers of it, reloads its key ring
//! on SIGHUP, and drains and ends on SIGTERM.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use http::{Request, header};
use mrtr::http::{Endpoint, HostPolicy, Readiness, RequestLimits, ServeOptions};
use mrtr::legacy::{LegacyOptions, LegacyServer};
use mrtr::{ChangeNotifier, KeyRing, Principal, Server, SharedKeyRing, Tool};
use schemars::JsonSchema;
use serde::Deserialize;
use tokio::net::TcpListener;
use tokio::runtime::Handle;
use tokio::signal::unix::{SignalKind, signal};
use tower_service::Service;

use crate::gateway;
use crate::ledger::Ledger;
use crate::workload::{self, Received};
use crate::{Result, value};

pub(crate) const AUDIENCE: &str = "https://orders.example/mcp";

pub(crate) async fn run(mut args: impl Iterator<Item = String>) -> Result {
    let (mut port, mut version, mut lifetime, mut notice) = (0_u16, 1_u32, 60_u64, 0_u64);
    let (mut ring, mut ledger) = (PathBuf::new(), PathBuf::new());
    let (mut upstreams, mut ignore_drain) = (Vec::new(), false);
    while let Some(arg) = args.next() {
        match arg.as_str() {
            "--port" => port = value(&arg, &mut args)?,
            "--version" => version = value(&arg, &mut args)?,
            "--lifetime" => lifetime = value(&arg, &mut args)?,
            "--notice-ms" => notice = value(&arg, &mut args)?,
            "--ring" => ring = value(&arg, &mut args)?,
            "--ledger" => ledger = value(&arg, &mut args)?,
            "--upstream" => upstreams.push(value(&arg, &mut args)?),
            "--ignore-drain" => ignore_drain = true,
            other => return Err(format!("a replica has no option {other:?}").into()),
        }
    }
    tracing_subscriber::fmt()
        .with_writer(std::io::stderr)
        .with_max_level(tracing_subscriber::filter::LevelFilter::WARN)
        .init();
    let shared = SharedKeyRing::new(KeyRing::from_file(AUDIENCE, &ring)?);
    let ledger = Arc::new(Ledger::open(&ledger)?);
    let server =
        Server::builder("orders", version.to_string()).require_principal().sealer(shared.clone());
    let server = if upstreams.is_empty() {
        let echo = async |_: mrtr::Context, said: Said| said.text;
        server
            .changes(ChangeNotifier::default())
            .tool(Tool::new("echo", "Returns its argument", echo))
            .tool(workload::tool(version, ledger, Duration::from_secs(lifetime)))
            .build()?
    } else {
        let gateway = gateway::build(server, &upstreams, &ledger).await?;
        let server = gateway.server().clone();
        tokio::spawn(async move { gateway.run().await });
        server
    };
    reload_on_hangup(shared, ring)?;
    let mut asked = signal(SignalKind::user_defined1())?;
    tokio::spawn(async move {
        while asked.recv().await.is_some() {
            let tasks = Handle::current().metrics().num_alive_tasks();
            println!("tasks {tasks} bytes {}", crate::ALLOCATOR.current_usage());
        }
    });
    if ignore_drain {
        // Simulates a service without a drain: the process ends at once.
        let mut terminate = signal(SignalKind::terminate())?;
        tokio::spawn(async move {
            terminate.recv().await;
            std::process::exit(0);
        });
    }
    let listener = TcpListener::bind(("127.0.0.1", port)).await?;
    let ready = Readiness::with_drain_delay(Duration::from_millis(notice));
    let end = announced(port, mrtr::shutdown(server.clone(), ready.clone()));
    let options = ServeOptions::default().with_readiness(ready);
    // Session ids are sealed with the same keys as states, and live no longer.
    // Calls whose client has moved to another replica end soon enough for their memory to be seen.
    let sessions = LegacyOptions::default()
        .with_session_lifetime(Duration::from_secs(lifetime))
        .with_resume_timeout(Duration::from_secs(10));
    let legacy = LegacyServer::new(server.clone(), server.sealer(), sessions)?;
    let endpoint = Endpoint::new(server.clone())
        .legacy(legacy)
        .host_policy(HostPolicy::loopback())
        .limits(RequestLimits::default());
    mrtr::http::serve(listener, Named::new(endpoint), options, end).await?;
    let _ = tokio::time::timeout(Duration::from_secs(10), server.drained()).await;
    Ok(())
}

/// Prints that the replica listens, once `end` waits for SIGTERM: the fleet may send it at once.
pub(crate) async fn announced(port: u16, end: impl Future<Output = ()>) {
    let announcement = async {
        println!("listening {port}");
        std::future::pending::<()>().await;
    };
    tokio::select! {
        biased;
        () = end => {}
        () = announcement => {}
    }
}

/// Replaces the key ring whenever the process gets SIGHUP.
pub(crate) fn reload_on_hangup(shared: SharedKeyRing, ring: PathBuf) -> Result {
    let mut hangup = signal(SignalKind::hangup())?;
    tokio::spawn(async move {
        while hangup.recv().await.is_some() {
            let replaced = KeyRing::from_file(AUDIENCE, &ring)
                .map_err(|error| error.to_string())
                .and_then(|ring| shared.rotate(ring).map_err(|error| error.to_string()));
            // The fleet waits for this line.
            println!(
                "{}",
                replaced.map_or_else(
                    |why| format!("cannot replace the key ring: {why}"),
                    |()| "ring".to_owned()
                )
            );
        }
    });
    Ok(())
}

#[derive(Deserialize, JsonSchema)]
struct Said {
    text: String,
}

/// A layer that trusts the bearer token to name the caller, and numbers requests. The test covers
/// what comes after authentication.
#[derive(Clone)]
pub(crate) struct Named<S> {
    inner: S,
    received: Arc<AtomicU64>,
}

impl<S> Named<S> {
    pub(crate) fn new(inner: S) -> Self {
        Self { inner, received: Arc::default() }
    }
}

impl<S, B> Service<Request<B>> for Named<S>
where
    S: Service<Request<B>>,
{
    type Response = S::Response;
    type Error = S::Error;
    type Future = S::Future;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<std::result::Result<(), S::Error>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, mut request: Request<B>) -> S::Future {
        let token =
            request.headers().get(header::AUTHORIZATION).and_then(|value| value.to_str().ok());
        if let Some(caller) = token.and_then(|token| token.strip_prefix("Bearer ")) {
            let caller = caller.to_owned();
            let nth = self.received.fetch_add(1, Ordering::Relaxed);
            let number = format!("{}-{nth}", std::process::id());
            let principal = Principal::new("https://login.example", &caller);
            request.extensions_mut().insert(principal);
            request.extensions_mut().insert(Received { number, caller });
        }
        self.inner.call(request)
    }
}
