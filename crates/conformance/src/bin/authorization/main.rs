//! Tests of `mrtr-auth` against an authorization server that is not ours:
//! `authorization NODE FOLDER [--browser CHROMIUM] [--peer NAME PROGRAM CLIENT SERVER]… ROW…`, with a
//! Node.js, the installed folder `interop/authorization`, and the scripts of other SDKs.
//! `interop/README.md` describes the rows and the output.

mod client_rows;
mod peer_rows;
mod provider;
mod resource_rows;
mod servers;
mod user;

use std::error::Error;
use std::fmt::Debug;
use std::path::PathBuf;
use std::time::Duration;

use provider::Provider;
use servers::Servers;
use tokio::net::TcpListener;
use tokio::time::{Instant, timeout, timeout_at};

type Result<T = ()> = std::result::Result<T, Box<dyn Error>>;

/// The longest time for all rows.
const TIMEOUT: Duration = Duration::from_secs(100);
/// The longest time for a row.
const ROW_TIMEOUT: Duration = Duration::from_secs(20);
/// The longest time for a row with a browser, which has to start first.
const BROWSER_TIMEOUT: Duration = Duration::from_mins(1);

/// The parties, and the programs to start.
struct World {
    provider: Provider,
    servers: Servers,
    node: PathBuf,
    folder: PathBuf,
    browser: Option<PathBuf>,
    peers: Vec<Peer>,
    deadline: Instant,
}

/// Another SDK, with the scripts of its client and its server.
struct Peer {
    name: String,
    program: PathBuf,
    client: PathBuf,
    server: PathBuf,
}

#[tokio::main]
async fn main() -> Result {
    let filter = tracing_subscriber::EnvFilter::builder()
        .with_default_directive(tracing::Level::ERROR.into())
        .from_env_lossy();
    tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr).init();
    let usage = "usage: authorization NODE FOLDER [--browser CHROMIUM] \
                 [--peer NAME PROGRAM CLIENT SERVER]… ROW…";
    let mut args = std::env::args().skip(1).peekable();
    let (Some(node), Some(folder)) = (args.next(), args.next()) else { return Err(usage.into()) };
    let (node, folder) = (PathBuf::from(node), PathBuf::from(folder));
    let browser = args.next_if(|arg| arg == "--browser").and_then(|_| args.next());
    let browser = browser.map(PathBuf::from);
    let mut peers = Vec::new();
    while args.next_if(|arg| arg == "--peer").is_some() {
        let name = args.next().ok_or(usage)?;
        let mut path = || args.next().map(PathBuf::from).ok_or(usage);
        peers.push(Peer { name, program: path()?, client: path()?, server: path()? });
    }

    let deadline = Instant::now() + TIMEOUT;
    let provider = timeout(ROW_TIMEOUT, Provider::start(&node, &folder)).await;
    let provider = provider.map_err(|_| "the authorization server does not start")??;
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let servers = Servers::start(listener, &provider)?;
    let world = World { provider, servers, node, folder, browser, peers, deadline };
    for row in args {
        print_row(&row, world.run(&row).await);
    }
    Ok(())
}

impl World {
    async fn run(&self, row: &str) -> Result<&'static str> {
        if row == "login" && self.browser.is_none() {
            return Ok("left out: no browser");
        }
        let outcome = async {
            match row {
                "login" => self.login().await,
                "refresh" => self.refresh().await,
                "client credentials, basic" => self.client_credentials_basic().await,
                "client credentials, jwt" => self.client_credentials_jwt().await,
                "dpop" => self.dpop().await,
                "wrong audience" => self.wrong_audience().await,
                "revocation" => self.revocation().await,
                "introspection" => self.introspection().await,
                "step-up" => self.step_up().await,
                "step-up in a call" => self.step_up_in_a_call().await,
                "no login" => self.no_login().await,
                "key rotation" => self.key_rotation().await,
                _ => self.with_peer(row).await,
            }
        };
        let limit = if row == "login" { BROWSER_TIMEOUT } else { ROW_TIMEOUT };
        let deadline = self.deadline.min(Instant::now() + limit);
        timeout_at(deadline, outcome).await.map_err(|_| "not finished in time")??;
        Ok("ok")
    }
}

#[expect(clippy::print_stdout, reason = "the output of a program")]
fn print_row(name: &str, outcome: Result<&'static str>) {
    let outcome = outcome.map_or_else(|error| causes(&*error), str::to_owned);
    println!("{name}\t{}", outcome.replace('\n', " "));
}

/// Returns an error with its causes.
fn causes(error: &(dyn Error + 'static)) -> String {
    let (mut text, mut cause) = (error.to_string(), error.source());
    while let Some(error) = cause {
        text = format!("{text}: {error}");
        cause = error.source();
    }
    text
}

#[expect(clippy::needless_pass_by_value, reason = "shorter calls")]
fn expect<T: PartialEq + Debug>(what: &str, got: T, wanted: T) -> Result {
    if got == wanted { Ok(()) } else { Err(format!("{what}: {got:?}, expected {wanted:?}").into()) }
}
